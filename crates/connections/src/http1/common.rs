//! What the HTTP/1.1 connections of a worker have in common: beyond what all connections have, who takes
//! them over when the worker ends, and who serves those that turn out to speak HTTP/2.
//!
//! Made by the worker. Everything in it belongs to the worker's thread.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

use nowait_http::response::LocalFuture;

use super::leaving::{Heir, Moved};
use crate::accepted::Accepted;
use crate::connections::{Connections, Ending};

/// Serves a connection that speaks another protocol, until it is closed.
pub type Serve = fn(Accepted) -> LocalFuture<'static, ()>;

/// The common state of connections.
pub struct Common {
    all: Rc<Connections>,
    heir: RefCell<Option<Heir>>,
    /// HTTP/2.
    pub(super) http2: Serve,
}

impl Deref for Common {
    type Target = Rc<Connections>;

    fn deref(&self) -> &Rc<Connections> {
        &self.all
    }
}

impl Common {
    /// Of some of the connections of a worker.
    pub fn new(all: Rc<Connections>, http2: Serve) -> Rc<Self> {
        Rc::new(Self { all, heir: RefCell::default(), http2 })
    }

    /// Ends gracefully. Connections leave when they wait for a request: at once, or after the
    /// current one. They move to the heir; without an heir, or when it accepts none, idle
    /// connections are closed, after `keepalive_min_timeout` at the earliest.
    pub fn close(&self, heir: Option<Heir>) {
        let ending = if heir.is_some() { Ending::HandsOver } else { Ending::Closes };
        drop(self.heir.replace(heir));
        self.all.end(ending);
    }

    /// Hands a connection over to another worker. It is returned if the server ends.
    pub(super) fn hand_over(&self, moved: Box<Moved>) -> Result<(), Box<Moved>> {
        let result = match &*self.heir.borrow() {
            Some(heir) => heir(moved),
            None => Err(moved),
        };
        if result.is_err() {
            self.all.close_rest();
        }
        result
    }
}
