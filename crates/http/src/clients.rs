//! The clients of all workers, for those who administer the server: who is connected, and what each waits for.
//!
//! Front ends name a function that lists the connections of their worker. A handler asks all workers; each lists its own
//! on its own thread, and nothing is kept between two questions. Requests in progress are only known in
//! locations for which [`InProgress`] was asked for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::time::timeout;
use nowait_runtime::{now, worker};

use crate::client::Client;
use crate::module::{FilterStage, Handler, LocationBuilder, Observer, Phase, Step};
use crate::request::Request;
use crate::response::Response;
use crate::slots::Key;
use crate::upstream_state::UpstreamState;

/// Connections that a worker lists, at most: its event loop does nothing else meanwhile.
pub const CONNECTIONS_MAX: usize = 2000;

/// Requests in progress that a connection shows, at most.
const REQUESTS_MAX: usize = 16;

/// Longest method and URI that are shown, bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Time for a worker to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection, as its front end knows it.
pub struct ConnectionView<'a> {
    /// Its facts.
    pub client: &'a Client,
    /// `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub protocol: &'static str,
    /// Since when it waits for a request; `None`: it does not.
    pub idle_since: Option<Instant>,
    /// Bytes received and sent, if they are counted; of TLS, the contents.
    pub bytes: Option<(u64, u64)>,
}

/// A connection at the time of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Its number in the process.
    pub number: u64,
    /// Its worker.
    pub worker: usize,
    /// The client's address.
    pub client: String,
    /// The address that it is connected to.
    pub listen: String,
    /// `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub protocol: &'static str,
    /// Whether it uses TLS.
    pub tls: bool,
    /// Time since it was accepted.
    pub age: Duration,
    /// Requests so far.
    pub requests: u32,
    /// How long it has waited for a request; `None`: it does not.
    pub idle: Option<Duration>,
    /// Bytes received and sent.
    pub bytes: Option<(u64, u64)>,
    /// Requests in progress, where they are known.
    pub in_progress: Vec<RequestFacts>,
}

/// A request in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Method and URI.
    pub text: String,
    /// Time since its first byte.
    pub elapsed: Duration,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// What a request in progress waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A module: mostly for a file.
    Handler,
    /// A server, with the step that is being taken.
    Upstream(String, &'static str),
    /// The client, which takes the response.
    Client,
}

