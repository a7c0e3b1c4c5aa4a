//! The task of a connection: takes the transport's events, begins requests, and moves what is ready to the transport.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use nowait_fields::FieldLine;
use nowait_front::frames::Turn;
use nowait_h3::{ErrorCode, Event, StreamError, StreamId};
use nowait_http::response::LocalFuture;
use nowait_quic::{ConnectionEvent, ConnectionLost, Dir, Read, ReadError};
use nowait_runtime::{now, sleep};

use super::connection::{Http3Connection, Kept, core_id, transport_id};
use super::stream::{Http3Input, Http3Stream, READ_BYTES_MAX};
use crate::connections::{Connections, ShutdownMode};
use crate::quic::Established;
use crate::streams::connection::StreamConnection;
use crate::streams::requests::Fault;
use crate::streams::serving;

/// After this time without a stream a connection releases its memory.
const BUSY: Duration = Duration::from_secs(1);

/// After this time, the client is taken to have received GOAWAY.
const LAST_CALL_TIME: Duration = Duration::from_secs(1);

/// How long a connection that ends waits for the client to acknowledge what it was sent.
const DELIVERY_TIME: Duration = Duration::from_secs(5);

/// How long a connection that has streams may stay on a worker that ends before it is asked to open no more.
const STAY_TIME: Duration = Duration::from_secs(10);

/// Serves a connection until it ends, or moves to another worker; `kept`: it has come from one.
pub(crate) fn serve(
    all: Rc<Connections>,
    established: Established,
    kept: Option<Kept>,
) -> LocalFuture<'static, ()> {
    Box::pin(async move {
        let transport = Rc::downgrade(&established.connection);
        let is_moved = kept.is_some();
        let Some(mut connection) = Http3Connection::new(all, established, kept) else {
            // The handle closes it.
            return;
        };
        let mut may_move = true;
        loop {
            let end = {
                let _closing = Closing(&connection);
                let mut work = Work::new(&connection, may_move);
                if is_moved {
                    work.resume();
                }
                poll_fn(|cx| work.poll(cx)).await
            };
            match end {
                End::Lost => return,
                End::Closed { code, reason } => {
                    if let Some(transport) = transport.upgrade() {
                        transport.close(code.0, reason.as_bytes());
                    }
                    return;
                }
                End::Moves => match connection.move_away() {
                    Ok(()) => return,
                    Err(back) => (connection, may_move) = (back, false),
                },
            }
        }
    })
}

/// How the task of a connection ends.
enum End {
    /// The connection is lost.
    Lost,
    /// It is to be closed.
    Closed { code: ErrorCode, reason: String },
    /// It goes to another worker.
    Moves,
}

impl End {
    /// Closed without an error.
    fn calm() -> Self {
        End::Closed { code: ErrorCode::H3_NO_ERROR, reason: String::new() }
    }
}

/// Ends the requests of a connection when its task ends, even by a panic.
struct Closing<'a>(&'a Http3Connection);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.streams().abandon();
    }
}

/// A stream whose head has not come, or not all of it.
struct Incoming {
    id: StreamId,
    /// Frames behind a section that waits for insertions.
    frames: Bytes,
    ended: bool,
    since: Instant,
}

/// The state of a connection's task.
struct Work<'a> {
    connection: &'a Rc<Http3Connection>,
    incoming: RefCell<Vec<Incoming>>,
    /// When to look again.
    timer: Option<(Instant, LocalFuture<'static, ()>)>,
    /// Until when budgets against floods were refilled.
    refilled: Instant,
    /// When the client is taken to have received the announcement of the end.
    last_call: Option<Instant>,
    /// Since when the connection has had nothing more to do than to deliver what it has sent.
    ending: Option<Instant>,
    /// Its memory was given back.
    is_lean: bool,
    /// It may go to another worker.
    may_move: bool,
    /// Until when it may stay here to end its streams, although the worker ends.
    stays: Option<Instant>,
}

