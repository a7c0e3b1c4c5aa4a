//! What all client connections of a worker have in common, whatever their protocol: the configuration,
//! the services of the worker, the list of them, and whether they have to leave.
//!
//! Made by the worker. Everything in it belongs to the worker's thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use nowait_http::conf::ServerId;
use nowait_http::exchange::Exchange;
use nowait_http::generation::Current;
use nowait_http::request::Request;
use nowait_http::services::Services;
use nowait_runtime::{now, sleep, spawn};
use slab::Slab;

/// Number of idle connections that are closed at a time to make room for new ones.
const MAKE_ROOM: usize = 32;

/// Most spare requests kept for new connections.
const SPARE_REQUESTS_MAX: usize = 64;

/// A connection as the list sees it.
pub trait Held {
    /// When the wait for a request began, the first one included, and how long the connection must
    /// be kept; `None` if it is not waiting.
    fn waits(&self) -> Option<(Instant, Duration)>;

    /// The same, but for the first request.
    fn idle(&self) -> Option<(Instant, Duration)>;

    /// Makes the connection's task look whether it has to leave.
    fn wake(&self);

    /// Makes the connection's task find that the client has left, so that it closes the
    /// connection.
    fn hang_up(&self);
}

/// The common state of connections.
pub struct Connections {
    current: RefCell<Rc<Current>>,
    /// What the worker provides to requests.
    pub services: Rc<Services>,
    list: RefCell<Slab<Weak<dyn Held>>>,
    ending: Cell<Ending>,
    /// Connections that keep their memory for the next request.
    busy: Cell<usize>,
    /// TLS handshakes in progress.
    handshakes: Cell<usize>,
    /// Memory for the first requests of new connections.
    #[allow(clippy::vec_box, reason = "connections use the boxes as they are")]
    spare_requests: RefCell<Vec<Box<Request>>>,
}

/// Whether and how a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It does not end.
    Serves,
    /// Other workers continue, and take over its connections.
    HandsOver,
    /// The server ends.
    Closes,
}

/// One of a bounded number: the right to keep the memory of a request while waiting for the next one,
/// or to make a handshake.
pub struct Busy<'a>(&'a Cell<usize>);

impl<'a> Busy<'a> {
    fn enter(count: &'a Cell<usize>, max: usize) -> Option<Self> {
        (count.get() < max).then(|| {
            count.set(count.get() + 1);
            Self(count)
        })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Connections {
    /// For connections that begin with this configuration.
    pub fn new(current: Rc<Current>, services: Rc<Services>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(current),
            services,
            list: RefCell::default(),
            ending: Cell::new(Ending::Serves),
            busy: Cell::new(0),
            handshakes: Cell::new(0),
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

    /// Whether and how the worker ends.
    pub fn ending(&self) -> Ending {
        self.ending.get()
    }

    /// Begins to end. Connections leave when they wait for a request: at once, or after the current
    /// ones.
    pub fn end(&self, ending: Ending) {
        self.ending.set(ending);
        self.send_away();
    }

    /// There is nobody left who takes connections over.
    pub fn close_rest(&self) {
        self.ending.set(Ending::Closes);
    }

    /// Whether the server ends, so that a connection must close after its current request.
    pub fn is_closing(&self) -> bool {
        self.ending.get() == Ending::Closes
    }

    /// Whether a connection that waits for a request must leave this worker.
    #[inline]
    pub fn is_left_by(&self, connection: &impl Held) -> bool {
        self.ending.get() != Ending::Serves && self.sends_away(connection)
    }

    #[inline(never)]
    fn sends_away(&self, connection: &impl Held) -> bool {
        match self.ending.get() {
            Ending::Serves => false,
            Ending::HandsOver => true,
            // Connections without a first request may still send it, as in nginx.
            Ending::Closes => connection.idle().is_some_and(|(since, keep)| since + keep <= now()),
        }
    }

    /// Makes connections that wait for a request check whether they have to leave.
    fn send_away(&self) {
        let list = self.list.borrow();
        for connection in list.iter().filter_map(|(_, connection)| connection.upgrade()) {
            let Some((since, keep)) = connection.waits() else { continue };
            let left = (since + keep).saturating_duration_since(now());
            if left.is_zero() || self.ending.get() == Ending::HandsOver {
                connection.wake();
                continue;
            }
            let connection = Rc::downgrade(&connection);
            drop(spawn(async move {
                sleep(left).await;
                if let Some(connection) = connection.upgrade() {
                    connection.wake();
                }
            }));
        }
    }

    /// Closes some of the connections that have been idle for longest, so that new ones can be
    /// accepted; false if there are none. nginx: `ngx_drain_connections`.
    pub fn make_room(&self) -> bool {
        let mut idle = self.idle();
        idle.retain(|(_, since, keep)| *since + *keep <= now());
        idle.sort_by_key(|(_, since, _)| *since);
        idle.iter().take(MAKE_ROOM).for_each(|(connection, ..)| connection.hang_up());
        !idle.is_empty()
    }

    /// Ends all connections as if their clients had left: a request in progress is logged like one
    /// that was given up.
    pub fn cut(&self) {
        let list: Vec<_> = self.list.borrow().iter().filter_map(|(_, one)| one.upgrade()).collect();
        list.iter().for_each(|connection| connection.hang_up());
    }

    /// Connections that wait for another request, with the start of the wait and how long they must
    /// be kept.
    fn idle(&self) -> Vec<(Rc<dyn Held>, Instant, Duration)> {
        let list = self.list.borrow();
        let idle = list.iter().filter_map(|(_, connection)| {
            let connection = connection.upgrade()?;
            let (since, keep) = connection.idle()?;
            Some((connection, since, keep))
        });
        idle.collect()
    }

    /// Registers a connection; returns its place.
    pub fn enter(&self, connection: Weak<dyn Held>) -> u32 {
        let key = self.list.borrow_mut().insert(connection);
        u32::try_from(key).expect("fewer connections than descriptors")
    }

    /// Removes the connection at this place.
    pub fn leave(&self, place: u32) {
        drop(self.list.borrow_mut().try_remove(place as usize));
    }

    /// The first request of a connection; reuses the memory of an earlier one if there is any.
    pub fn first_request(
        &self,
        exchange: Rc<dyn Exchange>,
        current: Rc<Current>,
        server: ServerId,
    ) -> Box<Request> {
        let spare = self.spare_requests.borrow_mut().pop();
        match spare {
            Some(mut request) => {
                request.reuse(exchange, current, server, now());
                request
            }
            None => Box::new(Request::new(exchange, current, server, now())),
        }
    }

    /// Keeps the memory of an ended request, unless enough is kept already.
    pub fn keep_spare(&self, mut request: Box<Request>) {
        // Detaching drops what the request holds, which may reach back to the worker.
        if self.spare_requests.borrow().len() < SPARE_REQUESTS_MAX {
            request.detach();
            self.spare_requests.borrow_mut().push(request);
        }
    }

    /// Lets another connection keep its memory, if fewer than `max` do.
    pub fn enter_busy(&self, max: usize) -> Option<Busy<'_>> {
        Busy::enter(&self.busy, max)
    }

    /// Lets another handshake begin, if fewer than `max` are in progress.
    pub fn enter_handshake(&self, max: usize) -> Option<Busy<'_>> {
        Busy::enter(&self.handshakes, max)
    }
}
