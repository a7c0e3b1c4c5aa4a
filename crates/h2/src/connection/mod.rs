//! One connection: the part common to both sides.
//!
//! ```text
//!  input ──► receive ──► Step { consumed, event } + fields to the caller's Sink
//!  respond, open, data_header, reset, taken … ──► poll_output ──► bytes to send
//! ```
//!
//! The caller owns input and output. Control frames (acknowledgements, window updates, resets) wait
//! inside until the next writing call, or [`Connection::poll_output`], puts them into the caller's
//! buffer; there are at most [`OUTPUT_MAX`] bytes of them, then [`Event::OutputFull`] stops the input.
//! A caller whose own buffer is full stops receiving, so a peer that does not read cannot make
//! anything grow.

mod control;
mod data;
mod event;
mod heads;
mod receive;
mod send;

use std::marker::PhantomData;

use bytes::BufMut;
use nowait_fields::OpenStreams;

use crate::Priority;
use crate::budget::Budgets;
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::frame::{
    FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX, FrameType, HEADER_LEN, PREFACE, StreamId, WINDOW_DEFAULT,
};
use crate::frames::{self, Parameters, Setting};
use crate::hpack::{Decoder, Encoder};
use crate::stream::{Local, RecentResets, Remote, StreamState};
use crate::window::{ReceiveWindow, SendWindow};
use crate::{Limits, hpack};
use receive::ReadState;

pub use event::{Event, ReceiveStep, Sink};
pub(crate) use send::HeadKind;
pub use send::{HeadWriter, SendError};

/// Bytes of control frames that wait for the caller; one frame more may exceed it.
pub const OUTPUT_MAX: usize = 16 * 1024;

/// A frame kept for its end retains at most this much memory for the next one, in bytes.
const KEPT_MAX: usize = 2048;

/// A side of the connection.
pub trait Role: sealed::Sealed {
    /// Whether it is the client.
    const CLIENT: bool;
}

/// The server's side.
#[derive(Debug)]
pub struct ServerSide;

/// The client's side.
#[derive(Debug)]
pub struct ClientSide;

impl Role for ServerSide {
    const CLIENT: bool = false;
}

impl Role for ClientSide {
    const CLIENT: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ServerSide {}
    impl Sealed for super::ClientSide {}
}

/// The protocol state of one connection. See [`crate::server`] and [`crate::client`] for the differences.
#[derive(Debug)]
pub struct Connection<R> {
    limits: Limits,
    /// The peer's settings.
    peer: Parameters,
    reading: ReadState,
    /// An incomplete frame header.
    header: [u8; HEADER_LEN],
    header_len: u8,
    /// An incomplete payload. Never DATA.
    partial: Vec<u8>,
    /// The field block that CONTINUATION frames go on with.
    block: Option<OpenBlock>,
    fragments: Vec<u8>,
    decoder: Decoder,
    encoder: Encoder,
    streams: OpenStreams<StreamState>,
    resets: RecentResets,
    receive: ReceiveWindow,
    send: SendWindow,
    /// A caller waits for window of the connection.
    stalled: bool,
    has_settings: bool,
    /// Our settings have been acknowledged.
    acknowledged: bool,
    /// The last stream that the peer has opened.
    last_remote: StreamId,
    /// The last stream that we have opened.
    last_local: StreamId,
    /// The last stream that our GOAWAY admits.
    admitted: StreamId,
    /// Our GOAWAY takes no more streams. The last possible stream may be among those that it admits.
    leaving: bool,
    /// The last stream that the peer's GOAWAY admits.
    accepted: Option<StreamId>,
    budgets: Budgets,
    /// Priorities of requests that have not come yet.
    announced: Vec<(StreamId, Priority)>,
    /// Bytes of content ever sent.
    sent: u64,
    output: Vec<u8>,
    failed: Option<ConnectionError>,
    role: PhantomData<R>,
}

#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    stream: StreamId,
    end: bool,
    frames: u16,
}

