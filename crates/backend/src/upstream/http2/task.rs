//! The task of a shared connection: receives for its streams, and sends what they have ready.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nowait_front::frames::Turn;
use nowait_h2::{ConnectionError, ErrorCode, Event, StreamError, StreamId};
use nowait_http::response::LocalFuture;
use nowait_runtime::buf::{RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::net::{NO_TIMEOUT, RecvLarge, Send, SendOptions};
use nowait_runtime::time::{Sleep, sleep_until};
use nowait_runtime::{now, worker};

use super::connection::Connection;
use super::stream::StreamFault;
use crate::upstream::Fault;

/// How many times a connection receives and sends before other tasks run.
const TURNS_MAX: usize = 16;

/// After this time without a stream a connection releases its memory.
const BUSY: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
pub(super) async fn serve(connection: Rc<Connection>) {
    let _ending = Ending(&connection);
    let mut work = Work {
        connection: &connection,
        receiving: None,
        sending: None,
        stopping: Box::pin(worker::stopping()),
        alarm: None,
        shrunk: false,
        refilled: now(),
        ends: false,
    };
    poll_fn(|cx| work.poll(cx)).await;
}

/// Ends the streams of a connection when its task ends, even by a panic.
struct Ending<'a>(&'a Connection);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fault(Fault::PrematureClose);
        // Lanes that are still held refer to the connection.
        let _ = self.0.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The connection has to be closed.
struct Close;

struct Work<'a> {
    connection: &'a Rc<Connection>,
    receiving: Option<RecvLarge<'a>>,
    sending: Option<Send<'a>>,
    stopping: LocalFuture<'static, ()>,
    /// Wakes an idle connection, with the time.
    alarm: Option<(Instant, Sleep)>,
    /// An idle connection has given its memory back.
    shrunk: bool,
    /// Until when budgets against floods were refilled.
    refilled: Instant,
    /// Receiving has ended; pending output is sent.
    ends: bool,
}

impl Work<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.connection;
        connection.register(cx.waker());
        if !connection.is_leaving() && self.stopping.as_mut().poll(cx).is_ready() {
            connection.retire();
        }
        let mut turn = Turn::default();
        for _ in 0..TURNS_MAX {
            let (Ok(received), Ok(sent)) = (self.receive(cx, &mut turn), self.send(cx)) else {
                return Poll::Ready(());
            };
            if turn.is_over() {
                break;
            }
            if received || sent {
                continue;
            }
            if self.is_done() || self.has_expired(cx) {
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the connection can be closed: all output was sent, and none follows.
    fn is_done(&self) -> bool {
        let connection = self.connection;
        (self.ends || connection.is_leaving() && connection.is_idle())
            && self.sending.is_none()
            && connection.output.borrow().is_empty()
    }

    /// Whether it has been idle for too long.
    fn has_expired(&mut self, cx: &mut Context<'_>) -> bool {
        let connection = self.connection;
        let Some(since) = connection.idle_since() else {
            (self.alarm, self.shrunk) = (None, false);
            return false;
        };
        loop {
            let timeout = connection.usage.keepalive.timeout;
            let wait = if self.shrunk { timeout } else { timeout.min(BUSY) };
            let at = since + wait;
            let (_, alarm) = match &mut self.alarm {
                Some(alarm) if alarm.0 == at => alarm,
                alarm => alarm.insert((at, sleep_until(at))),
            };
            if Pin::new(alarm).poll(cx).is_pending() {
                return false;
            }
            if self.shrunk || timeout <= BUSY {
                return true;
            }
            connection.shrink();
            self.shrunk = true;
        }
    }

    /// Receives and processes input; whether there was any.
    fn receive(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<bool, Close> {
        let connection = self.connection;
        if self.ends || connection.is_full() {
            self.receiving = None;
            return Ok(false);
        }
        if !connection.input.borrow().is_empty() {
            self.process(turn);
            return Ok(true);
        }
        let recv = self
            .receiving
            .get_or_insert_with(|| connection.stream.recv_large(NO_TIMEOUT, 2 * RECV_BUF_BYTES));
        let Poll::Ready(received) = Pin::new(recv).poll(cx) else { return Ok(false) };
        self.receiving = None;
        match received {
            Ok(bytes) if bytes.is_empty() => Err(Close),
            Ok(bytes) => {
                connection.input.replace(bytes);
                self.process(turn);
                Ok(true)
            }
            Err(error) => {
                connection.fail(&StreamFault::network(&error));
                Err(Close)
            }
        }
    }

    /// Hands received frames to the protocol's core, and its events to lanes.
    fn process(&mut self, turn: &mut Turn) {
        let connection = self.connection;
        let elapsed = now().saturating_duration_since(self.refilled).as_secs();
        if elapsed > 0 {
            self.refilled += Duration::from_secs(elapsed);
            let seconds = u32::try_from(elapsed).unwrap_or(u32::MAX);
            connection.h2.borrow_mut().elapse(seconds);
        }
        if let Err(error) = process(connection, turn) {
            connection.fault(Fault::Malformed(format!("upstream sent {error}").into()));
            connection.input.replace(ReceivedBuf::empty());
            self.ends = true;
        }
        let mut input = connection.input.borrow_mut();
        if input.is_empty() {
            *input = ReceivedBuf::empty();
        }
    }

    /// Sends ready output; returns whether any was sent.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, Close> {
        let connection = self.connection;
        let mut progress = false;
        if let Some(send) = &mut self.sending {
            match Pin::new(send).poll(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(())) => {
                    self.sending = None;
                    progress = true;
                }
                Poll::Ready(Err(error)) => {
                    connection.fail(&StreamFault::network(&error));
                    return Err(Close);
                }
            }
        }
        connection.collect();
        connection.fill();
        let mut output = connection.output.borrow_mut();
        if output.is_empty() {
            return Ok(progress);
        }
        let chain = output.take();
        drop(output);
        let options = SendOptions::new(connection.usage.send_timeout);
        self.sending = Some(connection.stream.send(chain, options));
        Ok(true)
    }
}

