//! The task of a connection: receives, begins streams, and sends their ready output.
//!
//! While a connection is idle it holds no buffers: the part that works is a separate boxed future
//! ([`work`]), which ends when nothing has come for a while.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::frames::{PendingFrames, Turn};
use nowait_h2::{ConnectionError, ErrorCode, Event, StreamError, StreamId};
use nowait_http::conf::client::LingeringClose;
use nowait_http::response::LocalFuture;
use nowait_runtime::net::{NO_TIMEOUT, Recv, Send, SendOptions};
use nowait_runtime::{now, sleep};

use super::connection::Http2Connection;
use super::stream::Stream;
use crate::connection::Connection;
use crate::connections::ShutdownMode;
use crate::streams::connection::StreamConnection;
use crate::streams::requests::Fault;
use crate::streams::serving;
use crate::streams::stream::RequestStream;

/// After this time without a stream a connection releases its memory.
const BUSY: Duration = Duration::from_secs(1);

/// How many times a connection receives and sends before other tasks run.
const TURNS_MAX: usize = 16;

/// The answer to this PING shows that the client has received GOAWAY.
const LAST_CALL: [u8; 8] = *b"goodbye!";

/// After this time it is taken as given.
const LAST_CALL_TIME: Duration = Duration::from_secs(1);

/// The continuation of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWork {
    /// It is idle.
    Idle,
    /// Close it.
    Close,
    /// Close it after reading the client's further input.
    Linger,
}

/// Serves a connection whose client begins with the preface, until it is closed.
pub fn serve(base: Rc<Connection>) -> LocalFuture<'static, ()> {
    Box::pin(async move {
        let Some(connection) = Http2Connection::new(base) else { return };
        let _closing = Closing(&connection);
        let mut next = Box::pin(work(&connection)).await;
        while next == AfterWork::Idle {
            connection.shrink();
            next = match wait(&connection).await {
                true => Box::pin(work(&connection)).await,
                false => AfterWork::Close,
            };
        }
        connection.streams().abandon();
        if next == AfterWork::Linger
            && let Some((time, timeout)) = lingers(&connection)
        {
            Box::pin(connection.linger(time, timeout)).await;
        }
        // A background subrequest may continue; the client must not wait for it.
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
    })
}

/// Ends the requests of a connection when its task ends, even by a panic.
struct Closing<'a>(&'a Http2Connection);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.streams().abandon();
    }
}

fn lingers(connection: &Http2Connection) -> Option<(Duration, Duration)> {
    connection.settings(|client| match client.lingering_close {
        LingeringClose::Off => None,
        LingeringClose::On | LingeringClose::Always => {
            Some((client.lingering_time.duration(), client.lingering_timeout.duration()))
        }
    })?
}

/// Waits for input on an idle connection. False: it has to be closed.
async fn wait(connection: &Http2Connection) -> bool {
    let timeout = connection.keepalive_timeout().saturating_sub(connection.idle_time());
    let mut recv = connection.stream.recv(timeout);
    poll_fn(|cx| {
        connection.streams().register(cx.waker());
        if must_leave(connection) {
            return Poll::Ready(true);
        }
        Pin::new(&mut recv).poll(cx).map(|received| match received {
            Ok(bytes) if bytes.is_empty() => false,
            Ok(bytes) => {
                connection.input.replace(bytes);
                true
            }
            // GOAWAY tells the client not to retry on this connection.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                connection.h2.borrow_mut().shutdown();
                true
            }
            Err(_) => false,
        })
    })
    .await
}

/// Whether the worker ends, or does not serve the connection any more, and the client is to be told.
fn must_leave(connection: &Http2Connection) -> bool {
    let all = connection.all();
    let ends = || {
        all.shutdown() != ShutdownMode::None
            && (!connection.is_idle() || all.is_left_by(connection))
    };
    !connection.streams().leaving.get() && (connection.streams().dismissed.get() || ends())
}

/// The input that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expects {
    /// A request.
    Request,
    /// The rest of a frame or field block, while there are no streams.
    Rest,
    /// The rest of a field block, while there are streams: nothing else can come before it.
    Block(StreamId),
    /// Input of streams, whose tasks have their own timeouts.
    Anything,
    /// None: the client has to read first, or the connection ends.
    Nothing,
}

