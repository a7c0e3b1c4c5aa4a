//! Responses of SCGI and uwsgi servers: the same events however the input is cut.
//!
//! Input: what was asked, cuts, then the bytes of a connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::pieces;
use nowait_gateway::cgi::{CgiContext, CgiResponse};
use nowait_gateway::{BodyEvent, HeadEvent};
use nowait_message::ResponseBuilder;

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, input @ ..] = data else { return };
    let whole = connection(*choice, std::iter::once(input));
    let cut = connection(*choice, pieces(input, *cuts));
    assert_eq!(whole, cut);
});

/// The head or an error, and the body.
fn connection<'a>(choice: u8, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let mut response = CgiResponse::new(CgiContext {
        head: choice & 1 != 0,
        upgrade: choice & 2 != 0,
        head_bytes_max: if choice & 4 != 0 { 64 } else { 4096 },
    });
    let mut head = ResponseBuilder::new();
    let (mut events, mut body, mut in_body) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let mut at = 0;
        while !in_body {
            let step = match response.receive_head(&mut head, &piece[at..]) {
                Ok(step) => step,
                Err(error) => {
                    events.push(error.to_string());
                    return (events, body);
                }
            };
            at += step.consumed;
            if step.event == HeadEvent::NeedMore {
                assert_eq!(at, piece.len());
                break;
            }
            let head = head.take();
            events.push(format!("{} {:?}", head.status, head.fields().collect::<Vec<_>>()));
            in_body = true;
        }
        while in_body {
            let Ok(step) = response.receive_body(&piece[at..]) else { return (events, body) };
            match step.event {
                BodyEvent::NeedMore => break,
                BodyEvent::Data(range) => body.extend_from_slice(&piece[at..][range]),
                BodyEvent::End => return (events, body),
                // What comes after the end is only seen if it comes with it.
                BodyEvent::Excess => {}
                BodyEvent::Stderr(_) => panic!("there is no such stream"),
            }
            at += step.consumed;
        }
    }
    events.push(format!("eof {:?}", response.receive_eof()));
    (events, body)
}
