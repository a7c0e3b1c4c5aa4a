//! Numbers as people read them: counts, bytes, times, shares.

/// `950`, `12.3 k`, `1.25 M`; fractions below a hundred.
pub fn count(value: f64) -> String {
    // The sum of nothing is -0.
    let value = value + 0.0;
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `512 B`, `1.30 KB`, `2.05 GB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `80 us`, `12 ms`, `1.5 s`, `3.0 min`, of microseconds.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e4 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us if us < 6e7 => format!("{:.1} s", us / 1e6),
        us => format!("{:.1} min", us / 6e7),
    }
}

/// `99.5 %`, of a part of one.
pub fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A time of day and date in UTC: `2026-11-28 15:04:05`.
pub fn date(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}")
}

/// Year, month and day of so many days after 1970-01-01, in the Gregorian calendar: years begin in March, so that
/// the leap day is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next = month >= 10;
    let month = if is_next { month - 9 } else { month + 3 };
    (year + era * 400 + u64::from(is_next), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [-0.0, 0.5, 12.34, 99.96, 123.4, 9999.0, 12_345.0, 1_250_000.0, 7e9];
        let texts = counts.map(count);
        let expected = ["0", "0.50", "12.3", "100.0", "123", "9999", "12.3 k", "1.25 M", "7.00 G"];
        assert_eq!(texts, expected);
        assert_eq!(
            [0.0, 999.0, 1300.0, 250e6, 1e18].map(bytes),
            ["0 B", "999 B", "1.30 KB", "250 MB", "1000 PB"]
        );
        let times = [0.0, 999.0, 1500.0, 12e3, 1.5e6, 1.8e8].map(time);
        assert_eq!(times, ["0 us", "999 us", "1.5 ms", "12 ms", "1.5 s", "3.0 min"]);
        assert_eq!(share(0.995), "99.5 %");
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_881_261, "2026-11-28 15:54:21"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(date(seconds * 1000), text);
        }
    }
}