impl<R: Role> Connection<R> {
    /// A fresh connection; its first frames are already in the output.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            connection_window: limits.connection_window.max(WINDOW_DEFAULT),
            frame_size: limits.frame_size.clamp(FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX),
            stream_window: limits.stream_window.min(crate::frame::WINDOW_MAX),
            header_table_size: limits.header_table_size.min(hpack::SIZE_MAX),
            ..limits
        };
        let mut connection = Connection {
            limits,
            peer: Parameters::default(),
            reading: if R::CLIENT { ReadState::Header } else { ReadState::Preface(0) },
            header: [0; HEADER_LEN],
            header_len: 0,
            partial: Vec::new(),
            block: None,
            fragments: Vec::new(),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            streams: OpenStreams::default(),
            resets: RecentResets::default(),
            receive: ReceiveWindow::new(WINDOW_DEFAULT),
            send: SendWindow::new(WINDOW_DEFAULT),
            stalled: false,
            has_settings: false,
            acknowledged: false,
            last_remote: StreamId::CONNECTION,
            last_local: StreamId::CONNECTION,
            admitted: StreamId::MAX,
            leaving: false,
            accepted: None,
            budgets: Budgets::new(&limits),
            announced: Vec::new(),
            sent: 0,
            output: Vec::new(),
            failed: None,
            role: PhantomData,
        };
        if connection.limits.long_padding {
            connection.decoder.accept_long_padding();
        }
        connection.greet();
        connection
    }

    /// The first frames.
    fn greet(&mut self) {
        let limits = &self.limits;
        let defaults = Parameters::default();
        let mut settings = [Setting { id: 0, value: 0 }; 7];
        let mut count = 0;
        let mut add = |id, value, default| {
            if value != default {
                settings[count] = Setting { id, value };
                count += 1;
            }
        };
        add(Setting::HEADER_TABLE_SIZE, limits.header_table_size, defaults.header_table_size);
        if R::CLIENT {
            add(Setting::ENABLE_PUSH, 0, 1);
        } else {
            add(Setting::MAX_CONCURRENT_STREAMS, limits.concurrent_streams, u32::MAX);
            add(Setting::ENABLE_CONNECT_PROTOCOL, limits.extended_connect.into(), 0);
            add(Setting::NO_RFC7540_PRIORITIES, 1, 0);
        }
        add(Setting::INITIAL_WINDOW_SIZE, limits.stream_window, defaults.initial_window_size);
        add(Setting::MAX_FRAME_SIZE, limits.frame_size, defaults.max_frame_size);
        if R::CLIENT {
            self.output.extend_from_slice(PREFACE);
        }
        frames::settings(&mut self.output, &settings[..count]);
        let grown = self.receive.grow(self.limits.connection_window);
        self.announce(StreamId::CONNECTION, grown);
    }

    /// Moves waiting control frames into the caller's buffer. Returns whether there were any.
    pub fn poll_output(&mut self, out: &mut impl BufMut) -> bool {
        if self.output.is_empty() {
            return false;
        }
        out.put_slice(&self.output);
        self.output.clear();
        if self.output.capacity() > KEPT_MAX {
            self.output = Vec::new();
        }
        true
    }

    /// Whether control frames wait to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reports that bytes of [`Event::Data`] were consumed, so that the peer may send as many more. For a
    /// closed stream, this has been done already.
    pub fn taken(&mut self, stream: StreamId, bytes: usize) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let bytes = (bytes as u64).min(open.held.into()) as u32;
        open.held -= bytes;
        let increment = match open.remote {
            Remote::Open => open.receive.give_back(bytes),
            _ => None,
        };
        self.announce(stream, increment);
        self.give_back(bytes);
    }

    /// Enlarges a stream's window, for example when its body is going to a file. No window shrinks.
    pub fn grow_window(&mut self, stream: StreamId, size: u32) {
        let increment = match self.streams.get_mut(stream) {
            Some(open) if open.remote != Remote::Ended => open.receive.grow(size),
            _ => None,
        };
        self.announce(stream, increment);
    }

    /// Enlarges the connection's window.
    pub fn grow_connection_window(&mut self, size: u32) {
        let increment = self.receive.grow(size);
        self.announce(StreamId::CONNECTION, increment);
    }

    /// Sends PING; the answer is [`Event::Pong`].
    pub fn ping(&mut self, payload: [u8; 8]) {
        frames::ping(&mut self.output, payload, false);
    }

    /// The first step of a graceful end: asks the peer to open no more streams. Streams in
    /// transit are still served; [`Connection::shutdown`] follows after a round trip (see
    /// [`Connection::ping`]) or a moment.
    pub fn announce_shutdown(&mut self) {
        frames::goaway(&mut self.output, StreamId::MAX, ErrorCode::NO_ERROR);
    }

    /// Accepts no more streams; open ones continue. Streams that the peer opens from now on are ignored,
    /// and the peer may send these requests to another server.
    pub fn shutdown(&mut self) {
        self.go_away(ErrorCode::NO_ERROR);
    }

    /// Ends the connection for a reason of ours. The caller sends the output and closes.
    pub fn go_away(&mut self, code: ErrorCode) {
        self.admitted = self.admitted.min(self.last_remote);
        self.leaving = true;
        frames::goaway(&mut self.output, self.admitted, code);
    }

    /// Whether either side takes no more streams.
    pub fn is_going_away(&self) -> bool {
        self.leaving || self.accepted.is_some()
    }

    /// Whether the peer's GOAWAY says that it has not processed the stream and never will.
    pub fn has_rejected(&self, stream: StreamId) -> bool {
        self.accepted.is_some_and(|accepted| stream > accepted)
    }

    /// The number of open streams.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The open streams, oldest first.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.iter().map(|stream| stream.id)
    }

    /// How much of a stream's content is to come, if its message says so and the peer may send all of it
    /// without another window.
    pub fn content_left(&self, stream: StreamId) -> Option<u64> {
        let open = self.streams.get(stream)?;
        open.message.left().filter(|&left| left <= open.receive.open().into())
    }

    /// Refuses a stream that the peer has just opened: it may try again.
    ///
    /// # Errors
    /// The peer opens too many such streams.
    pub fn refuse(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        if let Err(error) = self.budgets.spend(Flood::Refused) {
            self.failed = Some(error);
            self.go_away(error.code());
            return Err(error);
        }
        self.reset(stream, ErrorCode::REFUSED_STREAM);
        Ok(())
    }

    /// Our own settings and bounds, as they are in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Begins trailers, which end the message.
    pub fn trailers_of<'a, B: BufMut + AsMut<[u8]>>(
        &'a mut self,
        stream: StreamId,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, R, B>, SendError> {
        self.begin_block(stream, HeadKind::Trailers, out)
    }

    /// The peer's settings.
    pub fn peer(&self) -> &Parameters {
        &self.peer
    }

    /// Whether a frame or a field block is incomplete: for the caller's `client_header_timeout`.
    pub fn has_begun(&self) -> bool {
        self.header_len > 0 || self.block.is_some() || !matches!(self.reading, ReadState::Header)
    }

    /// The stream whose field block is incomplete: nothing else can come before the rest of it.
    pub fn open_block(&self) -> Option<StreamId> {
        match self.reading {
            ReadState::Payload(header) if header.kind == FrameType::Headers => Some(header.stream),
            _ => self.block.map(|block| block.stream),
        }
    }

    /// Bytes of content ever sent. A caller's timer that sees no change while
    /// [`Connection::is_stalled`] has a peer that does not open its windows.
    pub fn content_sent(&self) -> u64 {
        self.sent
    }

    /// Whether a caller waits for a window: see [`Connection::reserve`].
    pub fn is_stalled(&self) -> bool {
        self.stalled || self.streams.iter().any(|stream| stream.stalled)
    }

    /// Refills the budgets for time that has passed. Without it, only useful work does.
    pub fn elapse(&mut self, seconds: u32) {
        self.budgets.elapse(&self.limits, seconds);
    }

    /// Gives back memory that an idle connection doesn't need, the encoder's table included.
    pub fn shrink(&mut self) {
        self.partial.shrink_to_fit();
        self.fragments.shrink_to_fit();
        self.output.shrink_to_fit();
        self.announced = Vec::new();
        self.streams.shrink();
        if self.streams.is_empty() {
            self.resets.clear();
        }
        self.decoder.shrink();
        self.encoder.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap(&self) -> usize {
        let buffers = self.partial.capacity() + self.fragments.capacity() + self.output.capacity();
        let buffers = buffers + self.announced.capacity() * size_of::<(StreamId, Priority)>();
        let streams = self.streams.heap() + self.resets.heap();
        buffers + streams + self.decoder.heap() + self.encoder.heap()
    }

    /// Writes a window update.
    fn announce(&mut self, stream: StreamId, increment: Option<u32>) {
        if let Some(increment) = increment {
            frames::window_update(&mut self.output, stream, increment);
        }
    }

    /// Gives bytes of the connection's window back.
    fn give_back(&mut self, bytes: u32) {
        let increment = self.receive.give_back(bytes);
        self.announce(StreamId::CONNECTION, increment);
    }

    /// Removes a stream. Data still held by a caller no longer counts.
    fn forget(&mut self, stream: StreamId) {
        if let Some(gone) = self.streams.remove(stream) {
            self.give_back(gone.held);
        }
    }

    /// Resets a stream and removes it.
    fn end_stream(&mut self, stream: StreamId, code: ErrorCode) {
        frames::rst_stream(&mut self.output, stream, code);
        self.resets.note(stream);
        self.forget(stream);
    }

    /// The peer has broken the rules of a stream. A server may still respond to a malformed request.
    fn stream_error(
        &mut self,
        stream: StreamId,
        error: StreamError,
    ) -> Result<Event, ConnectionError> {
        // Provoking resets costs us as much as sending them (CVE-2025-8671).
        self.budgets.spend(Flood::Resets)?;
        let malformed = matches!(error, StreamError::Malformed(_) | StreamError::ListTooLarge);
        let answerable = match self.streams.get_mut(stream) {
            Some(open) if !R::CLIENT && malformed && open.local != Local::Ended => {
                open.remote = Remote::Faulty(error.code());
                true
            }
            _ => false,
        };
        if !answerable {
            self.end_stream(stream, error.code());
        }
        Ok(Event::StreamError { stream, error, answerable })
    }

    /// The number of the next stream that we may open.
    pub(crate) fn next_stream(&self) -> Option<StreamId> {
        match self.last_local.get() {
            _ if self.failed.is_some() => None,
            0 => Some(StreamId::new(1)),
            last => {
                last.checked_add(2).filter(|&next| next <= StreamId::MAX.get()).map(StreamId::new)
            }
        }
    }

    /// Adds a stream that we open.
    pub(crate) fn add_stream(&mut self, stream: StreamState) {
        self.last_local = stream.id;
        self.streams.insert(stream);
    }

    /// Whether nothing has opened the stream yet.
    fn is_idle(&self, stream: StreamId) -> bool {
        let by_peer = stream.is_client() != R::CLIENT;
        stream > if by_peer { self.last_remote } else { self.last_local }
    }
}
