//! Whether the client of a request on a stream is still there.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use nowait_http::exchange::OnHangup;
use nowait_http::response::LocalFuture;

/// The client's presence, as far as one stream can tell.
#[derive(Default)]
pub(crate) struct Presence {
    pub(crate) on_hangup: Cell<OnHangup>,
    /// Reset, or the connection has ended.
    gone: Cell<bool>,
    hangups: RefCell<Vec<Waker>>,
}

impl Presence {
    /// The client has left.
    pub(crate) fn leave(&self) {
        self.gone.set(true);
        for waker in self.hangups.take() {
            waker.wake();
        }
    }

    /// Whether the client no longer receives the response.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Resolves when the client has left and the request has to end for that reason. Unlike a half-closed
    /// connection, a stream that was reset never takes a response.
    pub(crate) async fn gone(&self) {
        poll_fn(|cx| match self.gone.get() && self.on_hangup.get() != OnHangup::Ignore {
            true => Poll::Ready(()),
            false => self.watch(cx),
        })
        .await;
    }

    /// Has the task woken when the client leaves.
    pub(crate) fn watch(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut hangups = self.hangups.borrow_mut();
        if !hangups.iter().any(|waker| waker.will_wake(cx.waker())) {
            hangups.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Resolves when the client has left.
    pub(crate) fn hangup(&self) -> LocalFuture<'_, ()> {
        Box::pin(poll_fn(|cx| match self.gone.get() {
            true => Poll::Ready(()),
            false => self.watch(cx),
        }))
    }
}
