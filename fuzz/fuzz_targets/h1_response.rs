//! Responses: the same events however the input is cut; nothing unsound is reusable.
//!
//! Input: what was asked, cuts, then the bytes of a connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::{limits, pieces};
use nowait_h1::BodyEvent;
use nowait_h1::client::{ClientConnection, HeadEvent, RequestKind};
use nowait_message::ResponseBuilder;

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let input = [rest, b"\n"].concat();
    let whole = connection(*choice, std::iter::once(&input[..]));
    let cut = connection(*choice, pieces(&input, *cuts));
    assert_eq!(whole, cut);
});

/// The events as text and the body, to the end of the first final response.
fn connection<'a>(choice: u8, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let asked = match choice >> 4 & 3 {
        0 => RequestKind::Content,
        1 => RequestKind::Head,
        2 => RequestKind::Connect,
        _ => RequestKind::Upgrade,
    };
    let mut connection = ClientConnection::new(limits(choice));
    connection.request_sent(asked);
    let mut builder = ResponseBuilder::new();
    let (mut events, mut body) = (Vec::new(), Vec::new());
    let mut in_body = false;
    for piece in pieces {
        let mut at = 0;
        loop {
            let input = &piece[at..];
            if in_body {
                let step = match connection.receive_body(input) {
                    Ok(step) => step,
                    Err(error) => {
                        assert!(!connection.reusable(false));
                        events.push(format!("{error:?}"));
                        return (events, body);
                    }
                };
                at += step.consumed;
                match step.event {
                    BodyEvent::NeedMore => break,
                    BodyEvent::Data(range) => body.extend_from_slice(&input[range]),
                    BodyEvent::End => {
                        events.push(format!("end {}", connection.reusable(false)));
                        return (events, body);
                    }
                }
                continue;
            }
            let step = match connection.receive_head(&mut builder, input) {
                Ok(step) => step,
                Err(error) => {
                    assert!(!connection.reusable(false));
                    events.push(format!("{error:?}"));
                    return (events, body);
                }
            };
            at += step.consumed;
            if step.event == HeadEvent::NeedMore {
                assert_eq!(step.consumed, input.len());
                break;
            }
            let head = builder.take();
            let fields: Vec<_> = head.fields().collect();
            events.push(format!("{} {:?} {fields:?}", head.status, head.reason));
            for field in fields {
                assert!(!field.value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0)));
            }
            in_body = step.event == HeadEvent::Final;
        }
    }
    events.push(format!("eof {:?}", connection.receive_eof()));
    assert!(!connection.reusable(false));
    (events, body)
}
