//! Receives the head of a response.

use std::io;
use std::rc::Rc;

use nowait_http::request::Request;
use nowait_message::ResponseHead;
use nowait_runtime::buf::{ReceivedBuf, RecvBuf};
use nowait_runtime::yield_now;

use super::exchange::{ReceiveFault, UpstreamExchange};
use super::{Fault, HeadEvent, Remark};

/// The reason why no head was received.
pub(super) enum HeadFault {
    Receive(ReceiveFault),
    Protocol(Fault),
    /// The connection was closed before the head was complete. The counters of the connection tell whether any
    /// byte had arrived.
    Closed,
}

impl From<Fault> for HeadFault {
    fn from(fault: Fault) -> Self {
        Self::Protocol(fault)
    }
}

/// Receives a head and passes interim ones to the codec's hook. A head, including the interim ones
/// before it, is limited to `buffer_size` bytes.
///
/// # Errors
/// [`HeadFault`]
pub(super) async fn head(
    request: &Request,
    exchange: &mut UpstreamExchange,
) -> Result<Rc<ResponseHead>, HeadFault> {
    let mut again = false;
    loop {
        let event = match exchange.early.take() {
            Some(event) => *event,
            None if exchange.input.is_empty() && !exchange.responds_by_itself() => {
                // A server may send data that is not a head, such as messages, as fast as it is received.
                if std::mem::replace(&mut again, true) {
                    yield_now().await;
                }
                match exchange.receive(0).await {
                    Ok(received) => next(exchange, received),
                    Err(fault) => Err(HeadFault::Receive(fault)),
                }
            }
            None => parse(exchange),
        };
        match event? {
            HeadEvent::NeedMore => {}
            HeadEvent::Interim(head) => {
                exchange.interim_received();
                if let Some(interim) = exchange.codec().interim(request, &head) {
                    // A disconnect of the client is detected by the final response.
                    request.exchange().send_interim(interim, request.send_timeout()).await;
                }
            }
            HeadEvent::Final(head) => return Ok(head),
            HeadEvent::Apart(None) => {}
            HeadEvent::Apart(Some(Remark { level, text })) => {
                request.log(level, format_args!("{text}"));
            }
        }
    }
}

/// The head, if the received bytes complete it; otherwise [`head`] continues with the stored
/// result.
pub(super) fn at_once(
    exchange: &mut UpstreamExchange,
    received: io::Result<RecvBuf>,
) -> Option<Rc<ResponseHead>> {
    let event = match received {
        Ok(received) => next(exchange, ReceivedBuf::Lent(received)),
        Err(error) => Err(HeadFault::Receive(ReceiveFault::Network(error))),
    };
    match event {
        Ok(HeadEvent::Final(head)) => Some(head),
        other => {
            exchange.early = Some(Box::new(other));
            None
        }
    }
}

/// The next event in the received bytes.
fn next(exchange: &mut UpstreamExchange, received: ReceivedBuf) -> Result<HeadEvent, HeadFault> {
    if received.is_empty() && exchange.pipe().own().is_some() {
        return Err(HeadFault::Closed);
    }
    exchange.input = received;
    if exchange.upload.is_none() {
        exchange.state.set_action(Some("reading response header from upstream"));
    }
    parse(exchange)
}

fn parse(exchange: &mut UpstreamExchange) -> Result<HeadEvent, HeadFault> {
    let max = exchange.settings.buffer_size as usize;
    let (codec, input) = exchange.codec_and_input();
    let step = codec.receive_head(input)?;
    input.advance(step.consumed);
    if !matches!(step.event, HeadEvent::Apart(_)) {
        exchange.head_bytes += step.consumed;
    }
    let is_too_big = match step.event {
        HeadEvent::Apart(_) => false,
        HeadEvent::NeedMore => exchange.head_bytes >= max,
        HeadEvent::Interim(_) | HeadEvent::Final(_) => exchange.head_bytes > max,
    };
    if is_too_big { Err(Fault::HeadTooBig.into()) } else { Ok(step.event) }
}
