//! Formats sizes, shares, times and versions for people.

use heaptide_capture::calendar::date_and_time;

/// A size with SI prefixes and three decimals: `41.810MB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            return format!("{value:.3}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.3}PB")
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

/// Mebibytes, the unit of resident sizes.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// `part` of `whole` in percent; 0 if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// A change of size: `+4.000MB`, `-12.000kB`.
pub fn signed_size(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}

/// A change in percent of the value before: `+40.0 %`, `× 100`; `new` if that was 0.
pub fn change_percent(before: u64, change: i64) -> String {
    match (before, change) {
        (_, 0) => "0 %".to_owned(),
        (0, _) => "new".to_owned(),
        // Larger percentages are hard to read.
        _ if change >= 0 && change as u64 / before >= 10 => {
            format!("× {:.0}", (before as f64 + change as f64) / before as f64)
        }
        _ => format!("{:+.1} %", change as f64 * 100.0 / before as f64),
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

/// `sys.hexversion` as Python prints it: `3.12.1`, `3.15.0rc2`.
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
    fn sizes_have_three_decimals_and_si_prefixes() {
        assert_eq!(size(0), "0.000B");
        assert_eq!(size(999), "999.000B");
        assert_eq!(size(10_456), "10.456kB");
        assert_eq!(size(41_810_000), "41.810MB");
        assert_eq!(size(u64::MAX), "18446.744PB");
    }

    #[test]
    fn powers_of_two_have_binary_prefixes() {
        assert_eq!(binary_size(512 << 10), "512 KiB");
        assert_eq!(binary_size(1 << 20), "1 MiB");
        assert_eq!(binary_size(100_000), "100.000kB");
    }

    #[test]
    fn changes_have_a_sign_and_a_share_of_the_value_before() {
        assert_eq!(signed_size(4_000_000), "+4.000MB");
        assert_eq!(signed_size(-12_000), "-12.000kB");
        assert_eq!(change_percent(10, 4), "+40.0 %");
        assert_eq!(change_percent(10, -10), "-100.0 %");
        assert_eq!(change_percent(10, 990), "× 100");
        assert_eq!(change_percent(0, 4), "new");
        assert_eq!(change_percent(0, 0), "0 %");
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
