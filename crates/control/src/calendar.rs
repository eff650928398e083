//! Dates and times in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_capture::calendar::date_and_time;

/// Returns the milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Formats a time: `2026-11-15T23:30:12.345Z`.
pub(crate) fn timestamp(unix_ms: u64) -> String {
    let [year, month, day, hour, minute, second] = date_and_time(unix_ms / 1000);
    let ms = unix_ms % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Formats a time so that names sort by time: `20261115-233012-345`.
pub(crate) fn stamp(unix_ms: u64) -> String {
    let [year, month, day, hour, minute, second] = date_and_time(unix_ms / 1000);
    let ms = unix_ms % 1000;
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_709_210_096_789), "2024-02-29T12:34:56.789Z");
        assert_eq!(stamp(1_767_225_599_001), "20251231-235959-001");
    }
}
