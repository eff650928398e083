//! Where a process's resident memory was at the end: what the capture knows of its blocks, set against what the kernel and
//! libc said.

use heaptide_capture::{Allocator, MemoryPart, Registry};

use crate::load::Process;
use crate::model::findings::{Ledger, Unshared};

/// `None` if recording was not ended in order, or the kernel did not say.
pub fn ledger(process: &Process) -> Option<Ledger> {
    let memory = &process.registry.memory;
    let known = |part: MemoryPart| memory.get(&part).copied().unwrap_or(0);
    let resident_bytes = resident_at_end(&process.registry)?;
    let live = |is_it: fn(Allocator) -> bool| {
        let sites = process.sums.sites.iter();
        let sites = sites.filter(|site| is_it(site.allocator));
        sites.map(|site| site.live.bytes).sum::<u64>()
    };
    let python_bytes = live(is_python);
    let mapped_bytes = live(Allocator::is_range);
    let native_bytes = live(|it| !is_python(it) && !it.is_range());
    let own_mapped = known(MemoryPart::OwnMapped);
    let own_heap = process.registry.own_memory.saturating_sub(own_mapped);
    let in_use = known(MemoryPart::LibcInUse);
    let files = known(MemoryPart::Files).saturating_add(known(MemoryPart::SharedMemory));
    let mut ledger = Ledger {
        pid: process.header.pid,
        resident_bytes,
        python_bytes,
        mapped_bytes,
        native_bytes,
        earlier_bytes: in_use.saturating_sub(native_bytes.saturating_add(own_heap)),
        libc_free_bytes: known(MemoryPart::LibcFree),
        files_bytes: files.saturating_sub(own_mapped),
        own_bytes: own_heap.saturating_add(own_mapped.min(files)),
        unexplained_bytes: 0,
    };
    let explained: i128 = ledger.rows().iter().map(|&bytes| i128::from(bytes)).sum();
    let rest = i128::from(resident_bytes) - explained;
    ledger.unexplained_bytes = i64::try_from(rest).unwrap_or(0);
    Some(ledger)
}

/// How large the process was when recording ended; `None` as above.
fn resident_at_end(registry: &Registry) -> Option<u64> {
    let part = |part: MemoryPart| registry.memory.get(&part).copied();
    let own = part(MemoryPart::Anonymous)?;
    let files = part(MemoryPart::Files).unwrap_or(0);
    let shared = part(MemoryPart::SharedMemory).unwrap_or(0);
    Some(own.saturating_add(files).saturating_add(shared))
}

/// The largest size that was seen: the last look is the one at the end, behind the last sample.
pub fn resident_peak(registry: &Registry) -> Option<u64> {
    let samples = registry.resident.iter().map(|sample| sample.bytes);
    samples.chain(resident_at_end(registry)).max()
}

fn is_python(allocator: Allocator) -> bool {
    use Allocator::{PymallocCalloc, PymallocMalloc, PymallocRealloc};
    matches!(allocator, PymallocMalloc | PymallocCalloc | PymallocRealloc)
}

impl Ledger {
    /// What is explained.
    pub(super) fn rows(&self) -> [u64; 7] {
        [
            self.python_bytes,
            self.mapped_bytes,
            self.native_bytes,
            self.earlier_bytes,
            self.libc_free_bytes,
            self.files_bytes,
            self.own_bytes,
        ]
    }
}

/// What a fork shared, if this is the child of one that was recorded, too.
pub fn unshared(process: &Process, all: &[Process]) -> Option<Unshared> {
    let parent_pid = process.header.parent_pid;
    let mut parents = all.iter();
    let parent = parents.find(|parent| parent.header.pid == parent_pid)?;
    // A process that was started by another program begins with nothing of its parent's.
    let is_fork = parent.header.mode.follow_fork && parent.header.session == process.header.session;
    let memory = &process.registry.memory;
    let inherited_bytes = *memory.get(&MemoryPart::AnonymousAtStart)?;
    let shared_bytes = *memory.get(&MemoryPart::SharedAnonymous)?;
    is_fork.then_some(Unshared {
        pid: process.header.pid,
        parent_pid,
        inherited_bytes,
        shared_bytes: shared_bytes.min(inherited_bytes),
    })
}
