//! The part of a request that is sent while its response may be coming already.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::buf::{Chain, FileRange};
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::time::timeout;

use super::Codec;
use super::exchange::ReceiveFault;
use crate::request::{BodyReader, ReadError};
use crate::response::{FileBody, LocalFuture};

/// So many bytes are collected from a client that sends without pause.
const COLLECT_BYTES_MAX: u64 = 64 * 1024;

/// Bounds of what is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Longest pause between two writes to the upstream.
    pub(super) send_timeout: Duration,
    /// Longest pause between two reads from the client.
    pub(super) client_timeout: Duration,
    /// Bytes of content; zero: no limit.
    pub(super) content_max: u64,
}

/// What came from the client, and the reader.
type Read = (Box<dyn BodyReader>, Result<Option<Bytes>, ReadError>);

/// What is still to be sent of a request.
pub(super) struct Upload {
    /// Goes to the upstream now.
    sending: Option<LocalFuture<'static, io::Result<()>>>,
    /// The client is read; `None` when all of its content has come.
    reading: Option<LocalFuture<'static, Read>>,
    /// Framed, and not yet on its way.
    chain: Chain,
    limits: Limits,
    /// Bytes of content so far.
    content: u64,
    /// The upstream takes no more.
    failed: bool,
}

impl Upload {
    /// Sends a request that is all there.
    pub(super) fn whole(stream: &Rc<Stream>, chain: Chain, limits: Limits) -> Self {
        let sending = Some(send(stream, chain, limits.send_timeout));
        let (reading, chain) = (None, Chain::new());
        Self { sending, reading, chain, limits, content: 0, failed: false }
    }

    /// Sends what is in the chain, and then what comes from the client.
    pub(super) fn streamed(chain: Chain, reader: Box<dyn BodyReader>, limits: Limits) -> Self {
        let reading = Some(invite(reader, limits.client_timeout));
        Self { sending: None, reading, chain, limits, content: 0, failed: false }
    }

    /// The upstream takes no more: nothing else is sent, and the request is never complete.
    pub(super) fn fail(&mut self) {
        (self.sending, self.reading, self.failed) = (None, None, true);
    }

    /// Goes on; ready when all was sent. Never sends more than it has read: a slow upstream stops
    /// the reading.
    pub(super) fn poll(
        &mut self,
        codec: &mut dyn Codec,
        stream: &Rc<Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ReceiveFault>> {
        if self.failed {
            return Poll::Pending;
        }
        loop {
            if let Some(sending) = &mut self.sending {
                ready!(sending.as_mut().poll(cx)).map_err(ReceiveFault::Network)?;
                self.sending = None;
            }
            let Some(reading) = &mut self.reading else {
                if self.chain.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.flush(stream);
                continue;
            };
            match reading.as_mut().poll(cx) {
                Poll::Ready((reader, piece)) => {
                    self.reading = None;
                    self.take(reader, piece, codec)?;
                    if self.chain.len() >= COLLECT_BYTES_MAX {
                        self.flush(stream);
                    }
                }
                Poll::Pending if self.chain.is_empty() => return Poll::Pending,
                Poll::Pending => self.flush(stream),
            }
        }
    }

    fn flush(&mut self, stream: &Rc<Stream>) {
        let chain = std::mem::take(&mut self.chain);
        self.sending = Some(send(stream, chain, self.limits.send_timeout));
    }

    /// Takes what came from the client.
    fn take(
        &mut self,
        reader: Box<dyn BodyReader>,
        piece: Result<Option<Bytes>, ReadError>,
        codec: &mut dyn Codec,
    ) -> Result<(), ReceiveFault> {
        let Some(piece) = piece.map_err(ReceiveFault::Client)? else {
            codec.encode_end(&mut self.chain);
            return Ok(());
        };
        self.content += piece.len() as u64;
        if self.limits.content_max != 0 && self.content > self.limits.content_max {
            return Err(ReceiveFault::Client(ReadError::TooLarge));
        }
        codec.encode_body(piece, &mut self.chain);
        self.reading = Some(read(reader, self.limits.client_timeout));
        Ok(())
    }
}

fn send(
    stream: &Rc<Stream>,
    chain: Chain,
    timeout: Duration,
) -> LocalFuture<'static, io::Result<()>> {
    let stream = stream.clone();
    Box::pin(async move { stream.send(chain, SendOptions::new(timeout)).await })
}

fn read(mut reader: Box<dyn BodyReader>, limit: Duration) -> LocalFuture<'static, Read> {
    Box::pin(async move {
        let piece = timeout(limit, reader.next()).await;
        (reader, piece.unwrap_or(Err(ReadError::TimedOut)))
    })
}

/// Tells the client to send, if it waits for that, and reads the first piece.
fn invite(mut reader: Box<dyn BodyReader>, limit: Duration) -> LocalFuture<'static, Read> {
    Box::pin(async move {
        match reader.wanted().await {
            Ok(()) => read(reader, limit).await,
            Err(error) => (reader, Err(error)),
        }
    })
}

/// A part of a file as a chunk.
pub(super) fn file_range(part: FileBody, client: u64) -> FileRange {
    let io = part.io.for_client(client);
    FileRange { file: part.file, io, offset: part.offset, len: part.len }
}
