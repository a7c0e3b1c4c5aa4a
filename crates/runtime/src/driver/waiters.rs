//! The wakers of tasks that wait for a socket.

use std::task::{Context, Waker};

use nowait_spare::LocalSpares;

/// Stores the waker unless the same one is already there.
pub(super) fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        // The replaced waker is another task's or a combinator's: dropping it runs no task code.
        _ => *place = Some(cx.waker().clone()),
    }
}

/// Wakers of waits other than reads. An idle connection has none and allocates no place for them.
#[derive(Default)]
pub(super) struct Waiters(Option<Box<Places>>);

#[derive(Default)]
struct Places {
    write: Option<Waker>,
    hangup: Option<Waker>,
}

/// Number of unused places that a thread keeps for the next connections that wait.
const SPARE_PLACES_MAX: usize = 256;

thread_local! {
    static SPARE_PLACES: LocalSpares<Box<Places>> = const { LocalSpares::new(SPARE_PLACES_MAX) };
}

impl Waiters {
    fn places(&mut self) -> &mut Places {
        self.0.get_or_insert_with(|| LocalSpares::take_local(&SPARE_PLACES).unwrap_or_default())
    }

    pub(super) fn remember_write(&mut self, cx: &Context<'_>) {
        remember(&mut self.places().write, cx);
    }

    pub(super) fn remember_hangup(&mut self, cx: &Context<'_>) {
        remember(&mut self.places().hangup, cx);
    }

    /// Whether a task waits to send.
    pub(super) fn await_write(&self) -> bool {
        self.0.as_ref().is_some_and(|places| places.write.is_some())
    }

    pub(super) fn take_write(&mut self) -> Option<Waker> {
        self.0.as_mut()?.write.take()
    }

    pub(super) fn take_hangup(&mut self) -> Option<Waker> {
        self.0.as_mut()?.hangup.take()
    }

    /// Moves an unused place to the thread's spares.
    pub(super) fn trim(&mut self) {
        let unused = |places: &mut Box<Places>| places.write.is_none() && places.hangup.is_none();
        if let Some(places) = self.0.take_if(unused) {
            LocalSpares::keep_local(&SPARE_PLACES, places);
        }
    }
}
