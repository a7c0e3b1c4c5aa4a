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

/// What becomes of a request when its client ends its side.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// It is given some time: clients may half-close.
    #[default]
    EndLater,
    /// It ends.
    EndAtOnce,
    /// It goes on (`proxy_ignore_client_abort`).
    Ignore,
}

/// Restores what a hang-up meant before, when dropped.
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
    /// Changes what a hang-up of the client means, until the guard is dropped.
    pub fn watch(self: &Rc<Self>, on_hangup: OnHangup) -> Watch {
        Watch { connection: self.clone(), before: self.on_hangup.replace(on_hangup) }
    }

    /// What a hang-up of the client means now.
    pub fn on_hangup(&self) -> OnHangup {
        self.on_hangup.get()
    }

    /// Resolves when the client has left and the request has to end therefore.
    pub(crate) async fn gone(&self) {
        /// How long a client that sends no more may wait for its answer.
        const HALF_CLOSED: Duration = Duration::from_secs(5);
        let mut hangup = pin!(self.stream.hangup());
        let mut left = None;
        poll_fn(|cx| {
            let left = match &mut left {
                Some(left) => left,
                None => {
                    // An error of the connection means that the client is gone, too.
                    let _ = ready!(hangup.as_mut().poll(cx));
                    left.insert(sleep(HALF_CLOSED))
                }
            };
            match self.on_hangup.get() {
                OnHangup::EndAtOnce => Poll::Ready(()),
                // Whoever changes this is polled before, in the same task.
                OnHangup::Ignore => Poll::Pending,
                OnHangup::EndLater => pin!(left).poll(cx),
            }
        })
        .await;
    }

    /// Takes what has come and was not used yet.
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
