//! The output is checked with an independent implementation, the decoder in Rust.

use std::io::Read as _;

use super::*;

fn plain(compressed: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    brotli_decompressor::Decompressor::new(compressed, 4096).read_to_end(&mut text).unwrap();
    text
}

/// An endless pseudo-random sequence of words, which compresses like text.
fn words(len: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut text = Vec::with_capacity(len + 12);
    while text.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(format!("word{} ", (state >> 16) % 997).as_bytes());
    }
    text.truncate(len);
    text
}

fn encoder(quality: u8, window_bits: u8, size: Option<u64>) -> Encoder {
    Encoder::new(Parameters { quality, window_bits, size, block_bits: None }).unwrap()
}

#[test]
fn whole_texts_at_every_quality_and_length() {
    for len in [0, 1, 100, 1024, 5000, 70_000] {
        let text = words(len);
        for quality in 0..=QUALITY_MAX {
            for size in [None, Some(len as u64)] {
                let mut out = Vec::new();
                encoder(quality, 19, size).encode(&text, Operation::Finish, &mut out).unwrap();
                assert!(plain(&out) == text, "{len} bytes at {quality}");
                assert!(len < 1000 || out.len() < len / 2, "{} of {len}", out.len());
            }
        }
    }
}

#[test]
fn pieces_with_flushes_make_one_stream() {
    let text = words(60_000);
    for quality in 0..=QUALITY_MAX {
        for (piece, flushed) in [(1000, 7), (25_000, 1), (60_000, 1)] {
            let mut encoder = encoder(quality, 16, None);
            let mut out = Vec::new();
            for (n, input) in text.chunks(piece).enumerate() {
                let flush = n % flushed == 0;
                let how = if flush { Operation::Flush } else { Operation::Process };
                encoder.encode(input, how, &mut out).unwrap();
            }
            encoder.encode(b"", Operation::Finish, &mut out).unwrap();
            assert!(plain(&out) == text, "{piece} bytes at {quality}");
        }
    }
}

#[test]
fn what_was_flushed_can_be_read() {
    for quality in 0..=QUALITY_MAX {
        let mut encoder = encoder(quality, 22, None);
        let mut out = Vec::new();
        encoder.encode(b"first ", Operation::Flush, &mut out).unwrap();
        let mut decoder = brotli_decompressor::Decompressor::new(&out[..], 4096);
        let mut first = [0; 6];
        decoder.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"first ", "{quality}");
        encoder.encode(b"second", Operation::Finish, &mut out).unwrap();
        assert_eq!(plain(&out), b"first second");
    }
}

#[test]
fn every_window_and_a_wrong_hint() {
    let text = words(40_000);
    // Out-of-range values are clamped.
    for window_bits in 0..=30 {
        for quality in [1, 5, 9, 200] {
            let mut out = Vec::new();
            let mut encoder = encoder(quality, window_bits, Some(10));
            encoder.encode(&text[..100], Operation::Process, &mut out).unwrap();
            encoder.encode(&text[100..], Operation::Finish, &mut out).unwrap();
            assert!(plain(&out) == text, "{window_bits} bits at {quality}");
        }
    }
}

#[test]
fn text_after_the_end_is_refused() {
    let mut encoder = encoder(5, 19, None);
    let mut out = Vec::new();
    encoder.encode(b"text", Operation::Finish, &mut out).unwrap();
    assert_eq!(encoder.encode(b"more", Operation::Process, &mut out), Err(Failed));
    assert_eq!(plain(&out), b"text");
}

#[test]
fn little_room_is_enough() {
    let text = words(50_000);
    let mut out = Vec::with_capacity(1);
    encoder(4, 19, None).encode(&text, Operation::Finish, &mut out).unwrap();
    assert!(plain(&out) == text);
}

#[test]
fn an_encoder_may_move_to_another_thread() {
    let mut encoder = encoder(5, 19, None);
    let mut out = Vec::new();
    encoder.encode(b"here ", Operation::Flush, &mut out).unwrap();
    let out = std::thread::spawn(move || {
        encoder.encode(b"there", Operation::Finish, &mut out).unwrap();
        out
    });
    assert_eq!(plain(&out.join().unwrap()), b"here there");
}
