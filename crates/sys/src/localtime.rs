//! The wall clock in the time zone of the system (`localtime_r`).
//!
//! Called by all code that writes logs. Reads the zone file on its first call: make one call before
//! worker threads start.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, for example 2026.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60.
    pub second: u32,
    /// Minutes east of UTC.
    pub offset_minutes: i32,
}

impl LocalTime {
    /// The moment `unix_seconds` after 1970.
    pub fn at(unix_seconds: i64) -> LocalTime {
        // SAFETY: `tm` is a plain C structure for which all zeros is a value.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to locals that outlive the call; the function is thread-safe
        // (the C library locks its time zone), and nothing changes the environment meanwhile, as
        // `process::replace_environment` demands a single thread. On failure `tm` stays zero.
        unsafe { libc::localtime_r(&raw const unix_seconds, &raw mut tm) };
        LocalTime {
            year: tm.tm_year + 1900,
            month: (tm.tm_mon + 1).unsigned_abs(),
            day: tm.tm_mday.unsigned_abs(),
            hour: tm.tm_hour.unsigned_abs(),
            minute: tm.tm_min.unsigned_abs(),
            second: tm.tm_sec.unsigned_abs(),
            offset_minutes: i32::try_from(tm.tm_gmtoff / 60).unwrap_or(0),
        }
    }

    /// Now.
    pub fn now() -> LocalTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LocalTime::at(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// `2026/11/20 10:59:37`, the beginning of error log lines.
    pub fn error_log(&self) -> String {
        let LocalTime { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// The name of the system's zone at the moment `unix_seconds` after 1970, such as `CET`.
pub fn zone_name(unix_seconds: i64) -> String {
    // SAFETY: `tm` is a plain C structure for which all zeros is a value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: as in [`LocalTime::at`].
    unsafe { libc::localtime_r(&raw const unix_seconds, &raw mut tm) };
    if tm.tm_zone.is_null() {
        return String::new();
    }
    // SAFETY: the C library's pointer to a name that ends in zero; it belongs to the time zone,
    // which lives as long as the process, and is copied here.
    let name = unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_names() {
        let name = zone_name(1_000_000_000);
        assert!(!name.is_empty() && name.is_ascii(), "{name}");
    }

    #[test]
    fn a_known_moment() {
        let time = LocalTime::at(1_000_000_000);
        // Local noon differs by zone; the fields must convert back to the same moment.
        let utc_minutes = (time.hour * 60 + time.minute) as i32 - time.offset_minutes;
        assert_eq!(utc_minutes.rem_euclid(24 * 60), 60 + 46);
        assert_eq!((time.year, time.month, time.second), (2001, 9, 40));
        assert!(time.error_log().starts_with("2001/09/"));
    }
}
