//! A request on its way through the phases.
//!
//! Made by a protocol's connection task, owned by it, lent to phases, handlers and filters. Holds
//! their results and the head that was sent, for logs and variables. Never touches a socket: the
//! body comes from a [`BodyReader`].
//!
//! A request has three parts: the received data, the routing, and the delivery of the response. All
//! are readable; only the methods beside each part change it, and each method names its callers.

mod delivery;
mod incoming;
mod parts;
mod routing;

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::tls::trust::ClientTrust;
use nowait_message::{Known, Method};
use nowait_runtime::fs::{Aio, Io};
use nowait_runtime::pool::Meter;
use nowait_variables::{Slot, Subject};

pub use self::parts::{BodyLength, Sent, Uri};
use self::parts::{Delivery, Incoming, Routing};
use crate::client::Client;
use crate::conf::ServerId;
use crate::exchange::{Exchange, OnHangup, Watch};
use crate::generation::Current;
use crate::log::Level;
use crate::module::Position;
use crate::nested::{Nested, Shared};
use crate::response::{LocalFuture, Owner};
use crate::slots::State;
use crate::variables::complex::Complex;

/// Maximum memory that a spare request keeps for each of its paths.
const SPARE_PATH_BYTES_MAX: usize = 1024;

/// A reference that a request holds while it is in use. Spare requests hold none, so that they keep neither
/// a connection nor a generation alive.
struct RequestRef<T: ?Sized>(Option<Rc<T>>);

impl<T: ?Sized> Deref for RequestRef<T> {
    type Target = Rc<T>;

    fn deref(&self) -> &Rc<T> {
        self.0.as_ref().expect("only spare requests are detached")
    }
}

/// A request.
pub struct Request {
    /// The way to the client.
    exchange: RequestRef<dyn Exchange>,
    /// The configuration in force at the request's beginning; a reload doesn't change it.
    current: RequestRef<Current>,
    /// What has come in.
    incoming: Incoming,
    /// Where it goes.
    routing: Routing,
    /// How its response is delivered.
    delivery: Delivery,
    /// The request body.
    body: RequestBody,
    /// The position in the phases.
    position: Position,
    /// Depth of variables that are being computed for each other.
    variable_depth: Cell<u8>,
    /// State shared with subrequests and the main request.
    shared: Rc<Shared>,
    /// State that only subrequests have.
    nested: Option<Nested>,
    /// State of modules.
    state: State,
    /// State of modules until an internal redirect.
    round: State,
    /// Time that its file operations spent in pools.
    spent: Rc<Meter>,
    /// Memory for paths of files.
    path: Vec<u8>,
}

/// The content of a request, and the state of reading it.
#[derive(Default)]
pub enum RequestBody {
    /// No body, or it was discarded.
    #[default]
    None,
    /// Not read yet.
    Unread(Box<dyn BodyReader>),
    /// All of it, in memory.
    Memory(Bytes),
    /// All of it, in a temporary file.
    File(Rc<crate::request_body::TempFile>),
}

