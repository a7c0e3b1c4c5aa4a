//! HTTP in one worker: its connections, its view of the configuration.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nowait_front::resolvers::watch_names;
use nowait_runtime::{JoinHandle, now, sleep, spawn};

use slab::Slab;

use crate::conf::ServerId;
use crate::connection::{Connection, Heir, Moved};
use crate::counts::Counts;
use crate::generation::{Current, Generation};
use crate::health;
use crate::request::Request;
use crate::slots::State;

/// Number of idle connections that are closed at a time to make room for new ones.
const MAKE_ROOM: usize = 32;

/// Numbers connections in this process: the next number that no worker has taken.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// Numbers that a worker takes at a time, so that this many connections need one shared write.
const NUMBERS: u64 = 64;

/// Most spare requests kept for new connections.
const SPARE_REQUESTS_MAX: usize = 64;

/// HTTP in one worker.
pub struct Worker {
    current: RefCell<Rc<Current>>,
    /// Tasks of the newest generation besides its connections.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    connections: RefCell<Slab<Weak<Connection>>>,
    ending: Cell<Ending>,
    heir: RefCell<Option<Heir>>,
    /// Numbers for its next connections.
    numbers: RefCell<Range<u64>>,
    /// Connections that keep their memory for the next request.
    busy: Cell<usize>,
    /// Memory for the first requests of new connections.
    #[allow(clippy::vec_box, reason = "connections use the boxes as they are")]
    spare_requests: RefCell<Vec<Box<Request>>>,
    /// Background subrequests in flight.
    background: Rc<Cell<usize>>,
    /// Counts of connections and requests.
    pub(crate) counts: Counts,
    /// What modules keep for the worker.
    pub state: State,
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
pub(crate) struct Busy<'a>(&'a Cell<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// One of the background subrequests of a worker.
pub(crate) struct InBackground(Rc<Cell<usize>>);

impl Drop for InBackground {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        Rc::new(Self {
            tasks: RefCell::default(),
            current: RefCell::new(Current::new(generation)),
            connections: RefCell::default(),
            ending: Cell::new(Ending::Serves),
            heir: RefCell::default(),
            numbers: RefCell::default(),
            busy: Cell::new(0),
            spare_requests: RefCell::default(),
            background: Rc::default(),
            counts: Counts::new(),
            state: State::default(),
        })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Makes this the newest generation; requests in flight keep theirs. Called on the running
    /// worker, for the first generation too.
    pub fn activate(self: &Rc<Self>, generation: Arc<Generation>) {
        crate::cache::zone::tend(&generation);
        let current = Current::new(generation);
        let (conf, resolvers) = (&current.conf, &current.resolvers);
        let log = current.error_log();
        let mut tasks = watch_names(&conf.upstreams, resolvers, conf.resolving, &log);
        tasks.extend(health::start(self, &current));
        self.tasks.replace(tasks).into_iter().for_each(JoinHandle::abort);
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
    pub fn is_closing(&self) -> bool {
        self.ending.get() == Ending::Closes
    }

    /// Whether a connection that waits for a request must leave this worker.
    pub(crate) fn is_left_by(&self, connection: &Connection) -> bool {
        match self.ending.get() {
            Ending::Serves => false,
            Ending::HandsOver => true,
            // Connections without a first request may still send it, as in nginx.
            Ending::Closes => connection.idle().is_some_and(|(since, keep)| since + keep <= now()),
        }
    }

    /// Hands a connection over to another worker. It is returned if the server ends.
    pub(crate) fn hand_over(&self, moved: Box<Moved>) -> Result<(), Box<Moved>> {
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
    pub(crate) fn enter(&self, connection: &Rc<Connection>) -> u32 {
        let key = self.connections.borrow_mut().insert(Rc::downgrade(connection));
        u32::try_from(key).expect("fewer connections than descriptors")
    }

    /// Removes the connection at this place.
    pub(crate) fn leave(&self, place: u32) {
        drop(self.connections.borrow_mut().try_remove(place as usize));
    }

    /// The next connection's number.
    pub(crate) fn next_number(&self) -> u64 {
        next_number(&mut self.numbers.borrow_mut(), &CONNECTIONS)
    }

    /// The first request of a connection; reuses the memory of an earlier one if there is any.
    pub(crate) fn first_request(
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
    pub(crate) fn keep_spare(&self, mut request: Box<Request>) {
        // Detaching drops what the request holds, which may reach back to the worker.
        if self.spare_requests.borrow().len() < SPARE_REQUESTS_MAX {
            request.detach();
            self.spare_requests.borrow_mut().push(request);
        }
    }

    /// Counts another background subrequest, if fewer than `max` are in flight.
    pub(crate) fn enter_background(&self, max: usize) -> Option<InBackground> {
        (self.background.get() < max).then(|| {
            self.background.set(self.background.get() + 1);
            InBackground(self.background.clone())
        })
    }

    /// Lets another connection keep its memory, if fewer than `max` do.
    pub(crate) fn enter_busy(&self, max: usize) -> Option<Busy<'_>> {
        (self.busy.get() < max).then(|| {
            self.busy.set(self.busy.get() + 1);
            Busy(&self.busy)
        })
    }
}

/// The next of a worker's numbers; takes more from the process when none is left.
fn next_number(own: &mut Range<u64>, process: &AtomicU64) -> u64 {
    own.next().unwrap_or_else(|| {
        let first = process.fetch_add(NUMBERS, Ordering::Relaxed);
        *own = first + 1..first + NUMBERS;
        first
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_connections_have_the_same_number() {
        let process = AtomicU64::new(1);
        let (mut one, mut other) = (0..0, 0..0);
        let mut numbers = BTreeSet::new();
        for _ in 0..3 * NUMBERS {
            numbers.insert(next_number(&mut one, &process));
            numbers.insert(next_number(&mut other, &process));
        }
        assert_eq!(numbers, (1..=6 * NUMBERS).collect());
        // A worker without competition continues its sequence.
        let first = next_number(&mut one, &process);
        assert_eq!(next_number(&mut one, &process), first + 1);
    }
}
