//! Chunked bodies: the same body however the input is cut, and what the encoder writes is read
//! back as it was.
//!
//! Input: limits, cuts, then a chunked body, which also serves as data to encode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::{limits, pieces};
use nowait_h1::body::BodyError;
use nowait_h1::{BodyDecoder, BodyEvent, BodyLength, Limits, encode};

type Decoded = (Vec<u8>, Result<Option<Vec<String>>, BodyError>);

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let limits = limits(*choice);
    let input = [rest, b"\n"].concat();
    let whole = decode(limits, std::iter::once(&input[..]));
    let cut = decode(limits, pieces(&input, *cuts));
    assert_eq!(whole, cut);

    let mut encoded = Vec::new();
    for piece in pieces(rest, *cuts) {
        encode::chunk_start(&mut encoded, piece.len() as u64);
        encoded.extend_from_slice(piece);
        encoded.extend_from_slice(encode::CHUNK_END);
    }
    encoded.extend_from_slice(encode::LAST_CHUNK);
    let (body, end) = decode(limits, pieces(&encoded, cuts.wrapping_add(1)));
    assert_eq!(body, rest);
    assert_eq!(end, Ok(Some(vec![])));
});

/// The body, then its trailers, nothing if it goes on, or the error.
fn decode<'a>(limits: Limits, pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, &limits);
    let mut body = Vec::new();
    for piece in pieces {
        let mut at = 0;
        loop {
            let step = match decoder.receive(&piece[at..]) {
                Ok(step) => step,
                Err(error) => return (body, Err(error)),
            };
            match step.event {
                BodyEvent::NeedMore => break,
                BodyEvent::Data(range) => body.extend_from_slice(&piece[at..][range]),
                BodyEvent::End => {
                    assert_eq!(decoder.received(), body.len() as u64);
                    let fields = decoder.trailers().map(|t| t.fields());
                    let trailers = fields.iter().flat_map(|f| f.iter());
                    return (body, Ok(Some(trailers.map(|f| format!("{f:?}")).collect())));
                }
            }
            at += step.consumed;
        }
    }
    (body, Ok(None))
}
