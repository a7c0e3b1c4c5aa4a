//! The response of a handler: a head and a body that is pulled.
//!
//! Handlers build a [`Response`]; filters change it; the front end sends it. Independent of requests
//! and of sending; only a tunnel has access to a socket. A body produced on the fly is a
//! [`BodySource`]: its next chunk is requested only when the previous one was sent, so a slow client
//! stops the source of the body.

use std::any::Any;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_message::scan;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::fs::resident::Resident;
use nowait_runtime::fs::{File, Io};
use nowait_runtime::net::{Endpoint, Piped};
use nowait_spare::LocalSpares;

use crate::field_order::{FieldOrder, SeparateField};

/// A future of the worker's own thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Maximum number of unused heads that a worker keeps.
const SPARE_MAX: usize = 64;

/// Maximum number of header lines for which such a head has memory.
const KEPT_LINES_MAX: usize = 16;

thread_local! {
    /// Heads whose memory is reused; they are empty.
    static SPARE: LocalSpares<Box<Head>> = const { LocalSpares::new(SPARE_MAX) };
}

/// A response before the filters have seen it.
#[derive(Debug, Default)]
pub struct Response {
    /// Status and headers; boxed, because responses are moved often.
    pub head: Box<Head>,
    /// The content.
    pub body: Body,
}

/// One header line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Name as it is sent.
    pub name: Bytes,
    /// Value without CR, LF or NUL: the writer refuses lines with them.
    pub value: Bytes,
}

/// Status and header fields of a response. Fields that filters interpret have members of their own;
/// all others are lines in `headers`. nginx: `ngx_http_headers_out_t`.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status code; 0 before there is a response.
    pub status: u16,
    /// Status line text after the version, when it is not the usual one.
    pub status_line: Option<Bytes>,
    /// `Content-Type` without the charset.
    pub content_type: Option<Bytes>,
    /// Charset to append to the content type.
    pub charset: Option<Bytes>,
    /// Type and charset as an upstream wrote them; sent unchanged while neither has changed.
    pub content_type_text: Option<Bytes>,
    /// Length of the body in bytes, if known in advance.
    pub content_length: Option<u64>,
    /// `Last-Modified` as seconds since the epoch.
    pub last_modified: Option<i64>,
    /// The same time as an upstream wrote it; sent unchanged while `last_modified` is set.
    pub last_modified_text: Option<Bytes>,
    /// `ETag` with its quotes.
    pub etag: Option<Bytes>,
    /// `Location`; made absolute by the writer when it begins with a slash.
    pub location: Option<Bytes>,
    /// The writer has made it absolute.
    pub location_completed: bool,
    /// `Content-Encoding`.
    pub content_encoding: Option<Bytes>,
    /// Whether clients may request ranges of this response (`Accept-Ranges: bytes`).
    pub accept_ranges: AcceptRanges,
    /// `Vary: Accept-Encoding`: the response may be compressed.
    pub varies_by_encoding: bool,
    /// All other headers, in the order they were added.
    pub headers: Vec<Header>,
    /// Positions of the fields above among them.
    pub order: FieldOrder,
    /// Trailer fields, sent after a chunked body; those of `add_trailer` and of upstreams are added
    /// at its end.
    pub trailers: Vec<Header>,
    /// `add_trailer` applies: the body is chunked, so that trailers can follow.
    pub expects_trailers: bool,
    /// The connection must be closed after this response.
    pub close: bool,
    /// `Server`: the server's own unless an upstream's is passed on.
    pub server: HeaderSource,
    /// `Date`, likewise.
    pub date: HeaderSource,
    /// An upstream has made the response and evaluated the request's conditions: they are not
    /// evaluated again. nginx: `r->disable_not_modified`.
    pub is_upstreams: bool,
    /// The status is an upstream's, directly or from a cache.
    pub has_upstreams_status: bool,
    /// Trailers may follow the body; a filter of the location adds them.
    pub trailers_follow: bool,
    /// The resident file with whose content the response began.
    pub resident: Option<Arc<Resident>>,
}