impl<'a> Work<'a> {
    fn new(connection: &'a Rc<Http3Connection>, may_move: bool) -> Self {
        Work {
            connection,
            incoming: RefCell::default(),
            timer: None,
            refilled: now(),
            last_call: None,
            ending: None,
            is_lean: false,
            may_move,
            stays: None,
        }
    }

    /// What has come on the unidirectional streams while the connection was on its way here.
    fn resume(&self) {
        let streams = self.connection.h3.borrow().unidirectional_streams();
        streams.into_iter().for_each(|id| self.read_unidirectional(id));
    }

    /// Whether the worker ends, or does not serve the connection any more, and the client is to be told.
    fn must_leave(&mut self) -> bool {
        let connection = self.connection;
        let all = connection.all();
        if connection.streams().leaving.get() {
            return false;
        }
        if connection.streams().dismissed.get() {
            return true;
        }
        if all.shutdown() == ShutdownMode::None {
            return false;
        }
        if all.shutdown() == ShutdownMode::HandOver && self.may_move {
            let now = now();
            return *self.stays.get_or_insert(now + STAY_TIME) <= now;
        }
        !connection.is_idle() || all.is_left_by(&**connection)
    }

    /// Whether it goes to another worker now.
    fn moves(&self) -> bool {
        let connection = self.connection;
        self.may_move
            && connection.all().shutdown() == ShutdownMode::HandOver
            && self.incoming.borrow().is_empty()
            && connection.may_move()
    }

