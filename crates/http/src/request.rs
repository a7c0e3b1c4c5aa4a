//! A request on its way through the phases.
//!
//! Made by a protocol's connection task, owned by it, lent to phases, handlers and filters. Holds
//! what they learn about the request and the head that was sent, for logs and variables. Never
//! touches a socket: the body comes from a [`BodyReader`].

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::tls::trust::ClientTrust;
use nowait_message::{Known, Method, RequestHead, Version};
use nowait_runtime::fs::{Aio, Io};
use nowait_runtime::net::Address;
use nowait_runtime::pool::Meter;
use nowait_variables::{Captures, Slot, Subject};

use crate::client::Client;
use crate::conf::{Location, LocationId, Server, ServerId};
use crate::exchange::{Exchange, OnHangup, Watch};
use crate::generation::Current;
use crate::log::Level;
use crate::module::{Phase, Position};
use crate::nested::{Entry, Nested, Shared};
use crate::out::Out;
use crate::outcome::Special;
use crate::progress::{Persistence, Realpath, Replaced, Rewriting};
use crate::response::{Head, LocalFuture, Owner};
use crate::slots::State;
use crate::variables::complex::Complex;

/// Most memory that a spare request keeps for each of its paths.
const SPARE_PATH_BYTES_MAX: usize = 1024;

/// A reference that a request holds while it is in use. A spare request holds none, so it keeps
/// neither a connection nor a generation alive.
pub struct Attached<T: ?Sized>(Option<Rc<T>>);

impl<T: ?Sized> Deref for Attached<T> {
    type Target = Rc<T>;

    fn deref(&self) -> &Rc<T> {
        self.0.as_ref().expect("only spare requests are detached")
    }
}

/// A request.
pub struct Request {
    /// The way to the client.
    pub exchange: Attached<dyn Exchange>,
    /// The configuration in force at the request's beginning; a reload doesn't change it.
    pub current: Attached<Current>,
    /// The virtual server.
    pub server: ServerId,
    /// The location; before one is found, the server's own settings.
    pub location: LocationId,
    /// Request line and headers.
    pub head: RequestHead,
    /// The method; error pages are requested with GET.
    pub method: Method,
    /// Port in the `Host` header, if any.
    pub host_port: Option<u16>,
    /// The current target: internal redirects change it.
    pub uri: Uri,
    /// The request body.
    pub body: RequestBody,
    /// Length of the body as declared by the head.
    pub body_length: BodyLength,
    /// When the first byte was received.
    pub started: Instant,
    /// Bytes of the request received so far: head and body.
    pub received: Rc<Cell<u64>>,
    /// Head of the response, as the filters left it.
    pub out: Out,
    /// What has been sent of the response.
    pub sent: Sent,
    /// The current URI comes from the server itself: `internal` locations are allowed.
    pub internal: bool,
    /// The content is not sent: the method is HEAD.
    pub header_only: bool,
    /// How its URI has changed.
    pub rewriting: Rewriting,
    /// What remains of a response that another one replaces.
    pub replaced: Replaced,
    /// What precedes and follows it on its connection.
    pub persistence: Persistence,
    /// Where the phases continue.
    pub(crate) position: Position,
    /// With `satisfy any`: the refusal to respond with unless a handler grants access.
    pub(crate) refusal: Option<Box<Special>>,
    /// Depth of variables that are being computed for each other.
    pub(crate) variable_depth: Cell<u8>,
    /// State shared with subrequests and the main request.
    pub shared: Rc<Shared>,
    /// State that only subrequests have.
    pub nested: Option<Nested>,
    /// Where a subrequest enters the phases.
    pub(crate) entry: Entry,
    /// Captures of the last regular expression that matched.
    pub captures: RefCell<Captures>,
    /// The client's address as stated by a trusted proxy.
    pub real_peer: Option<Box<Address>>,
    /// What modules keep for it.
    pub state: State,
    /// What modules keep for it until an internal redirect.
    pub round: State,
    /// `$realpath_root`.
    pub realpath: Realpath,
    /// Value of `$limit_rate`, if set.
    pub limit_rate: Cell<Option<u64>>,
    /// Number of filters that have seen the response, while it is being replaced.
    pub filtered: usize,
    /// Bytes that are sent before its limit applies, in place of `limit_rate_after`.
    pub limit_rate_after: Cell<Option<u64>>,
    /// Charset of the response, in place of the configured one. nginx:
    /// `r->headers_out.override_charset`.
    pub override_charset: Option<Bytes>,
    /// Time that its file operations spent in pools.
    pub spent: Rc<Meter>,
    /// Memory for paths of files.
    path: Vec<u8>,
}

/// Target of a request.
#[derive(Default, Debug, Clone)]
pub struct Uri {
    /// Decoded and normalised path; begins with a slash (but for `*` and CONNECT).
    pub path: Vec<u8>,
    /// Query string without the question mark, not decoded; `None` when there is no question mark.
    pub args: Option<Vec<u8>>,
}

