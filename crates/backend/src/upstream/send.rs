//! Sends a request to an upstream.

use std::io;

use bytes::Bytes;
use nowait_http::filter::Pull;
use nowait_http::request::{BodyReader, Request, RequestBody};
use nowait_http::response::{Body, FileBody};
use nowait_runtime::buf::{Chain, Chunk, OutBuf};
use nowait_runtime::net::SendOptions;

use super::exchange::UpstreamExchange;
use super::upload::{Feed, Limits, Upload, file_range};
use super::{Content, UpstreamRequest};

/// A request of at most this size fits into any socket buffer: it is sent without checking for a response
/// meanwhile.
const SIMPLE_BYTES_MAX: u64 = 16 * 1024;

/// Source of a request's content.
enum Source {
    None,
    Memory(Bytes),
    File(FileBody),
    /// From the client, which is still sending it.
    Client(Box<dyn BodyReader>),
}

impl Source {
    /// The content that is already here.
    fn into_body(self) -> Body {
        match self {
            Self::Memory(bytes) => Body::Bytes(bytes),
            Self::File(part) => Body::File(part),
            Self::None | Self::Client(_) => Body::Empty,
        }
    }
}

/// The reason why a request could not be sent.
pub(super) enum SendFault {
    /// The connection to the upstream failed.
    Upstream(io::Error),
    /// Our own fault; the status to respond with.
    Ours(u16),
}

/// Sends the request, or starts to: a large request, or one that still arrives from the client, is
/// sent while the response is awaited.
///
/// # Errors
/// [`SendFault`]
pub(super) async fn request(
    request: &mut Request,
    order: &UpstreamRequest,
    exchange: &mut UpstreamExchange,
) -> Result<(), SendFault> {
    let (head, source) = begin(request, order, exchange)?;
    let Some(chain) = prepare(request, exchange, head, source) else { return Ok(()) };
    if chain.is_empty() {
        return Ok(());
    }
    let options = SendOptions::new(exchange.settings.send_timeout);
    exchange.pipe().send(chain, options).await.map_err(SendFault::Upstream)
}

/// Sends the request as far as possible without waiting; the rest is sent while the response is
/// awaited.
///
/// # Errors
/// [`SendFault`]
pub(super) fn at_once(
    request: &mut Request,
    order: &UpstreamRequest,
    exchange: &mut UpstreamExchange,
) -> Result<(), SendFault> {
    let (head, source) = begin(request, order, exchange)?;
    let is_alone = matches!(source, Source::None) && !exchange.codec().frames_content();
    let (mut chain, sent) = if is_alone && head.len() as u64 <= SIMPLE_BYTES_MAX {
        let sent = exchange.pipe().try_send(&head).map_err(SendFault::Upstream)?;
        // Most requests have no content, and the socket has room for them.
        if sent == head.len() {
            return Ok(());
        }
        (Chain::from(head), sent)
    } else {
        let Some(chain) = prepare(request, exchange, head, source) else { return Ok(()) };
        let first = chain.front().map_or(&[][..], Chunk::memory);
        let sent = exchange.pipe().try_send(first).map_err(SendFault::Upstream)?;
        (chain, sent)
    };
    chain.advance(sent as u64);
    if chain.is_empty() {
        return Ok(());
    }
    let limits = limits(request, exchange);
    exchange.upload = Some(Upload::whole(exchange.pipe(), chain, limits));
    exchange.begin_upload().map_err(SendFault::Upstream)
}

/// The request's head, and the source of its content.
#[inline]
fn begin(
    request: &mut Request,
    order: &UpstreamRequest,
    exchange: &mut UpstreamExchange,
) -> Result<(OutBuf, Source), SendFault> {
    let mut head = OutBuf::new();
    let content = exchange.codec().begin(request, order, &mut head).map_err(SendFault::Ours)?;
    Ok((head, source(request, content)))
}

/// Assembles the request. `None`: it is sent while the response is awaited.
fn prepare(
    request: &Request,
    exchange: &mut UpstreamExchange,
    head: OutBuf,
    source: Source,
) -> Option<Chain> {
    let mut chain = Chain::from(head);
    let limits = limits(request, exchange);
    let codec = exchange.codec();
    let feed = match (source, codec.frames_content()) {
        (Source::None, false) => None,
        (Source::Memory(bytes), false) => {
            chain.push(Chunk::from(bytes));
            None
        }
        (Source::File(part), false) => {
            chain.push(file_range(part, request.client().number));
            None
        }
        (Source::Client(reader), _) => Some((Feed::Client(reader), limits)),
        (source, true) => {
            let (pull, content_max) = (Feed::Stored(Pull::new(source.into_body())), 0);
            Some((pull, Limits { content_max, ..limits }))
        }
    };
    // Others end a try without saying whether they have acted on it.
    let keeps = exchange.pipe().lane().is_some();
    exchange.upload = match feed {
        Some((feed, limits)) => Some(Upload::streamed(chain, feed, limits, keeps)),
        None if chain.len() > SIMPLE_BYTES_MAX || chain.iter().any(|chunk| !chunk.is_memory()) => {
            Some(Upload::whole(exchange.pipe(), chain, limits))
        }
        None => return Some(chain),
    };
    None
}

fn limits(request: &Request, exchange: &UpstreamExchange) -> Limits {
    let body = &request.location().body;
    Limits {
        send_timeout: exchange.settings.send_timeout,
        client_timeout: body.client_body_timeout.duration(),
        content_max: body.client_max_body_size.0,
    }
}

/// The content after the head.
fn source(request: &mut Request, content: Content) -> Source {
    match content {
        Content::None => Source::None,
        Content::Bytes(bytes) => Source::Memory(bytes),
        Content::Request => match request.take_body() {
            RequestBody::None => Source::None,
            RequestBody::Unread(reader) => Source::Client(reader),
            RequestBody::Memory(bytes) => {
                request.set_body(RequestBody::Memory(bytes.clone()));
                Source::Memory(bytes)
            }
            RequestBody::File(file) => {
                let part = file.part();
                request.set_body(RequestBody::File(file));
                Source::File(part)
            }
        },
    }
}