/// A header field that the server writes, unless an upstream's is passed on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// The server's.
    #[default]
    Ours,
    /// The upstream's.
    Given(Bytes),
    /// The upstream has none.
    Absent,
}

impl HeaderSource {
    /// The upstream's.
    pub fn given(&self) -> Option<&Bytes> {
        match self {
            Self::Given(value) => Some(value),
            Self::Ours | Self::Absent => None,
        }
    }
}

/// Whether ranges of a response can be served.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum AcceptRanges {
    /// The handler doesn't offer ranges.
    #[default]
    No,
    /// The range filter may cut the body; `Accept-Ranges: bytes` is sent.
    Bytes,
    /// An upstream offers ranges: `Accept-Ranges: bytes` is sent, and the upstream cuts the body.
    Upstream,
}

impl Default for Head {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Head {
    /// An empty head.
    pub const EMPTY: Self = Self {
        status: 0,
        status_line: None,
        content_type: None,
        charset: None,
        content_type_text: None,
        content_length: None,
        last_modified: None,
        last_modified_text: None,
        etag: None,
        location: None,
        location_completed: false,
        content_encoding: None,
        accept_ranges: AcceptRanges::No,
        varies_by_encoding: false,
        headers: Vec::new(),
        order: FieldOrder::EMPTY,
        trailers: Vec::new(),
        expects_trailers: false,
        close: false,
        server: HeaderSource::Ours,
        date: HeaderSource::Ours,
        is_upstreams: false,
        has_upstreams_status: false,
        trailers_follow: false,
        resident: None,
    };

    /// A head with only a status.
    pub fn new(status: u16) -> Box<Self> {
        // Created in place: it is large.
        let mut head = LocalSpares::take_local(&SPARE).unwrap_or_default();
        head.status = status;
        head
    }

    /// Makes the memory of a head available to another response.
    pub fn retire(mut self: Box<Self>) {
        self.clear();
        LocalSpares::keep_local(&SPARE, self);
    }

    /// Makes it like a new one without a status. Keeps memory for header lines.
    pub fn clear(&mut self) {
        // Field by field: most are empty already, and it is large.
        let Self {
            status,
            status_line,
            content_type,
            charset,
            content_type_text,
            content_length,
            last_modified,
            last_modified_text,
            etag,
            location,
            location_completed,
            content_encoding,
            accept_ranges,
            varies_by_encoding,
            headers,
            order,
            trailers,
            expects_trailers,
            close,
            server,
            date,
            is_upstreams,
            has_upstreams_status,
            trailers_follow,
            resident,
        } = self;
        *status = 0;
        for text in [
            status_line,
            content_type,
            charset,
            content_type_text,
            last_modified_text,
            etag,
            location,
            content_encoding,
        ] {
            *text = None;
        }
        (*content_length, *last_modified) = (None, None);
        headers.clear();
        headers.shrink_to(KEPT_LINES_MAX);
        *resident = None;
        *order = FieldOrder::default();
        *trailers = Vec::new();
        (*server, *date) = (HeaderSource::Ours, HeaderSource::Ours);
        *accept_ranges = AcceptRanges::No;
        for flag in [
            location_completed,
            varies_by_encoding,
            expects_trailers,
            close,
            is_upstreams,
            has_upstreams_status,
            trailers_follow,
        ] {
            *flag = false;
        }
    }

    /// Adds a header line. Fields with members of their own (`Content-Type`, `ETag`, `Location`) would be sent
    /// twice. A name from the configuration: push a [`Header`].
    pub fn add(&mut self, name: &'static str, value: impl Into<Bytes>) {
        self.headers
            .push(Header { name: Bytes::from_static(name.as_bytes()), value: value.into() });
    }

    /// Whether there is a line with this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    }

    /// Places a field after the current lines, unless it has a place already.
    pub fn place(&mut self, field: SeparateField) {
        self.order.place(field, self.headers.len());
    }

    /// Removes header lines.
    pub fn remove(&mut self, mut unwanted: impl FnMut(&Header) -> bool) {
        let mut at = 0;
        self.headers.retain(|header| {
            let keep = !unwanted(header);
            if keep {
                at += 1
            } else {
                self.order.remove_line(at)
            }
            keep
        });
    }