/// Processes all input, or as much as allowed in this turn and before sending.
fn process(connection: &Rc<Connection>, turn: &mut Turn) -> Result<(), ConnectionError> {
    while !connection.is_full() && !turn.is_over() {
        turn.spend(Turn::FRAME);
        let step = {
            let input = connection.input.borrow();
            let mut heads = connection.heads.borrow_mut();
            connection.h2.borrow_mut().receive(&input, &mut *heads)?
        };
        if let Event::Data { stream, range, end } = &step.event {
            let input = connection.input.borrow();
            match connection.lane(*stream) {
                Some(lane) => lane.data(&input[range.clone()], *end),
                None => connection.h2.borrow_mut().taken(*stream, range.len()),
            }
        }
        connection.input.borrow_mut().advance(step.consumed);
        match step.event {
            Event::NeedMore => return Ok(()),
            Event::OutputFull => connection.collect(),
            Event::Interim { stream, status } => {
                turn.spend(Turn::MESSAGE);
                head(connection, stream, status, true, false);
            }
            Event::Response { stream, status, end } => {
                turn.spend(Turn::MESSAGE);
                head(connection, stream, status, false, end);
            }
            Event::Trailers { stream } => {
                let trailers = connection.heads.borrow_mut().trailers();
                if let Some(lane) = connection.lane(stream) {
                    lane.trailers(trailers);
                }
            }
            Event::StreamError { stream, error, .. } => {
                let fault = match error {
                    StreamError::ListTooLarge => Fault::HeadTooBig,
                    error => Fault::Malformed(format!("upstream sent {error}").into()),
                };
                if let Some(lane) = connection.lane(stream) {
                    lane.fail(StreamFault::Fault(fault));
                }
            }
            Event::Reset { stream, code } => reset(connection, stream, code),
            Event::Settings => connection.settle(),
            Event::GoAway { code, .. } => {
                connection.goaway.set(code);
                connection.retire();
            }
            // Frames are made after all input was processed.
            Event::Data { .. } | Event::Window { .. } | Event::Pong { .. } => {}
            // Seen by servers only.
            Event::Request { .. } => {}
        }
    }
    Ok(())
}

/// The head of a response has arrived.
fn head(connection: &Connection, id: StreamId, status: u16, interim: bool, end: bool) {
    let head = connection.heads.borrow_mut().head(status);
    let Some(lane) = connection.lane(id) else { return };
    match head {
        Some(head) => lane.head(interim, head, end),
        None => {
            let text = "upstream sent invalid \"Content-Length\" header";
            lane.fail(StreamFault::Fault(Fault::Malformed(text.into())));
        }
    }
}

/// The server has reset a stream, or its GOAWAY leaves the stream out.
fn reset(connection: &Connection, id: StreamId, code: ErrorCode) {
    let Some(lane) = connection.lane(id) else { return };
    // "A server MAY request that the client abort transmission of a request without error by sending a
    // RST_STREAM with an error code of NO_ERROR after sending a complete response" (RFC 9113 section
    // 8.1).
    if code == ErrorCode::NO_ERROR && lane.has_ended() {
        return;
    }
    let goaway = connection.is_leaving() && connection.h2.borrow().has_rejected(id);
    let fault = match (code, goaway) {
        (_, true) => {
            let code = connection.goaway.get();
            Fault::Unprocessed(format!("upstream sent goaway with error {}", code.0).into())
        }
        (ErrorCode::REFUSED_STREAM, false) => Fault::Unprocessed(rejected(code).into()),
        _ => Fault::Reset(rejected(code).into()),
    };
    lane.fail(StreamFault::Fault(fault));
}

fn rejected(code: ErrorCode) -> String {
    format!("upstream rejected request with error {}", code.0)
}
