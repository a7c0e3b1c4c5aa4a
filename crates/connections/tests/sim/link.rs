//! An HTTP/2 connection of a scripted peer, client or origin: frames by the protocol's core, which has
//! tests of its own; when and in which pieces they are sent is decided here.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use nowait_h2::client::ClientSide;
use nowait_h2::connection::{Connection, Role};
use nowait_h2::hpack::HpackField;
use nowait_h2::server::ServerSide;
use nowait_h2::{ErrorCode, Event, HeadWriter, Sink, StreamId, client, frames};
use nowait_runtime::net::{NO_TIMEOUT, SendOptions, Stream};
use nowait_runtime::{sim, sleep, spawn};

use super::wire::PATIENCE;

/// The fields of one block.
#[derive(Default)]
struct Heads(String);

impl Sink for Heads {
    fn begin(&mut self, _: StreamId) {
        self.0.clear();
    }

    fn field(&mut self, field: &HpackField<'_>) {
        self.0.push_str(&String::from_utf8_lossy(field.name));
        self.0.push_str(": ");
        self.0.push_str(&String::from_utf8_lossy(field.value));
        self.0.push_str("\r\n");
    }
}

/// What has arrived on a stream.
#[derive(Clone, Debug, Default)]
pub struct Half {
    /// The status of a response.
    pub status: Option<u16>,
    /// Fields, each with its line end.
    pub head: String,
    pub body: Vec<u8>,
    /// Bytes of the body for which the window was not opened again.
    pub held: usize,
    /// The message is complete.
    pub ended: bool,
    /// The stream is gone.
    pub reset: Option<ErrorCode>,
}

/// How a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has closed it, or the network has.
    Closed,
    /// The peer has violated the protocol.
    Malformed(String),
}

/// A connection.
pub struct Link<R> {
    stream: Rc<Stream>,
    h2: RefCell<Connection<R>>,
    out: RefCell<Vec<u8>>,
    heads: RefCell<Heads>,
    halves: RefCell<BTreeMap<StreamId, Half>>,
    requests: RefCell<VecDeque<StreamId>>,
    /// Streams above it are no longer served.
    last: Cell<StreamId>,
    goaway: Cell<Option<ErrorCode>>,
    settled: Cell<bool>,
    end: RefCell<Option<End>>,
    /// The tasks that wait for an arrival.
    wakers: RefCell<Vec<Waker>>,
    sender: RefCell<Option<Waker>>,
}

