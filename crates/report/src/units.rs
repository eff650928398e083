//! Formats sizes, shares, times and versions for people.

use std::sync::atomic::{AtomicU8, Ordering};

use heaptide_capture::calendar::date_and_time;

/// How sizes and shares are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `41.8 MB`, `74%`.
    Heaptide,
    /// `41.810MB`, `74.00 %`.
    Memray,
    /// `39.9 MiB`, in charts.
    Mprof,
}

/// The layout of this process. A command under another profiler's name sets it once.
static LAYOUT: AtomicU8 = AtomicU8::new(Layout::Heaptide as u8);

/// Makes this process print sizes in another profiler's layout from now on.
pub fn use_layout(layout: Layout) {
    LAYOUT.store(layout as u8, Ordering::Relaxed);
}

/// Whether this process prints sizes in this layout.
pub fn is_layout(layout: Layout) -> bool {
    LAYOUT.load(Ordering::Relaxed) == layout as u8
}

const PREFIXED: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];

/// A size with three significant digits: `41.8 MB`, `608 B`. Pages do the same, in `web/src/model/format.ts`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    if is_layout(Layout::Memray) {
        return memray_size(value);
    }
    let mut at = 0;
    while value >= 999.5 && at + 1 < PREFIXED.len() {
        value /= 1000.0;
        at += 1;
    }
    let decimals = match at {
        0 => 0,
        _ => decimals(value),
    };
    format!("{value:.decimals$} {}", PREFIXED[at])
}

fn memray_size(mut value: f64) -> String {
    let mut at = 0;
    while value >= 1000.0 && at + 1 < PREFIXED.len() {
        value /= 1000.0;
        at += 1;
    }
    format!("{value:.3}{}", PREFIXED[at])
}

/// The decimals that leave three significant digits.
fn decimals(value: f64) -> usize {
    match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    }
}

/// A share with two significant digits: `74%`, `7.4%`. From 99 on it has three, so that only 99.95 and more become
/// `100%`. Pages do the same.
pub fn percentage(percent: f64) -> String {
    if is_layout(Layout::Memray) {
        return format!("{percent:.2} %");
    }
    let decimals = match percent {
        0.0 => 0,
        percent if percent < 0.01 => return "<0.01%".to_owned(),
        percent if percent >= 99.95 || (9.95..99.0).contains(&percent) => 0,
        percent if percent >= 0.995 => 1,
        _ => 2,
    };
    format!("{percent:.decimals$}%")
}

/// A size in powers of two, such as a sampling rate: `512 KiB`. Other sizes are formatted as by [`size`].
pub fn binary_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> shift > 0 && bytes % (1 << shift) == 0 {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    size(bytes)
}

/// The size of a process in a chart: as [`size`], or in mprof's unit.
pub fn chart_size(bytes: u64) -> String {
    if is_layout(Layout::Mprof) {
        return format!("{:.1} MiB", mib(bytes));
    }
    size(bytes)
}

/// Mebibytes, the unit of mprof and memory_profiler.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// A number of allocations, blocks or objects in groups of three digits: `407,109`. Pages do the same.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    if is_layout(Layout::Memray) {
        return digits;
    }
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `part` of `whole` in percent; 0 if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// A change of size: `+4.00 MB`, `-12.0 kB`.
pub fn signed_size(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}

/// A change in percent of the value before: `+40%`, `× 100`; `new` if that was 0.
pub fn change_percent(before: u64, change: i64) -> String {
    match (before, change) {
        (_, 0) => "0%".to_owned(),
        (0, _) => "new".to_owned(),
        // Larger percentages are hard to read.
        _ if change >= 0 && change as u64 / before >= 10 => {
            format!("× {:.0}", (before as f64 + change as f64) / before as f64)
        }
        _ => {
            let sign = if change < 0 { "-" } else { "+" };
            let share = percentage(percent(change.unsigned_abs(), before));
            format!("{sign}{share}")
        }
    }
}

/// A duration: `9 µs`, `1.5 ms`, `12 ms`, `1.53 s`, `1:40 min`, `1:02:03 h`. Pages do the same, in `web/src/model/format.ts`.
pub fn duration(seconds: f64) -> String {
    // The limits lie where rounding reaches the next unit or digit.
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 999.5e-6 => format!("{:.0} µs", (s * 1e6).max(1.0)),
        s if s < 9.95e-3 => format!("{:.1} ms", s * 1e3),
        s if s < 999.5e-3 => format!("{:.0} ms", s * 1e3),
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 99.95 => format!("{s:.1} s"),
        s => {
            let s = s.max(100.0) as u64;
            let (minutes, rest) = (s / 60, s % 60);
            match minutes {
                0..60 => format!("{minutes}:{rest:02} min"),
                _ => format!("{}:{:02}:{rest:02} h", minutes / 60, minutes % 60),
            }
        }
    }
}