    /// Sets a header field: the first line with this name gets the value, others are removed.
    pub fn set(&mut self, name: &'static str, value: Bytes) {
        let is_it = |header: &Header| header.name.eq_ignore_ascii_case(name.as_bytes());
        let Some(first) = self.headers.iter().position(is_it) else {
            return self.add(name, value);
        };
        for number in (first + 1..self.headers.len()).rev() {
            if is_it(&self.headers[number]) {
                self.headers.remove(number);
                self.order.remove_line(number);
            }
        }
        self.headers[first].value = value;
    }

    /// Sets `Content-Type`; its charset is kept apart. nginx:
    /// `ngx_http_upstream_copy_content_type`.
    pub fn set_content_type(&mut self, value: Bytes) {
        self.charset = None;
        self.content_type_text = None;
        if !scan::has_byte(&value, b';') {
            self.content_type = Some(value);
            return;
        }
        let mut at = 0;
        while let Some(semicolon) = value[at..].iter().position(|&b| b == b';').map(|n| n + at) {
            let start = semicolon + 1;
            let blanks = value[start..].iter().take_while(|&&b| b == b' ').count();
            let start = start + blanks;
            let parameter = &value[start..];
            if parameter.get(..8).is_some_and(|name| name.eq_ignore_ascii_case(b"charset=")) {
                let mut charset = value.slice(start + 8..);
                if charset.first() == Some(&b'"') {
                    charset = charset.slice(1..);
                }
                if charset.last() == Some(&b'"') {
                    charset.truncate(charset.len() - 1);
                }
                self.content_type = Some(value.slice(..semicolon));
                self.charset = Some(charset);
                self.content_type_text = Some(value);
                return;
            }
            at = start;
        }
        self.content_type = Some(value);
    }

    /// The whole value of `Content-Type`.
    pub fn content_type_value(&self) -> Option<Bytes> {
        let kind = self.content_type.as_ref()?;
        Some(match (&self.charset, &self.content_type_text) {
            (None, _) => kind.clone(),
            (Some(_), Some(text)) => text.clone(),
            (Some(charset), None) => [kind, &b"; charset="[..], charset].concat().into(),
        })
    }

    /// The first of the other headers with this name, in any case.
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| &h.value[..])
    }

    /// Takes over the type and the fields of the response that this one replaces.
    pub fn replace(&mut self, other: Head) {
        if other.content_type.is_some() {
            self.content_type = other.content_type;
            self.charset = other.charset;
            self.content_type_text = other.content_type_text;
        }
        self.headers.extend(other.headers);
    }
}

/// The content of a response.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// Content in memory.
    Bytes(Bytes),
    /// A part of a file.
    File(FileBody),
    /// Several consecutive pieces with a known total length.
    Parts(std::collections::VecDeque<Part>),
    /// Content that is produced while it is sent.
    Stream(Box<dyn BodySource>),
    /// No content: the connection now belongs to another protocol (101).
    Tunnel(Box<dyn Takeover>),
}

/// Takes over a client's connection after a head was sent.
pub trait Takeover {
    /// Uses the connection until it can be closed.
    ///
    /// # Errors
    /// [`BodyError`], for the log.
    fn run<'a>(self: Box<Self>, client: Duplex<'a>) -> LocalFuture<'a, Result<(), BodyError>>;
}

/// A tunnel's access to a client's connection, or to a stream of it.
pub struct Duplex<'a> {
    /// Both directions.
    pub end: Endpoint<'a>,
    /// Bytes that have arrived already.
    pub received: RecvBuf,
    /// Bytes sent to the client are added here.
    pub sent: &'a Cell<u64>,
    /// The longest pause between two writes to the client.
    pub send_timeout: Duration,
    /// The time that the client may continue after the other side has ended.
    pub lingering_timeout: Duration,
}

/// A part of an open file.
#[derive(Clone)]
pub struct FileBody {
    /// The open file.
    pub file: File,
    /// How the location reads files.
    pub io: Rc<Io>,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Another source of its content.
    pub elsewhere: Option<Rc<dyn FallbackSource>>,
}

/// The request that a response belongs to. Opaque to bodies, which pass it to the module that made them.
pub trait Owner: Any {}

