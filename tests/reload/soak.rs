//! Mixed load under constant reloads that change the workers and their event mechanism: every
//! response is checked byte by byte, and descriptors, threads and memory are watched.
//!
//! Run by `cargo xtask soak`, which says for how long (`NOWAIT_SOAK_SECONDS`) and with which choices
//! (`NOWAIT_SOAK_SEED`). The load comes in phases with a rest after each: only at rest can two
//! readings be compared. The pauses here make up the load; nothing depends on their length.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nowait_testkit::server::Usage;
use nowait_testkit::wait::{PATIENCE, try_until};
use nowait_testkit::{Binary, Client, Driver, Server, TempDir};

use crate::echo::Echo;
use crate::load::{Mix, Truth};
use crate::objects::{self, OBJECTS, Xorshift};
use crate::origin::VersionedOrigin;

/// Between two reloads.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// Phases of the load.
const PHASES: u32 = 4;
/// The first ones warm up: caches and the allocator reach their size in the second.
const WARM_UP: u32 = 2;
/// Idle connections to upstream servers and open files of hot objects at rest differ so much.
const DESCRIPTORS_MORE: usize = 24;
/// Threads that later phases may add. Pools start threads on demand and keep them: the cache's pool up to
/// 16, the default pool the 8 of the configuration. A run of two minutes or more exceeds this if each reload
/// leaks a thread; shorter ones rely on `leaks.rs`.
const THREADS_MORE: usize = 16 + 8;
/// What the allocator keeps differs from run to run.
const GROWTH_KB_MAX: u64 = 32 << 10;

const CONFIG: &str = "%%MAIN%%
thread_pool default threads=8;
events { %%EVENTS%% }
http {
    %%HTTP%%
    access_log off;
    error_log %%DIR%%/http.log error;
    keepalive_requests 1000000;
    client_max_body_size 10m;
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    map $request_method $purge { default ''; PURGE 1; }
    proxy_cache_path %%CACHE%%/objects levels=1:2 keys_zone=objects:1m inactive=1h max_size=12m
                     manager_files=20 manager_sleep=10ms memory=2m;
    upstream echo { server %%ECHO%%; keepalive 8; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache_key $host$uri;
        proxy_cache_valid 1h;
        proxy_cache_lock on;
        proxy_cache_purge $purge;
        proxy_cache_bypass $arg_fresh;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_cache objects; proxy_pass http://%%ORIGIN%%; }
        location /echo { proxy_pass http://echo; }
        location /copied/ { alias %%DIR%%/www/; sendfile off; }
        location /sent/ { alias %%DIR%%/www/; sendfile on; }
    }
}
stream {
    server { listen 127.0.0.1:%%PORT_1%%; proxy_pass %%ECHO%%; }
}";

/// What every client knows.
struct Site {
    http: u16,
    stream: u16,
    over: AtomicBool,
    responses: AtomicU64,
}

/// What one client does until it is over.
type Play = fn(&Site, &mut Xorshift);

const PLAYS: [(&str, Play); 7] = [
    ("files", files),
    ("echo", echo),
    ("stream", stream),
    ("slow", slow),
    ("once", once),
    ("abort", abort),
    ("files", files),
];

/// Clients of the cache.
const CACHE_CLIENTS: u64 = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "runs as long as it is told: cargo xtask soak"]
fn mixed_load_with_reloads() {
    let length = Duration::from_secs(setting("NOWAIT_SOAK_SECONDS", 60));
    let seed = setting("NOWAIT_SOAK_SEED", 1);
    let dir = TempDir::new("soak");
    let (origin, echo) = (VersionedOrigin::start(), Echo::start());
    let mut builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
        .config(CONFIG)
        .driver(Driver::Epoll)
        .workers(3)
        .variable("CACHE", dir.path().display())
        .variable("ORIGIN", origin.addr())
        .variable("ECHO", echo.addr());
    for object in 0..OBJECTS {
        builder = builder.file(&format!("www/{object}"), objects::body(object, 0));
    }
    let mut server = builder.start();
    let truth = Truth::new(origin, server.addr());
    let mut site = Site {
        http: server.port(),
        stream: server.port_n(1),
        over: AtomicBool::new(false),
        responses: AtomicU64::new(0),
    };
    let mut random = Xorshift::new(seed);
    let mut first: Option<Usage> = None;
    for phase in 0..PHASES {
        let end = Instant::now() + length / PHASES;
        let reloads = load(&mut server, &truth, &mut site, &mut random, end);
        // Without a reading (rights are missing) only the bytes are checked.
        let Some(usage) = rest(&server, first) else { continue };
        let responses = site.responses.load(Ordering::Relaxed);
        let cached = truth.responses.load(Ordering::Relaxed);
        eprintln!(
            "phase {phase}: {reloads} reloads, {responses} and {cached} responses; {usage:?}"
        );
        if phase + 1 >= WARM_UP {
            first.get_or_insert(usage);
        }
    }
    for log in ["error.log", "http.log"] {
        let text = server.read(log);
        let bad = ["[error]", "[crit]", "[alert]", "[emerg]", "panicked"];
        let bad = text.lines().filter(|line| bad.iter().any(|word| line.contains(word)));
        // A busy machine may take the second that a reload gives to the disk of a cache.
        let bad = bad.filter(|line| !line.contains("does not answer; going on without it"));
        let lines: Vec<_> = bad.take(20).collect();
        assert!(lines.is_empty(), "{log}:\n{}", lines.join("\n"));
    }
    server.stop();
}

