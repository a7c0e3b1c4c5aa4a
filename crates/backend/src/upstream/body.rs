//! The body of an upstream response, on its way to the client.
//!
//! A short body that arrived with its head is bytes in memory, and its connection is released. Any
//! other body is a source: one that reads as the client accepts data, or one that reads ahead
//! (`pump.rs`).

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use nowait_front::limit::connections::CountGuard;
use nowait_http::exchange::Watch;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, PATIENCE, Part};
use nowait_runtime::buf::{LARGE_BUF_BYTES, ReceivedBuf};
use nowait_runtime::fs::Io;
use nowait_runtime::net::Piped;
use nowait_runtime::task::{JoinError, JoinHandle};
use nowait_runtime::{now, spawn, yield_now};
use nowait_upstream::SessionLearner;

use super::exchange::{ExchangeSlot, More, ReceiveFault, UpstreamExchange};
use super::pump;
use super::tunnel::Tunnel;
use super::{Fault, Tee};

/// A body up to about this size is read at once if it has arrived already.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// The size of the first receives of a body that is not read ahead, and again after its client was slow:
/// that much is all that a client holds that reads little and stops.
const FIRST_BYTES: usize = 8 * 1024;

/// The rest of a response. Dropped, it closes the connection unless the response is complete.
pub struct UpstreamBody {
    /// Content that has arrived already.
    first: Pieces,
    /// `None`: the response is complete, and its connection was released. Boxed, since short responses,
    /// which are handed from one to the next, rarely have it.
    rest: Option<Box<Rest>>,
}

/// The rest of an incomplete body.
struct Rest {
    exchange: Box<UpstreamExchange>,
    /// Not [`More::Complete`].
    more: More,
    limit_rate: u64,
    io: Rc<Io>,
    watch: Option<Watch>,
}

/// Pieces of content. Usually there is one, which needs no list.
#[derive(Default)]
struct Pieces {
    first: Option<Bytes>,
    others: VecDeque<Part>,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.others.push_back(Part::Bytes(piece)),
        }
    }

    fn bytes(&self) -> usize {
        let others: usize = self.others.iter().map(|part| part.len() as usize).sum();
        self.first.as_ref().map_or(0, Bytes::len) + others
    }

    fn into_parts(self) -> VecDeque<Part> {
        let Self { first, mut others } = self;
        if let Some(first) = first {
            others.push_front(Part::Bytes(first));
        }
        others
    }
}

/// Delivery of a response's content to the client.
#[derive(Default)]
pub struct BodyOptions {
    /// Whether it is read ahead of the client; `None`: as configured.
    pub buffering: Option<bool>,
    /// A second destination.
    pub tee: Option<Box<dyn Tee>>,
}

impl UpstreamBody {
    /// The body after the head that the exchange has received.
    pub(super) fn new(mut exchange: ExchangeSlot, request: &Request) -> Self {
        let mut first = Pieces::default();
        // Also detects that there is no body.
        let more = match exchange.is_tunnel() {
            true => More::Yes,
            false => decode(&mut exchange, &mut first),
        };
        let rest = match more {
            More::Complete => {
                exchange.retire();
                None
            }
            more => Some(Box::new(Rest {
                // Boxed, since it is moved from one future to the next.
                exchange: Box::new(exchange.into_inner()),
                more,
                limit_rate: 0,
                io: request.temp_io(),
                watch: None,
            })),
        };
        Self { first, rest }
    }

    /// Keeps the meaning of a client's hang-up while the body is received.
    pub(super) fn keep(&mut self, watch: Watch) {
        // A client need not stay for a part that it does not wait for.
        if let Some(rest) = &mut self.rest {
            rest.watch = Some(watch);
        }
    }

    /// Records the session of the response if it ends successfully.
    pub(super) fn at_end(&mut self, learning: SessionLearner) {
        match &mut self.rest {
            None => learning.note(nowait_runtime::now()),
            Some(rest) => rest.exchange.learning = Some(Box::new(learning)),
        }
    }

    /// Keeps the request counted at limits until the response was received.
    pub fn hold(&mut self, held: Vec<CountGuard>) {
        if let Some(rest) = &mut self.rest {
            rest.exchange.held = held;
        }
    }