/// Another source of a file's content, for use when the disk fails.
pub trait FallbackSource {
    /// A body with these bytes of the file that switches to the other source when they can't be
    /// read; `owner` is the client's request. `failed`: reading has failed already. `None`: there
    /// is no other source.
    fn body(
        self: Rc<Self>,
        owner: &dyn Owner,
        file: FileBody,
        failed: Option<&BodyError>,
    ) -> Option<Box<dyn BodySource>>;

    /// Resolves when a read that begins now should be abandoned, because the disk does not respond.
    fn hangs(&self) -> LocalFuture<'static, ()>;

    /// The disk has responded.
    fn answered(&self);
}

/// A piece of a body.
#[derive(Clone)]
pub enum Part {
    /// In memory.
    Bytes(Bytes),
    /// A part of a file.
    File(FileBody),
}

impl From<Part> for Body {
    fn from(part: Part) -> Self {
        match part {
            Part::Bytes(bytes) => Self::Bytes(bytes),
            Part::File(file) => Self::File(file),
        }
    }
}

/// A client that has accepted no data for this long is slow: neither a pipe nor an upstream server waits for it
/// any longer. A shorter delay may only mean that its task, or the kernel, was not scheduled yet.
pub const PATIENCE: Duration = Duration::from_millis(5);

/// Produces a body piece by piece.
pub trait BodySource {
    /// The next piece; `None` after the last one. Called only after the previous piece was sent.
    ///
    /// # Errors
    /// [`BodyError`] when the body can't be completed; the connection or stream is then cut, so that the client can
    /// tell. It can't where the end of the connection is the end of the body: HTTP/1.0 without a length.
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>>;

    /// The next piece in a pipe of the kernel, for a user that never looks at the bytes, and sends them on a
    /// plain connection. `None`, from this or from the future: [`next`](Self::next) has the next piece. To be
    /// called before each `next`, after everything earlier was sent. A source that wraps another one has no such
    /// pieces, since it looks at the bytes, or counts them.
    ///
    /// # Errors
    /// As for `next`.
    fn next_piped(&mut self) -> Option<LocalFuture<'_, Result<Option<Piped>, BodyError>>> {
        None
    }

    /// Takes back what is left of the piece that [`next_piped`](Self::next_piped) has returned, because the
    /// client has accepted nothing for [`PATIENCE`]. It is the next piece.
    ///
    /// # Errors
    /// The bytes can't be read from the pipe.
    fn put_back(&mut self, _rest: Piped) -> Result<(), BodyError> {
        Err(BodyError::Truncated)
    }

    /// Whether its last part must be sent before the wait for the next one: filters then flush the
    /// data that they hold back. To do so they may drop the future of [`next`](Self::next) and
    /// create another one, which must not lose data. A source that wraps another one returns the
    /// other's value.
    fn is_urgent(&self) -> bool;

    /// Restricts the body to these of its bytes. Called before the first piece. False: it can't,
    /// and produces all of them.
    fn cut(&mut self, _wanted: &std::ops::Range<u64>) -> bool {
        false
    }

    /// Bytes that are fetched together, if [`cut`](Self::cut) may be called again after the last piece of a
    /// range, for a range anywhere in the body: several ranges can then be sent. `None`: it may not.
    fn seek_unit(&self) -> Option<u64> {
        None
    }

    /// The last `unsent` bytes of its last part are in a file that can't be read. True:
    /// [`next`](Self::next) continues with these bytes from another source, or returns the reason why it
    /// can't.
    fn retry(&mut self, _unsent: u64) -> bool {
        false
    }
}

