//! Compares the sums of jobs with those of a plain model, also after checkpoints.

use std::collections::HashMap;
use std::sync::Arc;

use super::tests::chunk;
use super::*;
use crate::jobs::JobKey;
use heaptide_capture::JobMark;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// The thread works for this job from now on; 0 is none.
    Mark(u32),
    Alloc {
        slot: u64,
        size: u64,
        node: u32,
    },
    Free {
        slot: u64,
    },
    End(u32),
}

fn step(action: OpAction, address: u64, size: u64) -> Op {
    Op {
        address,
        size,
        node: 0,
        action,
        allocator: match action {
            OpAction::Alloc => Allocator::Malloc as u8,
            _ => 0,
        },
    }
}

fn address(slot: u64) -> u64 {
    0x7f00_0000_0000 + slot * 4096
}

/// The actions as one chunk. The name of job `n` is number `n % 7 + 10`.
fn chunk_of(actions: &[Action]) -> DecodedChunk {
    let mut ops = Vec::new();
    let mut jobs: Vec<JobMark> = Vec::new();
    for action in actions {
        match *action {
            Action::Mark(job) => {
                let first_op = ops.len() as u32;
                jobs.retain(|mark| mark.first_op != first_op);
                jobs.push(JobMark {
                    job,
                    name: if job == 0 { 0 } else { job % 7 + 10 },
                    first_op,
                });
            }
            Action::Alloc { slot, size, node } => ops.push(Op {
                node,
                ..step(OpAction::Alloc, address(slot), size)
            }),
            Action::Free { slot } => ops.push(step(OpAction::Free, address(slot), 0)),
            Action::End(job) => ops.push(step(OpAction::JobEnd, job.into(), 0)),
        }
    }
    let mut decoded = chunk(1, ops);
    decoded.jobs = jobs;
    decoded
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Expected {
    total: u64,
    live: u64,
    peak: u64,
    at_end: Option<u64>,
}

/// The plain model.
fn expected(actions: &[Action]) -> HashMap<u32, Expected> {
    let mut jobs: HashMap<u32, Expected> = HashMap::new();
    let mut blocks: HashMap<u64, (u32, u64)> = HashMap::new();
    let mut current = 0;
    let release = |jobs: &mut HashMap<u32, Expected>, block: Option<(u32, u64)>| {
        if let Some((job, size)) = block.filter(|(job, _)| *job != 0) {
            jobs.entry(job).or_default().live -= size;
        }
    };
    for action in actions {
        match *action {
            Action::Mark(job) => current = job,
            Action::Alloc { slot, size, .. } => {
                let has_ended = jobs.get(&current).is_some_and(|job| job.at_end.is_some());
                let owner = if has_ended { 0 } else { current };
                let before = blocks.insert(slot, (owner, size));
                release(&mut jobs, before);
                if owner != 0 {
                    let job = jobs.entry(owner).or_default();
                    job.total += size;
                    job.live += size;
                    job.peak = job.peak.max(job.live);
                }
            }
            Action::Free { slot } => {
                let block = blocks.remove(&slot);
                release(&mut jobs, block);
            }
            Action::End(number) if number != 0 => {
                let job = jobs.entry(number).or_default();
                job.at_end = job.at_end.or(Some(job.live));
            }
            Action::End(_) => {}
        }
    }
    jobs
}

fn sums_by_job(sums: &Sums) -> HashMap<u32, Expected> {
    let jobs = sums.jobs.iter();
    let each = jobs.map(|job| {
        let numbers = Expected {
            total: job.total.bytes,
            live: job.live.bytes,
            peak: job.peak.bytes,
            at_end: job.at_end.map(|amount| amount.bytes),
        };
        (job.number, numbers)
    });
    each.collect()
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (0u32..5).prop_map(Action::Mark),
        6 => (0u64..12, 1u64..100, 0u32..3).prop_map(|(slot, size, node)| Action::Alloc { slot, size, node }),
        4 => (0u64..12).prop_map(|slot| Action::Free { slot }),
        1 => (0u32..5).prop_map(Action::End),
    ]
}

fn tally_of_jobs() -> Tally {
    let mut tally = Tally::new(0);
    tally.keep_jobs();
    tally
}

