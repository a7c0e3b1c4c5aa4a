//! Sends a request to an upstream.

use std::io;

use bytes::Bytes;
use nowait_runtime::buf::{Chain, Chunk, FileRange, OutBuf};
use nowait_runtime::net::SendOptions;

use super::exchange::Exchange;
use super::run;
use crate::request::Request;
use crate::response::FileBody;

/// Where the content of a request comes from.
pub(super) enum Source {
    None,
    Memory(Bytes),
    File(FileBody),
    /// From the client, while it is sent on.
    Stream,
}

/// Why a request could not be sent.
pub(super) enum SendFault {
    /// The connection to the upstream failed.
    Upstream(io::Error),
    /// The client's or our own fault: the status.
    Refused(u16),
}

/// Sends the request.
///
/// # Errors
/// [`SendFault`]
pub(super) async fn request(request: &Request, exchange: &mut Exchange) -> Result<(), SendFault> {
    let mut head = OutBuf::new();
    let content = exchange.codec().begin(request, &mut head).map_err(SendFault::Refused)?;
    let mut chain = Chain::from(head);
    match run::content(request, content) {
        Source::None => {}
        Source::Memory(bytes) => chain.push(Chunk::from(bytes)),
        Source::File(part) => {
            let FileBody { file, io, offset, len } = part;
            let io = io.for_client(request.connection.number);
            chain.push(FileRange { file, io, offset, len });
        }
        Source::Stream => return Err(SendFault::Refused(500)),
    }
    let options = SendOptions::new(exchange.settings.send_timeout);
    exchange.stream.send(chain, options).await.map_err(SendFault::Upstream)?;
    exchange.request_sent = true;
    Ok(())
}
