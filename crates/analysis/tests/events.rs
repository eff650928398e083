//! Events with their visible stacks, and functions that are left out at the root.

use heaptide_analysis::events::{Change, Event, events};
use heaptide_analysis::{Session, load, stacks_with_index};
use heaptide_capture::{Allocator, Capture, Header};
use heaptide_testkit::{capture_bytes, header};

fn opened(header: &Header, script: &str) -> Capture {
    Capture::from_bytes(capture_bytes(header, script)).expect("a capture")
}

fn listed(header: &Header, script: &str) -> Vec<Event> {
    let session = load(vec![opened(header, script)], &mut |_| {});
    let (_, index) = stacks_with_index(&session);
    let mut found = Vec::new();
    let result: Result<(), ()> = events(
        &opened(header, script),
        &session.processes[0],
        &index[0],
        &mut |event| {
            found.push(event);
            Ok(())
        },
    );
    result.expect("the sink accepts every event");
    found
}

/// The functions of each site, outermost first.
fn stacks(session: &Session) -> Vec<Vec<String>> {
    let (model, _) = stacks_with_index(session);
    let sites = model.processes[0].sites.iter();
    let stack = |mut at: Option<usize>| {
        let mut names = Vec::new();
        while let Some(node) = at.map(|at| model.stacks[at]) {
            names.push(model.locations[node.location].function.to_string());
            at = node.parent;
        }
        names.reverse();
        names
    };
    sites.map(|site| stack(site.stack)).collect()
}

#[test]
fn free_that_did_not_happen_is_left_out() {
    let script = "alloc x 64 at main:3 > load:7; alloc y 32; free x; refuse; \
                  thread 2 worker; alloc z 16 at main:3; free x; time 2000; free y";
    let found = listed(&header(), script);
    let sizes = found.iter().map(|event| match event.change {
        Change::Alloc { size, .. } => Some(size),
        _ => None,
    });
    let sizes: Vec<Option<u64>> = sizes.collect();
    assert_eq!(sizes, [Some(64), Some(32), Some(16), None, None]);
    assert_eq!(found[3].address, found[0].address);
    assert_eq!(found[3].stream, found[2].stream);
    assert!(found[4].elapsed_ns >= 1_900_000 && found[3].elapsed_ns < 1_000_000);
    let Change::Alloc {
        allocator, stack, ..
    } = found[0].change
    else {
        panic!("{found:?}");
    };
    assert_eq!(allocator, Allocator::Malloc);
    assert!(stack.is_some());
}

#[test]
fn functions_outside_the_tracker_are_hidden_unless_they_allocate_themselves() {
    let header = Header {
        outer_functions: vec![
            "1\tmain\t/srv/job/job.py".into(),
            "1\tcaller\t/srv/job/job.py".into(),
        ],
        ..header()
    };
    let script = "alloc a 1 at main > caller > entered > load; alloc b 2 at main > caller > entered; \
                  alloc c 4 at main > other; alloc d 8 at main > caller; thread 2 worker; alloc e 16 at run > caller";
    let session = load(vec![opened(&header, script)], &mut |_| {});
    let expected: [&[&str]; 5] = [
        &["entered", "load"],
        &["entered"],
        &["other"],
        &["main", "caller"],
        &["run", "caller"],
    ];
    assert_eq!(stacks(&session), expected);
}
