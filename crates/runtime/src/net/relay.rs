//! Relays bytes between two connections, or parts of them, in both directions.
//!
//! The single data path for all traffic passed on without inspection: sessions of `stream`, and
//! HTTP connections that have switched protocols. Each direction has one piece in flight, so that a
//! side that accepts nothing stops reads from the other, and memory is bounded by two pieces. A
//! direction that carries much data uses a pipe in the kernel instead ([`super::splice`]). An idle
//! relay holds neither buffers nor pipes. Independent of logs and protocols: events are reported to
//! an [`Observer`].

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::splice::{PIPE_BYTES, PipeSink, PipeSource};
use super::{NO_TIMEOUT, SendOptions, Stream};
use crate::buf::{Chain, LARGE_BUF_BYTES, RECV_BUF_BYTES, ReceivedBuf};
use crate::{now, sleep, yield_now};

/// After this many bytes in one direction without a pause, the relay yields to other tasks.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Smaller receives count as this many bytes, because their system calls cost as much.
const PIECE_BYTES_MIN: usize = 8 * 1024;

/// Number of bytes without a pause after which a pipe pays off.
const SPLICE_AFTER_BYTES: usize = 256 * 1024;

/// One of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The accepted connection.
    Client,
    /// The connection established on its behalf.
    Upstream,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Upstream,
            Side::Upstream => Side::Client,
        }
    }
}

/// A value for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    /// Of the client.
    pub client: T,
    /// Of the upstream.
    pub upstream: T,
}

impl<T> Sides<T> {
    fn of(&self, side: Side) -> &T {
        match side {
            Side::Client => &self.client,
            Side::Upstream => &self.upstream,
        }
    }
}

/// A pinned future of a [`Channel`].
pub type ChannelFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + 'a>>;

/// A side that is a part of a connection, such as a stream of HTTP/2.
pub trait Channel {
    /// Receives available data, as soon as there is any; empty: the side has finished sending.
    ///
    /// # Errors
    /// The channel or its connection has ended without that.
    fn recv(&self) -> ChannelFuture<'_, ReceivedBuf>;

    /// Sends bytes that are in memory; done when the connection has accepted them.
    ///
    /// # Errors
    /// `TimedOut` if it has taken nothing for as long as `options` say; others as [`Channel::recv`].
    fn send(&self, chain: Chain, options: SendOptions) -> ChannelFuture<'_, ()>;

    /// Tells the side that no more data will follow.
    ///
    /// # Errors
    /// Like [`Channel::recv`].
    fn shutdown_write(&self) -> io::Result<()>;

    /// Bytes received and sent so far, parts of what is being sent included.
    fn bytes_moved(&self) -> u64;
}

/// The kind of a side.
#[derive(Clone, Copy)]
pub enum Endpoint<'a> {
    /// A connection of its own.
    Stream(&'a Stream),
    /// A part of a connection.
    Channel(&'a dyn Channel),
}

impl<'a> From<&'a Stream> for Endpoint<'a> {
    fn from(stream: &'a Stream) -> Self {
        Endpoint::Stream(stream)
    }
}

impl<'a> Endpoint<'a> {
    /// The connection, if its bytes may pass through a pipe.
    fn plain(self) -> Option<&'a Stream> {
        match self {
            Endpoint::Stream(stream) => (!stream.has_layer()).then_some(stream),
            Endpoint::Channel(_) => None,
        }
    }

    fn shutdown_write(self) -> io::Result<()> {
        match self {
            Endpoint::Stream(stream) => stream.shutdown_write(),
            Endpoint::Channel(channel) => channel.shutdown_write(),
        }
    }

    fn bytes_moved(self) -> u64 {
        match self {
            Endpoint::Stream(stream) => stream.bytes_sent().wrapping_add(stream.bytes_received()),
            Endpoint::Channel(channel) => channel.bytes_moved(),
        }
    }
}

/// The reaction when one side has finished sending, and the other has received all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEnd {
    /// The relay ends, even if the other side still has data to send.
    Close,
    /// The end is passed on, and the other direction continues until its own end.
    HalfClose,
    /// Like `HalfClose`, but after the end of the upstream only while the client keeps sending with
    /// pauses shorter than this.
    Linger(Duration),
}

