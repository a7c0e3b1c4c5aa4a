//! What follows the head of a response, on its way to the client.
//!
//! A short body that has come with its head is bytes in memory, and its connection free again. Any
//! other is a source: one that reads as the client takes, or one that is read ahead (`pump.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use nowait_runtime::buf::{LARGE_BUF_BYTES, Received};
use nowait_runtime::fs::Io;
use nowait_runtime::spawn;
use nowait_upstream::Learning;

use super::exchange::{Exchange, More, ReceiveFault};
use super::pump;
use super::tunnel::Tunnel;
use super::{Fault, Tee};
use crate::connection::Watch;
use crate::limit::Held;
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part};

/// A body up to about this size is taken at once, if it has come already.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// The rest of a response. Dropped, it closes the connection unless the response is complete.
pub struct UpstreamBody {
    exchange: Box<Exchange>,
    /// The exchange is finished, or broken.
    more: More,
    /// Content that has come already.
    first: VecDeque<Part>,
    limit_rate: u64,
    io: Rc<Io>,
    watch: Option<Watch>,
}

/// How a response's content goes to the client.
#[derive(Default)]
pub struct BodyOptions {
    /// Read ahead of the client; `None`: as configured.
    pub buffering: Option<bool>,
    /// A second destination.
    pub tee: Option<Box<dyn Tee>>,
}

impl UpstreamBody {
    /// What follows the head that the exchange has received.
    pub(super) fn new(exchange: Box<Exchange>, io: Rc<Io>) -> Self {
        let first = VecDeque::new();
        let mut body = Self { exchange, more: More::Yes, first, limit_rate: 0, io, watch: None };
        if !body.is_tunnel() {
            // Also says that there is none.
            body.decode();
        }
        body
    }

    /// Keeps what a hang-up of the client means for as long as the body is received.
    pub(super) fn keep(&mut self, watch: Watch) {
        // The client is not asked to stay for what it does not wait for.
        self.watch = Some(watch).filter(|_| !self.is_complete());
    }

    /// Learns something when the response has ended well.
    pub(super) fn at_end(&mut self, learning: Learning) {
        match self.is_complete() {
            true => learning.note(nowait_runtime::now()),
            false => self.exchange.learning = Some(Box::new(learning)),
        }
    }

    /// Keeps what counts the request at limits, until the response was received.
    pub fn hold(&mut self, held: Vec<Held>) {
        if !self.is_complete() {
            self.exchange.held = held;
        }
    }

    /// The connection has become a tunnel.
    pub fn is_tunnel(&mut self) -> bool {
        !self.is_complete() && self.exchange.codec().is_tunnel()
    }

    /// All of it has come, and the connection serves others.
    pub fn is_complete(&self) -> bool {
        matches!(self.more, More::Complete)
    }

    /// How many bytes per second are read from the upstream, if the response is read ahead; zero: no
    /// limit.
    pub fn set_limit_rate(&mut self, bytes_per_second: u64) {
        self.limit_rate = bytes_per_second;
    }

    /// Takes what the exchange has received.
    fn decode(&mut self) {
        self.more = self.exchange.decode();
        let received = std::mem::replace(&mut self.exchange.input, Received::empty());
        if !received.is_empty() {
            self.first.push_back(Part::Bytes(received.into_bytes()));
        }
    }

