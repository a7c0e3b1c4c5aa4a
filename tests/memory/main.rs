//! Memory per client: what clients hold that send or take little and stay for long, and what is left
//! when they have gone. Memory of many files ([`many_files`]), of clients that all ask at once and take
//! nothing ([`slow_readers`]), of uploads that are passed on as they arrive ([`slow_origins`]), and of very
//! many uploads with little memory ([`many_uploads`]).
//!
//! The bounds are some way above what is measured, so that another allocator or kernel does not break
//! a test, and below what a buffer that is kept for nothing would cost.

mod clients;
mod many_files;
mod many_uploads;
mod slow_origins;
mod slow_readers;

use std::time::Duration;

use clients::{ClientKind, Clients};
use nowait_testkit::server::all_children;
use nowait_testkit::wait::until;
use nowait_testkit::{Binary, Cgroup, Driver, Server};

const KB: u64 = 1024;
const MB: u64 = 1024 * KB;

/// How long the server may take until it has given back memory: it waits for some seconds whether the
/// clients come again.
const PATIENCE: Duration = Duration::from_secs(120);

const DRIVERS: [Driver; 2] = [Driver::Epoll, Driver::IoUring];

fn binary() -> Binary {
    Binary::nowait(env!("CARGO_BIN_EXE_nowait"))
}

/// The server, and an origin for what it passes on.
struct MemoryStage {
    server: Server,
    _origin: Server,
}

fn stage(driver: Driver) -> MemoryStage {
    let large = vec![b'x'; 1_000_000];
    let origin = Server::of(binary())
        .file("www/large", &large)
        .events("worker_connections 10000;")
        .http("server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/www; }")
        .start();
    let http = format!(
        "send_timeout 600s; client_body_timeout 600s; proxy_read_timeout 600s;
         server {{
             listen 127.0.0.1:%%PORT%% backlog=4096 sndbuf=32k;
             root %%DIR%%/www;
             location = /tiny {{ return 200 OK; }}
             location /file/ {{ alias %%DIR%%/www/; sendfile off; }}
             location /proxied/ {{ proxy_pass http://127.0.0.1:{}/; }}
         }}",
        origin.port()
    );
    let server = Server::of(binary())
        .driver(driver)
        .file("www/large", &large)
        .main("worker_rlimit_nofile 20000;")
        .events("worker_connections 10000;")
        .http(&http)
        .allow_log("is buffered to a temporary file")
        .allow_log("setrlimit(RLIMIT_NOFILE")
        .start();
    MemoryStage { server, _origin: origin }
}

/// All processes of the server.
fn processes(server: &Server) -> Vec<u32> {
    [vec![server.pid()], all_children(server.pid())].concat()
}

/// What all processes of the server have of their own in memory, bytes.
fn memory(server: &Server) -> u64 {
    let of = |pid: &u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
        let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kb.unwrap_or(0) * KB
    };
    processes(server).iter().map(of).sum()
}

/// The same, once it grows no more.
fn settled(server: &Server) -> u64 {
    const LOOKS: u32 = 20;
    let (mut most, mut unchanged) = (0, 0);
    until("memory that grows no more", PATIENCE, || {
        let memory = memory(server);
        unchanged = if memory > most { 0 } else { unchanged + 1 };
        most = most.max(memory);
        (unchanged == LOOKS).then_some(memory)
    })
}

/// What a client of this kind costs, bytes.
fn each(server: &Server, kind: ClientKind, count: usize) -> u64 {
    // What is made once is there then.
    drop(Clients::open(server.addr(), kind, 20));
    let before = settled(server);
    let clients = Clients::open(server.addr(), kind, count);
    let after = settled(server);
    drop(clients);
    after.saturating_sub(before) / count as u64
}

#[test]
fn a_slow_client_holds_no_more_than_the_configured_buffers() {
    const CLIENTS: usize = 500;
    // With nginx's defaults: a body of 16 KB; 32 KB of a response that is read ahead, and what is
    // being sent of it; two buffers of 32 KB of a file. Up to 5 KB go to the connection and its
    // request. The 5 MB of receive buffers that io_uring provides at most are made for all clients
    // together, during a burst: 10 KB for each of these. What remains is slack.
    let bounds = [
        (ClientKind::Idle, 15),
        (ClientKind::Upload, 36),
        (ClientKind::Proxied, 95),
        (ClientKind::File, 100),
    ];
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    let mut beyond = Vec::new();
    for driver in DRIVERS {
        for (kind, bound) in bounds {
            let stage = stage(driver);
            let each = each(&stage.server, kind, CLIENTS);
            eprintln!("{driver:?} {kind:?}: {:.1} KB", each as f64 / KB as f64);
            if each > bound * KB {
                beyond.push(format!("{driver:?}, {kind:?}: {each} bytes, not {bound} KB"));
            }
            assert_eq!(stage.server.get("/tiny").status, 200);
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[test]
fn memory_goes_back_to_the_system_when_clients_have_gone() {
    const CLIENTS: usize = 800;
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    for driver in DRIVERS {
        let MemoryStage { server, _origin } = stage(driver);
        drop(Clients::open(server.addr(), ClientKind::File, 20));
        let before = settled(&server);
        let clients = Clients::open(server.addr(), ClientKind::File, CLIENTS);
        let peak = settled(&server);
        let grown = peak.saturating_sub(before);
        assert!(grown > CLIENTS as u64 * 16 * KB, "{driver:?}: no peak: {grown} bytes");
        drop(clients);
        until("memory to be given back", PATIENCE, || {
            (memory(&server) < before + grown / 4).then_some(())
        });
        assert_eq!(server.get("/tiny").status, 200);
    }
}

/// 9,000 clients in proportion: as much memory for each as 128 MB and half of that again for so many.
#[test]
fn slow_clients_do_not_exhaust_a_memory_limit() {
    const CLIENTS: usize = 3000;
    const LIMIT: u64 = 96 * MB;
    if !clients::raise_limit(CLIENTS) {
        return;
    }
    for driver in DRIVERS {
        let Some(cgroup) = Cgroup::make(LIMIT) else { return };
        let stage = stage(driver);
        let server = &stage.server;
        // It may listen before its last process has begun; an answer shows that all are there.
        assert_eq!(server.get("/tiny").status, 200);
        let all = processes(server);
        all.iter().for_each(|pid| cgroup.take_in(*pid));
        let clients = Clients::open(server.addr(), ClientKind::Upload, CLIENTS);
        settled(server);
        assert_eq!(server.get("/tiny").status, 200, "a fresh client");
        let alive = processes(server);
        assert_eq!(alive, all, "{driver:?}: a process was killed");
        drop(clients);
        drop(stage);
    }
}
