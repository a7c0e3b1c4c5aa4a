//! A client's HTTP/1.1 connection: receives heads, lets the phases answer, sends.
//!
//! One task per connection. While it is idle it holds no buffers and no request: the part that
//! serves requests is a boxed future of its own ([`active`]), made when bytes have come.

mod waiting;

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use nowait_h1::{Limits, Method, RequestError, Stage, server};
use nowait_runtime::buf::{OutBuf, RecvBuf};
use nowait_runtime::net::{Address, SendOptions, Stream};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep};
use nowait_sys::listen::ListenAddress;

use crate::body_reader::Reader;
use crate::conf::ServerId;
use crate::conf::client::{HeadConf, LingeringClose};
use crate::conf::listen::Virtual;
use crate::generation::Current;
use crate::log::Level;
use crate::phases::{self, Progress};
use crate::proxied;
use crate::proxy_protocol::ProxyProtocol;
use crate::request::{BodyLength, Request, RequestBody};
use crate::response::Response;
use crate::sender;
use crate::worker::Worker;
use waiting::{Idle, Received, Wait};

/// A pipelined response is kept back, to be sent together with the next ones, up to this size.
const BATCH_BYTES_MAX: usize = 16 * 1024;

/// After this time without a request a connection gives up what it needs for serving them.
const BUSY: Duration = Duration::from_secs(1);

/// So many connections of a worker keep it for that time; the others give it up at once.
const BUSY_MAX: usize = 256;

/// A connection as requests see it.
pub struct Connection {
    /// Serial number in this process.
    pub number: u64,
    /// The socket.
    pub stream: Stream,
    /// The client's address.
    pub peer: Address,
    /// Address of the listening socket that it came in by.
    pub listen: Arc<ListenAddress>,
    /// When it was accepted.
    pub started: Instant,
    /// Requests so far, the current one included.
    pub requests: Cell<u32>,
    /// Its place among the worker's connections.
    place: Cell<u32>,
    idle: Cell<Option<Idle>>,
    /// What the PROXY protocol said.
    pub proxy_protocol: OnceCell<Box<ProxyProtocol>>,
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// The protocol state; an idle connection needs none.
    h1: RefCell<Option<Box<server::Connection>>>,
    /// Bytes received and not yet used.
    pub(crate) input: RefCell<RecvBuf>,
    local: OnceCell<Box<Address>>,
}

/// What becomes of a connection after some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Wait for another request.
    Idle,
    /// Close it.
    Close,
    /// Close it after reading what the client still sends, at most so long.
    Linger { time: Duration, timeout: Duration },
    /// Close it with a reset.
    Reset,
}

impl Connection {
    /// A connection just accepted.
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        peer: Address,
        listen: Arc<ListenAddress>,
    ) -> Rc<Self> {
        worker.counts.opened();
        let connection = Rc::new(Self {
            number: worker.next_number(),
            stream,
            peer,
            listen,
            started: now(),
            requests: Cell::new(0),
            place: Cell::new(0),
            idle: Cell::new(None),
            proxy_protocol: OnceCell::new(),
            worker,
            h1: RefCell::new(None),
            input: RefCell::new(RecvBuf::empty()),
            local: OnceCell::new(),
        });
        connection.place.set(connection.worker.enter(&connection));
        connection
    }

    /// The protocol state, made anew for a connection that was idle.
    pub(crate) fn h1(&self) -> RefMut<'_, server::Connection> {
        RefMut::map(self.h1.borrow_mut(), |h1| {
            &mut **h1.get_or_insert_with(|| Box::new(server::Connection::new(Limits::default())))
        })
    }

    /// Our side's address; asked for only when needed and where it differs from the listener's.
    pub fn local(&self) -> &Address {
        self.local.get_or_init(|| {
            if let ListenAddress::Inet(address) = &*self.listen
                && !address.ip().is_unspecified()
            {
                return Box::new(Address::Inet(*address));
            }
            Box::new(self.stream.local_addr().unwrap_or_else(|_| Address::Unix(Box::default())))
        })
    }

    /// The servers that answer on this connection; `None` when the address is no longer listened
    /// on.
    pub fn virtual_servers<'a>(&self, current: &'a Current) -> Option<&'a Virtual> {
        let listen = current.conf.listens().iter().find(|l| l.spec.address == *self.listen)?;
        Some(listen.only().unwrap_or_else(|| listen.at(self.local())))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.worker.leave(self.place.get());
        self.worker.counts.closed();
    }
}