    /// Whether the connection has become a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.exchange.is_tunnel())
    }

    /// Whether the whole body has arrived, and the connection was released.
    pub fn is_complete(&self) -> bool {
        self.rest.is_none()
    }

    /// Limits the rate of reading from the upstream, if the response is read ahead, in bytes per
    /// second; zero: no limit.
    pub fn set_limit_rate(&mut self, bytes_per_second: u64) {
        if let Some(rest) = &mut self.rest {
            rest.limit_rate = bytes_per_second;
        }
    }

    /// Reads the content that has arrived already.
    fn take_ready(&mut self) {
        let mut bytes = self.first.bytes();
        while let Some(Rest { exchange, more: more @ More::Yes, .. }) = self.rest.as_deref_mut()
            && exchange.upload.is_none()
            && bytes < AT_ONCE_BYTES_MAX
        {
            let room = AT_ONCE_BYTES_MAX - bytes;
            let max = match exchange.codec().body_left() {
                // One byte more than the rest: a receive that fills its buffer suggests that there is more.
                Some(left) if left <= room as u64 => left as usize + 1,
                // The body does not fit as a whole, and is received at its client's pace.
                Some(_) => return,
                None => room,
            };
            *more = match exchange.pipe().try_recv(max) {
                Ok(Some(received)) if received.is_empty() => exchange.eof(),
                Ok(Some(received)) => {
                    bytes += received.len();
                    exchange.input = received;
                    decode(exchange, &mut self.first)
                }
                // An error will occur again.
                Ok(None) | Err(_) => return,
            };
            if matches!(more, More::Complete) {
                self.rest = None;
            }
        }
    }

    /// The body for the client's response.
    pub fn into_body(mut self, options: BodyOptions) -> Body {
        if self.is_tunnel()
            && let Some(rest) = self.rest
        {
            let Rest { exchange, watch, .. } = *rest;
            return Body::Tunnel(Box::new(Tunnel::new(exchange, watch)));
        }
        // With a limit, time has to pass between two receives.
        if self.rest.as_ref().is_some_and(|rest| rest.limit_rate == 0) {
            self.take_ready();
        }
        let waits = options.tee.as_ref().is_some_and(|tee| tee.comes_first());
        let Some(rest) = self.rest else {
            return match options.tee {
                Some(tee) => {
                    let parts = self.first.into_parts();
                    let task = copy(&parts, tee);
                    match waits {
                        true => Body::Stream(Box::new(Copied { parts, task: Some(task) })),
                        false => whole(parts),
                    }
                }
                None if self.first.others.is_empty() => {
                    self.first.first.map_or(Body::Empty, Body::Bytes)
                }
                None => whole(self.first.into_parts()),
            };
        };
        let Rest { exchange, more, limit_rate, io, watch } = *rest;
        let buffering = options.buffering.unwrap_or(exchange.settings.buffering);
        let first = self.first.into_parts();
        // A hang-up of the client must not end a response that has another user.
        let watch = watch.filter(|_| options.tee.is_none());
        exchange.state.set_action(Some("reading upstream"));
        if buffering || options.tee.is_some() {
            return Body::Stream(pump::start(pump::Plan {
                exchange,
                more,
                first,
                tee: options.tee,
                limit_rate,
                io,
                watch,
            }));
        }
        Body::Stream(Box::new(Unbuffered::new(exchange, more, first, watch)))
    }

    /// Reads the whole content into memory.
    ///
    /// # Errors
    /// [`BodyError`]; also when it has more than `max` bytes.
    pub async fn read(self, max: usize) -> Result<Bytes, BodyError> {
        let mut all = Vec::new();
        let mut take = |part: Part| {
            let Part::Bytes(piece) = part else { return Ok(()) };
            if all.len() + piece.len() > max {
                return Err(BodyError::Upstream("too big subrequest response".into()));
            }
            all.extend_from_slice(&piece);
            Ok(())
        };
        let first = self.first.into_parts();
        match self.rest {
            None => first.into_iter().try_for_each(&mut take)?,
            Some(rest) => {
                let Rest { exchange, more, watch, .. } = *rest;
                let mut source = Unbuffered::new(exchange, more, first, watch);
                while let Some(part) = source.receive().await? {
                    take(part)?;
                }
            }
        }
        Ok(all.into())
    }
}

/// Decodes the received bytes.
fn decode(exchange: &mut UpstreamExchange, first: &mut Pieces) -> More {
    let more = exchange.decode();
    let received = std::mem::replace(&mut exchange.input, ReceivedBuf::empty());
    if !received.is_empty() {
        first.push(received.into_brief_bytes());
    }
    more
}

/// A body that is complete.
fn whole(mut parts: VecDeque<Part>) -> Body {
    match parts.len() {
        0 => Body::Empty,
        1 => parts.pop_front().map_or(Body::Empty, Body::from),
        _ => Body::Parts(parts),
    }
}

/// Passes a complete body to its second destination.
fn copy(parts: &VecDeque<Part>, mut tee: Box<dyn Tee>) -> JoinHandle<()> {
    let pieces: Vec<Bytes> = parts.iter().filter_map(pump::bytes_of).collect();
    spawn(async move {
        for piece in pieces {
            tee.write(piece).await;
        }
        tee.end(true).await;
    })
}

/// A complete body that ends when its second destination has received it.
struct Copied {
    parts: VecDeque<Part>,
    /// `None` after the end.
    task: Option<JoinHandle<()>>,
}

impl BodySource for Copied {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async {
            if let Some(part) = self.parts.pop_front() {
                return Ok(Some(part));
            }
            let Some(task) = &mut self.task else { return Ok(None) };
            let ended = task.await;
            self.task = None;
            match ended {
                Ok(()) => Ok(None),
                Err(JoinError) => {
                    Err(BodyError::Upstream("storing the response was aborted".into()))
                }
            }
        })
    }

    fn is_urgent(&self) -> bool {
        false
    }
}

