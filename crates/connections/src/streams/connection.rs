//! What a connection that carries streams has in every version: the streams of its requests, what they share, and the
//! settings that hold for the connection itself.
//!
//! The connections of the front ends have a [`StreamSet`], and are [`StreamConnection`]s. Nothing here writes to a
//! client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use nowait_front::servers::Virtual;
use nowait_http::client::Client;
use nowait_http::conf::ServerId;
use nowait_http::conf::client::ClientConf;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_runtime::now;

use super::request_future::RequestFuture;
use super::requests::{self, HeadBounds};
use super::stream::RequestStream;
use super::{DISCARDING_STREAMS_MAX, HEADS_BYTES_MAX};
use crate::connections::Connections;

/// The streams of a connection, and what they share.
pub(crate) struct StreamSet<S: RequestStream> {
    /// The result of [`StreamConnection::default_server`] for the generation with this number.
    default_server: Cell<(u64, ServerId)>,
    /// In the order of their numbers.
    open: RefCell<Vec<Rc<S>>>,
    /// Streams whose response is complete, and whose request soon will be.
    discarding: RefCell<Vec<S::Id>>,
    /// The connection's task.
    task: RefCell<Waker>,
    /// The task is running, and checks all flags before it stops.
    pub(crate) working: Cell<bool>,
    /// There is more work for it.
    pub(crate) more: Cell<bool>,
    /// Memory for a request's future.
    pub(super) spare: RefCell<Option<Box<dyn RequestFuture<S>>>>,
    /// How many streams read files that are not in memory.
    pub(crate) cold: Cell<usize>,
    /// The memory of its requests' heads, in bytes, and its limit.
    heads_bytes: Cell<usize>,
    heads_bytes_max: usize,
    /// Since when it has no streams, and how long it must be kept; `None` if it has.
    idle: Cell<Option<(Instant, Duration)>>,
    /// The client was asked to open no more streams, or is about to be.
    pub(crate) leaving: Cell<bool>,
    /// The connection has reached its limit of requests or of time.
    pub(crate) used_up: Cell<bool>,
    /// The newest configuration does not serve the connection.
    pub(crate) dismissed: Cell<bool>,
}

impl<S: RequestStream> StreamSet<S> {
    /// No streams, since `idle`; `default_server`: of the generation with this number.
    pub(crate) fn new(
        default_server: (u64, ServerId),
        bounds: &HeadBounds,
        idle: (Instant, Duration),
    ) -> Self {
        StreamSet {
            default_server: Cell::new(default_server),
            open: RefCell::default(),
            discarding: RefCell::default(),
            task: RefCell::new(Waker::noop().clone()),
            working: Cell::new(false),
            more: Cell::new(false),
            spare: RefCell::new(None),
            cold: Cell::new(0),
            heads_bytes: Cell::new(0),
            // One more request is accepted as soon as all others have ended.
            heads_bytes_max: HEADS_BYTES_MAX.max(bounds.list_bytes as usize),
            idle: Cell::new(Some(idle)),
            leaving: Cell::new(false),
            used_up: Cell::new(false),
            dismissed: Cell::new(false),
        }
    }