/// Serves a connection until it is closed. The future is what an idle connection keeps: no `async
/// fn`, which would hold its argument twice.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub fn serve(connection: Rc<Connection>) -> impl Future<Output = ()> {
    async move {
        if proxied::is_proxied(&connection)
            && !Box::pin(proxied::receive(&connection, first_timeout(&connection))).await
        {
            return;
        }
        let mut wait = Wait { timeout: first_timeout(&connection), keep: Duration::ZERO };
        let next = loop {
            match connection.wait(wait).await {
                Received::Bytes => {}
                Received::TimedOut if connection.requests.get() == 0 => {
                    break if resets_timed_out(&connection) { Next::Reset } else { Next::Close };
                }
                Received::TimedOut | Received::Closed => break Next::Close,
            }
            match Box::pin(active(&connection)).await {
                (Next::Idle, idle) => wait = idle,
                (next, _) => break next,
            }
        };
        match next {
            Next::Linger { time, timeout } => Box::pin(linger(&connection, time, timeout)).await,
            // A socket that can't be set is gone already.
            Next::Reset => drop(connection.stream.set_reset_on_close()),
            Next::Idle | Next::Close => {}
        }
    }
}

fn first_timeout(connection: &Connection) -> Duration {
    let current = connection.worker.current();
    let Some(servers) = connection.virtual_servers(&current) else { return Duration::ZERO };
    current.conf.server(servers.default_server).head.client_header_timeout.duration()
}

fn resets_timed_out(connection: &Connection) -> bool {
    let current = connection.worker.current();
    connection.virtual_servers(&current).is_some_and(|servers| {
        let root = current.conf.server(servers.default_server).root;
        current.conf.location(root).client.reset_timedout_connection
    })
}

/// Limits of a head, from the settings of the address's default server.
fn limits(head: &HeadConf) -> Limits {
    let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    Limits {
        header_buffer: bytes(head.client_header_buffer_size.0),
        large_buffers: bytes(head.large_client_header_buffers.count as u64),
        large_buffer: bytes(head.large_client_header_buffers.size.0),
        headers_max: u16::try_from(head.max_headers).unwrap_or(u16::MAX),
        ignore_invalid_headers: head.ignore_invalid_headers,
        underscores_in_headers: head.underscores_in_headers,
    }
}

/// Drops the protocol state when a connection becomes idle.
struct Forget<'a>(&'a Connection);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.h1.replace(None);
    }
}