/// A time in UTC, as Python prints an aware `datetime`: `2026-11-15 20:54:32.315000+00:00`.
pub fn timestamp(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let micros = unix_ns % 1_000_000_000 / 1_000;
    let [year, month, day, hour, minute, second] = date_and_time(seconds);
    let fraction = if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}+00:00")
}

/// The version that `sys.hexversion` encodes, as Python prints it: `3.12.1`, `3.15.0rc2`.
pub fn python_version(hexversion: u32) -> String {
    let [major, minor, micro, release] = hexversion.to_be_bytes();
    let serial = release & 0xf;
    let stage = match release >> 4 {
        0xa => format!("a{serial}"),
        0xb => format!("b{serial}"),
        0xc => format!("rc{serial}"),
        _ => String::new(),
    };
    format!("{major}.{minor}.{micro}{stage}")
}

/// Two hexadecimal digits per byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_significant_digits_and_si_prefixes() {
        // web/test/format.test.ts checks the same format for pages.
        for (bytes, text) in [
            (0, "0 B"),
            (608, "608 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (10_456, "10.5 kB"),
            (72_616_123, "72.6 MB"),
            (999_600_000, "1.00 GB"),
            (1_500_000_000_000_000, "1.50 PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(u64::MAX), "18447 PB");
    }

    #[test]
    fn shares_have_two_significant_digits() {
        // web/test/format.test.ts checks the same format for pages.
        for (share, text) in [
            (0.0, "0%"),
            (100.0 / 3.0, "33%"),
            (7.43, "7.4%"),
            (99.85, "99.8%"),
            (100.0, "100%"),
            (0.0001, "<0.01%"),
        ] {
            assert_eq!(percentage(share), text);
        }
    }

    #[test]
    fn counts_have_groups_of_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_500, "1,500"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn memray_sizes_have_three_decimals() {
        assert_eq!(memray_size(0.0), "0.000B");
        assert_eq!(memray_size(999.0), "999.000B");
        assert_eq!(memray_size(41_810_000.0), "41.810MB");
        assert_eq!(memray_size(u64::MAX as f64), "18446.744PB");
    }

    #[test]
    fn durations_have_a_unit_that_fits() {
        // The same values as in web/test/format.test.ts.
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.000_000_2, "1 µs"),
            (0.000_009, "9 µs"),
            (0.0015, "1.5 ms"),
            (0.012, "12 ms"),
            (1.53, "1.53 s"),
            (12.34, "12.3 s"),
            (0.000_999_4, "999 µs"),
            (0.000_999_6, "1.0 ms"),
            (0.009_94, "9.9 ms"),
            (0.009_96, "10 ms"),
            (0.9994, "999 ms"),
            (0.9996, "1.00 s"),
            (9.994, "9.99 s"),
            (9.997, "10.0 s"),
            (99.94, "99.9 s"),
            (99.97, "1:40 min"),
            (100.9, "1:40 min"),
            (3723.0, "1:02:03 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn powers_of_two_have_binary_prefixes() {
        assert_eq!(binary_size(512 << 10), "512 KiB");
        assert_eq!(binary_size(1 << 20), "1 MiB");
        assert_eq!(binary_size(100_000), "100 kB");
    }

    #[test]
    fn changes_have_a_sign_and_a_share_of_the_value_before() {
        assert_eq!(signed_size(4_000_000), "+4.00 MB");
        assert_eq!(signed_size(-12_000), "-12.0 kB");
        assert_eq!(change_percent(10, 4), "+40%");
        assert_eq!(change_percent(10, -10), "-100%");
        assert_eq!(change_percent(10, 990), "× 100");
        assert_eq!(change_percent(0, 4), "new");
        assert_eq!(change_percent(0, 0), "0%");
    }

    #[test]
    fn python_versions_have_their_stage_of_release() {
        assert_eq!(python_version(0x030c_01f0), "3.12.1");
        assert_eq!(python_version(0x030f_00c2), "3.15.0rc2");
    }

    #[test]
    fn times_are_formatted_as_python_prints_them() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00+00:00");
        assert_eq!(
            timestamp(1_794_776_072_315_000_000),
            "2026-11-15 20:54:32.315000+00:00"
        );
        assert_eq!(
            timestamp(951_782_400_000_000_000),
            "2000-02-29 00:00:00+00:00"
        );
        assert_eq!(
            timestamp(4_107_542_399_000_001_000),
            "2100-02-28 23:59:59.000001+00:00"
        );
    }
}
