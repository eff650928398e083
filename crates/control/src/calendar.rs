//! Moments as people read them, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn unix_ms(moment: SystemTime) -> u64 {
    moment
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Year, month, day, hour, minute, second, millisecond.
fn fields(unix_ms: u64) -> [u64; 7] {
    let seconds = unix_ms / 1000;
    let days = seconds / 86_400;
    // Days are counted from 1 March of the year 0, so that the leap day is the last of a year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let second = seconds % 86_400;
    [
        year,
        month,
        day,
        second / 3600,
        second / 60 % 60,
        second % 60,
        unix_ms % 1000,
    ]
}

/// `2026-11-15T23:30:12.345Z`
pub(crate) fn timestamp(unix_ms: u64) -> String {
    let [year, month, day, hour, minute, second, ms] = fields(unix_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// `20261115-233012-345`: sorts as the moments do.
pub(crate) fn stamp(unix_ms: u64) -> String {
    let [year, month, day, hour, minute, second, ms] = fields(unix_ms);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_calendars_have_them() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_709_210_096_789), "2024-02-29T12:34:56.789Z");
        assert_eq!(stamp(1_767_225_599_001), "20251231-235959-001");
    }
}