/// Serves requests as long as they follow each other; returns how long to wait for more.
async fn active(connection: &Rc<Connection>) -> (Next, Wait) {
    let mut out = OutBuf::new();
    let mut pipelined = false;
    // The memory of a request serves for the next one.
    let mut kept: Option<Box<Request>> = None;
    let mut default_server = ServerId(0);
    let _idle = Forget(connection);
    loop {
        let current = connection.worker.current();
        let known = kept.as_ref().filter(|request| Rc::ptr_eq(&request.current, &current));
        let server = match known {
            Some(_) => default_server,
            None => match connection.virtual_servers(&current) {
                Some(servers) => {
                    let head = &current.conf.server(servers.default_server).head;
                    connection.h1().set_limits(limits(head));
                    servers.default_server
                }
                None => {
                    return (Next::Close, Wait { timeout: Duration::ZERO, keep: Duration::ZERO });
                }
            },
        };
        default_server = server;
        connection.requests.set(connection.requests.get().saturating_add(1));
        let mut request = match kept.take() {
            Some(mut request) => {
                Request::renew(&mut request, current, server, now());
                request
            }
            None => Box::new(Request::new(connection.clone(), current, server, now())),
        };
        request.pipelined = pipelined;
        let next = one(connection, &mut request, &mut out).await;
        request.limits.release();
        let client = &request.location().client;
        let wait = Wait {
            timeout: client.keepalive_timeout.timeout.duration(),
            keep: client.keepalive_min_timeout.duration(),
        };
        kept = Some(request);
        if next != Next::Idle {
            return (next, wait);
        }
        pipelined = !connection.input.borrow().is_empty();
        if pipelined {
            continue;
        }
        // The buffer goes back to the runtime: idle connections hold none.
        drop(connection.input.replace(RecvBuf::empty()));
        // A busy connection soon sends the next request: worth keeping this future for it.
        let Some(_busy) = connection.worker.enter_busy(BUSY_MAX) else {
            return (Next::Idle, wait);
        };
        let Wait { timeout, keep } = wait;
        match connection.wait(Wait { timeout: timeout.min(BUSY), keep }).await {
            Received::Bytes => {}
            Received::TimedOut if timeout > BUSY => {
                let keep = keep.saturating_sub(BUSY);
                return (Next::Idle, Wait { timeout: timeout - BUSY, keep });
            }
            Received::TimedOut | Received::Closed => return (Next::Close, wait),
        }
    }
}

/// Receives one request and answers it. On return everything was sent, unless more input waits.
async fn one(connection: &Rc<Connection>, request: &mut Request, out: &mut OutBuf) -> Next {
    let mut counted = connection.worker.counts.request();
    // Most heads have come whole: then no future is needed for them.
    let received = match parse_head(connection, request) {
        Ok(true) => Ok(()),
        Ok(false) => Box::pin(receive_head(connection, request, out)).await,
        Err(error) => Err(error),
    };
    match received {
        Ok(()) => {}
        Err(HeadError::Closed) => {
            // Between requests this is how connections end; in a head the client broke off.
            if connection.h1().has_begun() {
                request.log(Level::Info, format_args!("client prematurely closed connection"));
                request.closed_by_client();
                crate::logs::access(request);
            }
            return Next::Close;
        }
        Err(HeadError::TimedOut) => {
            request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
            if !connection.h1().has_begun() {
                return Next::Close;
            }
            request.timed_out();
            crate::logs::access(request);
            return if request.location().client.reset_timedout_connection {
                Next::Reset
            } else {
                Next::Close
            };
        }
        Err(HeadError::Refused(error)) => {
            return Box::pin(refuse(connection, request, out, error)).await;
        }
    }
    counted.answering();
    let progress = match prepare(connection, request) {
        None => phases::respond(request),
        Some(status) => phases::refuse(request, status),
    };
    let answer = match progress {
        Progress::Done(answer) => Some(answer),
        // Only what is not in memory comes here.
        Progress::Files => Box::pin(files(connection, request, out)).await,
    };
    let delayed = matches!(request.stage, phases::Stage::Delayed(_));
    let Some(answer) = answer.filter(|answer| answer.is_some() || !delayed) else {
        let waited = if delayed { "" } else { " while waiting for a disk" };
        request.log(Level::Info, format_args!("client prematurely closed connection{waited}"));
        request.closed_by_client();
        crate::logs::access(request);
        return Next::Close;
    };
    let answer = match request.body {
        RequestBody::Unread(_) => Box::pin(checked(connection, request, answer)).await,
        _ => answer,
    };
    let Some(response) = answer else {
        crate::logs::access(request);
        // Earlier responses may have been kept back. nginx closes at once, whatever the client
        // still sends.
        let _ = flush(connection, out, send_timeout(request)).await;
        return Next::Close;
    };
    let sent = match sender::start(connection, request, response, out) {
        Ok(None) => Ok(()),
        Ok(Some(rest)) => Box::pin(sender::send_rest(connection, request, rest, out)).await,
        Err(error) => Err(error),
    };
    let keep = match sent {
        Ok(()) => request.keep_alive,
        Err(error) => {
            sender::log_error(request, &error);
            crate::logs::access(request);
            if !error.is_client() {
                // What was made of the response is sent, so that the client sees where it was cut.
                let _ = flush(connection, out, send_timeout(request)).await;
            }
            return if error.is_timeout() && request.location().client.reset_timedout_connection {
                Next::Reset
            } else {
                Next::Close
            };
        }
    };
    finish(connection, request, out, keep).await
}

