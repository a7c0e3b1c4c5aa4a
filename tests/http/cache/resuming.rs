//! A fill that breaks off and is completed by a range request: every way of the origin's to send and to
//! break off, with clients over every transport.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nowait_testkit::http2::{ErrorCode, Limits};
use nowait_testkit::http2_origin::Http2Peer;
use nowait_testkit::{Driver, Link, ServerBuilder, wait};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::transport::{TestRequest, Transport, origin_tls, site};

/// How the first response ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyEnd {
    /// The connection is closed.
    Closes,
    /// The connection stays, and nothing more comes.
    Stops,
    /// The stream is reset, which HTTP/2 alone can do.
    Resets,
}

/// An origin's way to send.
#[derive(Clone, Copy, Debug)]
struct Way {
    secure: bool,
    http2: bool,
    /// The first response states its length.
    length: bool,
    end: EarlyEnd,
}

/// Sends `abc` of `abcdefghi`, and the rest when it is asked for it.
struct PartialOrigin {
    way: Way,
    port: u16,
    state: Mutex<OriginState>,
}

#[derive(Default)]
struct OriginState {
    /// The fields of each request, as they were sent or decoded.
    requests: Vec<String>,
    /// The first response may end.
    may_end: bool,
}

impl PartialOrigin {
    /// Runs until the tests end.
    fn start(way: Way) -> Arc<PartialOrigin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let origin = Arc::new(PartialOrigin { way, port, state: Mutex::default() });
        let shared = origin.clone();
        let tls = origin_tls(way.http2);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (origin, tls) = (shared.clone(), tls.clone());
                thread::spawn(move || origin.serve(socket.unwrap(), tls));
            }
        });
        origin
    }

    fn state(&self) -> std::sync::MutexGuard<'_, OriginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, socket: TcpStream, tls: Arc<ServerConfig>) {
        socket.set_nodelay(true).unwrap();
        match self.way.secure {
            true => {
                let tls = ServerConnection::new(tls).unwrap();
                self.answer(StreamOwned::new(tls, socket));
            }
            false => self.answer(socket),
        }
    }

    fn answer(&self, link: impl Link + 'static) {
        match self.way.http2 {
            true => self.http2(Http2Peer::above(link, Limits::default())),
            false => self.http1(link),
        }
    }

    /// Notes a request; whether it is the first one.
    fn note(&self, request: String) -> bool {
        let mut state = self.state();
        state.requests.push(request);
        state.requests.len() == 1
    }

    /// Waits until the first response may end.
    fn wait(&self) {
        wait::until("the end of a response", wait::PATIENCE, || self.state().may_end.then_some(()));
    }

    fn http1(&self, mut link: impl Link) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match link.read(&mut byte) {
                Ok(1) => request.push(byte[0]),
                _ => return,
            }
        }
        let is_first = self.note(String::from_utf8_lossy(&request).to_ascii_lowercase());
        let (fields, content, whole) = match is_first {
            true => ("200 OK\r\nCache-Control: max-age=60", "abc", 9),
            false => ("206 Partial Content\r\nContent-Range: bytes 3-8/9", "defghi", 6),
        };
        let (framing, content) = match (self.way.length, is_first) {
            (true, _) => (format!("Content-Length: {whole}"), content.to_owned()),
            (false, first) => {
                let end = if first { "" } else { "0\r\n\r\n" };
                let content = format!("{}\r\n{content}\r\n{end}", content.len());
                ("Transfer-Encoding: chunked".to_owned(), content)
            }
        };
        let reply = format!("HTTP/1.1 {fields}\r\nETag: \"a\"\r\n{framing}\r\n\r\n{content}");
        let _ = link.write_all(reply.as_bytes()).and_then(|()| link.flush());
        if is_first && self.way.end == EarlyEnd::Closes {
            return self.wait();
        }
        // Until the server closes.
        let _ = link.read(&mut [0]);
    }

    fn http2(&self, mut peer: Http2Peer) {
        let mut answered = 0;
        loop {
            peer.until("a request", |peer| peer.closed || peer.count() > answered);
            if peer.closed {
                return;
            }
            let stream = peer.streams()[answered];
            answered += 1;
            let fields = &peer.asked(stream).fields;
            let lines = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            if !self.note(lines.collect()) {
                let fields = [("etag", "\"a\""), ("content-range", "bytes 3-8/9")];
                peer.respond(stream, 206, &fields, false);
                peer.data(stream, b"defghi", true);
                continue;
            }
            let mut fields = vec![("etag", "\"a\""), ("cache-control", "max-age=60")];
            if self.way.length {
                fields.push(("content-length", "9"));
            }
            peer.respond(stream, 200, &fields, false);
            peer.data(stream, b"abc", false);
            match self.way.end {
                EarlyEnd::Stops => {}
                EarlyEnd::Closes => return self.wait(),
                EarlyEnd::Resets => {
                    self.wait();
                    peer.reset(stream, ErrorCode::INTERNAL_ERROR);
                }
            }
        }
    }
}

