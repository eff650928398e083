//! The heap of a view: a snapshot file, or a walk of this process that is assembled when an operation first needs it.
//!
//! A table of kinds does not need the assembled heap. Assembling takes about as long as the walk.

use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

use heaptide_agent::heap_walk::Walked;
use heaptide_analysis::heap::kinds::{TypeSum, rows_of_sums};
use heaptide_analysis::heap::{By, Heap, ObjectSet, Partition};
use heaptide_capture::heap::HeapSnapshot;

/// A heap that dereferences to [`Heap`].
pub struct LiveHeap {
    /// The walk, until it is assembled.
    walked: Mutex<Option<Walked>>,
    heap: OnceLock<Heap>,
}

impl LiveHeap {
    pub fn of_walk(walked: Walked) -> LiveHeap {
        LiveHeap {
            walked: Mutex::new(Some(walked)),
            heap: OnceLock::new(),
        }
    }

    pub fn of_snapshot(snapshot: HeapSnapshot) -> LiveHeap {
        LiveHeap {
            walked: Mutex::new(None),
            heap: OnceLock::from(Heap::new(snapshot)),
        }
    }

    /// The objects that roots reach, without those of some kinds.
    pub fn reachable_without(&self, kinds: &[String]) -> ObjectSet {
        self.reachable().difference(&self.of_kinds(kinds))
    }

    /// The table by kind of [`LiveHeap::reachable_without`].
    pub fn kinds_without(&self, kinds: &[String]) -> Partition {
        let walked = self.walked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(walked) = walked.as_ref() {
            return sums_without(walked, kinds);
        }
        drop(walked);
        Partition::of(self, &self.reachable_without(kinds), By::Kind)
    }
}

impl Deref for LiveHeap {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        self.heap.get_or_init(|| {
            let mut walked = self.walked.lock().unwrap_or_else(PoisonError::into_inner);
            let snapshot = walked.take().map(Walked::into_snapshot);
            Heap::new(snapshot.unwrap_or_default())
        })
    }
}

fn sums_without(walked: &Walked, kinds: &[String]) -> Partition {
    let sums = walked.kind_sums();
    let rows = walked.types().zip(&sums.of_types).zip(&sums.dicts_of);
    let sums: Vec<TypeSum<'_>> = rows
        .map(|((info, own), dicts)| TypeSum {
            info,
            objects: own.objects,
            bytes: own.bytes,
            dicts: dicts.objects,
            dict_bytes: dicts.bytes,
        })
        .collect();
    Partition::of_rows(By::Kind, rows_of_sums(&sums, kinds))
}