/// The state of [`work`].
struct Work<'a> {
    connection: &'a Rc<Http2Connection>,
    receiving: Option<(Expects, Recv<'a>)>,
    sending: Option<Send<'a>>,
    send_timeout: Duration,
    /// The kernel may hold back the end of what was sent last.
    held_back: bool,
    /// When an incomplete frame or field block began to arrive, and what was expected then.
    begun: Option<(Instant, Expects)>,
    /// Until when budgets against floods were refilled, by the worker's clock in milliseconds.
    refilled_ms: u64,
    /// The client was asked to open no more streams; until then it may not have seen it.
    last_call: Option<LocalFuture<'static, ()>>,
    /// Receiving has ended; pending output is sent.
    ends: bool,
}

/// Serves a connection until it has been idle for a while.
async fn work(connection: &Rc<Http2Connection>) -> AfterWork {
    let mut work = Work {
        connection,
        receiving: None,
        sending: None,
        send_timeout: connection
            .settings(|client| client.send_timeout.duration())
            .unwrap_or_default(),
        held_back: false,
        begun: None,
        refilled_ms: connection.stream.clock_ms(),
        last_call: None,
        ends: false,
    };
    connection.sending.set(false);
    poll_fn(|cx| work.poll(cx)).await
}

impl Work<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AfterWork> {
        let connection = self.connection;
        connection.streams().register(cx.waker());
        connection.streams().working.set(true);
        let next = self.turns(cx);
        connection.streams().working.set(false);
        next
    }

    fn turns(&mut self, cx: &mut Context<'_>) -> Poll<AfterWork> {
        let connection = self.connection;
        if let Some(last_call) = &mut self.last_call
            && last_call.as_mut().poll(cx).is_ready()
        {
            self.last_call = None;
            connection.h2.borrow_mut().shutdown();
        }
        let mut turn = Turn::default();
        for _ in 0..TURNS_MAX {
            connection.streams().more.set(false);
            if must_leave(connection) {
                self.leave();
            }
            if connection.streams().used_up.take() {
                self.ask_to_leave();
            }
            let received = match self.receive(cx, &mut turn) {
                Ok(received) => received,
                Err(next) => return Poll::Ready(next),
            };
            let sent = match self.send(cx) {
                Ok(sent) => sent,
                Err(next) => return Poll::Ready(next),
            };
            if turn.is_over() {
                break;
            }
            if !received && !sent && !connection.streams().more.get() {
                return match self.is_done() {
                    true => Poll::Ready(AfterWork::Linger),
                    false => Poll::Pending,
                };
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the connection can be closed: all output was sent, and none follows.
    fn is_done(&self) -> bool {
        let connection = self.connection;
        let ends = self.ends || (connection.is_idle() && connection.h2.borrow().is_going_away());
        ends && self.sending.is_none() && connection.output.borrow().is_empty()
    }

    /// Asks the client to open no more streams.
    fn leave(&mut self) {
        let connection = self.connection;
        connection.streams().leaving.set(true);
        if connection.is_idle() {
            connection.h2.borrow_mut().shutdown();
        } else {
            self.ask_to_leave();
        }
    }

    /// Requests that are on their way are still served: the client may be unable to repeat them.
    fn ask_to_leave(&mut self) {
        let mut h2 = self.connection.h2.borrow_mut();
        h2.announce_shutdown();
        h2.ping(LAST_CALL);
        self.last_call = Some(Box::pin(sleep(LAST_CALL_TIME)));
    }

    /// The input expected next.
    fn expects(&self) -> Expects {
        let connection = self.connection;
        if self.ends || connection.is_full() {
            return Expects::Nothing;
        }
        let h2 = connection.h2.borrow();
        match (connection.is_idle(), h2.open_block()) {
            (false, Some(stream)) => Expects::Block(stream),
            (false, None) => Expects::Anything,
            (true, _) if h2.has_begun() => Expects::Rest,
            (true, _) => Expects::Request,
        }
    }

    /// Receives and processes input; whether there was any.
    fn receive(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<bool, AfterWork> {
        let connection = self.connection;
        let expects = self.expects();
        if expects == Expects::Nothing {
            self.receiving = None;
            return Ok(false);
        }
        // Left when too much was waiting to be sent, or received with the preface.
        if !connection.input.borrow().is_empty() {
            self.process(turn);
            return Ok(true);
        }
        if self.receiving.as_ref().is_none_or(|(before, _)| *before != expects) {
            if self.is_overdue(expects) {
                return self.timed_out(expects);
            }
            let timeout = self.receive_timeout(expects);
            self.receiving = Some((expects, connection.stream.recv(timeout)));
        }
        let Some((_, recv)) = &mut self.receiving else { return Ok(false) };
        let Poll::Ready(received) = Pin::new(recv).poll(cx) else { return Ok(false) };
        self.receiving = None;
        match received {
            Ok(bytes) if bytes.is_empty() => Err(self.closed()),
            Ok(bytes) => {
                connection.input.replace(bytes);
                self.process(turn);
                Ok(true)
            }
            Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(self.closed()),
            Err(_) => self.timed_out(expects),
        }
    }

    fn closed(&self) -> AfterWork {
        let begun = self.connection.h2.borrow().has_begun();
        if begun || !self.connection.is_idle() {
            let text = format_args!("client prematurely closed connection");
            self.connection.log_info(text);
        }
        AfterWork::Close
    }

    /// Whether the expected input is overdue. Input other than requests must not be received forever.
    fn is_overdue(&self, expects: Expects) -> bool {
        let connection = self.connection;
        match (expects, self.begun) {
            (Expects::Request, _) => connection.idle_time() > connection.keepalive_timeout(),
            (Expects::Rest | Expects::Block(_), Some((begun, before))) if before == expects => {
                now().saturating_duration_since(begun) > connection.header_timeout()
            }
            _ => false,
        }
    }

    fn receive_timeout(&mut self, expects: Expects) -> Duration {
        let connection = self.connection;
        if self.begun.is_some_and(|(_, before)| before != expects) {
            self.begun = None;
        }
        match expects {
            Expects::Request => {
                let left = connection.keepalive_timeout().saturating_sub(connection.idle_time());
                if connection.is_new() { left } else { BUSY.min(left) }
            }
            Expects::Rest | Expects::Block(_) => {
                // That of the first request counts from the start.
                let idle = connection.streams().idle_since().filter(|_| connection.is_new());
                let begun = idle.map_or_else(now, |(since, _)| since);
                let (begun, _) = *self.begun.get_or_insert((begun, expects));
                connection.header_timeout().saturating_sub(now().saturating_duration_since(begun))
            }
            Expects::Anything | Expects::Nothing => NO_TIMEOUT,
        }
    }

    fn timed_out(&mut self, expects: Expects) -> Result<bool, AfterWork> {
        let connection = self.connection;
        if expects == Expects::Request
            && !connection.is_new()
            && connection.keepalive_timeout() > connection.idle_time()
            && self.sending.is_none()
            && self.last_call.is_none()
        {
            return Err(AfterWork::Idle);
        }
        if matches!(expects, Expects::Rest | Expects::Block(_)) {
            connection.log_info(format_args!("client timed out (110: Connection timed out)"));
        }
        connection.h2.borrow_mut().shutdown();
        self.ends = true;
        Ok(true)
    }

    /// Hands received frames to the protocol's core, and its events to streams.
    fn process(&mut self, turn: &mut Turn) {
        let connection = self.connection;
        let elapsed_ms = connection.stream.clock_ms().saturating_sub(self.refilled_ms);
        if elapsed_ms >= 1000 {
            let seconds = elapsed_ms / 1000;
            self.refilled_ms += seconds * 1000;
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            connection.h2.borrow_mut().elapse(seconds);
        }
        if let Err(error) = process(connection, turn) {
            connection.log_info(format_args!("client sent {error}"));
            connection.streams().abandon();
            drop(connection.take_input());
            self.ends = true;
        }
        connection.release_input();
    }

    /// Continues sending; returns whether it is complete.
    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Result<bool, AfterWork> {
        let connection = self.connection;
        let Some(send) = &mut self.sending else { return Ok(false) };
        match Pin::new(send).poll(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => {
                self.sending = None;
                connection.sending.set(false);
                Ok(true)
            }
            Poll::Ready(Err(error)) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    let text = format_args!("client timed out (110: Connection timed out)");
                    connection.log_info(text);
                }
                Err(AfterWork::Close)
            }
        }
    }

    /// Sends the output as far as the kernel takes it at once, if it is in one piece; returns whether that
    /// was all. If not, a send of the rest must follow.
    fn send_at_once(&self, output: &mut PendingFrames) -> io::Result<bool> {
        let Some(piece) = output.piece() else { return Ok(false) };
        self.connection.stream.begin_send(piece, &mut Bytes::new())
    }

    /// Has the kernel send what it holds back: contrary to what was expected, nothing follows for now.
    fn push(&mut self) {
        if std::mem::take(&mut self.held_back) {
            // A socket that can't be set is closed already.
            let _ = self.connection.stream.set_nopush(false);
        }
    }

    /// Sends ready output; returns whether any was sent.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, AfterWork> {
        let connection = self.connection;
        let progress = self.poll_sending(cx)?;
        if self.sending.is_some() {
            return Ok(false);
        }
        connection.collect();
        let mut more = false;
        if !self.ends && !connection.is_idle() {
            // The kernel would keep a record open, too.
            more = connection.fill() && !connection.stream.is_sealed_by_kernel();
            connection.collect();
        }
        let mut output = connection.output.borrow_mut();
        if output.is_empty() {
            self.push();
            return Ok(progress);
        }
        // With more to follow at once, the last segment waits for that, so that it is a full one.
        self.held_back = more;
        if !more && self.send_at_once(&mut output).map_err(|_| AfterWork::Close)? {
            return Ok(true);
        }
        let chain = output.take();
        drop(output);
        let options = SendOptions { early: false, more, ..SendOptions::new(self.send_timeout) };
        self.sending = Some(connection.stream.send(chain, options));
        connection.sending.set(true);
        Ok(self.poll_sending(cx)? || progress)
    }
}