/// Options of a relay.
#[derive(Clone, Copy, Debug)]
pub struct RelayOptions {
    /// The relay ends when nothing was received or sent on either side for this long. Time during
    /// which a rate limit delays a direction does not count.
    pub idle: Duration,
    /// The relay ends when a side has accepted no data for this long.
    pub stuck: Sides<Duration>,
    /// Behavior when one side has ended.
    pub after_end: AfterEnd,
    /// Maximum number of bytes received at once; values below a regular receive buffer count as one
    /// buffer.
    pub buffer_bytes: usize,
    /// Maximum bytes per second received from each side; zero: unlimited.
    pub rate: Sides<u64>,
}

impl RelayOptions {
    /// Without rate limits, and with pieces as large as is useful.
    pub fn new(idle: Duration, after_end: AfterEnd) -> RelayOptions {
        RelayOptions {
            idle,
            stuck: Sides { client: NO_TIMEOUT, upstream: NO_TIMEOUT },
            after_end,
            buffer_bytes: LARGE_BUF_BYTES,
            rate: Sides::default(),
        }
    }
}

/// Receives the events of a relay. All methods default to doing nothing.
pub trait Observer {
    /// Bytes arrived from a side.
    fn received(&self, _from: Side, _bytes: usize) {}
    /// Bytes were handed to the kernel for a side.
    fn sent(&self, _to: Side, _bytes: usize) {}
    /// A call on a side's connection has failed: `recv()`, `send()`, `shutdown()`. For the relay, a
    /// connection that can no longer be read has ended.
    fn failed(&self, _side: Side, _call: &'static str, _error: &io::Error) {}
}

/// The result of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// A side has ended (the last one, if the first did not end the relay), and the other has received all
    /// data.
    Closed(Side),
    /// Data for this side can no longer be delivered.
    Broken(Side),
    /// This side accepted no data for too long.
    Stuck(Side),
    /// No data moved for too long.
    Idle,
}

/// Joins two sides until one of them ends, or both do. `first` holds the bytes to send to
/// each side before all others, such as bytes received earlier.
pub async fn relay(
    ends: Sides<Endpoint<'_>>,
    first: Sides<Chain>,
    options: &RelayOptions,
    observer: &dyn Observer,
) -> RelayEnd {
    let shared = RelayState {
        ends,
        options,
        observer,
        moved: Cell::new(now()),
        counted: Cell::new(0),
        held_up: Cell::new(0),
        lingering: Cell::new(None),
        started: now(),
    };
    shared.note_move();
    let Sides { client: to_client, upstream: to_upstream } = first;
    let mut down = pin!(shared.pump(Side::Upstream, to_client));
    let mut up = pin!(shared.pump(Side::Client, to_upstream));
    let mut silence = pin!(shared.silence());
    let mut open = Sides { client: true, upstream: true };
    poll_fn(|cx| {
        if open.upstream
            && let Poll::Ready(ended) = down.as_mut().poll(cx)
        {
            open.upstream = false;
            if let Some(end) = shared.ended(Side::Upstream, ended, open.client) {
                return Poll::Ready(end);
            }
        }
        if open.client
            && let Poll::Ready(ended) = up.as_mut().poll(cx)
        {
            open.client = false;
            if let Some(end) = shared.ended(Side::Client, ended, open.upstream) {
                return Poll::Ready(end);
            }
        }
        silence.as_mut().poll(cx)
    })
    .await
}

/// The reason why a direction ended early.
enum RelayFault {
    Broken,
    Stuck,
}

/// Result of passing bytes through a pipe.
#[derive(PartialEq, Eq)]
enum SpliceResult {
    /// All data was passed, and the source has ended.
    All,
    /// More may come.
    SomeOfIt,
}

/// State shared by both directions and the idle watch.
struct RelayState<'a> {
    ends: Sides<Endpoint<'a>>,
    options: &'a RelayOptions,
    observer: &'a dyn Observer,
    /// The time of the last receive or send.
    moved: Cell<Instant>,
    /// The value of [`bytes_moved`](Self::bytes_moved) at that time.
    counted: Cell<u64>,
    /// Number of directions delayed by their rate limit.
    held_up: Cell<u8>,
    /// The upstream has ended, and the client may pause for at most this long.
    lingering: Cell<Option<Duration>>,
    started: Instant,
}