    /// Registers the connection's task.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        if !task.will_wake(waker) {
            task.clone_from(waker);
        }
    }

    /// Has the connection's task look at all flags.
    pub(crate) fn wake(&self) {
        match self.working.get() {
            true => self.more.set(true),
            false => self.task.borrow().wake_by_ref(),
        }
    }

    /// Has the connection's task ask the client to leave.
    pub(crate) fn dismiss(&self) {
        self.dismissed.set(true);
        self.wake();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.open.borrow().len()
    }

    /// A stream by its number.
    pub(crate) fn get(&self, id: S::Id) -> Option<Rc<S>> {
        let open = self.open.borrow();
        let at = open.binary_search_by_key(&id, |stream| stream.id()).ok()?;
        Some(open[at].clone())
    }

    /// Counts the head of a beginning stream. False: the limit of all heads together is exceeded.
    pub(crate) fn count_head(&self, stream: &S, bytes: usize) -> bool {
        let all = self.heads_bytes.get() + bytes;
        let fits = all <= self.heads_bytes_max || self.len() == 0;
        if fits {
            self.heads_bytes.set(all);
            stream.state().head_bytes.set(bytes);
        }
        fits
    }

    /// Adds a stream. True: the connection was idle.
    pub(crate) fn add(&self, stream: Rc<S>) -> bool {
        let mut open = self.open.borrow_mut();
        if open.last().is_none_or(|last| last.id() < stream.id()) {
            open.push(stream);
        } else {
            let at = open.partition_point(|other| other.id() < stream.id());
            open.insert(at, stream);
        }
        self.idle.take().is_some()
    }

    /// Removes a stream, whose request's task has ended. True: the connection is idle.
    pub(crate) fn remove(&self, stream: &S) -> bool {
        self.heads_bytes.set(self.heads_bytes.get() - stream.state().head_bytes.take());
        let mut open = self.open.borrow_mut();
        if let Ok(at) = open.binary_search_by_key(&stream.id(), |stream| stream.id()) {
            open.remove(at);
        }
        let is_idle = open.is_empty();
        if is_idle {
            self.idle.set(Some((now(), Duration::ZERO)));
        }
        is_idle
    }

    /// Whether the rest of one more request may be discarded.
    pub(crate) fn may_discard(&self) -> bool {
        self.discarding.borrow().len() < DISCARDING_STREAMS_MAX
    }

    /// The rest of the request of this stream, whose response is complete, will be discarded.
    pub(crate) fn discard(&self, id: S::Id) {
        self.discarding.borrow_mut().push(id);
    }

    /// Whether what comes on a stream is to be discarded.
    pub(crate) fn is_discarding(&self, id: S::Id) -> bool {
        self.discarding.borrow().contains(&id)
    }

    /// Whether any request is being discarded.
    pub(crate) fn discards(&self) -> bool {
        !self.discarding.borrow().is_empty()
    }

    /// Nothing more comes on a stream.
    pub(crate) fn forget(&self, id: S::Id) {
        self.discarding.borrow_mut().retain(|stream| *stream != id);
    }

    /// Since when the connection is idle, and how long it must be kept.
    pub(crate) fn idle_since(&self) -> Option<(Instant, Duration)> {
        self.idle.get()
    }

    /// The time that an idle connection must be kept.
    pub(crate) fn keep(&self, keep: Duration) {
        self.idle.set(self.idle.get().map(|(since, _)| (since, keep)));
    }

    /// The connection ends: so do its requests.
    pub(crate) fn abandon(&self) {
        for stream in self.open.take() {
            stream.leave();
        }
    }

    /// Gives memory back while the connection is idle.
    pub(crate) fn shrink(&self) {
        self.spare.take();
        self.open.borrow_mut().shrink_to_fit();
    }
}

/// A connection that carries streams.
pub(crate) trait StreamConnection {
    /// Its streams.
    type Stream: RequestStream + 'static;

    /// The worker's connections.
    fn all(&self) -> &Rc<Connections>;

    /// The client.
    fn client(&self) -> &Client;

    /// The servers behind the connection's address; `None` if it is no longer listened on.
    fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual>;

    /// The server that the TLS handshake named, or the default server.
    fn named_server(&self, servers: &Virtual) -> ServerId;

    /// Its streams.
    fn streams(&self) -> &StreamSet<Self::Stream>;

    /// The server whose settings hold for the connection: that of the name in the TLS handshake, or the
    /// default server of its address.
    fn default_server(&self, current: &Current) -> Option<ServerId> {
        let cached = &self.streams().default_server;
        let (generation, server) = cached.get();
        if generation == current.number {
            return Some(server);
        }
        let server = self.named_server(self.virtual_servers(current)?);
        cached.set((current.number, server));
        Some(server)
    }

    /// Writes a line about the connection to the error log.
    #[cold]
    fn log_info(&self, message: std::fmt::Arguments<'_>) {
        let current = self.all().current();
        let Some(server) = self.default_server(&current) else { return };
        requests::log(self.client(), &current, server, Level::Info, message);
    }

    /// Whether it has no streams.
    fn is_idle(&self) -> bool {
        self.streams().len() == 0
    }

    /// Whether it has had no request.
    fn is_new(&self) -> bool {
        self.client().requests.get() == 0
    }

    /// The time it has been idle. Frames that begin no request don't count.
    fn idle_time(&self) -> Duration {
        let since = self.streams().idle_since().map(|(since, _)| since);
        since.map_or(Duration::ZERO, |since| now().saturating_duration_since(since))
    }

    /// Settings for the connection itself: those of its default server.
    fn settings<T>(&self, read: impl FnOnce(&ClientConf) -> T) -> Option<T>
    where
        Self: Sized,
    {
        let current = self.all().current();
        let server = self.default_server(&current)?;
        Some(read(&current.conf.location(current.conf.server(server).root).client))
    }

    /// The time that an idle connection is kept.
    fn keepalive_timeout(&self) -> Duration
    where
        Self: Sized,
    {
        if self.is_new() {
            return self.header_timeout();
        }
        let time = self.settings(|client| client.keepalive_timeout.timeout.duration());
        time.unwrap_or_default()
    }

    /// The time for the head of a request.
    fn header_timeout(&self) -> Duration {
        let current = self.all().current();
        let Some(server) = self.default_server(&current) else { return Duration::ZERO };
        current.conf.server(server).head.client_header_timeout.duration()
    }
}
