//! Wakes the reaper: connections with activity, by their numbers.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Wakes the reaper for one connection.
pub(super) struct Watch {
    pub(super) peer: u64,
    pub(super) serial: u64,
    pub(super) wakeup: Arc<Wakeup>,
}

/// The reason why the reaper of a worker was woken.
#[derive(Default)]
pub(super) struct Wakeup {
    woken: Mutex<WakeupList>,
}

#[derive(Default)]
struct WakeupList {
    /// Peer and number of connections with activity.
    list: Vec<(u64, u64)>,
    reaper: Option<Waker>,
}

thread_local! {
    /// The wakeup of this worker's reaper.
    pub(super) static WAKEUP: Arc<Wakeup> = Arc::default();
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakeup.ring(Some((self.peer, self.serial)));
    }
}

impl Wakeup {
    pub(super) fn ring(&self, what: Option<(u64, u64)>) {
        let reaper = {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            woken.list.extend(what);
            woken.reaper.take()
        };
        if let Some(reaper) = reaper {
            reaper.wake();
        }
    }

    /// The connections to check; if none, the reaper is woken once there are any.
    pub(super) fn listen(&self, cx: &Context<'_>) -> Vec<(u64, u64)> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !woken.reaper.as_ref().is_some_and(|reaper| reaper.will_wake(cx.waker())) {
            woken.reaper = Some(cx.waker().clone());
        }
        std::mem::take(&mut woken.list)
    }
}