impl RelayState<'_> {
    /// The effect of the end of one direction on the relay; `None`: the other direction continues.
    fn ended(
        &self,
        from: Side,
        ended: Result<(), RelayFault>,
        other_is_open: bool,
    ) -> Option<RelayEnd> {
        match ended {
            Err(RelayFault::Broken) => return Some(RelayEnd::Broken(from.other())),
            Err(RelayFault::Stuck) => return Some(RelayEnd::Stuck(from.other())),
            Ok(()) => {}
        }
        if let (AfterEnd::Linger(pause), Side::Upstream) = (self.options.after_end, from) {
            self.lingering.set(Some(pause));
        }
        let over = self.options.after_end == AfterEnd::Close || !other_is_open;
        over.then_some(RelayEnd::Closed(from))
    }

    /// Passes bytes from one side to the other, until the first has ended and the other has received all
    /// data.
    async fn pump(&self, from: Side, first: Chain) -> Result<(), RelayFault> {
        let rate = *self.options.rate.of(from);
        self.forward(from, first).await?;
        let mut taken = 0;
        let mut turn = 0;
        // Bytes without a pause.
        let mut run = 0;
        let may_splice = rate == 0 && self.options.buffer_bytes >= LARGE_BUF_BYTES;
        // The last piece filled a regular buffer: there is more than fits into one.
        let mut bulk = false;
        loop {
            // Inlined, because the future of a separate function would enlarge every relay.
            let received =
                match (*self.ends.of(from), bulk && self.options.buffer_bytes > RECV_BUF_BYTES) {
                    (Endpoint::Stream(stream), true) => {
                        stream.recv_large(NO_TIMEOUT, self.options.buffer_bytes).await
                    }
                    (Endpoint::Stream(stream), false) => {
                        stream.recv(NO_TIMEOUT).await.map(ReceivedBuf::Lent)
                    }
                    (Endpoint::Channel(channel), _) => channel.recv().await,
                };
            let piece = received.unwrap_or_else(|error| {
                self.observer.failed(from, "recv()", &error);
                ReceivedBuf::empty()
            });
            if piece.is_empty() {
                self.pass_end_on(from);
                return Ok(());
            }
            let bytes = piece.len();
            bulk = bytes >= RECV_BUF_BYTES;
            run = if bulk { run + bytes } else { 0 };
            self.note_move();
            self.observer.received(from, bytes);
            // Rarely used futures are boxed, so that they do not enlarge every relay.
            match rate {
                0 => self.forward(from, Chain::from(piece)).await?,
                rate => {
                    let chain = Chain::from(piece);
                    Box::pin(self.forward_slowly(from, chain, rate, &mut taken)).await?;
                }
            }
            if may_splice
                && run >= SPLICE_AFTER_BYTES
                && let Some(source) = self.ends.of(from).plain()
                && let Some(sink) = self.ends.of(from.other()).plain()
                && Box::pin(self.splice(from, source, sink)).await? == SpliceResult::All
            {
                self.pass_end_on(from);
                return Ok(());
            }
            turn += bytes.max(PIECE_BYTES_MIN);
            if turn >= TURN_BYTES_MAX {
                turn = 0;
                yield_now().await;
            }
        }
    }

    /// Sends to the other side.
    async fn forward(&self, from: Side, chain: Chain) -> Result<(), RelayFault> {
        if chain.is_empty() {
            return Ok(());
        }
        let to = from.other();
        let bytes = chain.len() as usize;
        let options = SendOptions::new(*self.options.stuck.of(to));
        let sent = match self.ends.of(to) {
            Endpoint::Stream(stream) => stream.send(chain, options).await,
            Endpoint::Channel(channel) => channel.send(chain, options).await,
        };
        match sent {
            Ok(()) => {
                self.note_move();
                self.observer.sent(to, bytes);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(RelayFault::Stuck),
            Err(error) => {
                self.observer.failed(to, "send()", &error);
                Err(RelayFault::Broken)
            }
        }
    }

    /// Passes bytes through a pipe for as long as much data arrives.
    async fn splice(
        &self,
        from: Side,
        source: &Stream,
        sink: &Stream,
    ) -> Result<SpliceResult, RelayFault> {
        let broken = |error: io::Error| {
            self.observer.failed(from.other(), "send()", &error);
            RelayFault::Broken
        };
        let Some(source) = PipeSource::of(source) else { return Ok(SpliceResult::SomeOfIt) };
        let sink = PipeSink::of(sink).await.map_err(broken)?;
        let mut turn = 0;
        loop {
            let mut piped = match source.recv(NO_TIMEOUT, PIPE_BYTES).await {
                Ok(Some(piped)) => piped,
                Ok(None) => return Ok(SpliceResult::SomeOfIt),
                Err(error) => {
                    self.observer.failed(from, "recv()", &error);
                    return Ok(SpliceResult::All);
                }
            };
            if piped.is_empty() {
                return Ok(SpliceResult::All);
            }
            let taken = piped.len();
            self.note_move();
            self.observer.received(from, taken);
            let sent = sink.send(&mut piped, *self.options.stuck.of(from.other())).await;
            self.note_move();
            self.observer.sent(from.other(), taken - piped.len());
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(RelayFault::Stuck);
                }
                Err(error) => return Err(broken(error)),
            }
            // Data arrives in small pieces again.
            if taken < RECV_BUF_BYTES {
                return Ok(SpliceResult::SomeOfIt);
            }
            turn += taken;
            if turn >= TURN_BYTES_MAX {
                turn = 0;
                yield_now().await;
            }
        }
    }

    /// Sends to the other side no faster than the rate limit: in each second since the start at
    /// most that many bytes, followed by a pause. nginx: `ngx_stream_proxy_process`.
    async fn forward_slowly(
        &self,
        from: Side,
        mut chain: Chain,
        rate: u64,
        taken: &mut u64,
    ) -> Result<(), RelayFault> {
        let pause = |bytes: u64| {
            let ms = u128::from(bytes) * 1000 / u128::from(rate);
            Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        while !chain.is_empty() {
            let seconds = now().saturating_duration_since(self.started).as_secs() + 1;
            let allowed = rate.saturating_mul(seconds);
            if allowed <= *taken {
                self.hold_up(pause(*taken - allowed) + Duration::from_millis(1)).await;
                continue;
            }
            let part = chain.split_to(allowed - *taken);
            let bytes = part.len();
            self.forward(from, part).await?;
            *taken += bytes;
            let pause = pause(bytes);
            if !pause.is_zero() {
                self.hold_up(pause).await;
            }
        }
        Ok(())
    }

    /// Waits because of a rate limit: this time does not count as idle.
    async fn hold_up(&self, pause: Duration) {
        self.held_up.set(self.held_up.get() + 1);
        sleep(pause).await;
        self.held_up.set(self.held_up.get() - 1);
        self.note_move();
    }

    /// Tells the other side that no more data will follow.
    fn pass_end_on(&self, from: Side) {
        if self.options.after_end == AfterEnd::Close {
            return;
        }
        // A closed connection needs no notice.
        if let Err(error) = self.ends.of(from.other()).shutdown_write()
            && error.kind() != io::ErrorKind::NotConnected
        {
            self.observer.failed(from.other(), "shutdown()", &error);
        }
    }

    fn note_move(&self) {
        self.moved.set(now());
        self.counted.set(self.bytes_moved());
    }

    /// Bytes moved on both sides: parts of a large piece count here first.
    fn bytes_moved(&self) -> u64 {
        self.ends.client.bytes_moved().wrapping_add(self.ends.upstream.bytes_moved())
    }

    /// Resolves when no data has moved for too long.
    async fn silence(&self) -> RelayEnd {
        loop {
            let limit = match self.lingering.get() {
                Some(pause) => pause.min(self.options.idle),
                None => self.options.idle,
            };
            let idle = now().saturating_duration_since(self.moved.get());
            let left = limit.saturating_sub(idle);
            if !left.is_zero() {
                self.wait(left).await;
                continue;
            }
            // Part of a large piece may have been sent.
            if self.bytes_moved() == self.counted.get() && self.held_up.get() == 0 {
                return match self.lingering.get() {
                    Some(_) => RelayEnd::Closed(Side::Upstream),
                    None => RelayEnd::Idle,
                };
            }
            self.note_move();
        }
    }

    /// Sleeps for `left`, or until a shorter limit applies.
    async fn wait(&self, left: Duration) {
        let known = self.lingering.get();
        /// Longer times are split: clocks have a maximum.
        const PART: Duration = Duration::from_secs(86_400);
        let mut sleep = pin!(sleep(left.min(PART)));
        poll_fn(|cx| {
            if self.lingering.get() != known {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(cx)
        })
        .await;
    }
}
