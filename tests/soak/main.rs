//! A caching proxy under everything at once, for a while: hits, misses, revalidations, ranges,
//! purges, clients that leave in the middle of a body or read slowly, an origin whose objects
//! change, and a reload every second. Every byte that arrives is compared with what the origin
//! has, and at the end neither memory nor descriptors have grown.
//!
//! `cargo test` runs it for some seconds; `SOAK_SECONDS=600 cargo test --release -p nowait --test
//! soak` for as long as one likes. What happens is chosen at random, by a seed that is printed:
//! `SOAK_SEED=n` begins with the same choices.

mod client;
mod objects;
mod origin;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Counts, Walk};
use nowait_testkit::{Binary, Driver, Server};
use objects::Objects;
use origin::Origin;

/// Clients that do one thing after the other.
const CLIENTS: u64 = 8;
const WORKERS: usize = 2;
/// Descriptors that may be open: each worker keeps hot objects open, and connections to the origin.
const DESCRIPTORS_MAX: usize = WORKERS * objects::COUNT as usize + 100;
/// By so many bytes the memory at the end may differ from that after a third of the time: allocators
/// keep some of what is freed.
const MEMORY_MORE: u64 = 48 << 20;

#[test]
fn epoll() {
    soak(Driver::Epoll);
}

#[test]
fn io_uring() {
    soak(Driver::IoUring);
}

fn soak(driver: Driver) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let length = Duration::from_secs(number("SOAK_SECONDS").unwrap_or(8));
    let seed = number("SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SOAK_SEED={seed} SOAK_SECONDS={}", length.as_secs());

    let objects = Arc::new(Objects::new());
    let origin = Origin::start(objects.clone());
    let server = proxy(&origin, driver);
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            let walk = Walk::new(server.addr(), objects.clone(), done.clone(), seed ^ (nth << 32));
            std::thread::spawn(move || walk.run())
        })
        .collect();

    let begin = Instant::now();
    let mut early = None;
    while begin.elapsed() < length {
        std::thread::sleep(Duration::from_secs(1));
        // nginx closes connections on reload without a word.
        if !server.binary().is_nginx() {
            server.reload();
        }
        objects.change_some(seed ^ begin.elapsed().as_secs());
        if early.is_none() && begin.elapsed() > length / 3 {
            early = Some(Use::of(&server));
        }
    }
    done.store(true, Ordering::Relaxed);
    let mut counts = Counts::default();
    for client in clients {
        counts.add(&client.join().expect("no client found a fault"));
    }
    let (early, late) = (early.expect("there was a third of the time"), Use::of(&server));
    eprintln!("{counts:?}\nafter a third: {early:?}\nat the end: {late:?}");
    assert!(late.descriptors <= DESCRIPTORS_MAX, "{early:?} {late:?}");
    assert!(late.memory <= early.memory + MEMORY_MORE, "{early:?} {late:?}");
    counts.assert_all_happened();
    server.quit();
}

/// A proxy with a cache that is smaller than what it serves.
fn proxy(origin: &Origin, driver: Driver) -> Server {
    let binary = Binary::under_test(env!("CARGO_BIN_EXE_nowait"));
    // nginx has no purge: the origin answers those.
    let purge = if binary.is_nginx() { "" } else { "proxy_cache_purge $purge;" };
    let http = format!(
        "proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=objects:2m max_size=20m inactive=20s
             use_temp_path=off;
         map $request_method $purge {{ PURGE 1; }}
         upstream origin {{ server {}; keepalive 16; }}
         server {{
             listen 127.0.0.1:%%PORT%%;
             location / {{
                 proxy_pass http://origin;
                 proxy_cache objects;
                 proxy_cache_lock on;
                 proxy_cache_revalidate on;
                 proxy_cache_use_stale updating error timeout;
                 proxy_cache_background_update on;
                 proxy_http_version 1.1;
                 proxy_set_header Connection '';
                 {purge}
                 add_header X-Cache $upstream_cache_status;
             }}
         }}",
        origin.addr()
    );
    // Clients that leave early are told to the log at level info only.
    Server::of(binary).http(&http).driver(driver).workers(WORKERS).start()
}

/// What the server's processes hold.
#[derive(Debug)]
struct Use {
    descriptors: usize,
    /// Resident bytes that belong to them alone.
    memory: u64,
}

impl Use {
    fn of(server: &Server) -> Use {
        let mut sum = Use { descriptors: 0, memory: 0 };
        for pid in server.children() {
            sum.descriptors += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            sum.memory += kb.unwrap_or(0) << 10;
        }
        sum
    }
}