/// Processes all input, or as much as allowed in this turn and before sending.
fn process(connection: &Rc<Http2Connection>, turn: &mut Turn) -> Result<(), ConnectionError> {
    loop {
        if connection.is_full() || turn.is_over() {
            return Ok(());
        }
        turn.spend(Turn::FRAME);
        let step = {
            let input = connection.input.borrow();
            let mut heads = connection.heads.borrow_mut();
            connection.h2.borrow_mut().receive(&input, &mut *heads)?
        };
        if let Event::Data { stream, range, end } = step.event {
            let input = connection.input.borrow();
            let data = &input[range];
            match connection.streams().get(stream) {
                Some(stream) => stream.receive(data, end, false),
                // Its request has ended.
                None => connection.discard(stream, data.len(), end),
            }
            drop(input);
            connection.input.borrow_mut().advance(step.consumed);
            continue;
        }
        connection.input.borrow_mut().advance(step.consumed);
        match step.event {
            Event::NeedMore => return Ok(()),
            Event::OutputFull => connection.collect(),
            Event::Request { stream, end } => {
                turn.spend(Turn::MESSAGE);
                begin(connection, stream, end, None)?;
            }
            Event::Trailers { stream } => match connection.streams().get(stream) {
                Some(stream) => stream.receive(&[], true, false),
                None => connection.streams().forget(stream),
            },
            Event::StreamError { stream, error, answerable } => {
                turn.spend(Turn::MESSAGE);
                faulty(connection, stream, error, answerable)?;
            }
            Event::Reset { stream, .. } => {
                connection.streams().forget(stream);
                if let Some(stream) = connection.streams().get(stream) {
                    stream.leave();
                }
            }
            Event::Pong { payload: LAST_CALL } => connection.h2.borrow_mut().shutdown(),
            // Frames are made after all input was processed.
            Event::Window { .. } | Event::Settings | Event::Pong { .. } => {}
            Event::GoAway { .. } => {}
            // Seen by clients only, or above.
            Event::Data { .. } | Event::Response { .. } | Event::Interim { .. } => {}
        }
    }
}

