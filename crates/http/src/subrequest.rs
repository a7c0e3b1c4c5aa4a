//! Subrequests: the response to another URI as part of a request's own work. nginx:
//! `ngx_http_subrequest`.
//!
//! Called by modules that need the response of another location: `auth_request`, `mirror`, `addition`,
//! `ssi`, slices and background updates of a cache. [`Subrequest::begin`] creates a request with its
//! parent's connection, configuration, head and variables; [`run`] takes it through the phases, and
//! through the filters as far as they apply to subrequests. The result is a head and a body that is
//! pulled, so a filter can insert it into the body of another response. Never writes to a socket, and
//! never reads the client's request body: a subrequest sees it only after its parent has read it.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use bytes::Bytes;
use nowait_h1::Method;
use nowait_runtime::{now, spawn};

use crate::filter::Pull;
use crate::log::Level;
use crate::phases;
use crate::request::{BodyLength, Request, RequestBody, Uri};
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part};
use crate::sender::{self, SendError};
use crate::variables::Slots;

/// How deep subrequests may be nested. nginx: `NGX_HTTP_MAX_SUBREQUESTS`.
pub const NESTED_MAX: u8 = 50;

/// How many subrequests one request may lead to, all in all. nginx allows as many at a time.
pub const TOTAL_MAX: u32 = 65_535 - 1000;

/// How many background subrequests a worker runs at a time; more are refused. nginx holds the
/// connection of the main request until they have ended, so that `worker_connections` is the bound.
pub const BACKGROUND_MAX: usize = 512;

/// What a request and its subrequests share.
#[derive(Default)]
pub struct Shared {
    /// Values of variables that the configuration defines.
    pub(crate) slots: Slots,
    /// `$request_id`, once it was asked for.
    pub(crate) id: Cell<Option<[u8; 16]>>,
    /// Subrequests so far.
    made: Cell<u32>,
    /// What its pages have set by commands.
    pub(crate) ssi: RefCell<Option<Box<crate::ssi::Common>>>,
    /// What is known of the client by its cookie.
    pub(crate) userid: RefCell<Option<Box<crate::userid::Ids>>>,
    /// Values that `set` gave to variables of modules.
    changed: RefCell<Vec<(&'static str, Bytes)>>,
    /// Charset of the main response, to which the others are converted.
    pub(crate) charset: RefCell<Option<Bytes>>,
}

impl Shared {
    /// One of the subrequests has ended, and does not count any more: for modules that make one after
    /// the other, without end.
    pub(crate) fn ended(&self) {
        self.made.set(self.made.get().saturating_sub(1));
    }

    /// The value that `set` gave to a variable of a module.
    pub(crate) fn changed(&self, name: &'static str) -> Option<Bytes> {
        let changed = self.changed.borrow();
        changed.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// Gives a variable of a module a value.
    pub(crate) fn change(&self, name: &'static str, value: Bytes) {
        let mut changed = self.changed.borrow_mut();
        match changed.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => changed.push((name, value)),
        }
    }

    /// Makes this what the next request of a connection shares, unless a subrequest still has it.
    pub(crate) fn renew(this: &mut Rc<Self>) {
        match Rc::get_mut(this) {
            Some(shared) => {
                shared.slots.clear();
                shared.id.set(None);
                shared.made.set(0);
                shared.ssi.get_mut().take();
                shared.userid.get_mut().take();
                shared.changed.get_mut().clear();
                shared.charset.get_mut().take();
            }
            None => *this = Rc::default(),
        }
    }
}

/// What only a subrequest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// 1 for a subrequest of the main request, 2 for one of that, and so on.
    pub depth: u8,
    /// The client does not wait for it.
    pub background: bool,
    /// The main request has become a GET for an error page, which `$request_method` shows.
    pub(crate) switched: bool,
    /// A status without content is the answer as it is, without a page.
    pub bare: bool,
    /// The range filter applies. nginx: `r->subrequest_ranges`.
    pub ranges: bool,
}

/// Where a subrequest enters the phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the server's rewrite code: its location is found by its URI.
    Server,
    /// At the content of its parent's location, whose captures it has, too.
    /// nginx: `NGX_HTTP_SUBREQUEST_CLONE`.
    Content,
    /// At the code of a location that the caller chooses.
    Location,
}

