//! Times in a format chosen by a page: strftime(3) in the C locale.
//!
//! Used by `ssi`. Reads no clock and no file.

use crate::http_date::{Civil, MONTHS};

/// Longest result, in bytes. nginx: `NGX_HTTP_SSI_DATE_LEN`.
const BYTES_MAX: usize = 2048;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in a zone.
struct Moment<'a> {
    unix: i64,
    civil: Civil,
    /// Sunday is 0.
    weekday: i64,
    /// 1 January is 0.
    day_of_year: i64,
    offset_seconds: i32,
    zone: &'a str,
}

/// Formats a moment; `zone` is the name of the time zone, `offset_seconds` its offset from UTC.
/// Empty if the result is too long. Unknown conversions are copied unchanged.
pub fn format(format: &[u8], unix: i64, offset_seconds: i32, zone: &str) -> Vec<u8> {
    let local = unix.saturating_add(offset_seconds.into());
    let civil = Civil::from_unix(local);
    let weekday = (local.div_euclid(86_400) + 4).rem_euclid(7);
    let day_of_year = day_of_year(&civil);
    let moment = Moment { unix, civil, weekday, day_of_year, offset_seconds, zone };
    let mut out = Vec::with_capacity(64);
    let mut bytes = format.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'%', Some(&conversion)) => {
                bytes.next();
                moment.append(conversion, &mut out);
            }
            _ => out.push(byte),
        }
        if out.len() >= BYTES_MAX {
            return Vec::new();
        }
    }
    out
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn day_of_year(civil: &Civil) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let month = (civil.month as usize).clamp(1, 12) - 1;
    let leap_day = i64::from(month > 1 && is_leap(civil.year));
    BEFORE[month] + leap_day + i64::from(civil.day) - 1
}

impl Moment<'_> {
    fn append(&self, conversion: u8, out: &mut Vec<u8>) {
        let civil = &self.civil;
        let Civil { year, month, day, hour, minute, second, .. } = *civil;
        let twelve = (hour + 11) % 12 + 1;
        let day_name = DAYS[self.weekday.rem_euclid(7) as usize];
        let month_at = (month as usize).clamp(1, 12) - 1;
        let month_short = std::str::from_utf8(MONTHS[month_at]).unwrap_or_default();
        let (iso_year, iso_week) = self.iso_week();
        let text = match conversion {
            b'a' => day_name[..3].to_owned(),
            b'A' => day_name.to_owned(),
            b'b' | b'h' => month_short.to_owned(),
            b'B' => MONTH_NAMES[month_at].to_owned(),
            b'c' => format!(
                "{} {month_short} {day:2} {hour:02}:{minute:02}:{second:02} {year}",
                &day_name[..3]
            ),
            b'C' => format!("{:02}", year.div_euclid(100)),
            b'd' => format!("{day:02}"),
            b'D' | b'x' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            b'e' => format!("{day:2}"),
            b'F' => format!("{year}-{month:02}-{day:02}"),
            b'g' => format!("{:02}", iso_year.rem_euclid(100)),
            b'G' => format!("{iso_year}"),
            b'H' => format!("{hour:02}"),
            b'I' => format!("{twelve:02}"),
            b'j' => format!("{:03}", self.day_of_year + 1),
            b'k' => format!("{hour:2}"),
            b'l' => format!("{twelve:2}"),
            b'm' => format!("{month:02}"),
            b'M' => format!("{minute:02}"),
            b'n' => "\n".to_owned(),
            b'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            b'P' => if hour < 12 { "am" } else { "pm" }.to_owned(),
            b'r' => format!(
                "{twelve:02}:{minute:02}:{second:02} {}",
                if hour < 12 { "AM" } else { "PM" }
            ),
            b'R' => format!("{hour:02}:{minute:02}"),
            b's' => self.unix.to_string(),
            b'S' => format!("{second:02}"),
            b't' => "\t".to_owned(),
            b'T' | b'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            b'u' => format!("{}", if self.weekday == 0 { 7 } else { self.weekday }),
            b'U' => format!("{:02}", (self.day_of_year + 7 - self.weekday) / 7),
            b'V' => format!("{iso_week:02}"),
            b'w' => format!("{}", self.weekday),
            b'W' => format!("{:02}", (self.day_of_year + 7 - (self.weekday + 6) % 7) / 7),
            b'y' => format!("{:02}", year.rem_euclid(100)),
            b'Y' => format!("{year}"),
            b'z' => {
                let sign = if self.offset_seconds < 0 { '-' } else { '+' };
                let minutes = self.offset_seconds.unsigned_abs() / 60;
                format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            b'Z' => self.zone.to_owned(),
            b'%' => "%".to_owned(),
            unknown => {
                out.extend_from_slice(&[b'%', unknown]);
                return;
            }
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Year and week of ISO 8601: a week begins on Monday and belongs to the year of its Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday + 6) % 7;
        let thursday = self.day_of_year - monday_based + 3;
        let year = self.civil.year;
        let days = |year| if is_leap(year) { 366 } else { 365 };
        let (year, thursday) = if thursday < 0 {
            (year - 1, thursday + days(year - 1))
        } else if thursday >= days(year) {
            (year + 1, thursday - days(year))
        } else {
            (year, thursday)
        };
        (year, thursday / 7 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(wanted: &str, unix: i64) -> String {
        String::from_utf8(format(wanted.as_bytes(), unix, 3600, "CET")).unwrap()
    }

    #[test]
    fn conversions() {
        // Sunday, 6 November 1994, 08:49:37 UTC.
        let at = 784_111_777;
        for (wanted, expected) in [
            ("%A, %d-%b-%Y %H:%M:%S %Z", "Sunday, 06-Nov-1994 09:49:37 CET"),
            ("%a %h %B %C %D %e", "Sun Nov November 19 11/06/94  6"),
            ("%F %g %G %I %j %k %l", "1994-11-06 94 1994 09 310  9  9"),
            ("%m %M %p %P %r %R %s", "11 49 AM am 09:49:37 AM 09:49 784111777"),
            ("%T %u %U %V %w %W %x %X %y %z", "09:49:37 7 45 44 0 44 11/06/94 09:49:37 94 +0100"),
            ("%c|%n|%t|%%", "Sun Nov  6 09:49:37 1994|\n|\t|%"),
            ("%Q % 100%", "%Q % 100%"),
            ("", ""),
        ] {
            assert_eq!(text(wanted, at), expected);
        }
    }

    #[test]
    fn weeks_at_the_ends_of_years() {
        // 1 January of 1995 (a Sunday), 1996 (Monday), 1998 (Thursday), 1999 (Friday).
        for (at, expected) in [
            (788_918_400, "1994 52"),
            (820_454_400, "1996 01"),
            (883_612_800, "1998 01"),
            (915_148_800, "1998 53"),
            // 31 December 1996, a Tuesday.
            (851_990_400, "1997 01"),
        ] {
            assert_eq!(text("%G %V", at), expected);
        }
    }

    #[test]
    fn a_long_result_is_none() {
        assert_eq!(format("%A".repeat(1000).as_bytes(), 0, 0, "GMT"), b"");
        assert!(!text("%Y", i64::MAX / 2).is_empty());
    }
}
