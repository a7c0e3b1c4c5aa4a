//! The part of a request that is sent while the response may already be arriving.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use nowait_http::filter::Pull;
use nowait_http::request::{BodyReader, ReadError};
use nowait_http::request_body::PrefixedReader;
use nowait_http::response::{FileBody, LocalFuture};
use nowait_runtime::buf::{Chain, FileRange, RECV_BUF_BYTES};
use nowait_runtime::net::SendOptions;
use nowait_runtime::time::timeout;

use super::Codec;
use super::exchange::ReceiveFault;
use super::http2::QUEUED_BYTES_MAX;
use super::pipe::Pipe;

/// Bytes collected from a client that sends without pause, before they are sent on: less than the size of a
/// receive.
const COLLECT_BYTES_MIN: u64 = 16 * 1024;

/// The same for an upstream that accepts all data at once: one that stops holds them for long.
const COLLECT_BYTES_MAX: u64 = 64 * 1024;

/// A part of what the upstream has taken without a pause may be collected. It takes some hundred KB that only
/// its kernel and ours have.
const COLLECT_PART: u64 = 16;

/// Maximum size of the content of a client that is kept until the upstream responds, in case that it has not acted on
/// the request; one piece more may exceed it. A server that refuses a request usually does so when it has
/// its head; by then, as much as this is in the first window and in the queue behind it.
const KEPT_BYTES_MAX: u64 = 2 * QUEUED_BYTES_MAX as u64;

/// Limits of sending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Longest pause between two writes to the upstream.
    pub(super) send_timeout: Duration,
    /// Longest pause between two reads from the client.
    pub(super) client_timeout: Duration,
    /// Maximum number of bytes of content; zero: no limit.
    pub(super) content_max: u64,
}

/// State of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// All data was sent.
    Done,
    /// The rest has to wait for the upstream, or will never be sent.
    Waits,
}

/// Source of content that is framed piece by piece.
pub(super) enum Feed {
    /// The client, which is still sending it.
    Client(Box<dyn BodyReader>),
    /// Memory or a file.
    Stored(Pull),
}

/// The feed, and the piece read from it.
type Read = (Feed, Result<Option<Bytes>, ReceiveFault>);

/// The part of a request that is still to be sent. Boxed, since most exchanges have none.
pub(super) struct Upload {
    /// A write to the upstream in progress.
    sending: Option<LocalFuture<'static, io::Result<()>>>,
    /// A read of content in progress; `None` when all of it was read.
    reading: Option<LocalFuture<'static, Read>>,
    /// Framed, but not yet handed to the stream.
    chain: Chain,
    /// Bytes that the upstream has taken without a pause.
    flowed: u64,
    limits: Limits,
    /// Bytes of content read until now.
    content: u64,
    /// The content comes from a client, which is still sending it.
    is_live: bool,
    /// The content read from a client until now, if another try may need it.
    kept: Option<Vec<Bytes>>,
    /// The upstream accepts no more data.
    failed: bool,
}

impl Upload {
    /// Sends a request that is already complete.
    pub(super) fn whole(pipe: &Pipe, chain: Chain, limits: Limits) -> Box<Self> {
        let sending = Some(send(pipe, chain, limits.send_timeout));
        let (reading, chain) = (None, Chain::new());
        let (content, is_live, kept, failed) = (0, false, None, false);
        let flowed = 0;
        Box::new(Self { sending, reading, chain, flowed, limits, content, is_live, kept, failed })
    }

    /// Sends the chain, and then content as it is read. `keeps`: the client's content is kept, so that the
    /// request can be sent to another server if this one has not acted on it.
    pub(super) fn streamed(chain: Chain, feed: Feed, limits: Limits, keeps: bool) -> Box<Self> {
        let is_live = matches!(feed, Feed::Client(_));
        let kept = (keeps && is_live).then(Vec::new);
        let reading = Some(match feed {
            Feed::Client(reader) => invite(reader, limits.client_timeout),
            stored => read(stored, None, limits.client_timeout),
        });
        let (sending, content, failed) = (None, 0, false);
        let flowed = 0;
        Box::new(Self { sending, reading, chain, flowed, limits, content, is_live, kept, failed })
    }

    /// The bytes of content read so far if all were passed on and the next ones are awaited.
    pub(super) fn waits_for_client(&self) -> Option<u64> {
        let waits = self.is_live && self.reading.is_some() && self.sending.is_none();
        (waits && self.chain.is_empty()).then_some(self.content)
    }

    /// The upstream accepts no more data: sending ends, and the request is never complete.
    pub(super) fn fail(&mut self) {
        (self.sending, self.reading, self.failed) = (None, None, true);
    }

    /// Whether it may be [resumed](Self::resume).
    pub(super) fn keeps(&self) -> bool {
        self.kept.is_some() && !self.failed
    }

    /// The upstream has responded: there will be no other try.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// The content as it was before reading; `None`: a part of it was not kept.
    pub(super) fn resume(self) -> Option<PrefixedReader> {
        if self.failed {
            return None;
        }
        let rest = Rest { reading: self.reading, timeout: self.limits.client_timeout };
        Some(PrefixedReader::new(self.kept?, Box::new(rest)))
    }

