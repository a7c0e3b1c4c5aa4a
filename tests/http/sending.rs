//! How bodies are sent: files by every way, speed limits, pools.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nowait_testkit::{Client, Server};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::stage::{ask, on_each_driver, pattern, server, site, wait_file};

#[test]
fn every_way_of_sending_sends_the_same() {
    let site = server(
        "location /plain/ { alias %%DIR%%/html/; }
         location /sendfile/ { alias %%DIR%%/html/; sendfile on; }
         location /nopush/ { alias %%DIR%%/html/; sendfile on; tcp_nopush on; tcp_nodelay off; }
         location /threads/ { alias %%DIR%%/html/; sendfile on; aio threads; }
         location /pool/ { alias %%DIR%%/html/; aio threads=pool_$arg_p; }
         location /direct/ { alias %%DIR%%/html/; directio 1; aio on; }
         location /directsync/ { alias %%DIR%%/html/; directio 4k; directio_alignment 4k; output_buffers 1 16k; }
         location /mixed/ { alias %%DIR%%/html/; directio 100k; sendfile on; aio threads; }
         location /tiny/ { alias %%DIR%%/html/; output_buffers 2 512; read_ahead 4k; }",
    )
    .main("thread_pool pool_a threads=2; thread_pool pool_b threads=1 max_queue=100;");
    let sizes = [1, 511, 512, 4095, 4096, 4097, 61_440, 65_537, 1_000_001];
    let site =
        sizes.iter().fold(site, |site, size| site.file(&format!("html/{size}"), pattern(*size)));
    if crate::stage::asks_nginx() {
        return; // it has no `aio on` with threads
    }
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for way in
            ["plain", "sendfile", "nopush", "threads", "direct", "directsync", "mixed", "tiny"]
        {
            for size in sizes {
                let response = client.get(&format!("/{way}/{size}"));
                assert!(response.body == pattern(size), "{way} {size}");
            }
        }
        for pool in ["a", "b"] {
            let response = client.get(&format!("/pool/65537?p={pool}"));
            assert!(response.body == pattern(65_537), "{pool}");
        }
    });
}

#[test]
fn a_pool_that_is_not_defined_is_a_configuration_error() {
    let failure = server("aio threads=nosuch;").try_start().expect_err("no such pool");
    let said = failure.stderr + &failure.log;
    assert!(said.contains("unknown thread pool \"nosuch\" in"), "{said}");
}

#[test]
fn instead_of_a_pool_that_a_variable_names_wrongly_the_default_one_serves() {
    let site = server("aio threads=pool_$arg_p; sendfile on;")
        .main("thread_pool pool_a threads=2;")
        .file("html/a", pattern(100_000))
        .allow_log("thread pool");
    on_each_driver(&site, |server| {
        if server.binary().is_nginx() {
            return; // cuts the connection after the head
        }
        assert_eq!(ask(server, "/a?p=a", &[]).status, 200);
        assert!(ask(server, "/a?p=x", &[]).body == pattern(100_000));
        server.wait_log("thread pool \"pool_x\" not found, using \"default\"");
    });
}

#[test]
fn the_speed_can_be_limited() {
    let site = server(
        "location /limited { limit_rate 20k; }
         location /after { limit_rate 1; limit_rate_after 90k; }
         location /variable { limit_rate $arg_rate; }",
    )
    .file("html/limited", pattern(60_000))
    .file("html/after", pattern(90_000))
    .file("html/variable", pattern(60_000));
    on_each_driver(&site, |server| {
        let timed = |path: &str, len: usize| {
            let start = Instant::now();
            let response = ask(server, path, &[]);
            assert!(response.body == pattern(len), "{path}");
            start.elapsed()
        };
        // The first second's share comes at once; the rest takes two more seconds.
        let least = Duration::from_millis(1500);
        assert!(timed("/limited", 60_000) >= least);
        assert!(timed("/variable?rate=20k", 60_000) >= least);
        // Nothing waits for what comes at this rate.
        timed("/after", 90_000);
        timed("/variable", 60_000);
        timed("/variable?rate=0", 60_000);
    });
}

#[test]
fn the_speed_of_heads_is_limited_too() {
    let site = site(&format!(
        "log_format bytes '$uri $bytes_sent'; access_log %%DIR%%/bytes.log bytes;
         server {{
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             add_header X-Long {};
             limit_rate 1k;
         }}",
        "x".repeat(2500)
    ))
    .file("html/a", "content");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send_get("/a");
        let mut received = client.read_some(100_000);
        assert!(received.starts_with(b"HTTP/1.1 200 OK") && received.len() <= 1024);
        while !received.ends_with(b"\r\n\r\ncontent") {
            received.extend(client.read_some(100_000));
        }
        server.wait_file("bytes.log", &format!("/a {}\n", received.len()));
        assert_eq!(client.get("/none").status, 404);
    });
}

