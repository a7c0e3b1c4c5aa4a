//! Receives the head of a response.

use super::exchange::{Exchange, ReceiveFault};
use super::{Fault, HeadEvent, UpstreamHead};
use crate::connection::send_timeout;
use crate::request::Request;

/// Why there is no head.
pub(super) enum HeadFault {
    Receive(ReceiveFault),
    Protocol(Fault),
    /// The connection was closed before anything had come.
    Closed,
}

impl From<Fault> for HeadFault {
    fn from(fault: Fault) -> Self {
        Self::Protocol(fault)
    }
}

/// Receives a head; interim ones go to the codec's hook. A head, with the interim ones before it,
/// has `buffer_size` bytes at most.
///
/// # Errors
/// [`HeadFault`]
pub(super) async fn head(
    request: &Request,
    exchange: &mut Exchange,
) -> Result<UpstreamHead, HeadFault> {
    let max = exchange.settings.buffer_size as usize;
    let mut bytes = 0;
    loop {
        if exchange.input.is_empty() {
            let received = exchange.receive(0).await.map_err(HeadFault::Receive)?;
            if received.is_empty() {
                return Err(HeadFault::Closed);
            }
            exchange.input = received;
            if exchange.upload.is_none() {
                exchange.state.set_action(Some("reading response header from upstream"));
            }
        }
        let (codec, input) = exchange.codec_and_input();
        let step = codec.receive_head(input)?;
        input.advance(step.consumed);
        bytes += step.consumed;
        exchange.speak();
        match step.event {
            HeadEvent::NeedMore if bytes >= max => return Err(Fault::HeadTooBig.into()),
            HeadEvent::NeedMore => {}
            _ if bytes > max => return Err(Fault::HeadTooBig.into()),
            HeadEvent::Interim(head) => {
                bytes = 0;
                if let Some(out) = exchange.codec().interim(request, head) {
                    // Whether the client still takes it shows with the response.
                    let sent = request.connection.send_interim(out, send_timeout(request));
                    let _ = Box::pin(sent).await;
                }
            }
            HeadEvent::Final(head) => return Ok(head),
        }
    }
}