    /// Continues; ready when all data was sent, or when no more can be sent before data is received. Never
    /// reads more than it can send: a slow upstream stops the reading.
    pub(super) fn poll(
        &mut self,
        codec: &mut dyn Codec,
        pipe: &Pipe,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sending, ReceiveFault>> {
        if self.failed {
            return Poll::Ready(Ok(Sending::Waits));
        }
        loop {
            if let Some(sending) = &mut self.sending {
                let Poll::Ready(sent) = sending.as_mut().poll(cx) else {
                    self.flowed = 0;
                    return Poll::Pending;
                };
                sent.map_err(ReceiveFault::Network)?;
                self.sending = None;
            }
            let Some(reading) = &mut self.reading else {
                if self.chain.is_empty() {
                    return Poll::Ready(Ok(Sending::Done));
                }
                self.flush(pipe);
                continue;
            };
            if !codec.takes_content() {
                if let Some(lane) = pipe.lane() {
                    let (lane, timeout) = (lane.clone(), self.limits.send_timeout);
                    self.sending = Some(Box::pin(async move { lane.room(timeout).await }));
                    continue;
                }
                if self.chain.is_empty() {
                    return Poll::Ready(Ok(Sending::Waits));
                }
                self.flush(pipe);
                continue;
            }
            match reading.as_mut().poll(cx) {
                Poll::Ready((feed, piece)) => {
                    self.reading = None;
                    self.take(feed, piece, codec)?;
                    if self.chain.len() >= self.collected() {
                        self.flush(pipe);
                    }
                }
                Poll::Pending if self.chain.is_empty() => return Poll::Pending,
                Poll::Pending => self.flush(pipe),
            }
        }
    }

    /// How many bytes are collected before they are sent on.
    fn collected(&self) -> u64 {
        (self.flowed / COLLECT_PART).clamp(COLLECT_BYTES_MIN, COLLECT_BYTES_MAX)
    }

    fn flush(&mut self, pipe: &Pipe) {
        let chain = std::mem::take(&mut self.chain);
        self.flowed = self.flowed.saturating_add(chain.len());
        self.sending = Some(send(pipe, chain, self.limits.send_timeout));
    }

    /// Takes the piece that was read.
    fn take(
        &mut self,
        feed: Feed,
        piece: Result<Option<Bytes>, ReceiveFault>,
        codec: &mut dyn Codec,
    ) -> Result<(), ReceiveFault> {
        let Some(piece) = piece? else {
            codec.encode_end(&mut self.chain);
            return Ok(());
        };
        match &mut self.kept {
            Some(kept) if self.content < KEPT_BYTES_MAX => kept.push(piece.clone()),
            kept => *kept = None,
        }
        self.content += piece.len() as u64;
        if self.limits.content_max != 0 && self.content > self.limits.content_max {
            return Err(ReceiveFault::Client(ReadError::TooLarge));
        }
        codec.encode_body(piece, &mut self.chain);
        // Received at once, they need not be collected.
        let collected = usize::try_from(self.collected()).unwrap_or(usize::MAX);
        let bytes = (collected > RECV_BUF_BYTES).then_some(collected);
        self.reading = Some(read(feed, bytes, self.limits.client_timeout));
        Ok(())
    }
}

fn send(pipe: &Pipe, chain: Chain, timeout: Duration) -> LocalFuture<'static, io::Result<()>> {
    let pipe = pipe.clone();
    Box::pin(async move { pipe.send(chain, SendOptions::new(timeout)).await })
}

/// Reads a piece; from a client, about so many bytes.
fn read(mut feed: Feed, bytes: Option<usize>, limit: Duration) -> LocalFuture<'static, Read> {
    Box::pin(async move {
        let piece = match &mut feed {
            Feed::Client(reader) => {
                reader.limit(bytes);
                let piece = timeout(limit, reader.next()).await;
                piece.unwrap_or(Err(ReadError::TimedOut)).map_err(ReceiveFault::Client)
            }
            Feed::Stored(pull) => pull.next().await.map_err(ReceiveFault::Ours),
        };
        (feed, piece)
    })
}

/// The rest of a client's content, of which a read may be in progress.
struct Rest {
    /// `None` at the end.
    reading: Option<LocalFuture<'static, Read>>,
    /// Longest pause between two reads.
    timeout: Duration,
}

impl BodyReader for Rest {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async {
            let Some(reading) = &mut self.reading else { return Ok(None) };
            let (feed, piece) = reading.await;
            self.reading = matches!(piece, Ok(Some(_))).then(|| read(feed, None, self.timeout));
            match piece {
                Ok(piece) => Ok(piece),
                Err(ReceiveFault::Client(error)) => Err(error),
                // Of other feeds.
                Err(ReceiveFault::Network(error)) => Err(ReadError::Closed(error)),
                Err(ReceiveFault::Ours(_)) => Err(ReadError::Malformed("unreadable content")),
            }
        })
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        // The client was asked for the content before.
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Invites the client to send, if it waits for `100 Continue`, and reads the first piece.
fn invite(mut reader: Box<dyn BodyReader>, limit: Duration) -> LocalFuture<'static, Read> {
    Box::pin(async move {
        let wanted = reader.wanted().await;
        let feed = Feed::Client(reader);
        match wanted {
            Ok(()) => read(feed, None, limit).await,
            Err(error) => (feed, Err(ReceiveFault::Client(error))),
        }
    })
}

/// A part of a file as a chunk.
pub(super) fn file_range(part: FileBody, client: u64) -> FileRange {
    let io = part.io.for_client(client);
    FileRange { file: part.file, io, offset: part.offset, len: part.len }
}