/// Drops what has come of a body that nobody wanted. If it is malformed the request is refused; it
/// is too late for that when a refusal was made already.
async fn checked(
    connection: &Connection,
    request: &mut Request,
    answer: Option<Response>,
) -> Option<Response> {
    if answer.as_ref().is_none_or(|response| response.head.status >= 400) {
        return answer;
    }
    let dropped = {
        let mut input = connection.input.borrow_mut();
        let dropped = connection.h1().discard_body(&input);
        if let Ok((consumed, _)) = dropped {
            input.advance(consumed);
        }
        dropped
    };
    if dropped.is_ok() {
        return answer;
    }
    request.log(Level::Info, format_args!("client sent invalid chunked body"));
    match phases::refuse(request, 400) {
        Progress::Done(answer) => answer,
        Progress::Files => Box::pin(phases::resume(request)).await,
    }
}

/// Lets the phases look at files. `None`: the client has gone.
async fn files(
    connection: &Connection,
    request: &mut Request,
    out: &mut OutBuf,
) -> Option<Option<Response>> {
    let timeout = send_timeout(request);
    let mut answer = pin!(phases::resume(request));
    // A response that needs no waiting goes out together with earlier ones.
    if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
        return Some(answer);
    }
    if flush(connection, out, timeout).await.is_err() {
        return None;
    }
    match select(answer, gone(connection)).await {
        Either::Left(answer) => Some(answer),
        Either::Right(()) => None,
    }
}

/// Sends what is left, logs, and makes the connection ready for another request.
async fn finish(
    connection: &Rc<Connection>,
    request: &mut Request,
    out: &mut OutBuf,
    keep: bool,
) -> Next {
    let body_complete = connection.h1().is_body_complete();
    let more = !connection.input.borrow().is_empty();
    let batch = keep && body_complete && more && out.len() < BATCH_BYTES_MAX;
    if !batch && let Err(error) = flush(connection, out, send_timeout(request)).await {
        request.log(Level::Info, format_args!("send() failed {}", crate::files::errno(&error)));
        crate::logs::access(request);
        return Next::Close;
    }
    request.sent.complete.set(true);
    crate::logs::access(request);
    request.body = RequestBody::None;
    let client = &request.location().client;
    let linger = Next::Linger {
        time: client.lingering_time.duration(),
        timeout: client.lingering_timeout.duration(),
    };
    if keep && !body_complete {
        let reads = discard(
            connection,
            client.lingering_time.duration(),
            client.lingering_timeout.duration(),
        );
        if !reads.await {
            return Next::Close;
        }
    }
    if keep && connection.h1().next_request() {
        return Next::Idle;
    }
    let lingers = match client.lingering_close {
        LingeringClose::Off => false,
        LingeringClose::On => (more || !body_complete) && !request.skip_lingering,
        LingeringClose::Always => true,
    };
    if lingers { linger } else { Next::Close }
}

/// Why a head was not received.
enum HeadError {
    Closed,
    TimedOut,
    Refused(RequestError),
}

/// Parses what has come of a head; whether that is all of it.
fn parse_head(connection: &Connection, request: &mut Request) -> Result<bool, HeadError> {
    let mut input = connection.input.borrow_mut();
    let step = connection.h1().receive_head(&mut request.head, &input);
    let step = step.map_err(HeadError::Refused)?;
    input.advance(step.consumed);
    Ok(step.complete)
}