/// The client has broken the rules of a stream.
fn faulty(
    connection: &Rc<Http2Connection>,
    id: StreamId,
    error: StreamError,
    answerable: bool,
) -> Result<(), ConnectionError> {
    match connection.streams().get(id) {
        Some(stream) => {
            connection.log_info(format_args!("client sent {error}"));
            stream.receive(&[], false, true);
            if !answerable {
                stream.leave();
            }
        }
        None if answerable => return begin(connection, id, true, Some(error)),
        None => {
            connection.streams().forget(id);
            connection.log_info(format_args!("client sent {error}"));
        }
    }
    Ok(())
}

/// Begins a request. Malformed ones are refused.
///
/// # Errors
/// The client opens too many streams that it may not open.
fn begin(
    connection: &Rc<Http2Connection>,
    id: StreamId,
    end: bool,
    fault: Option<StreamError>,
) -> Result<(), ConnectionError> {
    let all = connection.all();
    let current = all.current();
    let Some(server) = connection.default_server(&current) else {
        connection.h2.borrow_mut().reset(id, ErrorCode::REFUSED_STREAM);
        return Ok(());
    };
    let stream = Stream::new(connection.clone(), id, end);
    let mut request = all.first_request(stream.clone(), current, server);
    let received = connection.heads.borrow_mut().take(request.head_mut());
    if !connection.streams().count_head(&stream, request.head().memory()) {
        all.keep_spare(request);
        let text = "client sent requests whose headers together are too large";
        connection.log_info(format_args!("{text}, so one is refused"));
        return connection.h2.borrow_mut().refuse(id);
    }
    connection.streams().add(stream.clone());
    serving::begin(&**connection, stream, request, received, fault.map(Fault::from));
    Ok(())
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::ListTooLarge => Fault::TooLarge(error.to_string()),
            error => Fault::Malformed(error.to_string()),
        }
    }
}
