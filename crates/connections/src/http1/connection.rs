//! A client's connection while it has requests of HTTP/1.1: the state of the protocol. An idle connection has
//! none. [`task`](super::task) serves it.

use std::cell::{RefCell, RefMut};
use std::ops::Deref;
use std::rc::Rc;

use nowait_h1::{Limits, server};

use crate::connection::Connection;

/// A connection that is being served.
pub struct Http1Connection {
    base: Rc<Connection>,
    h1: RefCell<server::ServerConnection>,
}

impl Deref for Http1Connection {
    type Target = Rc<Connection>;

    fn deref(&self) -> &Rc<Connection> {
        &self.base
    }
}

impl Http1Connection {
    /// A connection whose next request has begun to arrive.
    pub fn new(base: Rc<Connection>) -> Rc<Self> {
        let h1 = RefCell::new(server::ServerConnection::new(Limits::default()));
        Rc::new(Self { base, h1 })
    }

    /// The state of the protocol.
    pub(super) fn h1(&self) -> RefMut<'_, server::ServerConnection> {
        self.h1.borrow_mut()
    }
}