/// Receives the rest of a head.
async fn receive_head(
    connection: &Connection,
    request: &mut Request,
    out: &mut OutBuf,
) -> Result<(), HeadError> {
    let timeout = request.server().head.client_header_timeout.duration();
    loop {
        if flush(connection, out, send_timeout(request)).await.is_err() {
            return Err(HeadError::Closed);
        }
        let left = timeout.saturating_sub(now().saturating_duration_since(request.started));
        match connection.stream.recv(left).await {
            Ok(bytes) if bytes.is_empty() => return Err(HeadError::Closed),
            Ok(bytes) => {
                connection.input.replace(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(HeadError::TimedOut);
            }
            Err(_) => return Err(HeadError::Closed),
        }
        if parse_head(connection, request)? {
            return Ok(());
        }
    }
}

/// Answers a head that can't be accepted; the connection can only be closed then.
async fn refuse(
    connection: &Rc<Connection>,
    request: &mut Request,
    out: &mut OutBuf,
    error: RequestError,
) -> Next {
    let text = error.describe(&request.head);
    let stage = match error.stage() {
        Stage::RequestLine => "reading client request line",
        Stage::Headers => "reading client request headers",
        Stage::Body => "reading client request body",
    };
    request.log(Level::Info, format_args!("{} while {stage}", String::from_utf8_lossy(&text)));
    request.keep_alive = false;
    request.body_discarded = true;
    request.received.set(request.head.length() as u64);
    if error.stage() == Stage::Headers
        && let Some(servers) = connection.virtual_servers(&request.current.clone())
    {
        choose_server(request, servers);
    }
    request.method = request.head.method();
    request.header_only = request.method == Method::Head;
    let answer = match phases::refuse(request, error.status()) {
        Progress::Done(answer) => answer,
        Progress::Files => phases::resume(request).await,
    };
    let Some(response) = answer else { return Next::Close };
    let sent = match sender::start(connection, request, response, out) {
        Ok(None) => Ok(()),
        Ok(Some(rest)) => sender::send_rest(connection, request, rest, out).await,
        Err(error) => Err(error),
    };
    let flushed = flush(connection, out, send_timeout(request)).await;
    request.sent.complete.set(sent.is_ok() && flushed.is_ok());
    crate::logs::access(request);
    let client = &request.location().client;
    if error.lingers() && client.lingering_close != LingeringClose::Off {
        return Next::Linger {
            time: client.lingering_time.duration(),
            timeout: client.lingering_timeout.duration(),
        };
    }
    Next::Close
}

/// Interprets a complete head. The status to refuse the request with, if it must be refused.
/// nginx: `ngx_http_process_request_uri`, `ngx_http_process_request_header`.
fn prepare(connection: &Rc<Connection>, request: &mut Request) -> Option<u16> {
    let merge = request.server().head.merge_slashes;
    request.received.set(request.head.length() as u64);
    request.method = request.head.method();
    request.header_only = request.method == Method::Head;
    request.host_port = Some(request.head.host_port()).filter(|port| *port != 0);
    match request.head.normalize(merge) {
        Ok(normalized) => {
            request.uri.path.clear();
            request.uri.path.extend_from_slice(&normalized.path);
            let question = request.head.uri().contains(&b'?');
            request.uri.args = question.then(|| normalized.args.to_vec());
        }
        Err(_) => {
            request.log(
                Level::Info,
                format_args!("client sent invalid request while reading client request line"),
            );
            request.keep_alive = false;
            request.body_discarded = true;
            return Some(400);
        }
    }
    let current = request.current.clone();
    if let Some(servers) = connection.virtual_servers(&current) {
        choose_server(request, servers);
    }
    for line in request.head.ignored_lines() {
        request.log(
            Level::Info,
            format_args!(
                "client sent invalid header line: \"{}\" while reading client request headers",
                String::from_utf8_lossy(line)
            ),
        );
    }
    request.body_length = match request.head.body_length() {
        nowait_h1::BodyLength::Empty => BodyLength::None,
        nowait_h1::BodyLength::Known(length) => BodyLength::Known(length),
        _ => BodyLength::Unknown,
    };
    request.keep_alive = request.head.keep_alive();
    if request.body_length != BodyLength::None {
        request.body = RequestBody::Unread(Box::new(Reader::new(
            connection.clone(),
            request.head.expects_continue(),
            send_timeout(request),
        )));
    }
    match request.method {
        Method::Trace => {
            request.log(
                Level::Info,
                format_args!("client sent TRACE method while reading client request headers"),
            );
            request.keep_alive = false;
            Some(405)
        }
        Method::Connect => {
            request.log(
                Level::Info,
                format_args!("client sent CONNECT method while reading client request headers"),
            );
            // What follows may be meant for the other end of a tunnel.
            request.keep_alive = false;
            Some(405)
        }
        _ => None,
    }
}

/// Chooses the virtual server by the request's host.
fn choose_server(request: &mut Request, servers: &Virtual) {
    let host = request.head.host().unwrap_or_default();
    let found = servers.names.lookup(host, |regex| regex.search_in(request, host));
    match found {
        Ok(Some(&server)) => request.set_server(server),
        Ok(None) => {}
        Err(error) => request.log(Level::Alert, format_args!("{error}")),
    }
}

/// The longest pause between two writes to the client.
pub(crate) fn send_timeout(request: &Request) -> Duration {
    request.location().client.send_timeout.duration()
}

/// Sends what has been collected.
pub(crate) async fn flush(
    connection: &Connection,
    out: &mut OutBuf,
    timeout: Duration,
) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let options = SendOptions::new(timeout);
    connection.stream.send(std::mem::take(out), options).await
}

