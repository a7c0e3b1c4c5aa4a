//! Texts in pieces, flushes, reuse of states.

use super::*;
use crate::Recipe;
use crate::recipe::tests::{noise, plain, recipes};

fn gzip(level: u32) -> Recipe {
    Recipe::Gzip { level, window: 15 }
}

fn zstd(level: u32) -> Recipe {
    Recipe::Zstd { level, dictionary: None }
}

fn brotli(level: u32) -> Recipe {
    Recipe::Brotli { level, window: 19 }
}

#[test]
fn steps_make_one_stream() {
    for text in [vec![b'x'; 100_000], noise(40_000), Vec::new()] {
        let len = Some(text.len() as u64);
        for (known, expected) in [(len, None), (None, len), (None, Some(10)), (None, None)] {
            for recipe in recipes() {
                let mut coder = recipe.begin(known, expected).unwrap();
                let mut out = Vec::new();
                for piece in text.chunks(32 * 1024) {
                    out.extend_from_slice(&coder.step(piece, Flush::None).unwrap());
                }
                out.extend_from_slice(&coder.step(&[], Flush::Finish).unwrap());
                let lengths = (coder.taken(), coder.made());
                assert_eq!(lengths, (text.len() as u64, out.len() as u64));
                assert!(plain(&recipe, &out) == text, "{recipe:?}, {} bytes", text.len());
            }
        }
    }
}

#[test]
fn states_are_reused() {
    let text = noise(20_000);
    let mut first = Vec::new();
    for round in 0..3 {
        let recipes = [1, 3, 6, 9].map(gzip).into_iter().chain([1, 3, 6, 9].map(zstd));
        for (n, recipe) in recipes.enumerate() {
            let mut coder = recipe.begin(None, None).unwrap();
            let out = coder.step(&text, Flush::Finish).unwrap();
            assert!(plain(&recipe, &out) == text);
            match round {
                0 => first.push(out),
                _ => assert!(first[n] == out, "{n}"),
            }
            coder.retire();
        }
    }
    // A state that was dropped in the middle of a text is not reused.
    let mut broken = gzip(9).begin(None, None).unwrap();
    broken.step(&text, Flush::None).unwrap();
    drop(broken);
    let mut coder = gzip(9).begin(None, None).unwrap();
    let out = coder.step(&text, Flush::Finish).unwrap();
    assert!(plain(&gzip(9), &out) == text);
}

#[test]
fn a_dictionary_is_used() {
    let text = noise(2000);
    let with = |dictionary| Recipe::Zstd { level: 3, dictionary }.whole(&text).unwrap();
    let short = with(Some(Dictionary(text.clone().into())));
    assert!(short.len() < 100, "{}", short.len());
    let mut context = zstd_safe::DCtx::create();
    context.load_dictionary(&text).unwrap();
    let mut out = Vec::with_capacity(4000);
    context.decompress(&mut out, &short).unwrap();
    assert!(out == text);
    // The next one without a dictionary is not affected.
    assert!(with(None).len() > 1500);
}

#[test]
fn flushed_output_can_be_decompressed() {
    for recipe in recipes() {
        let mut coder = recipe.begin(None, None).unwrap();
        let mut out = coder.step(b"first ", Flush::Sync).unwrap().to_vec();
        assert!(!out.is_empty());
        out.extend_from_slice(&coder.step(b"second", Flush::Finish).unwrap());
        assert_eq!(plain(&recipe, &out), b"first second");
    }
}

#[test]
fn collected_text_is_compressed_later() {
    let text = noise(40 * 1024);
    for mut coder in [brotli(5), zstd(3)].map(|recipe| recipe.begin(None, None).unwrap()) {
        let block = coder.block_bytes;
        assert_eq!((coder.work(100, Flush::None), coder.work(100, Flush::Sync)), (0, 100));
        while coder.work(text.len(), Flush::None) == 0 {
            coder.step(&text, Flush::None).unwrap();
        }
        assert!(coder.work(text.len(), Flush::None) >= block);
        assert!(coder.work(0, Flush::Finish) >= block - text.len());
        coder.step(&[], Flush::Sync).unwrap();
        assert_eq!(coder.work(0, Flush::Finish), 0);
    }
    assert_eq!(gzip(1).begin(None, None).unwrap().work(100, Flush::None), 100);
}
