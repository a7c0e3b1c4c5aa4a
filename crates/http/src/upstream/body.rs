//! What follows the head of a response, on its way to the client.

use std::rc::Rc;

use bytes::Bytes;
use nowait_runtime::fs::Io;

use super::exchange::Exchange;
use super::{BodyEvent, Fault, Tee};
use crate::connection::Watch;
use crate::response::{Body, BodyError, BodySource, LocalFuture, Part};

/// The rest of a response. Dropped, it closes the connection unless the response is complete.
pub struct UpstreamBody {
    exchange: Exchange,
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
    pub(super) fn new(exchange: Exchange, limit_rate: u64, io: Rc<Io>) -> Self {
        Self { exchange, limit_rate, io, watch: None }
    }

    /// Keeps what a hang-up of the client means for as long as the body exists.
    pub(super) fn keep(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// The connection has become a tunnel.
    pub fn is_tunnel(&mut self) -> bool {
        self.exchange.codec().is_tunnel()
    }

    /// The body for the client's response.
    pub fn into_body(self, options: BodyOptions) -> Body {
        let _ = (options.buffering, self.limit_rate, &self.io);
        let Self { exchange, watch, .. } = self;
        Body::Stream(Box::new(Unbuffered { exchange, tee: options.tee, _watch: watch }))
    }

    /// Reads the whole content into memory.
    ///
    /// # Errors
    /// [`BodyError`]; also when it has more than `max` bytes.
    pub async fn read(self, max: usize) -> Result<Bytes, BodyError> {
        let mut source = Unbuffered { exchange: self.exchange, tee: None, _watch: self.watch };
        let mut all = Vec::new();
        while let Some(piece) = source.receive().await? {
            if all.len() + piece.len() > max {
                return Err(BodyError::Upstream("too big subrequest response".into()));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }
}

/// A body that is read as the client takes it.
struct Unbuffered {
    exchange: Exchange,
    tee: Option<Box<dyn Tee>>,
    _watch: Option<Watch>,
}

impl Unbuffered {
    async fn receive(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let (codec, input) = self.exchange.codec_and_input();
            let step = codec.receive_body(input).map_err(fault)?;
            match step.event {
                BodyEvent::Data(range) => {
                    let piece = Bytes::copy_from_slice(&input[range]);
                    input.advance(step.consumed);
                    self.exchange.count_content(piece.len());
                    return Ok(Some(piece));
                }
                BodyEvent::End => {
                    input.advance(step.consumed);
                    let trailers = codec.trailers();
                    self.exchange.state.set_trailers(trailers);
                    self.exchange.close();
                    return Ok(None);
                }
                BodyEvent::NeedMore => input.advance(step.consumed),
            }
            let timeout = self.exchange.settings.read_timeout;
            let received = self.exchange.stream.recv(timeout).await.map_err(network)?;
            if received.is_empty() {
                self.exchange.codec().receive_eof().map_err(fault)?;
                self.exchange.close();
                return Ok(None);
            }
            self.exchange.input = received;
        }
    }
}

impl BodySource for Unbuffered {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            let piece = self.receive().await?;
            match (&piece, self.tee.take()) {
                (Some(piece), Some(mut tee)) => {
                    tee.write(piece.clone()).await;
                    self.tee = Some(tee);
                }
                (None, Some(tee)) => tee.end(true).await,
                (_, None) => {}
            }
            Ok(piece.map(Part::Bytes))
        })
    }
}

fn fault(fault: Fault) -> BodyError {
    BodyError::Upstream(fault.to_string())
}

fn network(error: std::io::Error) -> BodyError {
    BodyError::Upstream(if error.kind() == std::io::ErrorKind::TimedOut {
        "upstream timed out (110: Connection timed out)".into()
    } else {
        format!("recv() failed{}", crate::log::OsError(&error))
    })
}
