//! What the HTTP/1.1 connections of a worker have in common: the configuration, the services of the
//! worker, the list of them all, and whether they have to leave.
//!
//! Made by the worker. Everything in it belongs to the worker's thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use nowait_runtime::{now, sleep, spawn};
use slab::Slab;

use super::connection::Connection;
use super::leaving::{Heir, Moved};
use crate::conf::ServerId;
use crate::generation::Current;
use crate::request::Request;
use crate::services::Services;

/// Number of idle connections that are closed at a time to make room for new ones.
const MAKE_ROOM: usize = 32;

/// Most spare requests kept for new connections.
const SPARE_REQUESTS_MAX: usize = 64;

/// The common state of connections.
pub struct Common {
    current: RefCell<Rc<Current>>,
    /// What the worker provides to requests.
    pub(super) services: Rc<Services>,
    connections: RefCell<Slab<Weak<Connection>>>,
    ending: Cell<Ending>,
    heir: RefCell<Option<Heir>>,
    /// Connections that keep their memory for the next request.
    busy: Cell<usize>,
    /// Memory for the first requests of new connections.
    #[allow(clippy::vec_box, reason = "connections use the boxes as they are")]
    spare_requests: RefCell<Vec<Box<Request>>>,
}

/// Whether and how a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It does not end.
    Serves,
    /// Other workers continue, and take over its connections.
    HandsOver,
    /// The server ends.
    Closes,
}

/// Makes the task of an idle connection receive the end of the stream, so that it closes the
/// connection.
fn hang_up(connection: &Connection) {
    // A socket that can't be shut down is closed already.
    let _ = connection.stream.shutdown(std::net::Shutdown::Both);
}

/// The right to keep the memory of a request while waiting for the next one.
pub(super) struct Busy<'a>(&'a Cell<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Common {
    /// For connections that begin with this configuration.
    pub fn new(current: Rc<Current>, services: Rc<Services>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(current),
            services,
            connections: RefCell::default(),
            ending: Cell::new(Ending::Serves),
            heir: RefCell::default(),
            busy: Cell::new(0),
            spare_requests: RefCell::default(),
        })
    }

    /// The newest configuration.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Makes this the newest configuration; requests in flight keep theirs.
    pub fn set_current(&self, current: Rc<Current>) {
        drop(self.current.replace(current));
    }

    /// Ends gracefully. Connections leave when they wait for a request: at once, or after the
    /// current one. They move to the heir; without an heir, or when it accepts none, idle
    /// connections are closed, after `keepalive_min_timeout` at the earliest.
    pub fn close(&self, heir: Option<Heir>) {
        self.ending.set(if heir.is_some() { Ending::HandsOver } else { Ending::Closes });
        drop(self.heir.replace(heir));
        self.send_away();
    }

    /// Whether the server ends, so that a connection must close after its current request.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.get() == Ending::Closes
    }

    /// Whether a connection that waits for a request must leave this worker.
    pub(super) fn is_left_by(&self, connection: &Connection) -> bool {
        match self.ending.get() {
            Ending::Serves => false,
            Ending::HandsOver => true,
            // Connections without a first request may still send it, as in nginx.
            Ending::Closes => connection.idle().is_some_and(|(since, keep)| since + keep <= now()),
        }
    }

    /// Hands a connection over to another worker. It is returned if the server ends.
    pub(super) fn hand_over(&self, moved: Box<Moved>) -> Result<(), Box<Moved>> {
        let result = match &*self.heir.borrow() {
            Some(heir) => heir(moved),
            None => Err(moved),
        };
        if result.is_err() {
            self.ending.set(Ending::Closes);
        }
        result
    }

    /// Makes connections that wait for a request check whether they have to leave.
    fn send_away(&self) {
        let connections = self.connections.borrow();
        for connection in connections.iter().filter_map(|(_, connection)| connection.upgrade()) {
            let Some((since, keep)) = connection.waits() else { continue };
            let left = (since + keep).saturating_duration_since(now());
            if left.is_zero() || self.ending.get() == Ending::HandsOver {
                connection.stream.wake_receiver();
                continue;
            }
            let connection = Rc::downgrade(&connection);
            drop(spawn(async move {
                sleep(left).await;
                if let Some(connection) = connection.upgrade() {
                    connection.stream.wake_receiver();
                }
            }));
        }
    }

    /// Closes some of the connections that have been idle for longest, so that new ones can be
    /// accepted; false if there are none. nginx: `ngx_drain_connections`.
    pub fn make_room(&self) -> bool {
        let mut idle = self.idle_connections();
        idle.retain(|(_, since, keep)| *since + *keep <= now());
        idle.sort_by_key(|(_, since, _)| *since);
        idle.iter().take(MAKE_ROOM).for_each(|(connection, ..)| hang_up(connection));
        !idle.is_empty()
    }

    /// Connections that wait for another request, with the start of the wait and how long they must
    /// be kept.
    fn idle_connections(&self) -> Vec<(Rc<Connection>, Instant, Duration)> {
        let connections = self.connections.borrow();
        let idle = connections.iter().filter_map(|(_, connection)| {
            let connection = connection.upgrade()?;
            let (since, keep) = connection.idle()?;
            Some((connection, since, keep))
        });
        idle.collect()
    }

    /// Registers a connection; returns its place.
    pub(super) fn enter(&self, connection: &Rc<Connection>) -> u32 {
        let key = self.connections.borrow_mut().insert(Rc::downgrade(connection));
        u32::try_from(key).expect("fewer connections than descriptors")
    }

    /// Removes the connection at this place.
    pub(super) fn leave(&self, place: u32) {
        drop(self.connections.borrow_mut().try_remove(place as usize));
    }

    /// The first request of a connection; reuses the memory of an earlier one if there is any.
    pub(super) fn first_request(
        &self,
        connection: &Rc<Connection>,
        current: Rc<Current>,
        server: ServerId,
    ) -> Box<Request> {
        let spare = self.spare_requests.borrow_mut().pop();
        match spare {
            Some(mut request) => {
                request.reuse(connection.clone(), current, server, now());
                request
            }
            None => Box::new(Request::new(connection.clone(), current, server, now())),
        }
    }

    /// Keeps the memory of an ended request, unless enough is kept already.
    pub(super) fn keep_spare(&self, mut request: Box<Request>) {
        // Detaching drops what the request holds, which may reach back to the worker.
        if self.spare_requests.borrow().len() < SPARE_REQUESTS_MAX {
            request.detach();
            self.spare_requests.borrow_mut().push(request);
        }
    }

    /// Lets another connection keep its memory, if fewer than `max` do.
    pub(super) fn enter_busy(&self, max: usize) -> Option<Busy<'_>> {
        (self.busy.get() < max).then(|| {
            self.busy.set(self.busy.get() + 1);
            Busy(&self.busy)
        })
    }
}