/// A subrequest to be made.
#[derive(Debug)]
pub struct Subrequest {
    /// Decoded path; begins with a slash.
    pub path: Vec<u8>,
    /// Query string without its question mark.
    pub args: Option<Vec<u8>>,
    /// Method: GET unless the module says otherwise.
    pub method: Method,
    /// Only the head of the answer is wanted; the body is dropped unread.
    pub header_only: bool,
    /// It has the content that its parent has read. Without, it has none.
    ///
    /// nginx differs: there it has the `Content-Length` all the same.
    pub with_body: bool,
    /// Where it enters the phases.
    pub entry: Entry,
    /// The client does not wait for it: for [`background`].
    pub background: bool,
    /// A status without content is answered without a page: no `error_page`, no body.
    pub bare: bool,
}

/// Why a subrequest is not made. The log says so already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// More than [`NESTED_MAX`] in each other.
    TooDeep,
    /// More than [`TOTAL_MAX`] of one request, or [`BACKGROUND_MAX`] of one worker.
    TooMany,
    /// The answer was to close the connection (`return 444`).
    Closed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "subrequests are nested too deeply",
            Self::TooMany => "too many subrequests",
            Self::Closed => "a subrequest closed the connection",
        })
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for BodyError {
    fn from(refused: Refused) -> Self {
        Self::Nested(refused)
    }
}

impl Subrequest {
    /// GET for a path and its query string.
    pub fn get(path: impl Into<Vec<u8>>, args: Option<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            args,
            method: Method::Get,
            header_only: false,
            with_body: true,
            entry: Entry::Server,
            background: false,
            bare: false,
        }
    }

    /// The same request once more, from its content on.
    pub fn copy(parent: &Request) -> Self {
        Self {
            method: parent.method,
            entry: Entry::Content,
            ..Self::get(&parent.uri.path[..], parent.uri.args.clone())
        }
    }

    /// Makes the request that [`run`] takes; the caller may change it before.
    ///
    /// # Errors
    /// A bound was reached; the error log says which.
    pub fn begin(self, parent: &Request) -> Result<Box<Request>, Refused> {
        let depth = parent.nested.map_or(0, |nested| nested.depth) + 1;
        if depth > NESTED_MAX + 1 {
            let path = String::from_utf8_lossy(&self.path);
            parent.log(Level::Error, format_args!("subrequests cycle while processing \"{path}\""));
            return Err(Refused::TooDeep);
        }
        let made = parent.shared.made.get();
        if made >= TOTAL_MAX {
            let path = String::from_utf8_lossy(&self.path);
            parent.log(
                Level::Crit,
                format_args!("more than {TOTAL_MAX} subrequests while processing \"{path}\""),
            );
            return Err(Refused::TooMany);
        }
        parent.shared.made.set(made + 1);
        let mut request = related(parent);
        request.nested = Some(Nested {
            depth,
            background: self.background,
            switched: parent.is_switched_to_get(),
            bare: self.bare,
            ranges: false,
        });
        request.method = self.method;
        request.header_only = self.header_only;
        request.uri = Uri { path: self.path, args: self.args };
        if self.with_body
            && let Some(body) = parent.body.share()
        {
            request.body = body;
            request.body_length = parent.body_length;
        } else {
            request.body_length = BodyLength::None;
        }
        request.internal = true;
        if self.entry == Entry::Content {
            // What is asked for, and its key in a cache, are the same.
            request.uri_unparsed = parent.uri_unparsed;
            copy_place(&mut request, parent);
        }
        request.entry = self.entry;
        Ok(request)
    }
}

/// A request that has the facts of another that never change: its connection, its head.
fn related(other: &Request) -> Box<Request> {
    let (connection, current) = (other.connection.clone(), other.current.clone());
    let mut request = Box::new(Request::new(connection, current, other.server, now()));
    request.shared = other.shared.clone();
    request.head = other.head.clone();
    request.host_port = other.host_port;
    request.received.set(other.received.get());
    request.pipelined = other.pipelined;
    request.real_peer = other.real_peer.clone();
    request.limits = other.limits.nested();
    request
}

/// Puts a request where another one is.
fn copy_place(request: &mut Request, other: &Request) {
    request.location = other.location;
    request.uri_rewritten = other.uri_rewritten;
    request.uri_is_file = other.uri_is_file;
    request.captures = RefCell::new(other.captures.borrow().clone());
    request.realpath_root = other.realpath_root.clone();
    request.realpath_of = other.realpath_of;
}

/// A copy of a request as it is now, for a body that has to look at variables or to make
/// subrequests while it is sent. It is not meant to be answered.
pub fn shadow(of: &Request) -> Box<Request> {
    let mut request = related(of);
    copy_place(&mut request, of);
    request.nested = of.nested;
    request.method = of.method;
    request.uri = of.uri.clone();
    request.started = of.started;
    request.internal = of.internal;
    request.keep_alive = of.keep_alive;
    request.body = of.body.share().unwrap_or_default();
    request.body_length = of.body_length;
    request.limit_rate.set(of.limit_rate.get());
    request.out = of.out.clone();
    request
}

