//! Field blocks: nothing but an error comes of a malformed one, memory is bounded, and what was decoded
//! arrives again when it is encoded.
//!
//! Input: blocks, each after an octet with its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_h2::hpack::{Decoder, Encoder, Token};

const STRING_MAX: usize = 300;

type Field = (Vec<u8>, Vec<u8>, bool);

fuzz_target!(|data: &[u8]| {
    let (mut decoder, mut encoder, mut again) =
        (Decoder::default(), Encoder::default(), Decoder::default());
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (block, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        if length == 1 {
            encoder.allow(u32::from(block.first().copied().unwrap_or_default()) << 6);
        }
        let Some(fields) = decode(&mut decoder, block) else { return };
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value, sensitive) in &fields {
            encoder.field(&mut block, name, value, *sensitive);
        }
        let returned = decode(&mut again, &block).expect("a correct block");
        assert_eq!(returned.len(), fields.len());
        for (before, after) in fields.iter().zip(&returned) {
            assert_eq!((before.0.to_ascii_lowercase(), &before.1), (after.0.clone(), &after.1));
            // A field of the static table has nothing to hide.
            assert!(after.2 || !before.2 || Token::of(&after.0) != Token::OTHER);
        }
        assert!(decoder.heap().max(encoder.heap()) <= 32 * 1024);
    }
});

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<Field>> {
    let mut block = decoder.block(block, STRING_MAX);
    let mut fields = Vec::new();
    while let Some(field) = block.next().ok()? {
        assert!(field.name.len() <= STRING_MAX.max(4096) && field.value.len() <= 4096);
        assert_eq!(field.token, Token::of(field.name));
        fields.push((field.name.to_vec(), field.value.to_vec(), field.sensitive));
    }
    Some(fields)
}
