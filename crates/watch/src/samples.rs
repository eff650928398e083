//! Sizes of a process and its descendants at regular intervals, by a thread of our own that needs nothing of theirs.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_timeline::Backend;

use crate::sys;
use crate::tree::Tree;

/// One look at a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    pub bytes: u64,
    /// Pids and sizes of its descendants, if they were asked for.
    pub children: Vec<(u32, u64)>,
}

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    pub pid: u32,
    pub backend: Backend,
    pub children: bool,
}

/// A thread that looks until it is told to stop.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// The first look is taken before this returns, so there is always one. `None` if there is no such process.
    pub fn start(options: SampleOptions, interval: Duration) -> io::Result<Option<Sampler>> {
        let Some(mut reader) = SizeReader::new(options) else {
            return Ok(None);
        };
        let mut samples = Vec::new();
        samples.extend(reader.sample());
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("heaptide-usage".into())
            .spawn(move || {
                sys::leave_signals_to_others();
                run(&mut reader, &stopped, interval, &mut samples);
                samples
            })?;
        Ok(Some(Sampler { stop, thread }))
    }

    /// Ends the thread, after a last look.
    pub fn stop(self) -> Vec<Sample> {
        // A thread that has ended does not listen any more.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

fn run(
    reader: &mut SizeReader,
    stopped: &Receiver<()>,
    interval: Duration,
    samples: &mut Vec<Sample>,
) {
    let mut next = Instant::now() + interval;
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        let is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        let Some(sample) = reader.sample() else {
            return;
        };
        samples.push(sample);
        if is_last {
            return;
        }
        // After a long pause of the machine, looks are not made up for.
        next = (next + interval).max(Instant::now());
    }
}

/// Looks at one process again and again.
pub struct SizeReader {
    tree: Tree,
    options: SampleOptions,
}

impl SizeReader {
    pub fn new(options: SampleOptions) -> Option<SizeReader> {
        // Somebody waits for the sizes at just these moments.
        let tree = Tree::new(options.pid, Vec::new(), options.backend)?.without_budget();
        Some(SizeReader { tree, options })
    }

    /// `None` once the process is gone.
    pub fn sample(&mut self) -> Option<Sample> {
        self.tree.sample(Instant::now());
        let size =
            |pid: u32, memory: heaptide_timeline::Memory| (pid, memory.by(self.options.backend));
        let members = self.tree.members.iter();
        let mut sizes: Vec<(u32, u64)> = members
            .map(|member| size(member.pid, member.memory))
            .collect();
        let at = sizes.iter().position(|&(pid, _)| pid == self.options.pid)?;
        let (_, bytes) = sizes.swap_remove(at);
        if !self.options.children {
            sizes.clear();
        }
        sizes.sort_unstable();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Some(Sample {
            time: now.map_or(0.0, |elapsed| elapsed.as_secs_f64()),
            bytes,
            children: sizes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURSELVES: Backend = Backend::Rss;

    #[test]
    fn there_is_a_look_at_the_beginning_and_at_the_end() {
        let options = SampleOptions {
            pid: std::process::id(),
            backend: OURSELVES,
            children: false,
        };
        let sampler = Sampler::start(options, Duration::from_secs(3600))
            .unwrap()
            .unwrap();
        let block = vec![1u8; 32 << 20];
        let samples = sampler.stop();
        drop(block);
        assert_eq!(samples.len(), 2);
        // Other tests take and give back memory meanwhile, but not as much.
        assert!(samples[1].bytes >= samples[0].bytes + (16 << 20));
        assert!(samples[0].time <= samples[1].time && samples[0].time > 1e9);
    }

    #[test]
    fn sizes_that_cost_much_are_read_at_every_look() {
        let options = SampleOptions {
            pid: std::process::id(),
            backend: Backend::Uss,
            children: false,
        };
        let mut reader = SizeReader::new(options).expect("we live");
        let first = reader.sample().expect("we live").bytes;
        let block = vec![1u8; 32 << 20];
        let second = reader.sample().expect("we live").bytes;
        drop(block);
        assert!(second >= first + (16 << 20), "{first} {second}");
    }

    #[test]
    fn process_that_is_not_there_has_no_sampler() {
        let options = SampleOptions {
            pid: u32::MAX - 1,
            backend: OURSELVES,
            children: true,
        };
        assert!(
            Sampler::start(options, Duration::from_millis(1))
                .unwrap()
                .is_none()
        );
    }
}
