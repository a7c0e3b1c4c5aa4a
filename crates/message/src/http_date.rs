//! HTTP dates: RFC 9110 section 5.6.7, all three forms read, IMF-fixdate written.
//!
//! Used for `Last-Modified`, `Expires` and the conditional request fields. Reading is as lenient
//! as nginx's: the day name is not compared with the date, months are told apart by the letters
//! that matter, and what follows the seconds is not looked at. Crates for this are stricter and
//! would answer 200 where nginx answers 304. No clocks here; times are Unix seconds.

use std::cell::Cell;

/// Month abbreviations, January first.
pub const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

const SECONDS_PER_DAY: i64 = 86_400;
const WEEK: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTH_DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Length of an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const LEN: usize = 29;

/// The latest time that [`format`] writes: 9999-12-31 23:59:59.
const LATEST: i64 = 253_402_300_799;

/// A moment of UTC split into its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year of the proleptic Gregorian calendar.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// Index into a week that begins on Thursday, the day of the epoch.
    weekday: usize,
}

impl Civil {
    /// The fields of `unix` seconds.
    ///
    /// The calendar is computed from 1 March, so that the leap day ends a year, in eras of 400
    /// years (146,097 days).
    pub fn from_unix(unix: i64) -> Civil {
        let days = unix.div_euclid(SECONDS_PER_DAY);
        let of_day = unix.rem_euclid(SECONDS_PER_DAY);
        // Days since 0000-03-01.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096).div_euclid(365);
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months of 31, 30, 31, 30, 31 days repeat from March: 153 days in five.
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month: month as u32,
            day: day as u32,
            hour: (of_day / 3600) as u32,
            minute: (of_day / 60 % 60) as u32,
            second: (of_day % 60) as u32,
            weekday: days.rem_euclid(7) as usize,
        }
    }

    /// The day's three letters.
    pub fn weekday(&self) -> &'static str {
        std::str::from_utf8(WEEK[self.weekday]).expect("names of days are ASCII")
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`. Times before the year 0 or after 9999 are clamped, since the
/// form has four digits for the year.
pub fn format(unix: i64) -> [u8; LEN] {
    FORMATTED.with(|formatted| {
        let place = &formatted[unix as usize % FORMATTED_MAX];
        let (known, text) = place.get();
        if known == unix {
            return text;
        }
        let text = format_anew(unix);
        place.set((unix, text));
        text
    })
}

/// Dates that a thread remembers: the times of hot files are formatted again and again.
const FORMATTED_MAX: usize = 64;

thread_local! {
    /// Each at the place that its last bits say.
    static FORMATTED: [Cell<(i64, [u8; LEN])>; FORMATTED_MAX] =
        const { [const { Cell::new((0, *EPOCH)) }; FORMATTED_MAX] };
}

const EPOCH: &[u8; LEN] = b"Thu, 01 Jan 1970 00:00:00 GMT";

fn format_anew(unix: i64) -> [u8; LEN] {
    let civil = Civil::from_unix(unix.clamp(-62_167_219_200, LATEST));
    let mut out = *EPOCH;
    out[..3].copy_from_slice(WEEK[civil.weekday]);
    two_digits(&mut out[5..7], civil.day);
    out[8..11].copy_from_slice(MONTHS[civil.month as usize - 1]);
    two_digits(&mut out[12..14], (civil.year / 100) as u32);
    two_digits(&mut out[14..16], (civil.year % 100) as u32);
    two_digits(&mut out[17..19], civil.hour);
    two_digits(&mut out[20..22], civil.minute);
    two_digits(&mut out[23..25], civil.second);
    out
}

fn two_digits(out: &mut [u8], value: u32) {
    out[0] = b'0' + (value / 10 % 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

/// Unix seconds of a date in any of the three forms, `None` for anything else:
/// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`.
/// Two-digit years below 70 are of this century.
pub fn parse(text: &[u8]) -> Option<i64> {
    let separator = text.iter().position(|&b| b == b',' || b == b' ')?;
    let asctime = text[separator] == b' ';
    let mut rest = DateReader(&text[separator + 1..]);
    rest.spaces();

    let (day, month, year);
    let (hour, minute, second);
    if asctime {
        month = rest.month()?;
        rest.expect(b' ')?;
        rest.0 = rest.0.strip_prefix(b" ").unwrap_or(rest.0);
        day = rest.day()?;
        rest.expect(b' ')?;
        (hour, minute, second) = rest.time()?;
        rest.expect(b' ')?;
        year = rest.digits(4)?;
    } else {
        day = rest.digits(2)?;
        let separator = rest.byte()?;
        if separator != b' ' && separator != b'-' {
            return None;
        }
        month = rest.month()?;
        rest.expect(separator)?;
        year = if separator == b' ' {
            rest.digits(4)?
        } else {
            let year = rest.digits(2)?;
            year + if year < 70 { 2000 } else { 1900 }
        };
        rest.expect(b' ')?;
        (hour, minute, second) = rest.time()?;
    }
    unix(year, month, day, hour, minute, second)
}

