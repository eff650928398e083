//! Sizes of a process and its descendants at regular intervals, read by a separate thread.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_timeline::Backend;

use crate::sys;
use crate::tree::Tree;

/// The sizes of a process at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: f64,
    pub bytes: u64,
    /// Pids and sizes of its descendants, if requested.
    pub children: Vec<(u32, u64)>,
}

/// The process and sizes to sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    pub pid: u32,
    pub backend: Backend,
    pub children: bool,
}

/// A thread that samples until it is stopped.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Takes the first sample before it returns, so that there is always one. Returns `None` if the process does not exist.
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
                sys::block_all_signals();
                run(&mut reader, &stopped, interval, &mut samples);
                samples
            })?;
        Ok(Some(Sampler { stop, thread }))
    }

    /// Ends the thread after a last sample.
    pub fn stop(self) -> Vec<Sample> {
        // Fails if the thread has already ended.
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
        // Samples missed during a long pause of the machine are skipped.
        next = (next + interval).max(Instant::now());
    }
}

/// Samples one process repeatedly.
pub struct SizeReader {
    tree: Tree,
    options: SampleOptions,
}

impl SizeReader {
    pub fn new(options: SampleOptions) -> Option<SizeReader> {
        // The caller needs the sizes at exactly these moments.
        let tree =
            Tree::new(options.pid, Vec::new(), options.backend, |words| words)?.without_budget();
        Some(SizeReader { tree, options })
    }

    /// Returns `None` if the process has exited.
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

    const BACKEND: Backend = Backend::Rss;

    #[test]
    fn first_and_last_sample_are_always_taken() {
        let options = SampleOptions {
            pid: std::process::id(),
            backend: BACKEND,
            children: false,
        };
        let sampler = Sampler::start(options, Duration::from_secs(3600))
            .unwrap()
            .unwrap();
        let block = vec![1u8; 32 << 20];
        let samples = sampler.stop();
        drop(block);
        assert_eq!(samples.len(), 2);
        // Other tests allocate and free memory meanwhile, but not as much.
        assert!(samples[1].bytes >= samples[0].bytes + (16 << 20));
        assert!(samples[0].time <= samples[1].time && samples[0].time > 1e9);
    }

    #[test]
    fn expensive_sizes_are_read_for_every_sample() {
        let options = SampleOptions {
            pid: std::process::id(),
            backend: Backend::Uss,
            children: false,
        };
        let mut reader = SizeReader::new(options).expect("this process exists");
        let first = reader.sample().expect("this process exists").bytes;
        let block = vec![1u8; 32 << 20];
        let second = reader.sample().expect("this process exists").bytes;
        drop(block);
        assert!(second >= first + (16 << 20), "{first} {second}");
    }

    #[test]
    fn missing_process_has_no_sampler() {
        let options = SampleOptions {
            pid: u32::MAX - 1,
            backend: BACKEND,
            children: true,
        };
        assert!(
            Sampler::start(options, Duration::from_millis(1))
                .unwrap()
                .is_none()
        );
    }
}
