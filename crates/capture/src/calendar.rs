//! The calendar date and time of day of a moment, in UTC.

/// Returns year, month, day, hour, minute and second, in the Gregorian calendar.
pub fn date_and_time(unix_seconds: u64) -> [u64; 6] {
    // Years are counted from 1 March of the year 0. The leap day is then the last day of a year, and every 400 years
    // have the same number of days.
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    [
        era * 400 + year + next_year,
        month,
        day_of_month,
        unix_seconds / 3_600 % 24,
        unix_seconds / 60 % 60,
        unix_seconds % 60,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_and_ends_of_years_are_correct() {
        assert_eq!(date_and_time(0), [1970, 1, 1, 0, 0, 0]);
        assert_eq!(date_and_time(1_709_210_096), [2024, 2, 29, 12, 34, 56]);
        assert_eq!(date_and_time(1_767_225_599), [2025, 12, 31, 23, 59, 59]);
        assert_eq!(date_and_time(4_107_542_399), [2100, 2, 28, 23, 59, 59]);
    }
}