impl<R: Role + 'static> Link<R> {
    /// Starts to send and to receive, until the connection ends or no other reference is left. `early` was
    /// received before.
    pub fn start(stream: Rc<Stream>, h2: Connection<R>, early: Vec<u8>) -> Rc<Self> {
        let link = Rc::new(Self {
            stream,
            h2: RefCell::new(h2),
            out: RefCell::default(),
            heads: RefCell::default(),
            halves: RefCell::default(),
            requests: RefCell::default(),
            last: Cell::new(StreamId::MAX),
            goaway: Cell::new(None),
            settled: Cell::new(false),
            end: RefCell::default(),
            wakers: RefCell::default(),
            sender: RefCell::default(),
        });
        drop(spawn(link.clone().receive(early)));
        drop(spawn(link.clone().send()));
        link
    }

    /// Waits for the next arrival, of anything, or the end of a stream.
    pub async fn changed(&self) {
        let mut waited = false;
        poll_fn(|cx| match std::mem::replace(&mut waited, true) {
            // Waking empties the list; another wake-up is a change, too.
            true => Poll::Ready(()),
            false => {
                self.wakers.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    fn change(&self) {
        for waker in self.wakers.take().into_iter().chain(self.sender.take()) {
            waker.wake();
        }
    }

    /// Waits until something is to be sent.
    async fn written(&self) {
        poll_fn(|cx| match self.out.borrow().is_empty() && self.end().is_none() {
            true => {
                *self.sender.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    /// How the connection has ended.
    pub fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    fn finish(&self, end: End) {
        self.end.borrow_mut().get_or_insert(end);
        self.change();
    }

    /// Leaves without a word.
    pub fn leave(&self) {
        self.finish(End::Closed);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Ends this side.
    pub fn shutdown_write(&self) {
        let _ = self.stream.shutdown_write();
    }

    /// What has arrived on a stream.
    pub fn half(&self, id: StreamId) -> Half {
        let halves = self.halves.borrow();
        halves.get(&id).cloned().unwrap_or_default()
    }

    /// The code of the peer's GOAWAY.
    pub fn goaway(&self) -> Option<ErrorCode> {
        self.goaway.get()
    }

    /// Whether the peer's settings have arrived.
    pub fn is_settled(&self) -> bool {
        self.settled.get()
    }

    /// Uses the protocol's core, and sends what it writes.
    pub fn write<T>(&self, write: impl FnOnce(&mut Connection<R>, &mut Vec<u8>) -> T) -> T {
        let mut out = self.out.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let streams = h2.open_streams();
        let written = write(&mut h2, &mut out);
        h2.poll_output(&mut *out);
        let ended = h2.open_streams() < streams;
        drop((h2, out));
        self.sender.take().into_iter().for_each(Waker::wake);
        if ended {
            self.change();
        }
        written
    }

    /// Opens the window for a part of what has arrived.
    pub fn take(&self, id: StreamId, bytes: usize) {
        if let Some(half) = self.halves.borrow_mut().get_mut(&id) {
            half.held -= bytes.min(half.held);
        }
        self.write(|h2, _| h2.taken(id, bytes));
    }

    /// Sends content as far as windows allow, and its end. Returns how much.
    pub fn content(&self, id: StreamId, content: &[u8], max: usize, ends: bool) -> usize {
        self.write(|h2, out| {
            let length = h2.reserve(id, content.len().min(max));
            let last = ends && length == content.len();
            if (length > 0 || last) && h2.data_header(id, length, last, out).is_ok() {
                out.extend_from_slice(&content[..length]);
            }
            length
        })
    }

    async fn receive(self: Rc<Self>, early: Vec<u8>) {
        let mut input = early;
        loop {
            if let Err(error) = self.process(&mut input) {
                return self.finish(End::Malformed(error));
            }
            let received = self.stream.recv(NO_TIMEOUT);
            let ended = async {
                while self.end().is_none() {
                    self.changed().await;
                }
            };
            match nowait_runtime::task::select(received, ended).await {
                nowait_runtime::task::Either::Left(Ok(data)) if !data.is_empty() => {
                    input.extend_from_slice(&data);
                }
                _ => return self.finish(End::Closed),
            }
        }
    }

    fn process(&self, input: &mut Vec<u8>) -> Result<(), String> {
        let mut at = 0;
        loop {
            let step = {
                let mut h2 = self.h2.borrow_mut();
                let mut heads = self.heads.borrow_mut();
                h2.receive(&input[at..], &mut *heads).map_err(|error| error.to_string())?
            };
            let piece = &input[at..at + step.consumed];
            at += step.consumed;
            let mut halves = self.halves.borrow_mut();
            match step.event {
                Event::NeedMore => break,
                Event::OutputFull => self.collect(),
                Event::Request { stream, end } => {
                    let head = self.heads.borrow().0.clone();
                    halves.insert(stream, Half { head, ended: end, ..Half::default() });
                    if stream <= self.last.get() {
                        self.requests.borrow_mut().push_back(stream);
                    }
                }
                Event::Response { stream, status, end } => {
                    let half = halves.entry(stream).or_default();
                    half.head.clone_from(&self.heads.borrow().0);
                    (half.status, half.ended) = (Some(status), end);
                }
                Event::Data { stream, range, end } => {
                    let half = halves.entry(stream).or_default();
                    half.body.extend_from_slice(&piece[range.clone()]);
                    half.held += range.len();
                    half.ended |= end;
                }
                Event::Trailers { stream } => halves.entry(stream).or_default().ended = true,
                Event::StreamError { stream, error, .. } => {
                    return Err(format!("stream {stream}: {error}"));
                }
                Event::Reset { stream, code } => {
                    halves.entry(stream).or_default().reset = Some(code);
                }
                Event::GoAway { code, .. } => self.goaway.set(Some(code)),
                Event::Settings => self.settled.set(true),
                Event::Interim { .. } | Event::Window { .. } | Event::Pong { .. } => {}
            }
        }
        input.drain(..at);
        self.collect();
        self.change();
        Ok(())
    }

    /// Moves control frames to the output.
    fn collect(&self) {
        self.h2.borrow_mut().poll_output(&mut *self.out.borrow_mut());
    }

    async fn send(self: Rc<Self>) {
        loop {
            self.written().await;
            if self.end().is_some() {
                return;
            }
            let (mut piece, mut rest) = (self.out.take(), Vec::new());
            // In pieces now and then, with pauses within frames.
            if sim::random(6) == 0 {
                rest = piece.split_off(sim::random(piece.len() as u64) as usize);
            }
            for (part, pause) in [(piece, false), (rest, true)] {
                if part.is_empty() {
                    continue;
                }
                if pause {
                    sleep(Duration::from_millis(sim::random(500))).await;
                }
                if self.stream.send(Bytes::from(part), SendOptions::new(PATIENCE)).await.is_err() {
                    // What has arrived before still counts: the receiver ends the connection.
                    return;
                }
            }
        }
    }
}

impl Link<ClientSide> {
    /// Opens a stream; `None`: the server takes none now.
    pub fn open(
        &self,
        request: &client::RequestControl<'_>,
        end: bool,
        fields: impl FnOnce(&mut HeadWriter<'_, ClientSide, Vec<u8>>),
    ) -> Option<StreamId> {
        self.write(|h2, out| {
            let mut head = h2.open(request, out).ok()?;
            fields(&mut head);
            Some(head.finish(end))
        })
    }

    /// Whether a stream can be opened, now or later.
    pub fn takes_streams(&self) -> bool {
        self.end().is_none() && self.goaway().is_none()
    }

    /// How many streams can be opened now.
    pub fn can_open(&self) -> usize {
        self.h2.borrow().can_open()
    }
}

impl Link<ServerSide> {
    /// The next request; `None`: there will be none.
    pub async fn request(&self) -> Option<StreamId> {
        loop {
            if let Some(id) = self.requests.borrow_mut().pop_front() {
                return Some(id);
            }
            if self.end().is_some() {
                return None;
            }
            self.changed().await;
        }
    }

    /// Whether no stream has followed.
    pub fn is_last(&self, id: StreamId) -> bool {
        self.halves.borrow().keys().all(|other| *other <= id)
    }

    /// Sends GOAWAY: streams above `last` are not served.
    pub fn go_away(&self, last: StreamId) {
        self.last.set(last.min(self.last.get()));
        let last = self.last.get();
        self.requests.borrow_mut().retain(|id| *id <= last);
        for (_, half) in self.halves.borrow_mut().range_mut(StreamId::new(last.get() + 1)..) {
            half.reset = Some(ErrorCode::REFUSED_STREAM);
        }
        self.write(|_, out| frames::goaway(out, last, ErrorCode::NO_ERROR));
    }

    /// Begins a response.
    pub fn respond(&self, id: StreamId, status: u16, fields: &[(&str, &str)], end: bool) {
        self.write(|h2, out| {
            let Ok(mut head) = h2.respond(id, status, out) else { return };
            for (name, value) in fields {
                head.field(name.as_bytes(), value.as_bytes());
            }
            head.finish(end);
        });
    }
}
