//! State shared by all client connections of a worker, for any protocol: the configuration, the services of
//! the worker, the list of them, and whether they have to leave.
//!
//! Made by the worker. All state belongs to the worker's thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use nowait_http::clients::{self, ConnectionView};
use nowait_http::conf::ServerId;
use nowait_http::exchange::Exchange;
use nowait_http::generation::Current;
use nowait_http::request::Request;
use nowait_http::services::Services;
use nowait_runtime::{now, sleep, spawn, yield_now};
use nowait_spare::LocalSpares;
use slab::Slab;

use crate::migration::{MovedConnection, Successor};

/// Number of idle connections that are closed at a time to make room for new ones.
const MAKE_ROOM: usize = 32;

/// Number of connections that are looked at, after a reload, before others have their turn.
const LOOK_AT: usize = 256;

/// Maximum number of spare requests kept for new connections.
const SPARE_REQUESTS_MAX: usize = 64;

/// The list's view of a connection.
pub trait ConnectionHandle {
    /// When the wait for a request began, the first one included, and how long the connection must
    /// be kept; `None` if it is not waiting.
    fn waits(&self) -> Option<(Instant, Duration)>;

    /// The same, but for the first request.
    fn idle(&self) -> Option<(Instant, Duration)>;

    /// The connection for lists of all connections.
    fn view(&self) -> ConnectionView<'_>;

    /// Makes the connection's task check whether it has to leave.
    fn wake(&self);

    /// Makes the connection's task find that the client has left, so that it closes the
    /// connection.
    fn hang_up(&self);

    /// Whether this configuration serves the connection: its address is listened on, and has its
    /// version of HTTP.
    fn is_served_by(&self, current: &Current) -> bool;

    /// Lets the connection end, after its current requests: it is not served any more.
    fn dismiss(&self);
}

/// The common state of connections.
pub struct Connections {
    current: RefCell<Rc<Current>>,
    /// The worker's services for requests.
    pub services: Rc<Services>,
    list: RefCell<Slab<Weak<dyn ConnectionHandle>>>,
    shutdown: Cell<ShutdownMode>,
    successor: RefCell<Option<Successor>>,
    /// Connections that keep their memory for the next request.
    busy: Cell<usize>,
    /// TLS handshakes in progress.
    handshakes: Cell<usize>,
    /// Memory for the first requests of new connections.
    spare_requests: LocalSpares<Box<Request>>,
}

/// Whether and how a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// The worker does not end.
    None,
    /// Other workers continue, and take over its connections.
    HandOver,
    /// The server ends.
    Close,
}

/// One of a bounded number: the right to keep the memory of a request while waiting for the next one,
/// or to make a handshake.
pub struct Permit<'a>(&'a Cell<usize>);

impl<'a> Permit<'a> {
    fn enter(count: &'a Cell<usize>, max: usize) -> Option<Self> {
        (count.get() < max).then(|| {
            count.set(count.get() + 1);
            Self(count)
        })
    }
}

