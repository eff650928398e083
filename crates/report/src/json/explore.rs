//! The data of the page about a heap: columns, so that they pack well. `docs/reference/page-data.md` says what is where.

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::diff::HeapDiff;
use heaptide_analysis::heap::explore::Exploration;
use rustc_hash::FxHashMap;

use super::Json;
use crate::shell::command_line;
use crate::text::heap as words;
use crate::units;

/// All that the page knows.
pub fn explore(heap: &Heap, diff: Option<&HeapDiff>, found: &Exploration, file: &str) -> Json {
    Json::Object(vec![
        ("head", head(heap, diff, found, file)),
        ("kinds", kinds(found, diff)),
        ("objects", objects(heap, found)),
        ("stacks", stacks(heap, found)),
    ])
}

fn head(heap: &Heap, diff: Option<&HeapDiff>, found: &Exploration, file: &str) -> Json {
    let header = &heap.snapshot.header;
    let version = header.python_version;
    let python = format!(
        "{}.{}.{}",
        version >> 24,
        version >> 16 & 255,
        version >> 8 & 255
    );
    let unreachable = heap.unreachable();
    let notes = header.notes.iter().map(|note| note.as_str().into());
    let suspects = found.suspects.suspects.iter().zip(&found.suspect_places);
    let suspects = suspects.map(|(suspect, &place)| {
        let evidence = words::evidence(heap, suspect).into_iter().map(Json::from);
        Json::Object(vec![
            (
                "what",
                words::headline(heap, &found.suspects, suspect).into(),
            ),
            ("evidence", evidence.collect()),
            ("advice", words::advice(suspect).into()),
            ("bytes", suspect.bytes.into()),
            ("object", place.into()),
        ])
    });
    let mut members = vec![
        ("format", 1u64.into()),
        ("file", file.into()),
        ("command_line", command_line(&header.command).into()),
        ("pid", header.pid.into()),
        ("host", header.host.as_str().into()),
        ("python", python.into()),
        ("taken", units::timestamp(header.taken_unix_ns).into()),
        ("stood_still_ns", header.stood_still_ns.into()),
        ("count", (heap.n_objects() as u64).into()),
        ("bytes", heap.snapshot.total_bytes().into()),
        ("unreachable_count", (unreachable.len() as u64).into()),
        ("unreachable_bytes", heap.bytes_of(&unreachable).into()),
        ("has_stacks", heap.stacks().is_some().into()),
        ("warnings", notes.collect()),
        ("suspects", suspects.collect()),
        (
            "tops",
            found.tops.iter().map(|&top| Json::from(top)).collect(),
        ),
        ("num_tops", (found.n_tops as u64).into()),
    ];
    if let Some(diff) = diff {
        members.push((
            "before",
            Json::Object(vec![
                ("count", diff.before.count.into()),
                ("bytes", diff.before.bytes.into()),
                ("same_process", diff.is_same_process.into()),
                ("num_new", (diff.new.len() as u64).into()),
                ("num_gone", (diff.gone.len() as u64).into()),
            ]),
        ));
    }
    Json::Object(members)
}

fn kinds(found: &Exploration, diff: Option<&HeapDiff>) -> Json {
    let changes: FxHashMap<&str, usize> = diff
        .into_iter()
        .flat_map(|diff| diff.rows.iter().enumerate())
        .map(|(at, row)| (row.label.as_str(), at))
        .collect();
    let mut gone = Vec::new();
    let rows = found.kinds.iter().map(|kind| {
        let mut members = vec![
            ("label", kind.row.label.as_str().into()),
            ("count", kind.row.count.into()),
            ("bytes", kind.row.bytes.into()),
            ("retained", kind.row.retained.into()),
            (
                "objects",
                kind.objects.iter().map(|&one| Json::from(one)).collect(),
            ),
        ];
        if let Some(diff) = diff {
            let change = changes.get(kind.row.label.as_str());
            let change = change.map(|&at| &diff.rows[at]);
            let (count, bytes) = match change {
                Some(change) => (change.before.count, change.before.bytes),
                // What did not change was the same before.
                None => (kind.row.count, kind.row.bytes),
            };
            members.push(("before_count", count.into()));
            members.push(("before_bytes", bytes.into()));
            members.push(("new", change.map_or(0, |change| change.new.count).into()));
            members.push(("gone", change.map_or(0, |change| change.gone.count).into()));
        }
        Json::Object(members)
    });
    let mut rows: Vec<Json> = rows.collect();
    for change in diff.into_iter().flat_map(|diff| &diff.rows) {
        if change.after.count == 0 {
            gone.push(Json::Object(vec![
                ("label", change.label.as_str().into()),
                ("count", 0u64.into()),
                ("bytes", 0u64.into()),
                ("retained", 0u64.into()),
                ("objects", Json::Array(Vec::new())),
                ("before_count", change.before.count.into()),
                ("before_bytes", change.before.bytes.into()),
                ("new", 0u64.into()),
                ("gone", change.gone.count.into()),
            ]));
        }
    }
    rows.append(&mut gone);
    Json::Array(rows)
}