    /// Takes more, if it has come already.
    fn take_ready(&mut self) {
        let mut bytes: usize = self.first.iter().map(|part| part.len() as usize).sum();
        while matches!(self.more, More::Yes)
            && self.exchange.upload.is_none()
            && bytes < AT_ONCE_BYTES_MAX
        {
            match self.exchange.stream().try_recv_large(LARGE_BUF_BYTES) {
                Ok(Some(received)) if received.is_empty() => self.more = self.exchange.eof(),
                Ok(Some(received)) => {
                    bytes += received.len();
                    self.exchange.input = received;
                    self.decode();
                }
                // An error comes again.
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The body for the client's response.
    pub fn into_body(mut self, options: BodyOptions) -> Body {
        if self.is_tunnel() {
            let Self { exchange, watch, .. } = self;
            return Body::Tunnel(Box::new(Tunnel::new(exchange, watch)));
        }
        let buffering = options.buffering.unwrap_or(self.exchange.settings.buffering);
        // With a limit time has to pass between two receives.
        if self.limit_rate == 0 {
            self.take_ready();
        }
        let waits = options.tee.as_ref().is_some_and(|tee| tee.comes_first());
        if self.is_complete() && !waits {
            if let Some(tee) = options.tee {
                copy(&self.first, tee);
            }
            return match self.first.len() {
                0 => Body::Empty,
                1 => self.first.pop_front().map_or(Body::Empty, Body::from),
                _ => Body::Parts(self.first),
            };
        }
        let Self { exchange, more, first, limit_rate, io, watch } = self;
        // The client's wish ends nothing that somebody else wants.
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
        let source = Unbuffered { exchange, more, first, _watch: watch };
        Body::Stream(Box::new(source))
    }

    /// Reads the whole content into memory.
    ///
    /// # Errors
    /// [`BodyError`]; also when it has more than `max` bytes.
    pub async fn read(self, max: usize) -> Result<Bytes, BodyError> {
        let Self { exchange, more, first, watch, .. } = self;
        let mut source = Unbuffered { exchange, more, first, _watch: watch };
        let mut all = Vec::new();
        while let Some(part) = source.receive().await? {
            let Part::Bytes(piece) = part else { continue };
            if all.len() + piece.len() > max {
                return Err(BodyError::Upstream("too big subrequest response".into()));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }
}

/// Gives a body that is all there to its second destination, for which nobody waits.
fn copy(parts: &VecDeque<Part>, mut tee: Box<dyn Tee>) {
    let pieces: Vec<Bytes> = parts.iter().filter_map(pump::bytes_of).collect();
    drop(spawn(async move {
        for piece in pieces {
            tee.write(piece).await;
        }
        tee.end(true).await;
    }));
}

impl From<Part> for Body {
    fn from(part: Part) -> Self {
        match part {
            Part::Bytes(bytes) => Self::Bytes(bytes),
            Part::File(file) => Self::File(file),
        }
    }
}

/// A body that is read as the client takes it.
struct Unbuffered {
    exchange: Box<Exchange>,
    more: More,
    first: VecDeque<Part>,
    _watch: Option<Watch>,
}

impl Unbuffered {
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
            let received = self.exchange.receive(LARGE_BUF_BYTES).await.map_err(unreceived)?;
            if received.is_empty() {
                self.more = self.exchange.eof();
                continue;
            }
            self.exchange.input = received;
            self.more = self.exchange.decode();
            let received = std::mem::replace(&mut self.exchange.input, Received::empty());
            if !received.is_empty() {
                self.first.push_back(Part::Bytes(received.into_bytes()));
            }
        }
    }
}

impl BodySource for Unbuffered {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(self.receive())
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

/// What a response that breaks off says to the client's side.
pub(super) fn broken(fault: &Fault) -> BodyError {
    BodyError::Upstream(fault.to_string())
}

/// The same for one that can't be received.
pub(super) fn unreceived(fault: ReceiveFault) -> BodyError {
    BodyError::Upstream(match fault {
        ReceiveFault::Network(error)
            if error.kind() == std::io::ErrorKind::TimedOut && error.raw_os_error().is_none() =>
        {
            "upstream timed out (110: Connection timed out)".into()
        }
        ReceiveFault::Network(error) => format!("recv() failed{}", crate::log::OsError(&error)),
        ReceiveFault::Client(_) => "client prematurely closed connection".into(),
        ReceiveFault::Ours(error) => return error,
    })
}
