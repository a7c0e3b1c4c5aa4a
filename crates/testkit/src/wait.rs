//! Bounded waiting: the only place in the kit that sleeps, and only between two checks of a
//! condition in another process. Nothing is ever assumed to have happened "by then".

use std::time::{Duration, Instant};

/// How long a test waits for an expected event. Generous: a loaded machine with few cores must not
/// fail a test; only an event that never happens does. `NOWAIT_TESTS_PATIENCE` (seconds), when the
/// tests are built, is for emulated machines.
pub const PATIENCE: Duration = Duration::from_secs(match option_env!("NOWAIT_TESTS_PATIENCE") {
    Some(seconds) => match u64::from_str_radix(seconds, 10) {
        Ok(seconds) => seconds,
        Err(_) => panic!("NOWAIT_TESTS_PATIENCE is a number of seconds"),
    },
    None => 30,
});

/// First pause between two checks; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Longest pause between two checks.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Calls `probe` until it returns a value.
///
/// # Panics
/// After `patience`, naming the awaited event `what`.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, probe: impl FnMut() -> Option<T>) -> T {
    match try_until(patience, probe) {
        Some(value) => value,
        None => panic!("timed out after {patience:?} waiting for: {what}"),
    }
}

/// Like [`until`], but `None` after `patience`.
pub fn try_until<T>(patience: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_what_the_probe_found() {
        let mut looks = 0;
        let found = until("the third look", PATIENCE, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "waiting for: a miracle")]
    fn gives_up_with_a_name() {
        until("a miracle", Duration::from_millis(5), || None::<()>);
    }
}