/// Lists the connections of a worker, until it is told to stop.
pub type ListConnections = dyn Fn(&mut dyn FnMut(ConnectionView<'_>) -> bool);

thread_local! {
    static LIST: RefCell<Option<Rc<ListConnections>>> = const { RefCell::new(None) };
    static IN_PROGRESS: RefCell<Vec<Weak<Entry>>> = const { RefCell::new(Vec::new()) };
}

/// Names the function that lists the connections of this worker. For front ends.
pub fn set_list(list: Rc<ListConnections>) {
    LIST.set(Some(list));
}

/// A request in progress. Its memory serves the next request of the connection.
struct Entry {
    connection: Cell<u64>,
    started: Cell<Option<Instant>>,
    text: RefCell<Vec<u8>>,
    upstream: RefCell<Option<Rc<UpstreamState>>>,
    has_response: Cell<bool>,
    /// The place in the list.
    place: Cell<usize>,
}

/// A request's entry in the list of those in progress; left when the request ends.
#[derive(Default)]
pub struct InProgress(Option<Rc<Entry>>);

static ENTRY: Key<InProgress> = Key::reusing(|entry| {
    entry.leave();
    true
});

impl InProgress {
    /// Lists the requests of a location while they are in progress.
    pub fn build(parts: &mut LocationBuilder) {
        parts.handler(Phase::PostRead, Enter);
        parts.filter(FilterStage::Encoding, |request: &mut Request, _: &mut Response| {
            if let Some(InProgress(Some(entry))) = request.state().get(&ENTRY) {
                entry.has_response.set(true);
            }
            Ok(())
        });
        parts.observer(Leave);
    }

    fn enter(&mut self, request: (u64, Instant), text: [&[u8]; 2], upstream: Rc<UpstreamState>) {
        self.leave();
        let entry = self.0.get_or_insert_with(|| {
            Rc::new(Entry {
                connection: Cell::new(0),
                started: Cell::new(None),
                text: RefCell::default(),
                upstream: RefCell::default(),
                has_response: Cell::new(false),
                place: Cell::new(0),
            })
        });
        entry.connection.set(request.0);
        entry.started.set(Some(request.1));
        entry.has_response.set(false);
        *entry.upstream.borrow_mut() = Some(upstream);
        let mut line = entry.text.borrow_mut();
        line.clear();
        line.extend_from_slice(text[0]);
        line.push(b' ');
        line.extend_from_slice(text[1]);
        line.truncate(TEXT_BYTES_MAX);
        IN_PROGRESS.with_borrow_mut(|list| {
            entry.place.set(list.len());
            list.push(Rc::downgrade(entry));
        });
    }

    fn leave(&self) {
        let Some(entry) = self.0.as_ref().filter(|entry| entry.started.take().is_some()) else {
            return;
        };
        entry.upstream.take();
        // The thread may be at its end.
        let _ = IN_PROGRESS.try_with(|list| {
            let mut list = list.borrow_mut();
            let place = entry.place.get();
            if place < list.len() {
                list.swap_remove(place);
            }
            if let Some(moved) = list.get(place).and_then(Weak::upgrade) {
                moved.place.set(place);
            }
        });
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Takes a request that has ended off the list.
struct Leave;

impl Observer for Leave {
    fn ended(&self, request: &Request) {
        if let Some(entry) = request.state().get(&ENTRY) {
            entry.leave();
        }
    }
}

/// Enters a request into the list.
struct Enter;

impl Handler for Enter {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let upstream = UpstreamState::of(request.state_mut()).clone();
        let mut entry = std::mem::take(request.state_mut().of_mut(&ENTRY));
        let facts = (request.client().number, request.started());
        let head = request.head();
        entry.enter(facts, [head.method_bytes(), head.uri()], upstream);
        *request.state_mut().of_mut(&ENTRY) = entry;
        Step::Next(request)
    }
}

impl Entry {
    fn facts(&self) -> Option<RequestFacts> {
        let started = self.started.get()?;
        let upstream = self.upstream.borrow();
        let action = upstream.as_ref().and_then(|state| Some((state, state.action()?)));
        let waits_for = match action {
            _ if self.has_response.get() => WaitsFor::Client,
            None => WaitsFor::Handler,
            Some((state, action)) => {
                let tries = state.tries();
                let peer = tries.last().and_then(|last| last.peer.as_deref());
                WaitsFor::Upstream(peer.unwrap_or_default().to_owned(), action)
            }
        };
        Some(RequestFacts {
            text: String::from_utf8_lossy(&self.text.borrow()).into_owned(),
            elapsed: now().saturating_duration_since(started),
            waits_for,
        })
    }
}

/// The connections of this worker, and whether there are more.
fn own(limit: usize) -> (Vec<ConnectionFacts>, bool) {
    let Some(list) = LIST.with_borrow(Clone::clone) else { return (Vec::new(), false) };
    let (mut found, mut has_more) = (Vec::new(), false);
    let since = |at: Instant| now().saturating_duration_since(at);
    list(&mut |view| {
        if found.len() >= limit {
            has_more = true;
            return false;
        }
        let client = view.client;
        let mut address = Vec::new();
        crate::address::append_ip(&client.peer, &mut address);
        found.push(ConnectionFacts {
            number: client.number,
            worker: worker::index(),
            client: String::from_utf8_lossy(&address).into_owned(),
            listen: client.listen.to_string(),
            protocol: view.protocol,
            tls: client.is_tls(),
            age: since(client.started),
            requests: client.requests.get(),
            idle: view.idle_since.map(since),
            bytes: view.bytes,
            in_progress: Vec::new(),
        });
        true
    });
    found.sort_by_key(|facts| facts.number);
    IN_PROGRESS.with_borrow(|list| {
        for entry in list.iter().filter_map(Weak::upgrade) {
            let number = entry.connection.get();
            if let Ok(at) = found.binary_search_by_key(&number, |facts| facts.number)
                && found[at].in_progress.len() < REQUESTS_MAX
            {
                found[at].in_progress.extend(entry.facts());
            }
        }
    });
    (found, has_more)
}

/// The answer to a question.
#[derive(Clone, Debug, Default)]
pub struct AllConnections {
    /// The connections, by number.
    pub connections: Vec<ConnectionFacts>,
    /// Some were left out.
    pub has_more: bool,
    /// Workers that have not answered in time.
    pub silent: usize,
}

#[derive(Default)]
struct Gathered {
    all: AllConnections,
    left: usize,
    waker: Option<Waker>,
}

/// A worker's share of an answer, given when it is dropped at the latest.
struct Share(Arc<Mutex<Gathered>>);

fn lock(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut gathered = lock(&self.0);
        gathered.left -= 1;
        if gathered.left == 0
            && let Some(waker) = gathered.waker.take()
        {
            waker.wake();
        }
    }
}

/// The connections of all workers, at most `limit` of each.
pub async fn of_all_workers(limit: usize) -> AllConnections {
    let count = worker::count();
    let gathered = Arc::new(Mutex::new(Gathered { left: count, ..Gathered::default() }));
    for index in 0..count {
        let share = Share(gathered.clone());
        // A worker that has ended has no connections.
        let _ = worker::remote_of(index).spawn(Box::new(move || {
            Box::pin(async move {
                let (connections, has_more) = own(limit.min(CONNECTIONS_MAX));
                let mut gathered = lock(&share.0);
                gathered.all.connections.extend(connections);
                gathered.all.has_more |= has_more;
                drop(gathered);
                drop(share);
            })
        }));
    }
    let complete = poll_fn(|cx| {
        let mut gathered = lock(&gathered);
        if gathered.left == 0 {
            return Poll::Ready(());
        }
        gathered.waker = Some(cx.waker().clone());
        Poll::Pending
    });
    let _ = timeout(PATIENCE, complete).await;
    let mut gathered = lock(&gathered);
    let mut all = std::mem::take(&mut gathered.all);
    all.silent = gathered.left;
    all.connections.sort_by_key(|facts| facts.number);
    all
}
