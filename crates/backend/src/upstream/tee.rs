//! A second destination of a response body: the cache, `proxy_store`.

use bytes::Bytes;
use nowait_http::response::{BodySource, LocalFuture};

/// Receives the content of a response while it is sent to the client.
///
/// A failing tee does not affect the response, which continues without it. The engine reads no more
/// while a write is in progress, so a tee that must not slow its client down has to give up when
/// its disk is too slow.
pub trait Tee {
    /// Takes the next piece.
    fn write(&mut self, piece: Bytes) -> LocalFuture<'_, ()>;

    /// The content has ended. `complete`: all of it was received, as confirmed by its framing or by
    /// an end that is normal for such responses; `false`: the upstream or the client broke off.
    fn end(self: Box<Self>, complete: bool) -> LocalFuture<'static, ()>;

    /// The upstream has broken off: returns the source of the content after the [written](Self::write)
    /// part, in memory, if there is one.
    fn resume(&mut self) -> Option<Box<dyn BodySource>> {
        None
    }

    /// Whether the client's response ends only after [`end`](Self::end) has.
    fn comes_first(&self) -> bool {
        false
    }

    /// Whether the rest is wanted after the client has left. Checked after each piece.
    fn outlives_client(&self) -> bool {
        true
    }
}