/// A subrequest that has been answered: its request, whose `out` is the head of the answer, and the
/// body as the filters left it. Dropping it ends the subrequest, without reading what is left.
pub struct Answer {
    request: Finished,
    body: Body,
}

/// Takes a subrequest through phases and filters. Boxed, since its phases may lead to others.
///
/// # Errors
/// [`Refused::Closed`]
pub fn run(mut request: Box<Request>) -> LocalFuture<'static, Result<Answer, Refused>> {
    Box::pin(async move {
        request.started = now();
        let response = match phases::respond_nested(&mut request) {
            phases::Progress::Done(response) => response,
            phases::Progress::Files => phases::resume(&mut request).await,
        };
        let mut request = Finished(request);
        let Some(response) = response else { return Err(Refused::Closed) };
        let mut head = response.head;
        crate::response_head::complete(&request, &mut head);
        request.out = head;
        let body = if request.header_only { Body::Empty } else { response.body };
        Ok(Answer { request, body })
    })
}

/// Runs a subrequest that nobody waits for, to its end: the body is read and dropped, unless only
/// the head is wanted.
///
/// # Errors
/// [`Refused::TooMany`]: [`BACKGROUND_MAX`] are under way.
pub fn background(request: Box<Request>) -> Result<(), Refused> {
    let Some(counted) = request.connection.worker.enter_background(BACKGROUND_MAX) else {
        request.log(
            Level::Warn,
            format_args!("{BACKGROUND_MAX} background subrequests are under way, one is dropped"),
        );
        return Err(Refused::TooMany);
    };
    drop(spawn(async move {
        if let Ok(answer) = run(request).await
            && let Err((request, error)) = answer.drain().await
        {
            sender::log_error(&request, &SendError::Body(error));
        }
        drop(counted);
    }));
    Ok(())
}

impl Answer {
    /// The request, for its variables; its `out` is the head of the answer.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Status of the answer.
    pub fn status(&self) -> u16 {
        self.request.out.status
    }

    /// The body, to be sent as a part of another.
    pub fn into_body(self) -> Body {
        let Self { request, body } = self;
        let body = body.safe(&request);
        if request.location().pages.log_subrequest && !body.is_empty() {
            // The line of the log is written when the body has ended.
            return Body::Stream(Box::new(Logged { pull: Pull::new(body), request }));
        }
        body
    }

    /// The whole body, in memory; `None` if it is longer than `max` bytes.
    ///
    /// # Errors
    /// The body can't be completed.
    pub async fn read(self, max: usize) -> Result<Option<Bytes>, BodyError> {
        crate::body::collect(self.into_body(), max).await
    }

    /// Reads the body to its end.
    async fn drain(self) -> Result<(), (Finished, BodyError)> {
        let Self { request, body } = self;
        let mut pull = Pull::new(body);
        loop {
            match pull.next().await {
                Ok(None) => return Ok(()),
                Ok(Some(piece)) => count(&request, &piece),
                Err(error) => return Err((request, error)),
            }
        }
    }
}

fn count(request: &Request, piece: &Bytes) {
    let sent = &request.sent.bytes;
    sent.set(sent.get() + piece.len() as u64);
}

/// A subrequest that has an answer; writes its line of the access log (`log_subrequest`) at its end.
struct Finished(Box<Request>);

impl Deref for Finished {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0
    }
}

impl DerefMut for Finished {
    fn deref_mut(&mut self) -> &mut Request {
        &mut self.0
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if self.0.location().pages.log_subrequest {
            crate::logs::access(&self.0);
        }
    }
}

/// A body whose subrequest ends with it.
struct Logged {
    pull: Pull,
    request: Finished,
}

impl BodySource for Logged {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            let piece = self.pull.next().await?;
            match &piece {
                Some(piece) => count(&self.request, piece),
                None => self.request.sent.complete.set(true),
            }
            Ok(piece.map(Part::Bytes))
        })
    }

    fn is_urgent(&self) -> bool {
        self.pull.is_urgent()
    }
}

impl RequestBody {
    /// The content for a subrequest, if it was read. nginx: `sr->request_body`.
    fn share(&self) -> Option<Self> {
        match self {
            Self::Memory(bytes) => Some(Self::Memory(bytes.clone())),
            Self::File(file) => Some(Self::File(file.clone())),
            Self::None | Self::Unread(_) => None,
        }
    }
}