proptest! {
    #[test]
    fn each_job_has_the_sums_of_the_plain_model(actions in prop::collection::vec(any_action(), 0..200)) {
        let decoded = chunk_of(&actions);
        let mut tally = tally_of_jobs();
        tally.apply(&decoded, 0..decoded.ops.len());
        let sums = tally.finish();
        let mut known = sums_by_job(&sums);
        let mut wanted = expected(&actions);
        // A job that only appears in marks has no sums.
        known.retain(|_, job| *job != Expected::default());
        wanted.retain(|_, job| *job != Expected::default());
        prop_assert_eq!(known, wanted);
        for job in sums.jobs.iter() {
            let bytes: u64 = job.peak_sites.iter().map(|site| site.bytes).sum();
            // The test has three stacks, and three sites are kept.
            prop_assert_eq!(bytes, job.peak.bytes);
        }
    }

    #[test]
    fn several_passes_over_the_jobs_give_the_same_sums_as_one_pass(
        actions in prop::collection::vec(any_action(), 0..200),
        last in 0u32..6,
    ) {
        let decoded = chunk_of(&actions);
        let pass = |jobs: JobDetail| {
            let mut tally = Tally::new(0);
            tally.configure(TallyOptions { jobs, ..TallyOptions::default() });
            tally.apply(&decoded, 0..decoded.ops.len());
            tally.finish()
        };
        let whole = pass(JobDetail::Each);
        let (first, second) = (pass(JobDetail::Between(0..=last)), pass(JobDetail::Between(last + 1..=u32::MAX)));
        prop_assert!(sums_by_job(&first).keys().all(|&number| number <= last));
        prop_assert_eq!((whole.total, whole.live, whole.peak), (first.total, first.live, first.peak));
        let mut parts = sums_by_job(&first);
        parts.extend(sums_by_job(&second));
        prop_assert_eq!(sums_by_job(&whole), parts);
    }

    #[test]
    fn sums_of_jobs_change_neither_totals_nor_the_peak(actions in prop::collection::vec(any_action(), 0..200)) {
        let decoded = chunk_of(&actions);
        let mut plain = Tally::new(0);
        plain.apply(&decoded, 0..decoded.ops.len());
        let mut each = tally_of_jobs();
        each.apply(&decoded, 0..decoded.ops.len());
        let (plain, each) = (plain.finish(), each.finish());
        prop_assert_eq!((plain.total, plain.live, plain.peak), (each.total, each.live, each.peak));
        prop_assert_eq!(plain.n_events, each.n_events);
    }

    #[test]
    fn checkpoint_keeps_the_sums_of_jobs(actions in prop::collection::vec(any_action(), 0..200), cut in 0usize..200) {
        let decoded = chunk_of(&actions);
        let cut = cut.min(decoded.ops.len());
        let mut whole = tally_of_jobs();
        whole.apply(&decoded, 0..decoded.ops.len());
        let mut first = tally_of_jobs();
        first.apply(&decoded, 0..cut);
        let mut second = Tally::from_bytes(&first.to_bytes(true)).expect("it was just written");
        second.keep_jobs();
        second.apply(&decoded, cut..decoded.ops.len());
        let (whole, parts) = (whole.finish(), second.finish());
        prop_assert_eq!(sums_by_job(&whole), sums_by_job(&parts));
        prop_assert_eq!((whole.total, whole.live, whole.peak), (parts.total, parts.live, parts.peak));
    }

    #[test]
    fn changed_checkpoint_is_read_or_refused_without_panic(
        actions in prop::collection::vec(any_action(), 1..60),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let decoded = chunk_of(&actions);
        let mut tally = tally_of_jobs();
        tally.apply(&decoded, 0..decoded.ops.len());
        let mut bytes = tally.to_bytes(true);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(mut tally) = Tally::from_bytes(&bytes) {
            tally.keep_jobs();
            tally.apply(&decoded, 0..decoded.ops.len());
            drop(tally.finish());
        }
    }
}

#[test]
fn sites_are_divided_by_job_name_or_by_chosen_jobs() {
    let actions = [
        Action::Mark(1),
        Action::Alloc {
            slot: 0,
            size: 10,
            node: 0,
        },
        Action::Mark(2),
        Action::Alloc {
            slot: 1,
            size: 20,
            node: 0,
        },
        Action::Mark(0),
        Action::Alloc {
            slot: 2,
            size: 40,
            node: 0,
        },
    ];
    let decoded = chunk_of(&actions);
    let sums = |jobs: JobDetail| {
        let mut tally = Tally::new(0);
        tally.configure(TallyOptions {
            jobs,
            ..TallyOptions::default()
        });
        tally.apply(&decoded, 0..decoded.ops.len());
        let mut sites: Vec<(JobKey, u64)> = Vec::new();
        for site in tally.finish().sites {
            sites.push((site.job, site.live.bytes));
        }
        sites.sort();
        sites
    };
    assert_eq!(sums(JobDetail::Nothing), [(JobKey::NONE, 70)]);
    let (one, two) = (JobKey::of_name(11), JobKey::of_name(12));
    assert_eq!(
        sums(JobDetail::Names),
        [(JobKey::NONE, 40), (one, 10), (two, 20)]
    );
    let chosen = JobDetail::Chosen(Arc::new([2].into()));
    assert_eq!(sums(chosen), [(JobKey::NONE, 50), (two, 20)]);
}

#[test]
fn tally_keeps_little_memory_for_each_ended_job() {
    let mut tally = tally_of_jobs();
    const N_JOBS: u32 = 20_000;
    for job in 1..=N_JOBS {
        let mut actions = vec![Action::Mark(job)];
        for slot in 0..20 {
            actions.push(Action::Alloc {
                slot,
                size: 100,
                node: (slot % 3) as u32,
            });
        }
        actions.extend((0..20).map(|slot| Action::Free { slot }));
        actions.push(Action::End(job));
        let mut decoded = chunk_of(&actions);
        decoded.head.number = job;
        tally.apply(&decoded, 0..decoded.ops.len());
    }
    let each = tally.heap_bytes() / N_JOBS as usize;
    assert!(each < 450, "{each} bytes per job");
}
