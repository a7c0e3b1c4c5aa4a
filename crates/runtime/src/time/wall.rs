//! The calendar clock of a worker: read once per turn, formatted once per second.
//!
//! Called by: http (Date header), logs, variables. Never reads a file: the time zone is loaded by
//! [`WallClock::new`], which runs before the loop.

use std::cell::Cell;

use nowait_sys::clock;
use nowait_sys::localtime::LocalTime;

const DAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A `Date` header value: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
pub type HttpDate = [u8; 29];
/// nginx's `$time_local`: `28/Sep/1970:12:00:00 +0600`.
pub type LogTime = [u8; 26];
/// nginx's `$time_iso8601`: `1970-09-28T12:00:00+06:00`.
pub type IsoTime = [u8; 25];
/// The time of an error log line: `1970/09/28 12:00:00`.
pub type ErrorTime = [u8; 19];

/// The formatted texts of one second.
struct Texts {
    second: Cell<u64>,
    offset: Cell<i32>,
    http_date: Cell<HttpDate>,
    log: Cell<LogTime>,
    iso: Cell<IsoTime>,
    error: Cell<ErrorTime>,
}

/// The cached calendar clock; see [`crate::clock`].
pub struct WallClock {
    unix_ms: Cell<u64>,
    texts: Texts,
}

impl WallClock {
    /// Loads the time zone (this may read files: never on a running loop) and the current time.
    pub fn new() -> WallClock {
        // The first conversion of a process loads the time zone.
        LocalTime::at(0);
        let clock = WallClock { unix_ms: Cell::new(0), texts: Texts::of(0) };
        clock.refresh();
        clock
    }

    /// Reads the system's clock. The worker calls it once per turn.
    pub(crate) fn refresh(&self) {
        self.set(clock::unix_ms());
    }

    /// Sets the time: used by the simulated driver's clock.
    pub(crate) fn set(&self, unix_ms: u64) {
        self.unix_ms.set(unix_ms);
    }