impl Uri {
    /// The file name extension: the text after the last dot of the last segment. nginx: `r->exten`.
    pub fn extension(&self) -> Option<&[u8]> {
        let at = self.path.iter().rposition(|&b| b == b'.' || b == b'/')?;
        (self.path[at] == b'.'
            && at + 1 < self.path.len()
            && self.path.get(at.wrapping_sub(1)) != Some(&b'/'))
        .then(|| &self.path[at + 1..])
    }

    /// The query string, empty when there is none.
    pub fn query(&self) -> &[u8] {
        self.args.as_deref().unwrap_or_default()
    }
}

/// Length of a request's content as declared by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// No content.
    None,
    /// `Content-Length`.
    Known(u64),
    /// `Transfer-Encoding: chunked`, or a protocol that needs no length.
    Unknown,
}

/// The content of a request, and the state of reading it.
#[derive(Default)]
pub enum RequestBody {
    /// There is none, or it was discarded.
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
    /// [`ReadError`]: the client is gone, slow, or breaks the framing.
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>>;

    /// How much `next` may receive at once, roughly; `None`: what is most efficient.
    fn limit(&mut self, _bytes: Option<usize>) {}

    /// Invites the client to send the content (`100 Continue`), once, if it waits for that.
    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>>;
}

/// Why a request's content could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The client closed the connection or it broke: 400 is logged, nothing is sent.
    Closed(std::io::Error),
    /// Nothing arrived within `client_body_timeout`: 408.
    TimedOut,
    /// The framing is wrong: 400 with the text for the log.
    Malformed(&'static str),
    /// More than `client_max_body_size`: 413.
    TooLarge,
}

