//! The memory in arenas of Python's object allocator. Without `--objects`, captures do not show what is in them.

use crate::load::Session;
use crate::model::PythonArenas;
use crate::symbols::LocationId;

pub fn arenas(session: &Session) -> PythonArenas {
    let mut sum = PythonArenas::default();
    let names = session.names.iter().zip(0..);
    let Some((_, number)) = names.into_iter().find(|(at, _)| at.is_python_arena()) else {
        return sum;
    };
    let arena = LocationId(number);
    for process in &session.processes {
        for site in &process.sums.sites {
            if process.frames(site.stack).next() == Some(arena) {
                sum.peak_bytes = sum.peak_bytes.saturating_add(site.peak.bytes);
                sum.live_bytes = sum.live_bytes.saturating_add(site.live.bytes);
            }
        }
    }
    sum
}
