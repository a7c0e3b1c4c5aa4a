//! A second destination of a response body: the cache, `proxy_store`.

use bytes::Bytes;

use crate::response::LocalFuture;

/// Gets the content of a response while it is sent to the client.
///
/// Its failures are its own: the response goes on without it. The engine reads no more while a
/// write is under way, so a tee that must not slow its client down gives up by itself when its disk
/// is too slow.
pub trait Tee {
    /// Takes the next piece.
    fn write(&mut self, piece: Bytes) -> LocalFuture<'_, ()>;

    /// The content has ended. `complete`: it is all there, and framed so that this is certain, or
    /// ended as such responses end; `false`: the upstream or the client broke off.
    fn end(self: Box<Self>, complete: bool) -> LocalFuture<'static, ()>;

    /// Whether the client's response ends only when [`end`](Self::end) has.
    fn comes_first(&self) -> bool {
        false
    }

    /// Whether the rest is wanted when the client has left. Asked after each piece.
    fn outlives_client(&self) -> bool {
        true
    }
}
