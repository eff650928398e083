//! The recording mode as words.

use heaptide_analysis::model::ModeInterval;
use heaptide_capture::Mode;

use crate::units::binary_size;

pub fn mode(mode: Mode) -> String {
    let mut text = match mode.sample_bytes {
        0 => "exact".to_owned(),
        bytes => format!("sampled every {}", binary_size(bytes)),
    };
    if mode.objects {
        text.push_str(", with Python objects");
    }
    if mode.native {
        text.push_str(", with native frames");
    }
    if mode.aggregate {
        text.push_str(", bounded");
    }
    text
}

/// The maximum number of intervals in the text. Later ones are only counted.
const MAX_INTERVALS: usize = 8;

/// The modes of a process by time, as one text.
pub fn modes(intervals: &[ModeInterval]) -> String {
    let mut text = String::new();
    for (i, interval) in intervals.iter().take(MAX_INTERVALS).enumerate() {
        if i > 0 {
            let seconds = interval.from_ns as f64 / 1e9;
            text.push_str(&format!("; from {seconds:.3} s on "));
        }
        text.push_str(&mode(interval.mode));
    }
    let n_more = intervals.len().saturating_sub(MAX_INTERVALS);
    if n_more > 0 {
        text.push_str(&format!("; and {n_more} more changes"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_all_chosen_options() {
        assert_eq!(mode(Mode::default()), "exact");
        let all = Mode {
            objects: true,
            sample_bytes: 512 << 10,
            aggregate: true,
            follow_fork: false,
            native: true,
        };
        assert_eq!(
            mode(all),
            "sampled every 512 KiB, with Python objects, with native frames, bounded"
        );
    }

    #[test]
    fn changes_of_the_mode_are_stated_with_their_times() {
        let sampled = Mode {
            sample_bytes: 4096,
            ..Mode::default()
        };
        let interval = |from_ns, mode| ModeInterval { from_ns, mode };
        let changed = [
            interval(0, Mode::default()),
            interval(1_500_000_000, sampled),
        ];
        assert_eq!(
            modes(&changed),
            "exact; from 1.500 s on sampled every 4 KiB"
        );
    }
}
