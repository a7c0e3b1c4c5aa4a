//! `kill -9`, repeatedly: of a process without a master, or of the server process of a master,
//! which starts another.
//!
//! A kill comes after some number of responses, wherever the fills under way happen to be. After
//! each start all objects are requested. Objects that were on disk before are still there, purged
//! ones never come back, and no temporary file remains.

use std::path::Path;
use std::sync::atomic::Ordering;

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server, TempDir};

use crate::binary;
use crate::load::{Got, Mix, Truth};
use crate::objects::OBJECTS;
use crate::origin::VersionedOrigin;

/// Kills per test; `NOWAIT_TEST_ROUNDS` overrides it.
const ROUNDS: u64 = 5;
const CLIENTS: u64 = 4;

/// A cache below `%%CACHE%%`, with additional parameters `%%MORE%%`.
pub const HTTP: &str = "
    map $request_method $purge { default ''; PURGE 1; }
    proxy_cache_path %%CACHE%%/objects levels=1:2 keys_zone=objects:1m inactive=1h %%MORE%%;
    proxy_temp_path %%CACHE%%/temp;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache objects;
        proxy_cache_key $host$uri;
        proxy_cache_valid 1h;
        proxy_cache_lock on;
        proxy_cache_purge $purge;
        proxy_cache_bypass $arg_fresh;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass http://%%ORIGIN%%; }
    }";

fn rounds() -> u64 {
    let rounds = std::env::var("NOWAIT_TEST_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(ROUNDS)
}

#[test]
fn the_only_process_is_killed() {
    run(Driver::Epoll, Kill::OnlyProcess, "");
}

#[test]
fn the_server_process_of_a_master_is_killed() {
    run(Driver::IoUring, Kill::ServerProcess, "");
}

#[test]
fn a_cache_with_a_memory_tier_is_killed() {
    run(Driver::IoUring, Kill::OnlyProcess, "memory=8m");
}

#[test]
fn a_cache_with_temporary_files_elsewhere_is_killed() {
    run(Driver::Epoll, Kill::OnlyProcess, "use_temp_path=on");
}

/// Which process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    /// There is no master.
    OnlyProcess,
    /// The master stays, and starts another.
    ServerProcess,
}

/// Runs some rounds on one cache with these additional parameters.
fn run(driver: Driver, kill: Kill, parameters: &str) {
    let dir = TempDir::new("crash");
    let origin = VersionedOrigin::start();
    let builder = Server::of(binary())
        .driver(driver)
        .workers(2)
        .http(HTTP)
        .master_process(kill == Kill::ServerProcess)
        .variable("CACHE", dir.path().display())
        .variable("MORE", parameters)
        .variable("ORIGIN", origin.addr())
        .allow_log("exited on signal 9");
    let mut server = builder.clone().start();
    let mut truth = Truth::new(origin, server.addr());
    let mut before: Vec<Option<(Got, u64)>> = vec![None; OBJECTS];
    for round in 1..=rounds() {
        before = verify(&truth, &before);
        no_temporary_files(dir.path());
        if kill == Kill::OnlyProcess && round.is_multiple_of(2) {
            // Saves its index, which is outdated when the process is killed next.
            server.stop();
            server = builder.clone().start();
            truth.addr = server.addr();
            before = verify(&truth, &before);
        }
        truth.over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let load = |client| {
                let truth = &truth;
                scope.spawn(move || truth.load(round * CLIENTS + client, Mix::MayBeKilled))
            };
            let clients: Vec<_> = (0..CLIENTS).map(load).collect();
            truth.wait_for(37 * round, &clients);
            match kill {
                Kill::OnlyProcess => server.signal(Signal::KILL),
                Kill::ServerProcess => {
                    let children = server.children();
                    assert!(!children.is_empty());
                    children.into_iter().for_each(|pid| signal(pid, Signal::KILL));
                }
            }
            truth.over.store(true, Ordering::SeqCst);
        });
        if kill == Kill::OnlyProcess {
            server.wait_exit(PATIENCE);
            server = builder.clone().start();
            truth.addr = server.addr();
        }
        // The master's new server process accepts connections at once: the socket stayed open.
    }
    let left = verify(&truth, &before).iter().flatten().count();
    assert!(left > OBJECTS / 2, "only {left} objects are left: this is no cache");
    server.stop();
}

/// Requests every object once. Objects that came from the disk after the last start, and were not
/// changed since, must come from the disk again, unchanged. Returns those that come from the disk
/// now.
fn verify(truth: &Truth, before: &[Option<(Got, u64)>]) -> Vec<Option<(Got, u64)>> {
    let ask = |object| {
        let changes = truth.changes(object);
        let got = until("an answer", PATIENCE, || truth.get(object).ok());
        if let Some((was, known)) = before[object]
            && known == changes
        {
            assert_eq!(got, was, "object {object} was on the disk, and it has not been changed");
        }
        got.hit.then_some((got, changes))
    };
    (0..OBJECTS).map(ask).collect()
}

/// Waits until the loader has removed left-over files, and the fills have ended.
pub fn no_temporary_files(dir: &Path) {
    until("temporary files to go", PATIENCE, || temporary_files(dir).is_empty().then_some(()));
}

fn temporary_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(temporary_files(&path)),
            Ok(_) if path.extension().is_some_and(|extension| extension == "tmp") => {
                found.push(path);
            }
            _ => {}
        }
    }
    found
}