#[test]
fn several_limited_responses_do_not_wait_for_each_other() {
    // Each takes much longer than a client has patience.
    let site = server("location / { limit_rate 1k; }").file("html/a", pattern(1_000_000));
    on_each_driver(&site, |server| {
        let mut clients: Vec<_> = (0..5).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.send_get("/a"));
        for client in &mut clients {
            assert!(client.read_some(100).starts_with(b"HTTP/1.1 200 OK"));
        }
    });
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_the_connection() {
    const SIZE: usize = 24 << 20;
    const SHRUNK: usize = 1 << 20;
    let site = server(
        "location /sendfile/ { alias %%DIR%%/html/; sendfile on; }
         location /memory/ { alias %%DIR%%/html/; sendfile off; }
         location /threads/ { alias %%DIR%%/html/; sendfile on; aio threads; }",
    )
    .allow_log("truncated")
    .allow_log("pread() read only")
    .allow_log("was replaced")
    .allow_log("sendfile() reported that \"");
    let body = pattern(SIZE);
    on_each_driver(&site, |server| {
        for way in ["sendfile", "memory", "threads"] {
            let path = server.write("html/shrinks", &body);
            let mut client = server.client();
            client.send_get(&format!("/{way}/shrinks"));
            // The head and some content have come; most can't have been sent.
            let mut got = client.read_some(1000);
            std::fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(SHRUNK as u64)
                .unwrap();
            let mut rest = Vec::new();
            loop {
                match client.arrives_within(Duration::from_secs(30)) {
                    nowait_testkit::client::Arrival::Bytes(_) => {
                        rest.append(&mut client.read_some(usize::MAX));
                    }
                    nowait_testkit::client::Arrival::Nothing => panic!("{way}: it hangs"),
                    _ => break,
                }
            }
            got.append(&mut rest);
            let head = got.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            let sent = &got[head..];
            assert!(sent.len() < SIZE, "{way}: it can't have been sent whole");
            let kept = sent.len().min(SHRUNK);
            assert!(sent[..kept] == body[..kept], "{way}: wrong bytes were sent");
            // What the kernel had queued of the rest it may have cleared meanwhile.
            let cleared = way != "memory" && sent.contains(&0);
            assert!(cleared || body.starts_with(sent), "{way}: wrong bytes were sent");
            wait_file(server, "access.log", &format!("GET /{way}/shrinks"));
        }
    });
}

#[test]
fn a_file_that_vanishes_while_it_is_sent_is_sent() {
    const SIZE: usize = 24 << 20;
    let body = pattern(SIZE);
    let site = server("sendfile on;");
    on_each_driver(&site, |server| {
        let path = server.write("html/vanishes", &body);
        let mut client = server.client();
        client.send_get("/vanishes");
        let start = client.read_some(10);
        std::fs::remove_file(&path).unwrap();
        let mut got = start;
        while got.len() < SIZE {
            got.append(&mut client.read_some(usize::MAX));
        }
        assert_eq!(server.get("/vanishes").status, 404);
    });
}

#[test]
fn a_client_that_leaves_disturbs_nobody() {
    let site = server("sendfile on;").file("html/big", pattern(24 << 20)).file("html/a", "A");
    on_each_driver(&site, |server| {
        for _ in 0..20 {
            let mut client = server.client();
            client.send_get("/big");
            client.read_some(100);
            client.reset();
        }
        assert_eq!(server.get("/a").text(), "A");
    });
}

/// Whether the server's socket of this client's connection has `TCP_NODELAY` set; `None` where that
/// can't be seen.
fn has_nodelay(server: &Server, client: &Client) -> Option<bool> {
    let address = client.stream().local_addr().unwrap();
    let ours = |socket: &OwnedFd| {
        let peer = rustix::net::getpeername(socket).ok()??;
        (SocketAddr::try_from(peer).ok()? == address).then(|| sockopt::tcp_nodelay(socket).unwrap())
    };
    let open = server.descriptors()?;
    let mut sockets =
        open.iter().filter(|open| open.target.to_string_lossy().starts_with("socket:"));
    let found = sockets.find_map(|open| {
        let pid = Pid::from_raw(open.pid as i32)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        ours(&pidfd_getfd(&pidfd, open.number, PidfdGetfdFlags::empty()).ok()?)
    });
    Some(found.expect("the server has the connection"))
}

#[test]
fn pieces_of_a_response_do_not_wait_for_acknowledgements() {
    if crate::stage::asks_nginx() {
        return; // sets it after the first response
    }
    let site = site(
        "server { listen 127.0.0.1:%%PORT%%; location / { return 200 ok; }
             location /off { tcp_nodelay off; return 200 ok; } }
         server { listen 127.0.0.1:%%PORT_1%%; tcp_nodelay off; location / { return 200 ok; }
             location /on { tcp_nodelay on; return 200 ok; } }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        for (target, set) in [("/", true), ("/off", false), ("/off", false), ("/", true)] {
            client.get(target);
            let Some(is_set) = has_nodelay(server, &client) else { return };
            assert_eq!(is_set, set, "{target}");
        }
        let mut client = Client::to_port(server.port_n(1));
        for (target, set) in [("/", false), ("/on", true), ("/", false)] {
            client.get(target);
            let Some(is_set) = has_nodelay(server, &client) else { return };
            assert_eq!(is_set, set, "{target} of the other");
        }
    });
}