    /// Milliseconds since 1970 as of this turn.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms.get()
    }

    /// Seconds since 1970 as of this turn.
    pub fn unix_seconds(&self) -> u64 {
        self.unix_ms.get() / 1000
    }

    /// The value of a `Date` header.
    pub fn http_date(&self) -> HttpDate {
        self.texts().http_date.get()
    }

    /// nginx's `$time_local`.
    pub fn log_time(&self) -> LogTime {
        self.texts().log.get()
    }

    /// nginx's `$time_iso8601`.
    pub fn iso_time(&self) -> IsoTime {
        self.texts().iso.get()
    }

    /// The time of an error log line.
    pub fn error_time(&self) -> ErrorTime {
        self.texts().error.get()
    }

    /// Seconds by which local time is ahead of UTC.
    pub fn utc_offset_seconds(&self) -> i32 {
        self.texts().offset.get()
    }

    fn texts(&self) -> &Texts {
        let second = self.unix_seconds();
        if self.texts.second.get() != second {
            self.texts.set(second);
        }
        &self.texts
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

impl Texts {
    fn of(second: u64) -> Texts {
        let texts = Texts {
            second: Cell::new(second),
            offset: Cell::new(0),
            http_date: Cell::new([0; 29]),
            log: Cell::new([0; 26]),
            iso: Cell::new([0; 25]),
            error: Cell::new([0; 19]),
        };
        texts.set(second);
        texts
    }

    fn set(&self, second: u64) {
        let offset = LocalTime::at(second as i64).offset_minutes * 60;
        let local = Civil::of(second as i64 + i64::from(offset));
        let mut iso = *b"0000-00-00T00:00:00+00:00";
        local.write_date(&mut iso, b'-');
        local.write_time(&mut iso[11..]);
        write_zone(&mut iso[19..], offset, 4);
        let mut log = *b"00/Xxx/0000:00:00:00 +0000";
        put2(&mut log[0..], local.day);
        log[3..6].copy_from_slice(MONTHS[local.month as usize - 1]);
        put4(&mut log[7..], local.year);
        local.write_time(&mut log[12..]);
        write_zone(&mut log[21..], offset, 3);
        let mut error = *b"0000/00/00 00:00:00";
        local.write_date(&mut error, b'/');
        local.write_time(&mut error[11..]);
        self.second.set(second);
        self.offset.set(offset);
        self.http_date.set(http_date(second));
        self.log.set(log);
        self.iso.set(iso);
        self.error.set(error);
    }
}

/// Formats any time (seconds since 1970) as an HTTP date, for example for `Last-Modified`.
pub fn http_date(unix_seconds: u64) -> HttpDate {
    let utc = Civil::of(unix_seconds as i64);
    let mut text = *b"Xxx, 00 Xxx 0000 00:00:00 GMT";
    text[0..3].copy_from_slice(DAYS[utc.weekday as usize]);
    put2(&mut text[5..], utc.day);
    text[8..11].copy_from_slice(MONTHS[utc.month as usize - 1]);
    put4(&mut text[12..], utc.year);
    utc.write_time(&mut text[17..]);
    text
}

/// Formats any time in UTC with milliseconds (RFC 3339): `2026-11-28T12:00:00.123Z`.
pub fn utc_time(unix_ms: u64) -> String {
    let utc = Civil::of((unix_ms / 1000) as i64);
    let mut text = *b"0000-00-00T00:00:00";
    utc.write_date(&mut text, b'-');
    utc.write_time(&mut text[11..]);
    format!("{}.{:03}Z", String::from_utf8_lossy(&text), unix_ms % 1000)
}

/// A date of the proleptic Gregorian calendar and a time of day.
#[derive(Debug, PartialEq, Eq)]
struct Civil {
    year: u32,
    month: u32,
    day: u32,
    weekday: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Civil {
    /// From seconds since 1970, in any zone. Years are clamped to 0..=9999, the limit of the
    /// formats. (Days to date: era arithmetic with years that begin in March, so that the leap day
    /// comes last.)
    fn of(seconds: i64) -> Civil {
        // 9999-12-31T23:59:59, and year 0.
        let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
        let days = seconds.div_euclid(86_400);
        let rest = seconds.rem_euclid(86_400) as u32;
        let from_0000_03 = days + 719_468;
        let era = from_0000_03.div_euclid(146_097);
        let day_of_era = from_0000_03.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year: year as u32,
            month: month as u32,
            day: day as u32,
            weekday: (days + 4).rem_euclid(7) as u32,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// `YYYY-MM-DD` with the given separator.
    fn write_date(&self, out: &mut [u8], separator: u8) {
        put4(out, self.year);
        out[4] = separator;
        put2(&mut out[5..], self.month);
        out[7] = separator;
        put2(&mut out[8..], self.day);
    }

    /// `HH:MM:SS`; the colons are already there.
    fn write_time(&self, out: &mut [u8]) {
        put2(out, self.hour);
        put2(&mut out[3..], self.minute);
        put2(&mut out[6..], self.second);
    }
}

/// `+HHMM`, the minutes at `minutes_at`.
fn write_zone(out: &mut [u8], offset: i32, minutes_at: usize) {
    out[0] = if offset < 0 { b'-' } else { b'+' };
    let minutes = offset.unsigned_abs() / 60;
    put2(&mut out[1..], minutes / 60);
    put2(&mut out[minutes_at..], minutes % 60);
}

fn put2(out: &mut [u8], value: u32) {
    out[0] = b'0' + (value / 10 % 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

fn put4(out: &mut [u8], value: u32) {
    put2(out, value / 100);
    put2(&mut out[2..], value % 100);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates() {
        let check = |seconds, text: &str| {
            assert_eq!(String::from_utf8_lossy(&http_date(seconds)), text);
        };
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"); // the example of RFC 9110
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT");
        check(4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT");
        check(u64::MAX / 2, "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = Civil::of(-1);
        for day in 0..200_000 {
            let date = Civil::of(day * 86_400);
            assert_eq!(date.weekday, (before.weekday + 1) % 7);
            let next_month = date.day == 1 && date.month == before.month % 12 + 1;
            assert!(date.day == before.day + 1 || next_month, "{before:?} {date:?}");
            before = date;
        }
    }

    #[test]
    fn zones() {
        let mut text = *b"+00:00";
        write_zone(&mut text, -(5 * 3600 + 30 * 60), 4);
        assert_eq!(&text, b"-05:30");
        let mut text = *b"+0000";
        write_zone(&mut text, 6 * 3600, 3);
        assert_eq!(&text, b"+0600");
    }

    #[test]
    fn texts_follow_the_second() {
        let clock = WallClock::new();
        clock.set(1_000);
        let first = clock.http_date();
        clock.set(1_999);
        assert_eq!(clock.http_date(), first);
        clock.set(2_000);
        assert_eq!(&clock.http_date()[23..25], b"02");
    }
}
