//! Everything that was compressed can be decompressed, by decoders that are independent of the encoders
//! where available.

use std::io::Read as _;

use super::*;

/// Decompresses a text.
pub(crate) fn plain(recipe: &Recipe, compressed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match recipe {
        Recipe::Gzip { .. } => {
            flate2::read::GzDecoder::new(compressed).read_to_end(&mut out).unwrap();
        }
        Recipe::Brotli { .. } => {
            let mut decoder = brotli_decompressor::Decompressor::new(compressed, 4096);
            decoder.read_to_end(&mut out).unwrap();
        }
        Recipe::Zstd { .. } => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(compressed);
            while input.pos() < compressed.len() {
                let at = out.len();
                out.reserve(1 << 16);
                let mut room = zstd_safe::OutBuffer::around_pos(&mut out, at);
                context.decompress_stream(&mut room, &mut input).unwrap();
            }
        }
    }
    out
}

/// Text that is hardly compressible.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Text as in typical files.
fn words(len: usize) -> Vec<u8> {
    let numbers = noise(len / 4 + 1);
    let mut text: Vec<u8> =
        numbers.iter().flat_map(|n| format!("word{} ", n % 100).into_bytes()).collect();
    text.truncate(len);
    text
}

/// Every coding at every level that behaves differently.
pub(crate) fn recipes() -> Vec<Recipe> {
    let mut all: Vec<Recipe> = (1..=9).map(|level| Recipe::Gzip { level, window: 15 }).collect();
    all.extend((0..=11).map(|level| Recipe::Brotli { level, window: 19 }));
    let zstd = [1, 3, 9, 19, 22];
    all.extend(zstd.map(|level| Recipe::Zstd { level, dictionary: None }));
    all
}

#[test]
fn whole_texts_survive_the_round_trip() {
    for text in [Vec::new(), b"x".to_vec(), noise(20_000), words(1000), words(60_000)] {
        for recipe in recipes() {
            let out = recipe.whole(&text).unwrap();
            assert!(plain(&recipe, &out) == text, "{recipe:?}, {} bytes", text.len());
            assert!(text.len() != 60_000 || out.len() < 24_000, "{recipe:?}: {}", out.len());
        }
    }
}

#[test]
fn texts_larger_than_the_kept_buffer() {
    let text = noise(WHOLE_BYTES_MAX + 1);
    let recipe = Recipe::Gzip { level: 1, window: 15 };
    assert!(plain(&recipe, &recipe.whole(&text).unwrap()) == text);
}

#[test]
fn whole_texts_from_several_threads() {
    let threads: Vec<_> = (0..4_u32)
        .map(|n| {
            std::thread::spawn(move || {
                for round in 0..20 {
                    let text = words(1000 + 1000 * (round % 5));
                    let recipe = Recipe::Gzip { level: 1 + (n + round as u32) % 9, window: 15 };
                    assert!(plain(&recipe, &recipe.whole(&text).unwrap()) == text);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn small_windows_are_respected() {
    let text = noise(5_000).repeat(3);
    for window in 9..=15 {
        let recipe = Recipe::Gzip { level: 1, window };
        let out = recipe.whole(&text).unwrap();
        assert!(plain(&recipe, &out) == text, "{window}");
        // Only a window of 8 KB or more covers the repetitions.
        assert_eq!(out.len() < 8_000, window >= 13, "{window}: {}", out.len());
    }
    for window in 10..=24 {
        let recipe = Recipe::Brotli { level: 5, window };
        let out = recipe.whole(&text).unwrap();
        assert!(plain(&recipe, &out) == text, "{window}");
    }
}

#[test]
fn windows_fit_the_text() {
    for (len, bits) in [(0, 9), (250, 9), (251, 10), (20_000, 15), (1 << 40, 15)] {
        assert_eq!(gzip_window(15, Some(len)), bits, "{len}");
    }
    assert_eq!((gzip_window(12, None), gzip_window(12, Some(1 << 20))), (12, 12));
    for (len, bits) in [(0, 10), (1008, 10), (1009, 11), (1 << 40, 19), (u64::MAX, 19)] {
        assert_eq!(brotli_window(19, Some(len)), bits, "{len}");
    }
    assert_eq!((brotli_window(19, None), brotli_window(10, Some(1 << 20))), (19, 10));
}

/// nginx's sizes, frame included.
#[test]
fn tiny_texts_are_compressed_too() {
    for level in [1, 6, 9] {
        let gzip = Recipe::Gzip { level, window: GZIP_WINDOW_BITS_MAX };
        let bytes = |text: &[u8]| gzip.whole(text).unwrap().len();
        assert_eq!((bytes(b""), bytes(b"SEE-THIS")), (20, 28), "{level}");
        assert!(bytes(&[b'a'; TINY_BYTES_MAX]) <= 24, "{level}");
    }
}

/// Each step checks first, so that at most one is wasted.
#[test]
fn unwanted_texts_are_not_compressed() {
    let text = words(WHOLE_BYTES_MAX);
    let slow = [
        Recipe::Brotli { level: 5, window: 19 },
        Recipe::Brotli { level: 9, window: 19 },
        Recipe::Zstd { level: 9, dictionary: None },
        Recipe::Gzip { level: 6, window: 12 },
    ];
    for recipe in slow {
        for allowed in 0..WHOLE_BYTES_MAX / STEP_BYTES {
            let asked = std::cell::Cell::new(0);
            let is_wanted = || asked.replace(asked.get() + 1) < allowed;
            assert!(recipe.whole_while(&text, is_wanted).is_err(), "{recipe:?} {allowed}");
            assert_eq!(asked.get(), allowed + 1, "{recipe:?}");
        }
        assert!(plain(&recipe, &recipe.whole(&text).unwrap()) == text, "{recipe:?}");
    }
}

#[test]
fn numbers_tell_recipes_apart() {
    let recipes = [
        Recipe::Gzip { level: 1, window: 15 },
        Recipe::Gzip { level: 2, window: 15 },
        Recipe::Gzip { level: 1, window: 14 },
        Recipe::Brotli { level: 1, window: 15 },
        Recipe::Zstd { level: 1, dictionary: None },
    ];
    let numbers: std::collections::HashSet<_> = recipes.iter().map(Recipe::number).collect();
    assert!(numbers.len() == recipes.len() && !numbers.contains(&None));
}
