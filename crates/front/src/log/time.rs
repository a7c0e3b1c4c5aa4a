//! The time as logs write it, in the system's zone, computed once per second and thread.
//!
//! For lines that are not written by a worker's turn (which has the runtime's cached clock), and
//! as the reference for the formats.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use nowait_message::http_date::MONTHS;
use nowait_sys::localtime::LocalTime;

/// One second in every form that logs use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamps {
    /// Unix seconds.
    pub unix: i64,
    /// `2026/11/20 10:59:37`: error logs.
    pub error: String,
    /// `20/Nov/2026:10:59:37 +0100`: `$time_local`.
    pub local: String,
    /// `2026-11-20T10:59:37+01:00`: `$time_iso8601`.
    pub iso8601: String,
    /// `Nov 20 10:59:37`: syslog (RFC 3164), with a day of one digit behind two spaces.
    pub syslog: String,
}

impl Stamps {
    /// The forms of a moment.
    pub fn at(unix: i64) -> Stamps {
        Stamps::of(unix, LocalTime::at(unix))
    }

    fn of(unix: i64, time: LocalTime) -> Stamps {
        let LocalTime { year, month, day, hour, minute, second, offset_minutes } = time;
        let month_name = MONTHS
            .get((month as usize).wrapping_sub(1))
            .and_then(|name| std::str::from_utf8(&name[..]).ok())
            .unwrap_or("Jan");
        let sign = if offset_minutes < 0 { '-' } else { '+' };
        let (east_hours, east_minutes) = (offset_minutes.abs() / 60, offset_minutes.abs() % 60);
        let clock = format!("{hour:02}:{minute:02}:{second:02}");
        Stamps {
            unix,
            error: format!("{year:04}/{month:02}/{day:02} {clock}"),
            local: format!(
                "{day:02}/{month_name}/{year}:{clock} {sign}{east_hours:02}{east_minutes:02}"
            ),
            iso8601: format!(
                "{year:04}-{month:02}-{day:02}T{clock}{sign}{east_hours:02}:{east_minutes:02}"
            ),
            syslog: format!("{month_name} {day:2} {clock}"),
        }
    }
}

thread_local! {
    static CACHED: RefCell<Option<Stamps>> = const { RefCell::new(None) };
}

/// Calls `use_it` with the current second's forms.
pub fn with_now<T>(use_it: impl FnOnce(&Stamps) -> T) -> T {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    CACHED.with_borrow_mut(|cached| {
        if cached.as_ref().is_none_or(|stamps| stamps.unix != unix) {
            *cached = Some(Stamps::at(unix));
        }
        use_it(cached.get_or_insert_with(|| Stamps::at(unix)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let time = LocalTime {
            year: 2026,
            month: 11,
            day: 2,
            hour: 1,
            minute: 2,
            second: 3,
            offset_minutes: -210,
        };
        let stamps = Stamps::of(0, time);
        assert_eq!(stamps.error, "2026/11/02 01:02:03");
        assert_eq!(stamps.local, "02/Nov/2026:01:02:03 -0330");
        assert_eq!(stamps.iso8601, "2026-11-02T01:02:03-03:30");
        assert_eq!(stamps.syslog, "Nov  2 01:02:03");
    }

    #[test]
    fn now_is_a_known_moment() {
        with_now(|stamps| {
            assert_eq!(Stamps::at(stamps.unix), *stamps);
            assert!(stamps.unix > 1_700_000_000);
        });
    }
}