/// Reads a request's content.
pub trait BodyReader {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`]: the client has disconnected, is slow, or violates the framing.
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>>;

    /// The approximate number of bytes that `next` may receive at once; `None`: the most efficient one.
    fn limit(&mut self, _bytes: Option<usize>) {}

    /// Invites the client to send the content (`100 Continue`), once, if it waits for that.
    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>>;
}

/// The reason why a request's content could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The client closed the connection, or it failed: 400 is logged, and no response is sent.
    Closed(std::io::Error),
    /// No data arrived within `client_body_timeout`: 408.
    TimedOut,
    /// The framing is wrong: 400 with the text for the log.
    Malformed(&'static str),
    /// More than `client_max_body_size`: 413.
    TooLarge,
}

impl Owner for Request {}

impl Request {
    /// A request whose head is not known yet.
    pub fn new(
        exchange: Rc<dyn Exchange>,
        current: Rc<Current>,
        server: ServerId,
        started: Instant,
    ) -> Self {
        Self {
            incoming: Incoming::new(started),
            routing: Routing::new(server, current.conf.server(server).root),
            delivery: Delivery::default(),
            exchange: RequestRef(Some(exchange)),
            current: RequestRef(Some(current)),
            body: RequestBody::None,
            position: Position::default(),
            variable_depth: Cell::new(0),
            shared: Rc::default(),
            nested: None,
            state: State::default(),
            round: State::default(),
            spent: Rc::default(),
            path: Vec::new(),
        }
    }

    /// The request was completed and logged: no limit counts it any more, and the memory of its
    /// response may be reused.
    pub fn end(&mut self) {
        self.state.clear();
        self.round.clear();
        self.delivery.out.forget();
    }

    /// Makes a request that was [ended](Self::end) the next one of its connection, which reuses its
    /// memory.
    pub fn renew(&mut self, current: Rc<Current>, server: ServerId, started: Instant) {
        self.incoming.head.recycle_for_next();
        self.reset();
        self.routing.location = current.conf.server(server).root;
        self.current = RequestRef(Some(current));
        self.routing.server = server;
        self.incoming.started = started;
    }

    /// Reduces a request that was [ended](Self::end) to memory that any connection may
    /// [reuse](Self::reuse). No reference to its connection or generation remains.
    pub fn detach(&mut self) {
        self.incoming.head.recycle();
        self.reset();
        self.exchange = RequestRef(None);
        self.current = RequestRef(None);
        if Rc::get_mut(&mut self.spent).is_none() {
            self.spent = Rc::default();
        }
        // Their sizes depend on clients.
        self.routing.shrink(SPARE_PATH_BYTES_MAX);
        self.path.shrink_to(SPARE_PATH_BYTES_MAX);
    }

    /// Turns a [detached](Self::detach) request into the first one of a connection.
    pub fn reuse(
        &mut self,
        exchange: Rc<dyn Exchange>,
        current: Rc<Current>,
        server: ServerId,
        started: Instant,
    ) {
        self.routing.location = current.conf.server(server).root;
        self.exchange = RequestRef(Some(exchange));
        self.current = RequestRef(Some(current));
        self.routing.server = server;
        self.incoming.started = started;
        // Time in pools is counted from now on.
        self.spent.reset();
    }

    /// Clears all state except the head, the connection and the configuration, and keeps the memory.
    fn reset(&mut self) {
        // Field by field: a request is large, and most fields keep their memory.
        self.incoming.reset();
        self.routing.reset();
        self.delivery.reset();
        if !matches!(self.body, RequestBody::None) {
            self.body = RequestBody::None;
        }
        self.position = Position::default();
        self.variable_depth.set(0);
        Shared::renew(&mut self.shared);
        self.nested = None;
        self.spent.reset();
    }

    /// The way to the client.
    #[inline]
    pub fn exchange(&self) -> &Rc<dyn Exchange> {
        &self.exchange
    }

    /// The configuration in force at the request's beginning; a reload doesn't change it.
    #[inline]
    pub fn current(&self) -> &Rc<Current> {
        &self.current
    }

    /// The request body.
    #[inline]
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The request body, to be read.
    #[inline]
    pub fn body_mut(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// Replaces the body: by the rest of it, or by what was read. For front ends, those who read it,
    /// and requests that no client has sent.
    #[inline]
    pub fn set_body(&mut self, body: RequestBody) {
        self.body = body;
    }

    /// Takes the body, and leaves none.
    #[inline]
    pub fn take_body(&mut self) -> RequestBody {
        std::mem::take(&mut self.body)
    }

    /// State shared with subrequests and the main request.
    #[inline]
    pub fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// State that only subrequests have.
    #[inline]
    pub fn nested(&self) -> Option<&Nested> {
        self.nested.as_ref()
    }

    #[inline]
    pub(crate) fn nested_mut(&mut self) -> Option<&mut Nested> {
        self.nested.as_mut()
    }

    pub(crate) fn set_nested(&mut self, nested: Option<Nested>) {
        self.nested = nested;
    }

    /// State of modules.
    #[inline]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// State of modules.
    #[inline]
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// State of modules until an internal redirect.
    #[inline]
    pub fn round(&self) -> &State {
        &self.round
    }

    /// State of modules until an internal redirect.
    #[inline]
    pub fn round_mut(&mut self) -> &mut State {
        &mut self.round
    }

    /// Time that its file operations spent in pools.
    #[inline]
    pub fn spent(&self) -> &Rc<Meter> {
        &self.spent
    }

    /// Depth of variables that are being computed for each other.
    #[inline]
    pub(crate) fn variable_depth(&self) -> &Cell<u8> {
        &self.variable_depth
    }

    /// Takes over what a request and one that is derived from it have in common: client and head.
    pub(crate) fn copy_client(&mut self, other: &Request) {
        self.shared = other.shared.clone();
        self.incoming.copy(&other.incoming);
        self.set_pipelined(other.persistence().pipelined);
    }

    /// The authorities and lists that verify the client's certificate for the request's server; `None`: it
    /// requests no certificate.
    pub fn client_trust(&self) -> Option<&ClientTrust> {
        let default = || {
            let default = self.exchange.default_server(&self.current)?;
            Some(&self.current.conf.server(default).tls)
        };
        self.server().tls.judge_or_default(default).map(|trust| &**trust)
    }

    /// The value stored for a variable of the configuration.
    pub fn slot(&self, slot: Slot) -> Option<Bytes> {
        self.shared.slots.get(slot)
    }

    /// Stores the value of a variable of the configuration.
    pub fn set_slot(&self, slot: Slot, value: Option<Bytes>) {
        self.shared.slots.set(slot, value);
    }

    /// The value of text with variables.
    pub fn evaluate(&self, text: &Complex) -> Bytes {
        Subject::evaluate(self, text)
    }

    /// Whether a text with variables depends on the content of the request.
    pub fn depends_on_content(&self, text: &Complex) -> bool {
        self.variables().late_in(text).is_late()
    }

    /// Whether the path of the request line was escaped: captures of it are escaped again where
    /// they become part of a URI. nginx: `r->quoted_uri || r->plus_in_uri`.
    pub fn path_was_escaped(&self) -> bool {
        let path = self.head().uri().split(|&b| b == b'?').next().unwrap_or_default();
        path.iter().any(|&b| b == b'%' || b == b'+')
    }

    /// The client's connection.
    pub fn client(&self) -> &Client {
        self.exchange.client()
    }

    /// Changes the meaning of a client's hang-up until the guard is dropped.
    pub fn watch(&self, on_hangup: OnHangup) -> Watch {
        Watch::new(self.exchange.clone(), on_hangup)
    }

    /// The longest pause between two writes to the client.
    pub fn send_timeout(&self) -> Duration {
        self.location().client.send_timeout.duration()
    }

    /// Host from the request line or the `Host` header: lower case, without port; may be empty.
    pub fn host(&self) -> &[u8] {
        self.head().host().unwrap_or_default()
    }

    /// Whether this is a subrequest of another request. nginx: `r != r->main`.
    pub fn is_nested(&self) -> bool {
        self.nested.is_some()
    }

    /// First name of the virtual server.
    pub fn server_name(&self) -> &[u8] {
        &self.server().name
    }

    /// The file settings of the location.
    pub fn io(&self) -> Rc<Io> {
        self.current.io(self.location_id(), self)
    }

    /// The settings for temporary files: the default pool, regardless of `aio threads` in the
    /// location. They are usually on another disk, and a hanging disk must not delay unrelated
    /// requests.
    pub fn temp_io(&self) -> Rc<Io> {
        let io = self.io();
        match io.aio {
            Aio::Threads | Aio::On => {
                let pool = self.current.default_pool().clone();
                Rc::new(Io { pool, ..Io::clone(&io) })
            }
            Aio::Off | Aio::Blocking => io,
        }
    }

    /// Appends the path of its file, and returns the length of the root in it.
    pub fn append_file(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let path = &self.location().path;
        path.append_root(self, out);
        let root = out.len() - start;
        out.extend_from_slice(path.rest(&self.uri().path, self.rewriting().is_file));
        root
    }

    /// Whether the URI maps to a file. An `alias` replaces the part of the URI that matches the location; a
    /// URI that was rewritten in the location lacks this part, which is logged.
    pub fn has_file(&self) -> bool {
        let location = self.location();
        let has_file = !(location.path.is_alias() && self.rewriting().rewritten);
        if !has_file {
            let name = String::from_utf8_lossy(&location.name);
            self.log(
                Level::Alert,
                format_args!(
                    "\"alias\" cannot be used in location \"{name}\" where URI was rewritten"
                ),
            );
        }
        has_file
    }

    /// Empty memory for the path of a file; give it back with [`give_path`](Self::give_path).
    pub fn take_path(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.path)
    }

    /// Keeps memory for the next path.
    pub fn give_path(&mut self, mut path: Vec<u8>) {
        path.clear();
        self.path = path;
    }

    /// The method, as text.
    pub fn method_name(&self) -> &[u8] {
        match self.method() {
            Method::Get if self.head().method() != Method::Get => b"GET",
            Method::Head if self.head().method() != Method::Head => b"HEAD",
            _ => self.head().method_bytes(),
        }
    }

    /// Whether the main request was changed to a GET.
    pub(crate) fn is_switched_to_get(&self) -> bool {
        let sent_as_get = || self.head().method() == Method::Get && !self.head().is_malformed();
        let own = || self.method() == Method::Get && !sent_as_get();
        self.nested.map_or_else(own, |nested| nested.switched)
    }

    /// Whether the client is a browser of Microsoft; old ones need special treatment.
    pub fn is_msie(&self) -> bool {
        self.agent().is_some_and(|agent| contains(agent, b"MSIE ") && !contains(agent, b"Opera"))
    }

    /// Whether it is MSIE 6 or older.
    pub fn is_msie6(&self) -> bool {
        let Some(agent) = self.agent().filter(|_| self.is_msie()) else { return false };
        let at = agent.windows(5).position(|w| w == b"MSIE ").map_or(0, |at| at + 5);
        match agent.get(at..at + 2) {
            Some([b'4' | b'5', b'.']) => true,
            Some([b'6', b'.']) => !contains(agent, b"SV1"),
            _ => false,
        }
    }

    /// Whether it is Chrome, which replaces short error pages by its own.
    pub fn is_chrome(&self) -> bool {
        self.agent().is_some_and(|agent| contains(agent, b"Chrome/"))
    }

    /// Whether it is Safari on a Mac. nginx: `r->headers_in.safari`.
    pub fn is_safari(&self) -> bool {
        self.agent().is_some_and(|agent| {
            contains(agent, b"Safari/")
                && contains(agent, b"Mac OS X")
                && !contains(agent, b"Chrome/")
        })
    }

    fn agent(&self) -> Option<&[u8]> {
        self.head().header(Known::UserAgent)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_that_of_the_last_segment() {
        let extension = |path: &str| {
            let uri = Uri { path: path.into(), args: None };
            uri.extension().map(|e| String::from_utf8_lossy(e).into_owned())
        };
        assert_eq!(extension("/a/b.html").as_deref(), Some("html"));
        assert_eq!(extension("/a.d/b"), None);
        assert_eq!(extension("/a.tar.gz").as_deref(), Some("gz"));
        assert_eq!(extension("/a."), None);
        assert_eq!(extension("/.hidden"), None);
    }
}