fn objects(heap: &Heap, found: &Exploration) -> Json {
    let shown = &found.objects;
    let column = |make: &dyn Fn(usize) -> Json| (0..shown.len()).map(make).collect::<Json>();
    let kinds: FxHashMap<&str, u32> = found
        .kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| (kind.row.label.as_str(), at as u32))
        .collect();
    let number = |place: Option<u32>| Json::Signed(place.map_or(-1, i64::from));
    let stacks = heap.stacks();
    Json::Object(vec![
        (
            "kind",
            column(&|at| {
                let kind = heap.kind(shown[at].object);
                kinds.get(kind).copied().unwrap_or(0).into()
            }),
        ),
        (
            "address",
            column(&|at| heap.address(shown[at].object).into()),
        ),
        ("name", column(&|at| name(heap, shown[at].object).into())),
        ("bytes", column(&|at| heap.bytes(shown[at].object).into())),
        (
            "retained",
            column(&|at| heap.retained()[shown[at].object as usize].into()),
        ),
        ("dominator", column(&|at| number(shown[at].dominator))),
        ("children", column(&|at| shown[at].n_children.into())),
        ("before", column(&|at| number(shown[at].before))),
        ("via", column(&|at| shown[at].via.as_str().into())),
        ("num_referrers", column(&|at| shown[at].n_referrers.into())),
        (
            "referrers",
            column(&|at| {
                let pairs = shown[at].referrers.iter();
                pairs
                    .flat_map(|(from, text)| [Json::from(*from), text.as_str().into()])
                    .collect()
            }),
        ),
        ("is_new", column(&|at| u32::from(shown[at].is_new).into())),
        (
            "is_reachable",
            column(&|at| u32::from(shown[at].is_reachable).into()),
        ),
        (
            "stack",
            column(&|at| {
                let of = stacks.and_then(|all| all.of_objects.get(shown[at].object as usize));
                of.copied().unwrap_or(0).into()
            }),
        ),
    ])
}

/// What tells an object from others, without its address, which stands beside it.
fn name(heap: &Heap, object: u32) -> String {
    if let Some(name) = heap.own_name(object) {
        return name;
    }
    if let Some(value) = heap.snapshot.value_of(object) {
        return value.to_owned();
    }
    match heap.n_items(object) {
        Some(1) => "1 item".to_owned(),
        Some(n_items) => format!("{n_items} items"),
        None => String::new(),
    }
}

/// The stacks of objects in the page, by number.
fn stacks(heap: &Heap, found: &Exploration) -> Json {
    let Some(stacks) = heap.stacks() else {
        return Json::Array(Vec::new());
    };
    let mut used: Vec<u32> = found
        .objects
        .iter()
        .filter_map(|shown| stacks.of_objects.get(shown.object as usize).copied())
        .filter(|&stack| stack != 0)
        .collect();
    used.sort_unstable();
    used.dedup();
    let used = used.into_iter().map(|number| {
        let frames = stacks.stacks.get(number as usize).into_iter().flatten();
        let frames = frames.filter_map(|&frame| stacks.frames.get(frame as usize));
        let frames = frames.map(|frame| {
            Json::Object(vec![
                ("function", frame.function.as_str().into()),
                ("file", frame.file.as_str().into()),
                ("line", frame.line.into()),
            ])
        });
        Json::Object(vec![
            ("number", number.into()),
            ("frames", frames.collect()),
        ])
    });
    used.collect()
}
