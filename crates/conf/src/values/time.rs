//! Times: `60`, `30s`, `1h30m`, `1d 2h` (nginx: `ngx_parse_time`).

use std::fmt;
use std::time::Duration;

use crate::field::{Value, ValueError};

/// A time with milliseconds: units `ms`, `s`, `m`, `h`, `d`, `w`; a bare number is seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Msec(pub u64);

/// A time in whole seconds: units `s`, `m`, `h`, `d`, `w`, `M` (30 days), `y` (365 days).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(pub u64);

impl Msec {
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Seconds {
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl fmt::Display for Seconds {
    /// With the largest unit that leaves no rest: `90s`, `10m`, `1d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        let unit =
            units.into_iter().find(|(seconds, _)| self.0 > 0 && self.0.is_multiple_of(*seconds));
        let (seconds, unit) = unit.unwrap_or((1, "s"));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

/// nginx's largest time, in the unit that is read.
const MAX: u64 = i64::MAX as u64;

/// Units in the order in which they may follow each other, with their seconds. A blank after a
/// number means seconds too, and nothing may follow it but a last bare number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Blank,
}

fn unit(first: u8, next: Option<u8>) -> Option<(Unit, u64)> {
    Some(match first {
        b'y' => (Unit::Year, 365 * 86_400),
        b'M' => (Unit::Month, 30 * 86_400),
        b'w' => (Unit::Week, 7 * 86_400),
        b'd' => (Unit::Day, 86_400),
        b'h' => (Unit::Hour, 3_600),
        b'm' if next == Some(b's') => (Unit::Millisecond, 1),
        b'm' => (Unit::Minute, 60),
        b's' => (Unit::Second, 1),
        b' ' => (Unit::Blank, 1),
        _ => return None,
    })
}

fn parse(text: &[u8], milliseconds: bool) -> Option<u64> {
    let per_second = if milliseconds { 1000 } else { 1 };
    let mut total: u64 = 0;
    let mut value: u64 = 0;
    let mut any_digit = false;
    let mut last: Option<Unit> = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte.is_ascii_digit() {
            value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
            if value > MAX {
                return None;
            }
            any_digit = true;
            continue;
        }
        let (unit, mut scale) = unit(byte, text.get(at).copied())?;
        let allowed = match unit {
            Unit::Year | Unit::Month if milliseconds => false,
            Unit::Millisecond if !milliseconds => false,
            // A blank after seconds is refused, for every number.
            Unit::Blank => last < Some(Unit::Second),
            _ => last < Some(unit),
        };
        if !allowed {
            return None;
        }
        if unit == Unit::Millisecond {
            at += 1;
        } else {
            scale *= per_second;
        }
        last = Some(unit);
        total =
            value.checked_mul(scale).and_then(|v| v.checked_add(total)).filter(|t| *t <= MAX)?;
        value = 0;
        while text.get(at) == Some(&b' ') {
            at += 1;
        }
    }
    if !any_digit {
        return None;
    }
    value.checked_mul(per_second)?.checked_add(total).filter(|total| *total <= MAX)
}

impl Value for Msec {
    fn from_word(text: &[u8]) -> Result<Msec, ValueError> {
        let invalid = || ValueError::value().expected("a time such as 500ms, 30s, 5m or 1h30m");
        parse(text, true).map(Msec).ok_or_else(invalid)
    }
}

impl Value for Seconds {
    fn from_word(text: &[u8]) -> Result<Seconds, ValueError> {
        let invalid = || ValueError::value().expected("a time such as 30s, 5m, 1h30m or 1d");
        parse(text, false).map(Seconds).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds() {
        let time = |text: &str| Msec::from_word(text.as_bytes()).map(|t| t.0).ok();
        assert_eq!(time("0"), Some(0));
        assert_eq!(time("60"), Some(60_000));
        assert_eq!(time("60s"), Some(60_000));
        assert_eq!(time("500ms"), Some(500));
        assert_eq!(time("1h30m"), Some(5_400_000));
        assert_eq!(time("1d 2h"), Some(93_600_000));
        assert_eq!(time("1w1s1ms"), Some(604_801_001));
        assert_eq!(time("1m 30"), Some(90_000));
        for wrong in
            ["", "s", "1y", "1M", "1s1m", "1m1m", "1s 1s", "1x", "-1", "9223372036854775807"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds() {
        let time = |text: &str| Seconds::from_word(text.as_bytes()).map(|t| t.0).ok();
        assert_eq!(time("1y"), Some(31_536_000));
        assert_eq!(time("1M"), Some(2_592_000));
        assert_eq!(time("1y1M1w1d1h1m1s"), Some(31_536_000 + 2_592_000 + 604_800 + 90_061));
        assert_eq!(time("10"), Some(10));
        for text in ["0s", "1s", "90s", "1m", "90m", "36h", "7d"] {
            assert_eq!(Seconds::from_word(text.as_bytes()).unwrap().to_string(), text);
        }
        for wrong in ["", "1ms", "1h1d", "2 3 4", "99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