/// What was sent of a response.
#[derive(Default, Debug)]
pub struct Sent {
    /// Bytes of head and body. nginx: `$bytes_sent`.
    pub bytes: Cell<u64>,
    /// Bytes of the head.
    pub head_bytes: Cell<u64>,
    /// The whole response was sent.
    pub complete: Cell<bool>,
    /// `Connection` header as sent.
    pub connection: Cell<&'static str>,
    /// The body was sent chunked.
    pub chunked: Cell<bool>,
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
        let location = current.conf.server(server).root;
        Self {
            exchange: Attached(Some(exchange)),
            current: Attached(Some(current)),
            server,
            location,
            head: RequestHead::new(),
            method: Method::Get,
            host_port: None,
            uri: Uri::default(),
            body: RequestBody::None,
            body_length: BodyLength::None,
            started,
            received: Rc::default(),
            out: Out::default(),
            sent: Sent::default(),
            internal: false,
            header_only: false,
            rewriting: Rewriting::default(),
            replaced: Replaced::default(),
            persistence: Persistence::default(),
            position: Position::default(),
            refusal: None,
            variable_depth: Cell::new(0),
            shared: Rc::default(),
            nested: None,
            entry: Entry::Server,
            captures: RefCell::default(),
            real_peer: None,
            state: State::default(),
            round: State::default(),
            realpath: Realpath::default(),
            limit_rate: Cell::new(None),
            filtered: 0,
            limit_rate_after: Cell::new(None),
            override_charset: None,
            spent: Rc::default(),
            path: Vec::new(),
        }
    }

    /// The request was completed and logged: no limit counts it any more, and the memory of its
    /// response may be reused.
    pub fn end(&mut self) {
        self.state.clear();
        self.round.clear();
        self.out.forget();
    }

    /// Makes a request that was [ended](Self::end) the next one of its connection, which reuses its
    /// memory.
    pub fn renew(&mut self, current: Rc<Current>, server: ServerId, started: Instant) {
        self.head.recycle_for_next();
        self.reset();
        self.location = current.conf.server(server).root;
        self.current = Attached(Some(current));
        self.server = server;
        self.started = started;
    }

    /// Reduces a request that was [ended](Self::end) to memory that any connection may
    /// [reuse](Self::reuse). Nothing of its connection and its generation remains.
    pub fn detach(&mut self) {
        self.head.recycle();
        self.reset();
        self.exchange = Attached(None);
        self.current = Attached(None);
        if Rc::get_mut(&mut self.spent).is_none() {
            self.spent = Rc::default();
        }
        // Their sizes depend on clients.
        self.uri.path.shrink_to(SPARE_PATH_BYTES_MAX);
        self.path.shrink_to(SPARE_PATH_BYTES_MAX);
        self.captures = RefCell::default();
    }

    /// Turns a [detached](Self::detach) request into the first one of a connection.
    pub fn reuse(
        &mut self,
        exchange: Rc<dyn Exchange>,
        current: Rc<Current>,
        server: ServerId,
        started: Instant,
    ) {
        self.location = current.conf.server(server).root;
        self.exchange = Attached(Some(exchange));
        self.current = Attached(Some(current));
        self.server = server;
        self.started = started;
        // Time in pools is counted from now on.
        self.spent.reset();
    }

    /// Clears everything but the head, the connection and the configuration, and keeps the memory.
    fn reset(&mut self) {
        // Field by field: a request is large, and most fields keep their memory.
        self.method = Method::Get;
        self.host_port = None;
        self.uri.path.clear();
        self.uri.args = None;
        if !matches!(self.body, RequestBody::None) {
            self.body = RequestBody::None;
        }
        self.body_length = BodyLength::None;
        self.received.set(0);
        self.sent = Sent::default();
        self.internal = false;
        self.header_only = false;
        self.rewriting = Rewriting::default();
        self.replaced = Replaced::default();
        self.persistence = Persistence::default();
        self.position = Position::default();
        self.refusal = None;
        self.variable_depth.set(0);
        Shared::renew(&mut self.shared);
        self.captures.get_mut().clear();
        self.real_peer = None;
        self.realpath = Realpath::default();
        self.limit_rate.set(None);
        self.limit_rate_after.set(None);
        self.filtered = 0;
        self.override_charset = None;
        self.nested = None;
        self.entry = Entry::Server;
        self.spent.reset();
    }

    /// The authorities and lists that decide about the client's certificate for the request's server;
    /// `None`: it does not ask for one.
    pub fn client_trust(&self) -> Option<&ClientTrust> {
        let default = || {
            let default = self.exchange.default_server(&self.current)?;
            Some(&self.current.conf.server(default).tls)
        };
        self.server().tls.judge_or_default(default).map(|trust| &**trust)
    }

    /// Settings of the virtual server.
    pub fn server(&self) -> &Server {
        self.current.conf.server(self.server)
    }

    /// Settings of the location.
    pub fn location(&self) -> &Location {
        self.current.conf.location(self.location)
    }

    /// Chooses another virtual server and its top-level settings.
    pub fn set_server(&mut self, server: ServerId) {
        self.server = server;
        self.location = self.current.conf.server(server).root;
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
        let path = self.head.uri().split(|&b| b == b'?').next().unwrap_or_default();
        path.iter().any(|&b| b == b'%' || b == b'+')
    }

    /// Whether the content of its location is being produced, or was.
    pub fn is_at_content(&self) -> bool {
        self.position.phase == Phase::Content
    }

    /// The content of its location is going to be produced.
    pub fn enter_content(&mut self) {
        self.position.phase = Phase::Content;
    }

    /// The client's connection.
    pub fn client(&self) -> &Client {
        self.exchange.client()
    }

    /// The client's address.
    pub fn peer(&self) -> &Address {
        self.real_peer.as_deref().unwrap_or(&self.client().peer)
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
        self.head.host().unwrap_or_default()
    }

    /// Whether this is a subrequest of another request. nginx: `r != r->main`.
    pub fn is_nested(&self) -> bool {
        self.nested.is_some()
    }

    /// First name of the virtual server.
    pub fn server_name(&self) -> &[u8] {
        &self.server().name
    }

    /// How the location reads files.
    pub fn io(&self) -> Rc<Io> {
        self.current.io(self.location, self)
    }

    /// How temporary files are written and read: in the default pool, whatever pool `aio threads`
    /// names for the location's files. They are usually on another disk, and a hanging disk must
    /// not hold up unrelated requests.
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
        out.extend_from_slice(path.rest(&self.uri.path, self.rewriting.is_file));
        root
    }

    /// Whether the URI stands for a file. An `alias` replaces the part of the URI that matches the
    /// location; a URI that was rewritten in the location lacks this part, which is logged.
    pub fn has_file(&self) -> bool {
        let location = self.location();
        let has_file = !(location.path.is_alias() && self.rewriting.rewritten);
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
        match self.method {
            Method::Get if self.head.method() != Method::Get => b"GET",
            Method::Head if self.head.method() != Method::Head => b"HEAD",
            _ => self.head.method_bytes(),
        }
    }

    /// Changes the method to GET for an error page, unless only the head is wanted.
    pub fn switch_to_get(&mut self) {
        if self.method != Method::Head {
            self.method = Method::Get;
        }
    }

    /// Whether the main request was changed to a GET.
    pub(crate) fn is_switched_to_get(&self) -> bool {
        let sent_as_get = || self.head.method() == Method::Get && !self.head.is_malformed();
        let own = || self.method == Method::Get && !sent_as_get();
        self.nested.map_or_else(own, |nested| nested.switched)
    }

    /// Keeps the head that is sent, for logs and variables.
    pub fn set_out(&mut self, head: Box<Head>) {
        self.out.keep(head);
    }

    /// Status for logs. nginx: `ngx_http_variable_status`.
    pub fn log_status(&self) -> u16 {
        match (self.replaced.status, self.out.status) {
            (Some(status), _) => status,
            (_, 0) if self.head.version() == Version::Http09 => 9,
            (_, status) => status,
        }
    }

    /// The client closed the connection before the response.
    pub fn closed_by_client(&mut self) {
        self.out.status = if self.head.is_empty() { 400 } else { 499 };
    }

    /// The client took too long to send its request.
    pub fn timed_out(&mut self) {
        self.out.status = 408;
    }

    /// The connection is closed without a response.
    pub fn close_status(&mut self, status: u16) {
        self.replaced.status = None;
        self.out.status = status;
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
        self.head.header(Known::UserAgent)
    }

    /// Bytes of the response's body sent so far. nginx: `$body_bytes_sent`.
    pub fn body_bytes_sent(&self) -> u64 {
        self.sent.bytes.get().saturating_sub(self.sent.head_bytes.get())
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
