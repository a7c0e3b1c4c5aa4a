//! Bounded waiting: the only place in the kit that sleeps, and only between two checks of a
//! condition in another process. Nothing is ever assumed to have happened "by then".

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
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

/// Longest time between two looks at the clock that counts: a virtual machine may stand still for longer,
/// and its clock goes on all the same.
pub(crate) const STEP: Duration = Duration::from_millis(500);

/// The time for which an event is still awaited. Looks at the clock must be at most [`STEP`] apart, because
/// more is not counted: a test waits as long as its server could run.
struct WaitBudget {
    left: Duration,
    looked: Instant,
}

impl WaitBudget {
    fn new(patience: Duration) -> WaitBudget {
        WaitBudget { left: patience, looked: Instant::now() }
    }

    /// Looks at the clock.
    fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked).min(STEP);
        self.looked = now;
        self.left = self.left.saturating_sub(passed);
        self.left.is_zero()
    }
}

/// Reads from a socket whose own timeout is at most [`STEP`], for as long as `patience` lasts.
pub(crate) fn read(
    mut stream: &TcpStream,
    buffer: &mut [u8],
    patience: Duration,
) -> io::Result<usize> {
    let mut patience = WaitBudget::new(patience);
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    && !patience.is_over() => {}
            result => return result,
        }
    }
}

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
    let mut patience = WaitBudget::new(patience);
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if patience.is_over() {
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
    fn a_pause_of_the_machine_does_not_count() {
        let mut patience = WaitBudget::new(3 * STEP);
        let begin = patience.looked;
        assert!(!patience.is_over_at(begin + 100 * STEP));
        assert!(!patience.is_over_at(begin + 101 * STEP));
        assert!(patience.is_over_at(begin + 102 * STEP));
    }

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
