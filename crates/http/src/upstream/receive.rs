//! Receives the head of a response.

use std::io;

use super::exchange::Exchange;
use super::{Fault, HeadEvent, UpstreamHead};
use crate::connection::send_timeout;
use crate::request::Request;

/// Why there is no head.
pub(super) enum ReceiveFault {
    Network(io::Error),
    Protocol(Fault),
}

impl From<Fault> for ReceiveFault {
    fn from(fault: Fault) -> Self {
        Self::Protocol(fault)
    }
}

/// Receives a head; interim ones go to the codec's hook.
///
/// # Errors
/// [`ReceiveFault`]
pub(super) async fn head(
    request: &Request,
    exchange: &mut Exchange,
) -> Result<UpstreamHead, ReceiveFault> {
    let max = exchange.settings.buffer_size as usize;
    let mut bytes = 0;
    loop {
        if exchange.input.is_empty() {
            let timeout = exchange.settings.read_timeout;
            let received = exchange.stream.recv(timeout).await.map_err(ReceiveFault::Network)?;
            if received.is_empty() {
                return Err(Fault::PrematureClose.into());
            }
            exchange.input = received;
        }
        let (codec, input) = exchange.codec_and_input();
        let step = codec.receive_head(input)?;
        input.advance(step.consumed);
        bytes += step.consumed;
        if bytes > max {
            return Err(Fault::HeadTooBig.into());
        }
        match step.event {
            HeadEvent::NeedMore if bytes == max => return Err(Fault::HeadTooBig.into()),
            HeadEvent::NeedMore => {}
            HeadEvent::Interim(head) => {
                bytes = 0;
                if let Some(out) = exchange.codec().interim(request, head) {
                    // Whether the client still takes it shows with the response.
                    let _ = request.connection.send_interim(out, send_timeout(request)).await;
                }
            }
            HeadEvent::Final(head) => return Ok(head),
        }
    }
}