/// The reason why a body ended early.
#[derive(Debug)]
pub enum BodyError {
    /// A file could not be read.
    File(io::Error),
    /// A file is shorter than it was when the response began.
    Truncated,
    /// The coding is malformed.
    Coding(String),
    /// The thread pool that should read refused the task.
    Overflow(String),
    /// A subrequest whose response is a part of the body is not made.
    Nested(crate::nested::SubrequestError),
    /// The upstream closed the connection early, was too slow, or violated the protocol.
    Upstream(String),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => write!(f, "read() failed{}", crate::log::OsError(error)),
            Self::Truncated => f.write_str("the file was truncated while it was being sent"),
            Self::Coding(text) | Self::Overflow(text) | Self::Upstream(text) => f.write_str(text),
            Self::Nested(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for BodyError {}

impl Body {
    /// Content from a slice that lives as long as the program.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }

    /// Number of bytes, if known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::File(file) => Some(file.len),
            Self::Parts(parts) => Some(parts.iter().map(Part::len).sum()),
            Self::Stream(_) | Self::Tunnel(_) => None,
        }
    }

    /// Whether the body is certainly empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Takes the next piece; `None` at the end. Dropping the future loses no data.
    ///
    /// # Errors
    /// Those of its source.
    pub async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        match self {
            Self::Parts(parts) => Ok(parts.pop_front()),
            Self::Stream(source) => source.next().await,
            body => Ok(match std::mem::take(body) {
                Self::Bytes(bytes) => Some(Part::Bytes(bytes)),
                Self::File(file) => Some(Part::File(file)),
                Self::Empty | Self::Parts(_) | Self::Stream(_) | Self::Tunnel(_) => None,
            }),
        }
    }

    /// Whether its last part must be sent before the wait for the next one.
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::Stream(source) if source.is_urgent())
    }

    /// Makes the body independent of the request that reads it: a file with another source becomes
    /// a body that switches to that source by itself. `owner` is the client's request.
    #[must_use]
    pub fn safe(self, owner: &dyn Owner) -> Self {
        if let Self::File(file) = &self
            && let Some(elsewhere) = &file.elsewhere
            && let Some(source) = elsewhere.clone().body(owner, file.clone(), None)
        {
            return Self::Stream(source);
        }
        self
    }
}

impl FileBody {
    /// Reads this many bytes from its beginning; fewer only if the file has shrunk.
    ///
    /// # Errors
    /// The disk's error. `TimedOut`: the disk does not respond, and the bytes may be available from another
    /// source.
    pub async fn read(&self, io: &Io, len: usize) -> io::Result<Bytes> {
        let mut read = pin!(self.file.read_at(io, self.offset, len));
        let Some(elsewhere) = &self.elsewhere else { return read.await };
        let mut hangs = None;
        let read = poll_fn(|cx| {
            if let Poll::Ready(read) = read.as_mut().poll(cx) {
                return Poll::Ready(Some(read));
            }
            hangs.get_or_insert_with(|| elsewhere.hangs()).as_mut().poll(cx).map(|()| None)
        });
        let Some(read) = read.await else { return Err(io::ErrorKind::TimedOut.into()) };
        if hangs.is_some() && read.is_ok() {
            elsewhere.answered();
        }
        read
    }
}

impl Part {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The wanted bytes of it; `None` if it ends before them.
    pub fn cut(self, wanted: &Range<u64>) -> Option<Self> {
        if wanted.end > self.len() {
            return None;
        }
        Some(match self {
            Self::Bytes(bytes) => {
                let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                Self::Bytes(bytes.slice(at(wanted.start)..at(wanted.end)))
            }
            Self::File(file) => Self::File(FileBody {
                offset: file.offset + wanted.start,
                len: wanted.end - wanted.start,
                ..file
            }),
        })
    }

    /// Keeps the first `at` bytes and returns the rest. `at` is less than the length.
    #[must_use]
    pub fn split_off(&mut self, at: u64) -> Self {
        match self {
            Self::Bytes(bytes) => {
                Self::Bytes(bytes.split_off(usize::try_from(at).unwrap_or(usize::MAX)))
            }
            Self::File(file) => {
                let (offset, len) = (file.offset + at, file.len - at);
                let rest = FileBody { offset, len, ..file.clone() };
                file.len = at;
                Self::File(rest)
            }
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Empty => "Empty",
            Self::Bytes(_) => "Bytes",
            Self::File(_) => "File",
            Self::Parts(_) => "Parts",
            Self::Stream(_) => "Stream",
            Self::Tunnel(_) => "Tunnel",
        };
        write!(f, "{name}({:?})", self.len())
    }
}