/// Resolves some time after the client has ended its side: clients that only half-close get their
/// answer as long as it is not slow, but nothing is read from a disk for those that are gone.
async fn gone(connection: &Connection) {
    /// How long a client that sends no more may wait for its answer.
    const HALF_CLOSED: Duration = Duration::from_secs(5);
    // An error of the connection means that the client is gone, too.
    let _ = connection.stream.hangup().await;
    sleep(HALF_CLOSED).await;
}

/// Reads the rest of a request's body that nobody wanted. False: the connection can't go on.
/// nginx: `ngx_http_discarded_request_body_handler`.
async fn discard(connection: &Connection, time: Duration, timeout: Duration) -> bool {
    let until = now() + time;
    loop {
        let step = {
            let mut input = connection.input.borrow_mut();
            let step = connection.h1().discard_body(&input);
            if let Ok((consumed, _)) = &step {
                input.advance(*consumed);
            }
            step
        };
        match step {
            Ok((_, true)) => return true,
            Ok((_, false)) => {}
            Err(_) => return false,
        }
        let left = until.saturating_duration_since(now()).min(timeout);
        match connection.stream.recv(left).await {
            Ok(bytes) if !bytes.is_empty() => {
                connection.input.replace(bytes);
            }
            _ => return false,
        }
    }
}

/// Reads and drops what the client still sends, so that it can read the response before the
/// connection is reset. nginx: `ngx_http_lingering_close_handler`.
async fn linger(connection: &Connection, time: Duration, timeout: Duration) {
    let until = now() + time;
    if connection.stream.shutdown_write().is_err() {
        return;
    }
    loop {
        let left = until.saturating_duration_since(now()).min(timeout);
        match connection.stream.recv(left).await {
            Ok(bytes) if !bytes.is_empty() => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    fn size<A, F>(_: fn(A) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size(super::serve) <= 56, "the future of a connection");
        assert!(std::mem::size_of::<super::Connection>() <= 184, "its facts");
    }
}
