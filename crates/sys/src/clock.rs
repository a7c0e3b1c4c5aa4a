//! The clocks of the kernel as plain numbers: an event loop reads them in each of its turns, and
//! arithmetic with one number is far cheaper than with `Instant`, `SystemTime` and `Duration`.
//!
//! Called by the runtime. Unsafe because of `clock_gettime`: it writes to a local that it is lent.

/// The clock of [`Instant`](std::time::Instant), in nanoseconds since some moment.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC).unsigned_abs()
}

/// The same clock, in milliseconds, as of the kernel's last tick: cheaper to read.
#[inline]
pub fn monotonic_coarse_ms() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_COARSE).unsigned_abs() / 1_000_000
}

/// The calendar clock, in milliseconds since 1970. A clock before 1970 counts as 1970.
#[inline]
pub fn unix_ms() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME).max(0).unsigned_abs() / 1_000_000
}

#[inline]
fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call. These clocks exist on every Linux, so
    // the call can't fail; if it did, the time would be zero.
    //
    // The C library's function, not rustix's, which looks for the kernel's in memory that valgrind does
    // not map.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    #[test]
    fn clocks_agree_with_those_of_the_standard_library() {
        let (start, start_ns) = (Instant::now(), super::monotonic_ns());
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!((before..before + 10_000).contains(&super::unix_ms()));
        while start.elapsed() < Duration::from_micros(50) {}
        let passed = Duration::from_nanos(super::monotonic_ns() - start_ns);
        assert!(passed <= start.elapsed() && passed > Duration::ZERO);
    }
}
