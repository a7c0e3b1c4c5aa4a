//! FastCGI responses: the same events however the input is cut; nothing unsound is reusable.
//!
//! Input: what was asked, cuts, then the bytes of a connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::pieces;
use nowait_gateway::fastcgi::{FastCgiContext, FastCgiResponse};
use nowait_gateway::{BodyEvent, HeadEvent};
use nowait_message::ResponseBuilder;

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, input @ ..] = data else { return };
    let whole = connection(*choice, std::iter::once(input));
    let cut = connection(*choice, pieces(input, *cuts));
    assert_eq!(whole, cut);
});

/// The events as text and the body, to the end of the response.
fn connection<'a>(choice: u8, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let asked = FastCgiContext {
        head: choice & 1 != 0,
        keep: choice & 2 != 0,
        head_bytes_max: if choice & 4 != 0 { 64 } else { 4096 },
    };
    let mut response = FastCgiResponse::new(asked);
    let mut head = ResponseBuilder::new();
    let (mut events, mut body, mut in_body) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let mut at = 0;
        loop {
            let input = &piece[at..];
            if in_body {
                let step = match response.receive_body(input) {
                    Ok(step) => step,
                    Err(error) => {
                        events.push(error.to_string());
                        return (events, body);
                    }
                };
                at += step.consumed;
                match step.event {
                    BodyEvent::NeedMore => {
                        assert_eq!(step.consumed, input.len());
                        break;
                    }
                    BodyEvent::Data(range) => {
                        assert!(!range.is_empty());
                        body.extend_from_slice(&input[range]);
                    }
                    BodyEvent::End => {
                        assert!(asked.keep || !response.is_reusable(false));
                        events.push(format!("end {}", response.is_reusable(false)));
                        return (events, body);
                    }
                    other => events.push(format!("{other:?}")),
                }
                continue;
            }
            let step = match response.receive_head(&mut head, input) {
                Ok(step) => step,
                Err(error) => {
                    events.push(error.to_string());
                    return (events, body);
                }
            };
            at += step.consumed;
            match step.event {
                HeadEvent::NeedMore => {
                    assert_eq!(step.consumed, input.len());
                    break;
                }
                HeadEvent::Done => {
                    let head = head.take();
                    assert!((200..=999).contains(&head.status));
                    let fields: Vec<_> = head.fields().collect();
                    for field in &fields {
                        assert!(!field.value.iter().any(|c| matches!(c, b'\r' | b'\n' | 0)));
                    }
                    events.push(format!("{} {:?} {fields:?}", head.status, head.reason));
                    in_body = true;
                }
                HeadEvent::StderrPart => {}
                other => events.push(format!("{other:?}")),
            }
        }
    }
    events.push(format!("eof {:?}", response.receive_eof()));
    (events, body)
}