impl Drop for Permit<'_> {
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
            shutdown: Cell::new(ShutdownMode::None),
            successor: RefCell::default(),
            busy: Cell::new(0),
            handshakes: Cell::new(0),
            spare_requests: LocalSpares::new(SPARE_REQUESTS_MAX),
        })
    }

    /// Lists the connections for those who ask all workers.
    pub fn publish(self: &Rc<Self>) {
        let all = Rc::downgrade(self);
        clients::set_list(Rc::new(move |each| {
            let Some(all) = all.upgrade() else { return };
            let list = all.list.borrow();
            for connection in list.iter().filter_map(|(_, connection)| connection.upgrade()) {
                if !each(connection.view()) {
                    return;
                }
            }
        }));
    }

    /// The newest configuration.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Whether this is the newest configuration.
    pub(crate) fn is_current(&self, current: &Rc<Current>) -> bool {
        Rc::ptr_eq(&self.current.borrow(), current)
    }

    /// Makes this the newest configuration; requests in flight keep theirs. Connections that it does not
    /// serve end.
    pub fn set_current(self: &Rc<Self>, current: Rc<Current>) {
        drop(self.current.replace(current));
        let all = Rc::downgrade(self);
        drop(spawn(async move {
            let mut next = Some(0);
            while let Some(from) = next {
                let Some(all) = all.upgrade() else { return };
                next = all.dismiss_some(from);
                drop(all);
                yield_now().await;
            }
        }));
    }

    /// Lets those of some connections end that are not served any more. Returns where the next ones are.
    fn dismiss_some(&self, from: usize) -> Option<usize> {
        let (current, list) = (self.current(), self.list.borrow());
        let end = from + LOOK_AT;
        for connection in (from..end).filter_map(|place| list.get(place)?.upgrade()) {
            if !connection.is_served_by(&current) {
                connection.dismiss();
            }
        }
        (end < list.capacity()).then_some(end)
    }

    /// Whether and how the worker ends.
    pub fn shutdown(&self) -> ShutdownMode {
        self.shutdown.get()
    }

    /// Ends gracefully. Connections leave when they wait for a request: at once, or after the current
    /// one. They move to the successor; without a successor, or when it accepts none, idle connections
    /// are closed, after `keepalive_min_timeout` at the earliest.
    pub fn close(&self, successor: Option<Successor>) {
        let shutdown =
            if successor.is_some() { ShutdownMode::HandOver } else { ShutdownMode::Close };
        drop(self.successor.replace(successor));
        self.shutdown.set(shutdown);
        self.send_away();
    }

    /// Hands a connection over to another worker. The connection is returned if the server ends.
    pub(crate) fn hand_over(
        &self,
        moved: Box<MovedConnection>,
    ) -> Result<(), Box<MovedConnection>> {
        let result = match &*self.successor.borrow() {
            Some(successor) => successor(moved),
            None => Err(moved),
        };
        if result.is_err() {
            self.shutdown.set(ShutdownMode::Close);
        }
        result
    }

    /// Whether the server ends, so that a connection must close after its current request.
    pub fn is_closing(&self) -> bool {
        self.shutdown.get() == ShutdownMode::Close
    }

    /// Whether a connection that waits for a request must leave this worker.
    #[inline]
    pub fn is_left_by(&self, connection: &impl ConnectionHandle) -> bool {
        self.shutdown.get() != ShutdownMode::None && self.sends_away(connection)
    }

    #[inline(never)]
    fn sends_away(&self, connection: &impl ConnectionHandle) -> bool {
        match self.shutdown.get() {
            ShutdownMode::None => false,
            ShutdownMode::HandOver => true,
            // Connections without a first request may still send it, as in nginx.
            ShutdownMode::Close => {
                connection.idle().is_some_and(|(since, keep)| since + keep <= now())
            }
        }
    }

    /// Makes connections that wait for a request check whether they have to leave.
    fn send_away(&self) {
        let list = self.list.borrow();
        for connection in list.iter().filter_map(|(_, connection)| connection.upgrade()) {
            let Some((since, keep)) = connection.waits() else { continue };
            let left = (since + keep).saturating_duration_since(now());
            if left.is_zero() || self.shutdown.get() == ShutdownMode::HandOver {
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

    /// Ends all connections as if their clients had disconnected: a request in progress is logged like an
    /// aborted one.
    pub fn cut(&self) {
        let list: Vec<_> = self.list.borrow().iter().filter_map(|(_, one)| one.upgrade()).collect();
        list.iter().for_each(|connection| connection.hang_up());
    }

    /// Connections that wait for another request, with the start of the wait and how long they must
    /// be kept.
    fn idle(&self) -> Vec<(Rc<dyn ConnectionHandle>, Instant, Duration)> {
        let list = self.list.borrow();
        let idle = list.iter().filter_map(|(_, connection)| {
            let connection = connection.upgrade()?;
            let (since, keep) = connection.idle()?;
            Some((connection, since, keep))
        });
        idle.collect()
    }

    /// Registers a connection; returns its place.
    pub fn enter(&self, connection: Weak<dyn ConnectionHandle>) -> u32 {
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
        match self.spare_requests.take() {
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
        if self.spare_requests.has_room() {
            request.detach();
            self.spare_requests.keep(request);
        }
    }

    /// Permits another connection to keep its memory, if fewer than `max` do.
    pub fn enter_busy(&self, max: usize) -> Option<Permit<'_>> {
        Permit::enter(&self.busy, max)
    }

    /// Permits another handshake, if fewer than `max` are in progress.
    pub fn enter_handshake(&self, max: usize) -> Option<Permit<'_>> {
        Permit::enter(&self.handshakes, max)
    }
}