/// Everything that an origin can do.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for secure in [false, true] {
        for http2 in [false, true] {
            for length in [false, true] {
                for end in [EarlyEnd::Closes, EarlyEnd::Stops, EarlyEnd::Resets] {
                    if end != EarlyEnd::Resets || http2 {
                        ways.push(Way { secure, http2, length, end });
                    }
                }
            }
        }
    }
    ways
}

/// A server before this origin, with a cache.
fn before(origin: &PartialOrigin) -> ServerBuilder {
    let way = origin.way;
    let scheme = if way.secure { "https" } else { "http" };
    let version = if way.http2 { "2" } else { "1.1" };
    // Otherwise the test says when the response ends.
    let timeout = if way.end == EarlyEnd::Stops { "300ms" } else { "60s" };
    let builder = site(&format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         server {{
             %%LISTEN%%
             add_header X-Cache $upstream_cache_status;
             proxy_cache one;
             proxy_cache_lock on;
             proxy_cache_lock_age 1h;
             proxy_force_ranges on;
             proxy_http_version {version};
             proxy_read_timeout {timeout};
             location / {{ proxy_pass {scheme}://127.0.0.1:{}; }}
         }}",
        origin.port
    ));
    builder.allow_log("upstream")
}

/// The first of the clients makes the server fill its cache; the others read along.
#[track_caller]
fn completes(way: Way, driver: Driver, transports: [Transport; 4]) {
    let origin = PartialOrigin::start(way);
    let server = before(&origin).driver(driver).start();
    let clients = transports.map(|transport| {
        let mut client = transport.send(&server, &TestRequest::default());
        client.until(b"abc");
        client
    });
    origin.state().may_end = true;
    for (client, transport) in clients.into_iter().zip(transports) {
        let response = client.response();
        let got = (response.status, response.text());
        assert_eq!(got, (200, "abcdefghi".to_owned()), "{transport:?}");
    }
    for transport in transports {
        let response = transport.get(&server, "/");
        let got = (response.header("X-Cache"), response.text());
        assert_eq!(got, (Some("HIT"), "abcdefghi".to_owned()), "{transport:?}");
    }
    let requests = origin.state().requests.clone();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[1].contains("\r\nrange: bytes=3-\r\n"), "{}", requests[1]);
    assert!(requests[1].contains("\r\nif-range: \"a\"\r\n"), "{}", requests[1]);
    server.stop();
}

#[test]
fn fills_are_completed_for_clients_of_all_transports() {
    for (number, way) in ways().into_iter().enumerate() {
        for (driver, more) in [(Driver::Epoll, 0), (Driver::IoUring, 2)] {
            eprintln!("{way:?} {driver:?}");
            // Each transport is sometimes that of the request which fills the cache.
            let mut transports = Transport::ALL;
            transports.rotate_left((number + more) % 4);
            completes(way, driver, transports);
        }
    }
}
