//! What a million keys cost: `cargo bench -p nowait-cache --bench index`. Prints; asserts nothing.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_cache::index::{Commit, Config, LookupContext, PurgeNames, Record};
use nowait_cache::snapshot::{Decoder, Encoder};
use nowait_cache::{Index, Key, UnixMs};

const KEYS: usize = 1_000_000;
/// Room for them: 107 bytes a key, of which a sixteenth is headroom.
const ZONE_BYTES: usize = KEYS * 107;
const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn main() {
    let keys: Vec<Key> = (0..KEYS).map(|n| Key::new(&n.to_le_bytes())).collect();

    let before = resident_bytes();
    let found = index();
    time("found by the loader", || {
        for key in &keys {
            black_box(found.found(&Record::found(*key, 20_000, 5, NOW)));
        }
    });
    let usage = found.usage();
    let resident = resident_bytes().saturating_sub(before) as f64 / usage.keys as f64;
    println!("  {} keys, {} fit in the zone of {ZONE_BYTES} bytes", usage.keys, usage.keys_max);
    println!(
        "  {:.1} bytes of the zone per key that fits",
        ZONE_BYTES as f64 / usage.keys_max as f64
    );
    println!(
        "  {resident:.1} bytes of memory per key that is there (nginx: 128, with its slab's pages 131)"
    );
    drop(found);

    let filled = index();
    time("stored", || {
        for key in &keys {
            let names =
                PurgeNames { main: key, key_text: b"httporigin/a/b.jpg", tags: &[], created: NOW };
            let commit =
                Commit { names, length: 20_000, blocks: 5, head_bytes: 800, valid_until: NOW };
            if let Ok(mut hold) = filled.hold(key, NOW) {
                let _ = black_box(hold.commit(&commit, NOW));
            }
        }
    });
    let ask = LookupContext { now: NOW, min_uses: 1, key_text: b"httporigin/a/b.jpg" };
    time("looked up, in the order of storing", || {
        keys.iter().for_each(|key| {
            black_box(filled.lookup(key, ask));
        });
    });
    time("looked up, 1,000 hot ones", || {
        for _ in 0..KEYS / 1000 {
            keys[..1000].iter().for_each(|key| {
                black_box(filled.lookup(key, ask));
            });
        }
    });

    let mut saved = Vec::new();
    time("saved", || {
        let mut encoder = Encoder::new(&filled, true, NOW);
        while let Some(block) = encoder.next_block() {
            saved.extend_from_slice(&block);
        }
    });
    println!("  {} bytes, {:.1} per key", saved.len(), saved.len() as f64 / KEYS as f64);
    let restored = index();
    time("restored and sorted", || {
        let mut decoder = Decoder::new(&restored, NOW);
        for piece in saved.chunks(1 << 20) {
            decoder.push(piece).expect("our own");
        }
        println!("  {:?}", decoder.finish());
    });
    time("evicted, in steps of 100", || while !restored.evict(100).is_empty() {});
}

fn index() -> Arc<Index> {
    let config = Config { bytes: ZONE_BYTES, tag_bytes: 0, inactive: Duration::from_secs(600) };
    Index::new(config).expect("large enough")
}

fn time(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let elapsed = start.elapsed();
    let each = elapsed.as_nanos() as f64 / KEYS as f64;
    println!("{what}: {:.2} s, {each:.0} ns per key", elapsed.as_secs_f64());
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
