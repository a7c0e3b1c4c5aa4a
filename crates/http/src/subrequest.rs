//! Subrequests: the response to another URI as part of a request's own work. nginx:
//! `ngx_http_subrequest`.
//!
//! Called by modules that need the response of another location: `auth_request`, `mirror`, `addition`,
//! `ssi`, slices and background updates of a cache. [`Subrequest::begin`] creates a request with its
//! parent's client, configuration, head and variables; [`run`] takes it through the phases, and
//! through the filters as far as they apply to subrequests. The result is a head and a body that is
//! pulled, so a filter can insert it into the body of another response. Never writes to a socket, and
//! never reads the client's request body: a subrequest sees it only after its parent has read it.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use nowait_message::{Method, escape};
use nowait_runtime::{now, spawn};

use crate::filter::Pull;
use crate::log::Level;
use crate::nested::Aim;
pub use crate::nested::{Entry, Nested, Shared, SubrequestError};
use crate::outcome::{Outcome, StatusResponse};
use crate::phases;
use crate::request::{BodyLength, Request, RequestBody, Uri};
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part, Response};

/// Deepest nesting of subrequests. nginx: `NGX_HTTP_MAX_SUBREQUESTS`.
pub const NESTED_MAX: u8 = 50;

/// Maximum number of subrequests of one request in total. nginx allows as many at a time.
pub const TOTAL_MAX: u32 = 65_535 - 1000;

/// Maximum number of background subrequests that a worker runs at a time; more are refused. nginx holds the main
/// request's connection until they have ended, so that `worker_connections` is the limit.
pub const BACKGROUND_MAX: usize = 512;

/// A subrequest to start.
#[derive(Debug)]
pub struct Subrequest {
    /// Decoded path; begins with a slash.
    pub path: Vec<u8>,
    /// Query string without its question mark.
    pub args: Option<Vec<u8>>,
    /// Method: GET unless the module sets another one.
    pub method: Method,
    /// Only the head of the response is wanted; the body is dropped unread.
    pub header_only: bool,
    /// Whether it has the content that its parent has read. Otherwise it has none.
    ///
    /// nginx differs: there it has the `Content-Length` all the same.
    pub with_body: bool,
    /// The phase at which it begins.
    pub entry: Entry,
    /// Whether the client does not wait for it: for [`background`].
    pub background: bool,
    /// Whether a status without content is returned without a page: no `error_page`, no body.
    pub bare: bool,
}

