//! Bounded waiting: the only place of the kit that sleeps, and only between two looks at a
//! condition of another process. Nothing is ever assumed to have happened "by then".

use std::time::{Duration, Instant};

/// How long a test waits for something that must happen. Generous: a loaded machine with few
/// cores must not fail a test; only a thing that never happens does.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// First pause between two looks; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Looks with `probe` until it yields a value.
///
/// # Panics
/// After `patience`, naming `what` was waited for.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, probe: impl FnMut() -> Option<T>) -> T {
    match try_until(patience, probe) {
        Some(value) => value,
        None => panic!("waited {patience:?} in vain for: {what}"),
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
    #[should_panic(expected = "in vain for: a miracle")]
    fn gives_up_with_a_name() {
        until("a miracle", Duration::from_millis(5), || None::<()>);
    }
}
