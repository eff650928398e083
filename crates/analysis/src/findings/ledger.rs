//! Splits a process's resident memory at the end into parts: the capture's blocks against the numbers of the kernel and libc.

use heaptide_capture::{Allocator, MemoryPart, Registry};

use crate::load::Process;
use crate::model::Ledger;

/// `None` if the recording did not end in order, or the kernel did not report the sizes.
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
    let explained = [
        ledger.python_bytes,
        ledger.mapped_bytes,
        ledger.native_bytes,
        ledger.earlier_bytes,
        ledger.libc_free_bytes,
        ledger.files_bytes,
        ledger.own_bytes,
    ];
    let explained: i128 = explained.into_iter().map(i128::from).sum();
    let rest = i128::from(resident_bytes) - explained;
    ledger.unexplained_bytes = i64::try_from(rest).unwrap_or(0);
    Some(ledger)
}

/// The resident size when the recording ended; `None` if it did not end in order.
fn resident_at_end(registry: &Registry) -> Option<u64> {
    let part = |part: MemoryPart| registry.memory.get(&part).copied();
    let own = part(MemoryPart::Anonymous)?;
    let files = part(MemoryPart::Files).unwrap_or(0);
    let shared = part(MemoryPart::SharedMemory).unwrap_or(0);
    Some(own.saturating_add(files).saturating_add(shared))
}

/// The largest resident size. The size at the end counts also, because the process may have grown after the last sample.
pub fn resident_peak(registry: &Registry) -> Option<u64> {
    let samples = registry.resident.iter().map(|sample| sample.bytes);
    samples.chain(resident_at_end(registry)).max()
}

fn is_python(allocator: Allocator) -> bool {
    use Allocator::{PymallocCalloc, PymallocMalloc, PymallocRealloc};
    matches!(allocator, PymallocMalloc | PymallocCalloc | PymallocRealloc)
}
