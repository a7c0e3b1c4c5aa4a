//! Values of memcached: the same events however the input is cut; nothing unsound is reusable.
//!
//! Input: cuts, then the bytes of a connection. The key is `k`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::pieces;
use nowait_gateway::BodyEvent;
use nowait_gateway::memcached::{GetResponse, ResponseLine};

fuzz_target!(|data: &[u8]| {
    let [cuts, input @ ..] = data else { return };
    let whole = connection(std::iter::once(input));
    let cut = connection(pieces(input, *cuts));
    assert_eq!(whole, cut);
});

/// The events as text, and the value.
fn connection<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let mut get = GetResponse::new(b"k".to_vec(), &mut Vec::new());
    let (mut events, mut value, mut length) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        let mut at = 0;
        if length.is_none() {
            let (consumed, answer) = match get.receive_head(piece) {
                Ok(step) => step,
                Err(error) => {
                    events.push(error.to_string());
                    return (events, value);
                }
            };
            at = consumed;
            match answer {
                None => continue,
                Some(ResponseLine::Missing) => length = Some(0),
                Some(ResponseLine::Value { length: bytes, flags }) => {
                    events.push(format!("{bytes} {:?}", flags.read()));
                    length = Some(bytes);
                }
            }
        }
        loop {
            let step = get.receive_body(&piece[at..]);
            match step.event {
                BodyEvent::Data(range) => value.extend_from_slice(&piece[at..][range]),
                BodyEvent::NeedMore => break,
                BodyEvent::End => {
                    assert_eq!(Some(value.len() as u64), length);
                    events.push(format!("end {}", get.is_reusable(false)));
                    return (events, value);
                }
                other => events.push(format!("{other:?}")),
            }
            at += step.consumed;
        }
    }
    assert!(!get.is_reusable(false));
    (events, value)
}