/// Like [`parse`], but accepts only the grammar of RFC 9110, in any case of letters: for `Date` and
/// `Expires` in caches.
///
/// RFC 9111 section 4.2: "Although all date formats are specified to be case-sensitive, a cache
/// recipient SHOULD match the field value case-insensitively"; "A cache recipient SHOULD consider a
/// date with a zone abbreviation other than "GMT" to be invalid for calculating expiration."
///
/// RFC 9110 section 5.6.7: a date that "appears to be more than 50 years in the future" belongs to
/// the last century. With two-digit years below 70, no date does.
pub fn parse_exact(text: &[u8]) -> Option<i64> {
    const NAMES: [&[u8]; 7] =
        [b"thursday", b"friday", b"saturday", b"sunday", b"monday", b"tuesday", b"wednesday"];
    let comma = text.iter().position(|&b| b == b',');
    let (day, rest) = text.split_at(comma.unwrap_or(3).min(text.len()));
    let is_short = WEEK.iter().any(|name| day.eq_ignore_ascii_case(&name[..]));
    let is_long = NAMES.iter().any(|name| day.eq_ignore_ascii_case(name));
    let fits = match comma {
        Some(_) if is_short => has_form(rest, b", 00 aaa 0000 00:00:00 GMT"),
        Some(_) if is_long => has_form(rest, b", 00-aaa-00 00:00:00 GMT"),
        None if is_short => has_form(rest, b" aaa _0 00:00:00 0000"),
        _ => false,
    };
    if !fits {
        return None;
    }
    let mut canonical = text.to_ascii_lowercase();
    let mut before = b' ';
    for byte in &mut canonical {
        if !before.is_ascii_alphabetic() {
            byte.make_ascii_uppercase();
        }
        before = *byte;
    }
    parse(&canonical)
}

/// Whether a text matches a form: `0` stands for a digit, `_` for a digit or a space, `a` for a
/// letter, and any other byte for itself in any case.
fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.len() == form.len()
        && text.iter().zip(form).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            b'_' => byte.is_ascii_digit() || *byte == b' ',
            b'a' => byte.is_ascii_alphabetic(),
            form => byte.eq_ignore_ascii_case(form),
        })
}

/// Unix seconds of the fields, or `None` if there is no such moment.
fn unix(year: u32, month: u32, day: u32, hour: u32, minute: u32, second: u32) -> Option<i64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = MONTH_DAYS[month as usize - 1] + u32::from(leap && month == 2);
    if day == 0 || day > days || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let from_march = i64::from((month + 9) % 12);
    let year = i64::from(year) - i64::from(month <= 2);
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * from_march + 2) / 5
        + i64::from(day)
        - 1
        - 719_468;
    Some(days * SECONDS_PER_DAY + i64::from(hour * 3600 + minute * 60 + second))
}

struct DateReader<'a>(&'a [u8]);

impl DateReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.byte()? == wanted).then_some(())
    }

    fn spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let digit = self.byte()?;
            if !digit.is_ascii_digit() {
                return None;
            }
            value = value * 10 + u32::from(digit - b'0');
        }
        Some(value)
    }

    /// One or two digits.
    fn day(&mut self) -> Option<u32> {
        let first = self.digits(1)?;
        match self.0.first() {
            Some(b' ') => Some(first),
            _ => Some(first * 10 + self.digits(1)?),
        }
    }

    fn month(&mut self) -> Option<u32> {
        let letters = [self.byte()?, self.byte()?, self.byte()?];
        Some(match letters {
            [b'J', b'a', _] => 1,
            [b'F', ..] => 2,
            [b'M', _, b'r'] => 3,
            [b'A', b'p', _] => 4,
            [b'M', ..] => 5,
            [b'J', _, b'n'] => 6,
            [b'J', ..] => 7,
            [b'A', ..] => 8,
            [b'S', ..] => 9,
            [b'O', ..] => 10,
            [b'N', ..] => 11,
            [b'D', ..] => 12,
            _ => return None,
        })
    }

    fn time(&mut self) -> Option<(u32, u32, u32)> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        self.expect(b':')?;
        Some((hour, minute, self.digits(2)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unix: i64) -> String {
        String::from_utf8(format(unix).to_vec()).unwrap()
    }

    #[test]
    fn the_three_forms_of_the_rfc() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "whatever,06 Nov 1994 08:49:37",
        ] {
            assert_eq!(parse(form.as_bytes()), Some(784_111_777), "{form}");
        }
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse(b"Sunday, 06-Nov-69 08:49:37 GMT"), parse(b"S, 06 Nov 2069 08:49:37"));
    }

    #[test]
    fn edges() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(-1), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(&text(i64::MIN)[5..16], "01 Jan 0000");
    }

    #[test]
    fn refused() {
        for form in [
            "",
            "Sun",
            "Sun, ",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Xov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06:Nov 1994 08:49:37 GMT",
            "784111777",
            "Sun Nov  6 08:49:37",
        ] {
            assert_eq!(parse(form.as_bytes()), None, "{form}");
        }
        assert!(parse(b"Tue, 29 Feb 2000 00:00:00 GMT").is_some());
    }

    #[test]
    fn exact_forms_in_any_case() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 NOV 1994 08:49:37 gmt",
            "sun, 06 nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "sunday, 06-nov-94 08:49:37 gmt",
            "Sun Nov  6 08:49:37 1994",
            "sun nov 06 08:49:37 1994",
        ] {
            assert_eq!(parse_exact(form.as_bytes()), Some(784_111_777), "{form}");
        }
        for form in [
            "",
            "0",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 EST",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Xyz 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov 6 08:49:37 1994",
        ] {
            assert_eq!(parse_exact(form.as_bytes()), None, "{form}");
        }
    }

    #[test]
    fn every_day_of_600_years_survives_the_round_trip() {
        for day in -60_000..160_000i64 {
            let time = day * SECONDS_PER_DAY + (day.rem_euclid(SECONDS_PER_DAY));
            assert_eq!(parse(&format(time)), Some(time));
        }
    }
}
