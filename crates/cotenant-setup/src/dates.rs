//! Dates as text.

/// Seconds since 1970 as a date and time in UTC (proleptic Gregorian calendar, after Hinnant's `civil_from_days`).
pub fn date(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153; // from March
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates() {
        // By `date -u -d @N`.
        assert_eq!(super::date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(super::date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(super::date(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }
}