    /// Ready: the connection ends, and is closed unless it is lost.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let connection = self.connection;
        connection.streams().register(cx.waker());
        connection.streams().working.set(true);
        let end = self.turn(cx);
        connection.streams().working.set(false);
        if connection.streams().more.take() {
            cx.waker().wake_by_ref();
        }
        end
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let connection = self.connection;
        self.refill();
        let mut turn = Turn::default();
        loop {
            connection.streams().more.set(false);
            if self.must_leave() {
                self.leave();
            }
            if connection.streams().used_up.take() {
                self.ask_to_leave();
            }
            while !turn.is_over()
                && let Poll::Ready(event) = connection.transport().poll_event(cx)
            {
                turn.spend(Turn::FRAME);
                if let ConnectionEvent::Lost(reason) = event {
                    self.lost(&reason);
                    return Poll::Ready(End::Lost);
                }
                self.event(event, &mut turn);
            }
            if connection.fill() {
                connection.streams().more.set(true);
                turn.spend(Turn::MESSAGE);
            }
            connection.collect();
            if let Some(error) = connection.failed.take() {
                connection.log_info(format_args!("client sent {error}"));
                return Poll::Ready(End::Closed { code: error.code(), reason: error.reason() });
            }
            if connection.is_cut.get() {
                return Poll::Ready(End::calm());
            }
            if turn.is_over() {
                cx.waker().wake_by_ref();
                break;
            }
            if !connection.streams().more.get() {
                if self.moves() {
                    return Poll::Ready(End::Moves);
                }
                break;
            }
        }
        self.poll_timers(cx)
    }

    fn lost(&self, reason: &ConnectionLost) {
        let connection = self.connection;
        let is_busy = !connection.is_idle() || !self.incoming.borrow().is_empty();
        match reason {
            ConnectionLost::Violation(_) => connection.log_info(format_args!("{reason}")),
            _ if is_busy => {
                let text = "client prematurely closed connection";
                connection.log_info(format_args!("{text} ({reason})"));
            }
            _ => {}
        }
    }

    /// Refills the core's budgets for the time that has passed.
    fn refill(&mut self) {
        let seconds = now().saturating_duration_since(self.refilled).as_secs();
        if seconds > 0 {
            self.refilled += Duration::from_secs(seconds);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.connection.h3.borrow_mut().elapse(seconds);
        }
    }

    /// Asks the client to open no more streams.
    fn leave(&mut self) {
        let connection = self.connection;
        connection.streams().leaving.set(true);
        if connection.is_idle() {
            connection.h3.borrow_mut().shutdown();
        } else {
            self.ask_to_leave();
        }
    }

    /// Requests that are on their way are still served: the client may be unable to repeat them.
    fn ask_to_leave(&mut self) {
        self.connection.h3.borrow_mut().announce_shutdown();
        self.last_call = Some(now() + LAST_CALL_TIME);
    }

    fn event(&self, event: ConnectionEvent, turn: &mut Turn) {
        let connection = self.connection;
        match event {
            ConnectionEvent::Opened(dir) => {
                while let Some(id) = connection.transport().accept(dir) {
                    turn.spend(Turn::MESSAGE);
                    self.opened(dir, core_id(id));
                }
            }
            ConnectionEvent::Readable(id) => self.readable(core_id(id)),
            ConnectionEvent::Writable(id) => {
                if !connection.is_critical(id) {
                    connection.writable(core_id(id));
                }
            }
            ConnectionEvent::Stopped(id, _) if connection.is_critical(id) => {
                let error = connection.h3.borrow_mut().critical_stream_stopped();
                connection.failed.set(Some(error));
            }
            ConnectionEvent::Stopped(id, _) => {
                connection.delivered(core_id(id));
                match connection.streams().get(core_id(id)) {
                    Some(stream) => connection.stopped(&stream),
                    None => self.stopped_incoming(core_id(id)),
                }
            }
            ConnectionEvent::Finished(id) => connection.delivered(core_id(id)),
            // Output is collected after all events.
            ConnectionEvent::Available(_)
            | ConnectionEvent::Confirmed
            | ConnectionEvent::Lost(_) => {}
        }
    }

    /// The client has opened a stream.
    fn opened(&self, dir: Dir, id: StreamId) {
        let connection = self.connection;
        let result = connection.h3.borrow_mut().accept(id);
        match (connection.checked(result), dir) {
            (None, _) => {}
            (Some(false), _) => reject(connection, id, ErrorCode::H3_REQUEST_REJECTED),
            (Some(true), Dir::Uni) if connection.is_hq() => {
                let code = ErrorCode::H3_STREAM_CREATION_ERROR;
                connection.transport().stop(transport_id(id), code.0);
            }
            (Some(true), Dir::Uni) => self.read_unidirectional(id),
            (Some(true), Dir::Bi) => {
                let incoming = Incoming { id, frames: Bytes::new(), ended: false, since: now() };
                self.incoming.borrow_mut().push(incoming);
                // The event may have come before there was a task to take it.
                match connection.transport().is_stopped(transport_id(id)) {
                    true => self.stopped_incoming(id),
                    false => self.read_head(id),
                }
            }
        }
    }

    /// Something has arrived on a stream.
    fn readable(&self, id: StreamId) {
        let connection = self.connection;
        if !id.is_bidirectional() {
            return self.read_unidirectional(id);
        }
        match connection.streams().get(id) {
            Some(stream) => stream.readable(),
            None if self.is_incoming(id) => self.read_head(id),
            // Its response is complete.
            None => connection.discard(id, Bytes::new(), false),
        }
    }

    fn is_incoming(&self, id: StreamId) -> bool {
        self.incoming.borrow().iter().any(|incoming| incoming.id == id)
    }

    /// Reads a control stream, or one of QPACK's.
    fn read_unidirectional(&self, id: StreamId) {
        let connection = self.connection;
        loop {
            let read = connection.transport().read(transport_id(id), READ_BYTES_MAX);
            let (bytes, ended) = match read {
                Ok(Read::Data(bytes)) => (bytes, false),
                Ok(Read::End) => (Bytes::new(), true),
                Ok(Read::Blocked) => break,
                Err(ReadError::Reset(_)) => {
                    let result = connection.h3.borrow_mut().peer_reset(id);
                    connection.checked(result);
                    break;
                }
                Err(_) => break,
            };
            if !self.unidirectional(id, bytes, ended) || ended {
                break;
            }
        }
        // Sections may have waited for insertions.
        while connection.failed.get().is_none() {
            let Some(id) = connection.h3.borrow().next_unblocked() else { return };
            match connection.streams().get(id) {
                Some(stream) => stream.unblocked(),
                None if self.is_incoming(id) => self.read_head(id),
                None => connection.h3.borrow_mut().abandon(id),
            }
        }
    }

    /// Passes on input of a unidirectional stream. False: no more of it is to be read.
    fn unidirectional(&self, id: StreamId, mut bytes: Bytes, ended: bool) -> bool {
        let connection = self.connection;
        loop {
            let Some(step) = connection.receive(id, &bytes, ended) else { return false };
            bytes.advance(step.consumed);
            match step.event {
                Event::NeedMore => return true,
                Event::Useless { code } => {
                    connection.transport().stop(transport_id(id), code.0);
                    return false;
                }
                Event::Priority { stream } => connection.prioritise(stream),
                // Nothing depends on the client's settings and its GOAWAY.
                _ => {}
            }
        }
    }

    /// Reads a stream until its head is complete.
    fn read_head(&self, id: StreamId) {
        let connection = self.connection;
        let Some(mut incoming) = self.take_incoming(id) else { return };
        if connection.is_hq() {
            return self.read_line(incoming);
        }
        loop {
            let Some(step) = connection.receive(id, &incoming.frames, incoming.ended) else {
                return;
            };
            incoming.frames.advance(step.consumed);
            match step.event {
                Event::Request { .. } => return self.begin(incoming, None),
                Event::StreamError { error, answerable: true } => {
                    return self.begin(incoming, Some(error));
                }
                Event::StreamError { error, answerable: false } => {
                    connection.log_info(format_args!("client sent {error}"));
                    return reject(connection, id, error.code());
                }
                Event::Blocked => return self.incoming.borrow_mut().push(incoming),
                Event::NeedMore if incoming.ended => return,
                _ => {}
            }
            match connection.transport().read(transport_id(id), READ_BYTES_MAX) {
                Ok(Read::Data(bytes)) => incoming.frames = bytes,
                Ok(Read::End) => incoming.ended = true,
                Ok(Read::Blocked) => return self.incoming.borrow_mut().push(incoming),
                Err(error) => {
                    connection.unreadable(id, &error);
                    connection.h3.borrow_mut().abandon(id);
                    let code = ErrorCode::H3_REQUEST_CANCELLED;
                    return connection.transport().reset(transport_id(id), code.0);
                }
            }
        }
    }

    /// The client will not read the response to a head that was not read yet: the request is never begun.
    fn stopped_incoming(&self, id: StreamId) {
        if self.take_incoming(id).is_none() {
            return;
        }
        let connection = self.connection;
        let result = connection.h3.borrow_mut().peer_stopped(id);
        connection.checked(result);
        connection.h3.borrow_mut().abandon(id);
        reject(connection, id, ErrorCode::H3_REQUEST_CANCELLED);
    }

    /// Reads the line that a request in HTTP/0.9 consists of.
    fn read_line(&self, mut incoming: Incoming) {
        let connection = self.connection;
        let id = incoming.id;
        let refuse = |code| {
            connection.h3.borrow_mut().abandon(id);
            reject(connection, id, code);
        };
        let max = connection.h3.borrow().limits().string_bytes_max as usize;
        loop {
            let end = incoming.frames.iter().position(|&octet| octet == b'\n');
            let line = match end {
                Some(end) => incoming.frames.split_to(end),
                None if incoming.ended => std::mem::take(&mut incoming.frames),
                None if incoming.frames.len() > max => {
                    return refuse(ErrorCode::H3_EXCESSIVE_LOAD);
                }
                None => match connection.transport().read(transport_id(id), READ_BYTES_MAX) {
                    Ok(Read::Data(bytes)) => {
                        incoming.frames = [incoming.frames, bytes].concat().into();
                        continue;
                    }
                    Ok(Read::End) => {
                        incoming.ended = true;
                        continue;
                    }
                    Ok(Read::Blocked) => return self.incoming.borrow_mut().push(incoming),
                    Err(_) => return refuse(ErrorCode::H3_REQUEST_CANCELLED),
                },
            };
            let Some(path) = line.trim_ascii().strip_prefix(b"GET ") else {
                return refuse(ErrorCode::H3_MESSAGE_ERROR);
            };
            let name = connection.tls().session().server_name().map(str::to_owned);
            let host = name.unwrap_or_else(|| connection.transport().local().to_string());
            let mut heads = connection.heads.borrow_mut();
            heads.begin(false);
            heads.size(line.len());
            for (name, value) in [
                (&b":method"[..], &b"GET"[..]),
                (b":scheme", b"https"),
                (b":path", path.trim_ascii()),
                (b":authority", host.as_bytes()),
            ] {
                heads.field(&FieldLine::new(name, value));
            }
            drop(heads);
            incoming.frames = Bytes::new();
            return self.begin(incoming, None);
        }
    }

    fn take_incoming(&self, id: StreamId) -> Option<Incoming> {
        let mut all = self.incoming.borrow_mut();
        let at = all.iter().position(|incoming| incoming.id == id)?;
        Some(all.swap_remove(at))
    }

    /// Begins a request, whose head is complete. Malformed ones are refused.
    fn begin(&self, mut incoming: Incoming, mut fault: Option<StreamError>) {
        let connection = self.connection;
        let id = incoming.id;
        if fault.is_none() {
            fault = look_ahead(connection, &mut incoming);
        }
        let all = connection.all();
        let current = all.current();
        let Some(server) = connection.default_server(&current) else {
            connection.h3.borrow_mut().abandon(id);
            return reject(connection, id, ErrorCode::H3_REQUEST_REJECTED);
        };
        let Incoming { frames, ended, .. } = incoming;
        let stream = Http3Stream::new(connection.clone(), id, Http3Input::new(frames, ended));
        let mut request = all.first_request(stream.clone(), current, server);
        let received = connection.heads.borrow_mut().take(request.head_mut());
        // The next head may be refused by its length alone, and must not be taken for this one.
        connection.heads.borrow_mut().begin(false);
        if !connection.streams().count_head(&stream, request.head().memory()) {
            all.keep_spare(request);
            let text = "client sent requests whose headers together are too large";
            connection.log_info(format_args!("{text}, so one is refused"));
            connection.h3.borrow_mut().abandon(id);
            return reject(connection, id, ErrorCode::H3_REQUEST_REJECTED);
        }
        connection.add(stream.clone());
        serving::begin(&**connection, stream, request, received, fault.map(Fault::from));
    }

    /// Looks at what is due, and sets the timer for what will be.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let (now, connection) = (now(), self.connection);
            if self.last_call.is_some_and(|at| at <= now) {
                self.last_call = None;
                connection.h3.borrow_mut().shutdown();
                connection.collect();
            }
            let heads = self.expire_heads(now);
            connection.collect();
            if self.is_over(now, cx) {
                return Poll::Ready(End::calm());
            }
            let delivery = self.ending.map(|since| since + DELIVERY_TIME);
            let is_ending = delivery.or(self.last_call).is_some();
            let idle = if is_ending { None } else { self.idle_deadline(now) };
            let stays = self.stays.filter(|&at| at > now);
            let next = [heads, delivery, idle, self.last_call, stays].into_iter().flatten().min();
            let Some(next) = next else {
                self.timer = None;
                return Poll::Pending;
            };
            let (_, timer) = match &mut self.timer {
                Some(timer) if timer.0 == next => timer,
                timer => {
                    let wait = next.saturating_duration_since(now);
                    timer.insert((next, Box::pin(sleep(wait))))
                }
            };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
            if self.stays.is_some() {
                // The next turn looks whether it has to leave.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// When an idle connection is to be looked at: to give its memory back, then to end.
    fn idle_deadline(&mut self, now: Instant) -> Option<Instant> {
        let connection = self.connection;
        let Some((since, _)) = connection.streams().idle_since() else {
            self.is_lean = false;
            return None;
        };
        if !self.incoming.borrow().is_empty() {
            return None;
        }
        if !self.is_lean && !connection.is_new() {
            if since + BUSY > now {
                return Some(since + BUSY);
            }
            self.is_lean = true;
            connection.shrink();
        }
        Some(since + connection.keepalive_timeout())
    }

    /// Ends streams whose heads are overdue (`client_header_timeout`). Returns when the next one will be.
    fn expire_heads(&self, now: Instant) -> Option<Instant> {
        let connection = self.connection;
        if self.incoming.borrow().is_empty() {
            return None;
        }
        let timeout = connection.header_timeout();
        let is_due = |incoming: &Incoming| incoming.since + timeout <= now;
        loop {
            let due = self.incoming.borrow().iter().find(|one| is_due(one)).map(|one| one.id);
            let Some(id) = due else { break };
            drop(self.take_incoming(id));
            connection.log_info(format_args!("client timed out (110: Connection timed out)"));
            connection.h3.borrow_mut().abandon(id);
            reject(connection, id, ErrorCode::H3_REQUEST_INCOMPLETE);
            // As over HTTP/2: a client that begins requests only to leave them keeps no connection open.
            if connection.is_idle() {
                connection.h3.borrow_mut().shutdown();
                connection.collect();
            }
        }
        self.incoming.borrow().iter().map(|incoming| incoming.since + timeout).min()
    }

    /// Whether the connection ends: it has nothing more to do, and what it has sent has arrived.
    fn is_over(&mut self, now: Instant, cx: &Context<'_>) -> bool {
        let connection = self.connection;
        if !connection.is_idle() || !self.incoming.borrow().is_empty() {
            self.ending = None;
            return false;
        }
        if let Some((since, _)) = connection.streams().idle_since()
            && since + connection.keepalive_timeout() <= now
        {
            // GOAWAY tells the client that later requests were not processed.
            connection.h3.borrow_mut().shutdown();
            connection.collect();
        }
        if !connection.h3.borrow().is_going_away() || self.last_call.is_some() {
            return false;
        }
        match self.ending {
            // What was written leaves at the end of this turn.
            None => {
                self.ending = Some(now);
                cx.waker().wake_by_ref();
                false
            }
            Some(since) => connection.is_delivered() || since + DELIVERY_TIME <= now,
        }
    }
}

/// Gives up a stream that is not served.
fn reject(connection: &Http3Connection, id: StreamId, code: ErrorCode) {
    connection.transport().reset(transport_id(id), code.0);
    connection.transport().stop(transport_id(id), code.0);
}

/// Looks whether the request ends with its head: the end may have come behind it. Returns an error if it must not end
/// there.
fn look_ahead(connection: &Http3Connection, incoming: &mut Incoming) -> Option<StreamError> {
    if !incoming.frames.is_empty() || connection.has_ended(incoming.id) {
        return None;
    }
    if !incoming.ended {
        match connection.transport().read(transport_id(incoming.id), READ_BYTES_MAX) {
            Ok(Read::Data(bytes)) => incoming.frames = bytes,
            Ok(Read::End) => incoming.ended = true,
            // A reset is found by the next reader.
            Ok(Read::Blocked) | Err(_) => {}
        }
    }
    if !incoming.ended {
        return None;
    }
    match connection.receive(incoming.id, &[], true)?.event {
        Event::StreamError { error, .. } => Some(error),
        _ => None,
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::ListTooLarge => Fault::TooLarge(error.to_string()),
            error => Fault::Malformed(error.to_string()),
        }
    }
}
