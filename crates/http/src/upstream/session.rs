//! What a protocol keeps for a connection beyond one request: tables of a header compression, the
//! numbers of streams, windows.
//!
//! Made by the [`CodecFactory`](super::CodecFactory) for a new connection; kept with it while it is
//! idle, also when it moves to another worker. While requests are under way, their codecs share it:
//! each stream of a multiplexed protocol holds one handle.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// A session between two requests.
pub type KeptSession = Box<dyn Any + Send>;

/// A handle to the session of a connection.
#[derive(Clone)]
pub struct Session(Rc<RefCell<KeptSession>>);

impl Session {
    /// The session of a connection, for its first stream.
    pub(super) fn new(kept: KeptSession) -> Self {
        Self(Rc::new(RefCell::new(kept)))
    }

    /// The session, to be kept with its idle connection; `None` while other streams use it.
    pub(super) fn into_kept(self) -> Option<KeptSession> {
        Rc::into_inner(self.0).map(RefCell::into_inner)
    }

    /// Reads or changes the session, which must be of the type that the protocol's factory makes.
    ///
    /// # Panics
    /// If it is of another type, or in use already: a mistake of the protocol's module.
    pub fn with<S: Any, R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut kept = self.0.borrow_mut();
        change(kept.downcast_mut().expect("a factory makes sessions of one type"))
    }

    /// Number of handles besides the connection's own: the streams under way.
    pub fn streams(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("streams", &self.streams()).finish_non_exhaustive()
    }
}