impl From<SubrequestError> for BodyError {
    fn from(refused: SubrequestError) -> Self {
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

    /// A copy of a request that starts at its content.
    pub fn copy(parent: &Request) -> Self {
        Self {
            method: parent.method(),
            entry: Entry::Content,
            ..Self::get(&parent.uri().path[..], parent.uri().args.clone())
        }
    }

    /// Creates the request for [`run`]; the caller may change it before.
    ///
    /// # Errors
    /// A limit was reached, which is logged.
    pub fn begin(self, parent: &Request) -> Result<Box<Request>, SubrequestError> {
        let depth = parent.nested().map_or(0, |nested| nested.depth) + 1;
        if depth > NESTED_MAX + 1 {
            let path = String::from_utf8_lossy(&self.path);
            parent.log(Level::Error, format_args!("subrequests cycle while processing \"{path}\""));
            return Err(SubrequestError::TooDeep);
        }
        let made = parent.shared().made.get();
        if made >= TOTAL_MAX {
            let path = String::from_utf8_lossy(&self.path);
            parent.log(
                Level::Crit,
                format_args!("more than {TOTAL_MAX} subrequests while processing \"{path}\""),
            );
            return Err(SubrequestError::TooMany);
        }
        parent.shared().made.set(made + 1);
        let mut request = related(parent);
        request.set_nested(Some(Nested {
            depth,
            background: self.background,
            switched: parent.is_switched_to_get(),
            bare: self.bare,
            ranges: false,
            aim: Aim::Response,
        }));
        request.set_method(self.method, self.header_only);
        request.set_uri(Uri { path: self.path, args: self.args });
        if self.with_body
            && let Some(body) = parent.body().share()
        {
            request.set_body(body);
            request.set_body_length(parent.body_length());
        } else {
            request.set_body_length(BodyLength::None);
        }
        request.set_internal(true);
        if self.entry == Entry::Content {
            // The requested URI and its key in a cache are the same.
            request.set_unparsed(parent.rewriting().unparsed);
            request.copy_place(parent);
        }
        request.set_entry(self.entry);
        Ok(request)
    }
}

/// A request with the same unchanging properties as another: its client, its head.
fn related(other: &Request) -> Box<Request> {
    let (exchange, current) = (other.exchange().clone(), other.current().clone());
    let mut request = Box::new(Request::new(exchange, current, other.server_id(), now()));
    request.copy_client(other);
    request
}

/// The result of [`access`].
pub struct Access {
    /// The request, with its URI and location at the end of the access phase.
    pub request: Box<Request>,
    /// The response that the client would get; `None`: access is granted.
    pub refused: Option<Outcome>,
}

/// Whether the client may send a request with this method and URI, by the rules of its location: it goes
/// through the phases as if the client had sent it, with the same fields, up to the access phase.
///
/// # Errors
/// [`SubrequestError`]
pub async fn access(
    parent: &Request,
    method: Method,
    path: &[u8],
) -> Result<Access, SubrequestError> {
    let wanted = Subrequest {
        method,
        header_only: true,
        with_body: false,
        bare: true,
        ..Subrequest::get(path, None)
    };
    let mut request = wanted.begin(parent)?;
    let uri = escape::uri(escape::Set::Uri, path);
    request.head_mut().replace_target(method, &uri);
    request.set_internal(false);
    if let Some(nested) = request.nested_mut() {
        nested.aim = Aim::Access;
    }
    request.set_started(now());
    let current = request.current().clone();
    let response = phases::respond_nested(&mut request, &current);
    // Boxed, since the phases may ask for access in turn.
    let response = Box::pin(response.finish()).await;
    let is_granted = request.nested().is_some_and(|nested| nested.aim == Aim::Granted);
    let refused = (!is_granted).then(|| response.map_or(Outcome::Close, refusal));
    Ok(Access { request, refused })
}

/// The response to a request that was not granted access.
fn refusal(response: Response) -> Outcome {
    let status = match response.head.status {
        status @ (401 | 403 | 404 | 429 | 500..=599) => status,
        // A redirect, for example: the URI has no resource.
        _ => 403,
    };
    let asks = |name: &[u8]| status == 401 && name.eq_ignore_ascii_case(b"www-authenticate");
    let headers = response.head.headers.iter().filter(|header| asks(&header.name));
    Outcome::Status(StatusResponse { status, location: None, headers: headers.cloned().collect() })
}

/// A copy of a request in its current state, for a body that evaluates variables or makes
/// subrequests while it is sent. It is not meant to get a response.
pub fn shadow(of: &Request) -> Box<Request> {
    let mut request = related(of);
    request.copy_place(of);
    request.set_nested(of.nested().copied());
    request.set_method(of.method(), false);
    request.set_uri(of.uri().clone());
    request.set_started(of.started());
    request.set_internal(of.is_internal());
    request.set_body(of.body().share().unwrap_or_default());
    request.set_body_length(of.body_length());
    request.copy_delivery(of);
    request
}

/// A completed subrequest: its request, whose `out` is the head of the response, and the body after
/// the filters. Dropping it ends the subrequest without reading the rest.
pub struct Answer {
    request: Finished,
    body: Body,
}

/// Runs a subrequest through phases and filters. Boxed, since its phases may start others.
///
/// # Errors
/// [`SubrequestError::Closed`]
pub fn run(mut request: Box<Request>) -> LocalFuture<'static, Result<Answer, SubrequestError>> {
    Box::pin(async move {
        request.set_started(now());
        let current = request.current().clone();
        let response = phases::respond_nested(&mut request, &current).finish().await;
        let mut request = Finished(request);
        let Some(response) = response else { return Err(SubrequestError::Closed) };
        let mut head = response.head;
        crate::response_head::complete(&request, &mut head);
        request.set_out(head);
        let body = if request.header_only() { Body::Empty } else { response.body };
        Ok(Answer { request, body })
    })
}

/// Runs a background subrequest to its end: the body is read and dropped, unless only the head is needed.
///
/// # Errors
/// [`SubrequestError::TooMany`]: [`BACKGROUND_MAX`] are in flight.
pub fn background(request: Box<Request>) -> Result<(), SubrequestError> {
    let Some(counted) = request.exchange().services().enter_background(BACKGROUND_MAX) else {
        request.log(
            Level::Warn,
            format_args!("{BACKGROUND_MAX} background subrequests are in flight, one is dropped"),
        );
        return Err(SubrequestError::TooMany);
    };
    drop(spawn(async move {
        if let Ok(answer) = run(request).await
            && let Err((request, error)) = answer.drain().await
        {
            crate::logs::body_error(&request, &error);
        }
        drop(counted);
    }));
    Ok(())
}

impl Answer {
    /// The request, for its variables; its `out` is the head of the response.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Status of the response.
    pub fn status(&self) -> u16 {
        self.request.out().status
    }

    /// The body, to be sent as a part of another one.
    pub fn into_body(self) -> Body {
        let Self { request, body } = self;
        let body = body.safe(&*request);
        if request.location().pages.log_subrequest && !body.is_empty() {
            // The log line is written when the body has ended.
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
    request.sent().count(piece.len() as u64);
}

/// A subrequest with its response; writes its line of the access log (`log_subrequest`) when
/// dropped.
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

/// A body that ends its subrequest when it ends.
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
                None => self.request.sent().set_complete(true),
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
