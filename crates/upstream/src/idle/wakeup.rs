//! What wakes the keeper: connections with activity, by their numbers.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Wakes the keeper for one connection.
pub(super) struct Watch {
    pub(super) peer: u64,
    pub(super) serial: u64,
    pub(super) bell: Arc<Wakeup>,
}

/// Why the keeper of a worker was woken.
#[derive(Default)]
pub(super) struct Wakeup {
    rung: Mutex<WakeupList>,
}

#[derive(Default)]
struct WakeupList {
    /// Peer and number of connections with activity.
    list: Vec<(u64, u64)>,
    keeper: Option<Waker>,
}

thread_local! {
    /// The bell of this worker's keeper.
    pub(super) static BELL: Arc<Wakeup> = Arc::default();
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring(Some((self.peer, self.serial)));
    }
}

impl Wakeup {
    pub(super) fn ring(&self, what: Option<(u64, u64)>) {
        let keeper = {
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            rung.list.extend(what);
            rung.keeper.take()
        };
        if let Some(keeper) = keeper {
            keeper.wake();
        }
    }

    /// The connections to check; if none, the keeper is woken once there are any.
    pub(super) fn listen(&self, cx: &Context<'_>) -> Vec<(u64, u64)> {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !rung.keeper.as_ref().is_some_and(|keeper| keeper.will_wake(cx.waker())) {
            rung.keeper = Some(cx.waker().clone());
        }
        std::mem::take(&mut rung.list)
    }
}