/// A body that is read at the pace of its client.
struct Unbuffered {
    exchange: Box<UpstreamExchange>,
    more: More,
    first: VecDeque<Part>,
    /// Bytes of content that had arrived when the client was last slow.
    slow_at: u64,
    /// The time at which the last part was returned.
    handed: Option<Instant>,
    /// Whether content passes through pipes while the client keeps up.
    piped: bool,
    _watch: Option<Watch>,
}

impl Unbuffered {
    fn new(
        exchange: Box<UpstreamExchange>,
        more: More,
        first: VecDeque<Part>,
        watch: Option<Watch>,
    ) -> Self {
        let piped = exchange.passes_unseen();
        Self { exchange, more, first, slow_at: 0, handed: None, piped, _watch: watch }
    }

    /// The next part; the size of the receive depends on how fast the last one was taken.
    async fn take(&mut self) -> Result<Option<Part>, BodyError> {
        self.look_at_client();
        let part = self.receive().await;
        self.handed = Some(now());
        part
    }

    /// Notes whether the last part was taken slowly.
    fn look_at_client(&mut self) {
        let handed = self.handed.take();
        if handed.is_some_and(|at| now().saturating_duration_since(at) >= PATIENCE) {
            self.slow_at = self.exchange.content;
        }
    }

    /// The size of the next receive.
    fn portion(&self) -> usize {
        portion(self.exchange.content - self.slow_at)
    }

    async fn receive_piped(&mut self) -> Result<Option<Piped>, BodyError> {
        let max = self.portion();
        let received = self.exchange.receive_piped(max).await.map_err(unreceived)?;
        self.handed = Some(now());
        let Some((piped, more)) = received else { return Ok(None) };
        self.more = more;
        Ok((!piped.is_empty()).then_some(piped))
    }

    async fn receive(&mut self) -> Result<Option<Part>, BodyError> {
        loop {
            if let Some(part) = self.first.pop_front() {
                return Ok(Some(part));
            }
            match std::mem::replace(&mut self.more, More::Yes) {
                More::Yes => {}
                More::Complete => {
                    self.more = More::Complete;
                    return Ok(None);
                }
                More::Broken(fault) => return Err(broken(&fault)),
            }
            let received = self.exchange.receive(self.portion()).await.map_err(unreceived)?;
            if received.is_empty() {
                self.more = self.exchange.eof();
                continue;
            }
            self.exchange.input = received;
            self.more = self.exchange.decode();
            let received = std::mem::replace(&mut self.exchange.input, ReceivedBuf::empty());
            match received.is_empty() {
                // In memory of its own size: a receive lends more.
                false if received.len() <= FIRST_BYTES => {
                    self.first.push_back(Part::Bytes(Bytes::copy_from_slice(&received)));
                }
                false => self.first.push_back(Part::Bytes(received.into_bytes())),
                // A server may send framing without content as fast as it is received.
                true => yield_now().await,
            }
        }
    }
}

/// The size of a receive for a client that has received this many bytes since it was last slow, up to
/// that of a [pump](pump::portion) in the same way.
fn portion(taken: u64) -> usize {
    match taken / FIRST_BYTES as u64 {
        0..3 => FIRST_BYTES,
        3..5 => 2 * FIRST_BYTES,
        5.. => pump::portion(taken),
    }
}

impl BodySource for Unbuffered {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(self.take())
    }

    fn next_piped(&mut self) -> Option<LocalFuture<'_, Result<Option<Piped>, BodyError>>> {
        self.look_at_client();
        // For a client that was slow, what is in a pipe would soon have to be copied after all.
        let keeps_up = self.slow_at == 0 || self.portion() == LARGE_BUF_BYTES;
        let is_next = self.first.is_empty() && matches!(self.more, More::Yes);
        (self.piped && keeps_up && is_next)
            .then(|| Box::pin(self.receive_piped()) as LocalFuture<'_, _>)
    }

    fn put_back(&mut self, rest: Piped) -> Result<(), BodyError> {
        self.slow_at = self.exchange.content;
        self.first.extend(from_pipe(rest)?.into_iter().map(Part::Bytes));
        Ok(())
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

/// What the client has not taken of the content of a pipe: in pieces that each free their memory.
pub(super) fn from_pipe(rest: Piped) -> Result<Vec<Bytes>, BodyError> {
    let fault = |error| unreceived(ReceiveFault::Network(error));
    rest.into_memory(pump::PIECE_BYTES_MIN).map_err(fault)
}

/// The error for the client's side when a response breaks off.
pub(super) fn broken(fault: &Fault) -> BodyError {
    BodyError::Upstream(fault.to_string())
}

/// The same if the response can't be received.
pub(super) fn unreceived(fault: ReceiveFault) -> BodyError {
    BodyError::Upstream(match fault {
        ReceiveFault::Network(error)
            if error.kind() == std::io::ErrorKind::TimedOut && error.raw_os_error().is_none() =>
        {
            "upstream timed out (110: Connection timed out)".into()
        }
        ReceiveFault::Network(error) => {
            format!("recv() failed{}", nowait_http::log::OsError(&error))
        }
        ReceiveFault::Client(_) => "client prematurely closed connection".into(),
        ReceiveFault::Ours(error) => return error,
    })
}
