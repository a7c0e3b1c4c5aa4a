//! A client's HTTP/1.1 connection: its properties and its memory. [`task`](super::task) serves it.

use std::cell::{Cell, RefCell, RefMut};
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_front::handover::Handover;
use nowait_h1::{Limits, server};
use nowait_http::exchange::OnHangup;
use nowait_runtime::net::{Address, Stream};
use nowait_sys::listen::ListenAddress;

use super::common::Common;
use super::waiting::{Idle, IdleTimes};
use crate::accepted::Accepted;
use crate::connections::Held;

/// A connection.
pub struct Connection {
    accepted: Accepted,
    pub(super) idle: Cell<Idle>,
    pub(super) idle_times: Cell<IdleTimes>,
    pub(super) on_hangup: Cell<OnHangup>,
    /// What it has in common with others.
    pub(super) common: Rc<Common>,
    /// The protocol state; an idle connection needs none.
    pub(super) h1: RefCell<Option<Box<server::ServerConnection>>>,
    /// The worker that accepted it still has the descriptor.
    pub(super) shared: Cell<bool>,
}

impl Deref for Connection {
    type Target = Accepted;

    fn deref(&self) -> &Accepted {
        &self.accepted
    }
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(
        common: Rc<Common>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        let accepted = Accepted::new(Rc::clone(&common), stream, peer, listen);
        Self::of(common, accepted).enter()
    }

    /// A connection that was accepted elsewhere and passed on.
    pub fn of_passed(common: Rc<Common>, connection: Handover) -> Rc<Self> {
        let accepted = Accepted::of_passed(Rc::clone(&common), connection);
        Self::of(common, accepted).enter()
    }

    /// Not registered yet.
    pub(super) fn of(common: Rc<Common>, accepted: Accepted) -> Self {
        Self {
            accepted,
            idle: Cell::default(),
            idle_times: Cell::default(),
            on_hangup: Cell::default(),
            common,
            h1: RefCell::new(None),
            shared: Cell::new(false),
        }
    }

    /// Registers it.
    pub(super) fn enter(self) -> Rc<Self> {
        let connection = Rc::new(self);
        let held: Weak<dyn Held> = Rc::<Self>::downgrade(&connection);
        connection.accepted.enter(held);
        connection
    }

    /// The connection without what HTTP/1.1 adds, for another protocol.
    pub(super) fn into_accepted(self) -> Accepted {
        self.accepted
    }

    /// The protocol state, created anew after an idle phase.
    pub(super) fn h1(&self) -> RefMut<'_, server::ServerConnection> {
        RefMut::map(self.h1.borrow_mut(), |h1| {
            &mut **h1
                .get_or_insert_with(|| Box::new(server::ServerConnection::new(Limits::default())))
        })
    }
}

impl Held for Connection {
    fn waits(&self) -> Option<(Instant, Duration)> {
        Connection::waits(self)
    }

    fn idle(&self) -> Option<(Instant, Duration)> {
        Connection::idle(self)
    }

    fn wake(&self) {
        self.stream.wake_receiver();
    }

    fn hang_up(&self) {
        // A socket that can't be shut down is closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
