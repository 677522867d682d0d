//! The day of a measurement.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns this day in UTC, like 2026-11-28.
pub(super) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    day(seconds / 86_400)
}

/// Returns the day that is this many days after 1970-01-01.
fn day(mut days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let of_year = 365 + u64::from(is_leap(year));
        if days < of_year {
            break;
        }
        days -= of_year;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for of_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < of_month {
            break;
        }
        days -= of_month;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = [(0, "1970-01-01"), (789, "1972-02-29"), (790, "1972-03-01"), (11_016, "2000-02-29")];
        for (days, text) in
            days.into_iter().chain([(20_785, "2026-11-28"), (47_540, "2100-02-28"), (47_541, "2100-03-01")])
        {
            assert_eq!(day(days), text);
        }
    }
}
