//! Long mixed load: hits, misses, purges, range requests, clients that disconnect in the middle of
//! a body, evictions, and constant reloads. Every byte is checked, every request gets a response,
//! and in the end memory and descriptors are back where they were.
//!
//! `cargo test` runs a short form. The long one takes `NOWAIT_SOAK_SECONDS` seconds, ten minutes by
//! default: `cargo test -p nowait --release --test cache -- --ignored`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nowait_testkit::wait::{PATIENCE, try_until};
use nowait_testkit::{Driver, Server, TempDir};

use crate::binary;
use crate::crash::{HTTP, no_temporary_files};
use crate::load::{Mix, Truth};
use crate::objects::OBJECTS;
use crate::origin::VersionedOrigin;

const CLIENTS: u64 = 6;
/// Responses between two reloads.
const RESPONSES: u64 = 150;
/// Permitted growth of resident memory after the load has run for a while, in kilobytes: the memory
/// kept by the allocator differs from run to run.
const GROWTH_KB_MAX: u64 = 48 << 10;

/// Smaller than all objects together.
const PARAMETERS: &str = "max_size=12m manager_files=20 manager_sleep=10ms memory=2m";

#[test]
fn a_short_mixed_load_leaves_nothing_behind() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut reloads = 0;
        soak(driver, || {
            reloads += 1;
            reloads <= 6
        });
    }
}

#[test]
#[ignore = "takes ten minutes"]
fn a_long_mixed_load_leaves_nothing_behind() {
    let seconds = std::env::var("NOWAIT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(600));
    soak(Driver::Default, || Instant::now() < end);
}

fn soak(driver: Driver, mut goes_on: impl FnMut() -> bool) {
    let dir = TempDir::new("soak");
    let origin = VersionedOrigin::start();
    let server = Server::of(binary())
        .driver(driver)
        .workers(2)
        .http(HTTP)
        .variable("CACHE", dir.path().display())
        .variable("MORE", PARAMETERS)
        .variable("ORIGIN", origin.addr())
        .start();
    let truth = Truth::new(origin, server.addr());
    for object in 0..OBJECTS {
        truth.get(object).expect("an answer");
    }
    let descriptors = descriptors(&server).len();
    let mut memory_kb = None;
    std::thread::scope(|scope| {
        let load = |client| {
            let truth = &truth;
            scope.spawn(move || truth.load(client + 1, Mix::AllAnswered))
        };
        let clients: Vec<_> = (0..CLIENTS).map(load).collect();
        let mut reloads = 0;
        while goes_on() && !clients.iter().any(|client| client.is_finished()) {
            truth.wait_for(RESPONSES, &clients);
            server.reload();
            reloads += 1;
            if reloads == 3 {
                memory_kb = Some(resident_kb(&server));
            }
        }
        truth.over.store(true, Ordering::SeqCst);
    });
    no_temporary_files(dir.path());
    // Open files of hot objects and idle connections are closed after some seconds.
    let closed =
        try_until(PATIENCE, || (self::descriptors(&server).len() <= descriptors).then_some(()));
    if closed.is_none() {
        panic!("more than {descriptors} descriptors: {:#?}", self::descriptors(&server));
    }
    if let Some(before) = memory_kb {
        let now = resident_kb(&server);
        assert!(now <= before + GROWTH_KB_MAX, "{before} KB became {now} KB");
    }
    eprintln!("{} responses", truth.responses.load(Ordering::SeqCst));
    server.stop();
}

/// The server process: the master's only child.
fn process(server: &Server) -> u32 {
    let children = server.children();
    assert_eq!(children.len(), 1, "one server process");
    children[0]
}

/// What the descriptors of the server process are open for.
fn descriptors(server: &Server) -> Vec<String> {
    let path = format!("/proc/{}/fd", process(server));
    let descriptors = std::fs::read_dir(path).expect("the process is there");
    // One may be closed meanwhile.
    descriptors
        .flatten()
        .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
        .map(|target| target.display().to_string())
        .collect()
}

fn resident_kb(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", process(server));
    let status = std::fs::read_to_string(path).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
