//! The effect of a client closing its side of the connection.
//!
//! Clients that only half-close receive their response unless it is slow. Code that waits for an
//! upstream on behalf of a client holds a [`Watch`](nowait_http::exchange::Watch); such a request ends at
//! once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use nowait_http::exchange::OnHangup;
use nowait_runtime::sleep;

use super::connection::Http1Connection;

impl Http1Connection {
    /// Resolves when the client has left and the request has to end for that reason.
    pub(crate) async fn gone(&self) {
        /// The time that a half-closed client may wait for its response.
        const HALF_CLOSED: Duration = Duration::from_secs(5);
        let mut hangup = pin!(self.stream.hangup());
        let mut left = None;
        poll_fn(|cx| {
            let left = match &mut left {
                Some(left) => left,
                None => {
                    // A connection error counts as a disconnect, too.
                    let _ = ready!(hangup.as_mut().poll(cx));
                    left.insert(sleep(HALF_CLOSED))
                }
            };
            match self.on_hangup.get() {
                OnHangup::EndAtOnce => Poll::Ready(()),
                // The code that changes this is polled earlier in the same task.
                OnHangup::Ignore => Poll::Pending,
                OnHangup::EndLater => pin!(left).poll(cx),
            }
        })
        .await;
    }
}
