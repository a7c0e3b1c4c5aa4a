//! The effect of a client closing its side of the connection.
//!
//! Clients that only half-close receive their response unless it is slow. Code that waits for an
//! upstream on behalf of a client registers with [`Connection::watch`]; such a request ends at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use nowait_runtime::buf::{OutBuf, RecvBuf};
use nowait_runtime::net::SendOptions;
use nowait_runtime::sleep;

use super::Connection;

/// What happens to a request when its client closes its side.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// It gets some time to complete: clients may half-close.
    #[default]
    EndLater,
    /// It ends at once.
    EndAtOnce,
    /// It continues (`proxy_ignore_client_abort`).
    Ignore,
}

/// Restores the previous meaning of a hang-up when dropped.
pub struct Watch {
    connection: Rc<Connection>,
    before: OnHangup,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.connection.on_hangup.set(self.before);
    }
}

impl Connection {
    /// Changes the meaning of a client's hang-up until the guard is dropped.
    pub fn watch(self: &Rc<Self>, on_hangup: OnHangup) -> Watch {
        Watch { connection: self.clone(), before: self.on_hangup.replace(on_hangup) }
    }

    /// The current meaning of a client's hang-up.
    pub fn on_hangup(&self) -> OnHangup {
        self.on_hangup.get()
    }

    /// Resolves when the client has left and the request has to end for that reason.
    pub(crate) async fn gone(&self) {
        /// How long a half-closed client may wait for its response.
        const HALF_CLOSED: Duration = Duration::from_secs(5);
        let mut hangup = pin!(self.stream.hangup());
        let mut left = None;
        poll_fn(|cx| {
            let left = match &mut left {
                Some(left) => left,
                None => {
                    // A connection error means that the client is gone, too.
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

    /// Takes the received bytes that were not used yet.
    pub(crate) fn take_input(&self) -> RecvBuf {
        self.input.replace(RecvBuf::empty())
    }

    /// Sends the head of an interim response.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) async fn send_interim(&self, out: OutBuf, timeout: Duration) -> std::io::Result<()> {
        self.stream.send(out, SendOptions::new(timeout)).await
    }
}