/// One phase: clients and reloads side by side. Returns the number of reloads.
fn load(
    server: &mut Server,
    truth: &Truth,
    site: &mut Site,
    random: &mut Xorshift,
    end: Instant,
) -> usize {
    site.over.store(false, Ordering::SeqCst);
    truth.over.store(false, Ordering::SeqCst);
    let site = &*site;
    let mut reloads = 0;
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (name, play) in PLAYS {
            let mut random = Xorshift::new(random.next());
            let named = std::thread::Builder::new().name(name.to_owned());
            let play = move || {
                while !site.over.load(Ordering::Relaxed) {
                    play(site, &mut random);
                }
            };
            clients.push(named.spawn_scoped(scope, play).expect("a thread"));
        }
        for _ in 0..CACHE_CLIENTS {
            let seed = random.next();
            clients.push(scope.spawn(move || truth.load(seed, Mix::AllAnswered)));
        }
        let mut next = Instant::now();
        while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
            if Instant::now() < next {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            next = Instant::now() + RELOAD_INTERVAL;
            server.set_workers(1 + random.below(4));
            if random.below(3) == 0 {
                server.set_driver([Driver::Epoll, Driver::IoUring][random.below(2)]);
            }
            server.reload();
            reloads += 1;
        }
        site.over.store(true, Ordering::SeqCst);
        truth.over.store(true, Ordering::SeqCst);
    });
    // Each rest is that of the same server.
    server.set_workers(2);
    server.set_driver(Driver::Epoll);
    server.reload();
    reloads + 1
}

/// What the server takes without load, when it is no more than after the warm-up. Open files
/// of hot objects and idle connections are closed after some seconds.
fn rest(server: &Server, first: Option<Usage>) -> Option<Usage> {
    server.usage()?;
    let mut last = Usage::default();
    let mut same = 0;
    let usage = try_until(2 * PATIENCE, || {
        let now = server.usage()?;
        same = if now.descriptors == last.descriptors && now.threads == last.threads {
            same + 1
        } else {
            0
        };
        last = now;
        let few = first.is_none_or(|first| {
            now.descriptors <= first.descriptors + DESCRIPTORS_MORE
                && now.threads <= first.threads + THREADS_MORE
                && now.memory_kb <= first.memory_kb + GROWTH_KB_MAX
        });
        (few && same >= 20).then_some(now)
    });
    assert!(usage.is_some(), "{first:?} became {last:?}");
    usage
}

/// A path of a file, and what it holds.
fn file(random: &mut Xorshift) -> (String, Vec<u8>) {
    let object = random.below(OBJECTS);
    let place = ["copied", "sent"][random.below(2)];
    (format!("/{place}/{object}"), objects::body(object, 0))
}

/// Asks for a file, or a part of it, on an open connection.
fn ask(client: &mut Client, random: &mut Xorshift) {
    let (path, body) = file(random);
    let range = (random.below(3) == 0 && !body.is_empty()).then(|| {
        let first = random.below(body.len());
        first..first + 1 + random.below(body.len() - first)
    });
    let field = range
        .as_ref()
        .map(|range| format!("Range: bytes={}-{}\r\n", range.start, range.end - 1))
        .unwrap_or_default();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
    let response = client.response();
    let (status, expected) = match range {
        Some(range) => (206, &body[range]),
        None => (200, &body[..]),
    };
    assert_eq!(response.status, status, "{path} {field}");
    assert!(response.body == expected, "{path} {field}: other bytes");
}

/// Files over a connection that is kept.
fn files(site: &Site, random: &mut Xorshift) {
    let mut client = Client::to_port(site.http);
    for _ in 0..1 + random.below(400) {
        if site.over.load(Ordering::Relaxed) {
            return;
        }
        ask(&mut client, random);
        site.responses.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection for each request.
fn once(site: &Site, random: &mut Xorshift) {
    ask(&mut Client::to_port(site.http), random);
    site.responses.fetch_add(1, Ordering::Relaxed);
}

/// Bodies of all sizes to an origin that sends them back.
fn echo(site: &Site, random: &mut Xorshift) {
    post(site, random, site.http, 200);
}

/// The same through `stream`: a session outlives many reloads.
fn stream(site: &Site, random: &mut Xorshift) {
    post(site, random, site.stream, 2000);
}

fn post(site: &Site, random: &mut Xorshift, port: u16, requests: usize) {
    let mut client = Client::to_port(port);
    for _ in 0..1 + random.below(requests) {
        if site.over.load(Ordering::Relaxed) {
            return;
        }
        let body = objects::body(random.below(OBJECTS), random.next());
        let head =
            format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        client.send([head.as_bytes(), &body].concat());
        let response = client.response();
        assert_eq!(response.status, 200, "POST of {} bytes", body.len());
        assert!(response.body == body, "POST of {} bytes: other bytes", body.len());
        site.responses.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a large file in small pieces.
fn slow(site: &Site, random: &mut Xorshift) {
    let (path, body) = file(random);
    let mut client = Client::to_port(site.http);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let mut all = Vec::new();
    loop {
        let piece = client.read_some(1 + random.below(20_000));
        if piece.is_empty() {
            break;
        }
        all.extend_from_slice(&piece);
        std::thread::sleep(Duration::from_millis(random.below(8) as u64));
    }
    let head = all.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert!(all.starts_with(b"HTTP/1.1 200") && all[head..] == body, "{path}: other bytes");
    site.responses.fetch_add(1, Ordering::Relaxed);
}

/// Leaves in the middle of a response.
fn abort(site: &Site, random: &mut Xorshift) {
    let (path, _) = file(random);
    let mut client = Client::to_port(site.http);
    client.send_get(&path);
    client.read_some(1 + random.below(100_000));
    if random.below(2) == 0 {
        client.reset();
    }
}
