//! `dashboard`: the page, and the stream of reports, whatever its client and the server do meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use nowait_testkit::http2::Http2;
use nowait_testkit::server::Signal;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server, ServerBuilder};

use crate::stage::{ask, exchanges, on_each_driver, refused, server, site};
use crate::tls::client::{Authority, TlsClient};

const SITE: &str = "location /dash/ { dashboard on interval=200ms; }
    location = /exact { dashboard on; }
    location /off/ { dashboard off; return 200 off; }";

/// Reads a stream over HTTP/1.1 without TLS.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    #[track_caller]
    fn open(server: &Server, target: &str) -> Events {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Events { stream, text: String::new() };
        events.wait("\r\n\r\n");
        events
    }

    /// Reads until the text holds `part`.
    #[track_caller]
    fn wait(&mut self, part: &str) {
        while !self.text.contains(part) {
            assert!(self.more(), "the stream ended: {}", self.text);
        }
    }

    /// Reads until so many reports have arrived.
    #[track_caller]
    fn wait_reports(&mut self, count: usize) {
        while self.reports() < count {
            assert!(self.more(), "the stream ended after {} reports", self.reports());
        }
    }

    fn reports(&self) -> usize {
        self.text.matches("\n\n").count() - usize::from(self.text.contains("retry: "))
    }

    fn more(&mut self) -> bool {
        let mut piece = vec![0; 1 << 20];
        let count = self.stream.read(&mut piece).unwrap();
        self.text.push_str(&String::from_utf8_lossy(&piece[..count]));
        count > 0
    }

    /// Reads the end of the body; true if the server has ended it as it should.
    fn ends(mut self) -> bool {
        while !self.text.ends_with("\r\n0\r\n\r\n") {
            if !self.more() {
                return false;
            }
        }
        true
    }
}

/// The data of the first event of a text.
#[track_caller]
fn first_report(text: &str) -> Value {
    let data = text.split("event: report\ndata: ").nth(1).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(data.split("\n\n").next().unwrap()).unwrap()
}

fn dashboard() -> ServerBuilder {
    server(SITE)
}

#[test]
fn the_page_is_one_file_with_a_strict_policy() {
    on_each_driver(&dashboard(), |server| {
        for target in ["/dash/", "/exact", "/exact?x"] {
            let page = ask(server, target, &["Accept: text/html,*/*;q=0.8"]);
            assert_eq!(page.status, 200);
            assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(page.header("vary"), Some("Accept"));
            let policy = page.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
            for part in [
                "script-src 'sha256-",
                "connect-src 'self'",
                "frame-ancestors 'self'",
                "require-trusted-types-for 'script'",
            ] {
                assert!(policy.contains(part), "{part}: {policy}");
            }
            assert!(!policy.contains("unsafe"), "{policy}");
            assert!(page.text().starts_with("<!doctype html>"), "{page}");
        }
        let off = ask(server, "/off/", &[]);
        assert_eq!(off.text(), "off");
    });
}

#[test]
fn methods_and_names() {
    exchanges(
        &dashboard(),
        &[
            ("HEAD /dash/ HTTP/1.1\nHost: a", "200\nContent-Type: text/html; charset=utf-8"),
            (
                "HEAD /dash/events HTTP/1.1\nHost: a",
                "200\nContent-Type: text/event-stream; charset=utf-8",
            ),
            ("POST /dash/ HTTP/1.1\nHost: a\nContent-Length: 0", "405"),
            ("PUT /dash/events HTTP/1.1\nHost: a\nContent-Length: 0", "405"),
            ("GET /dash/no HTTP/1.1\nHost: a", "404"),
            ("GET /dash/events/no HTTP/1.1\nHost: a\nAccept: text/event-stream", "404"),
        ],
    );
}

#[test]
fn wrong_parameters_are_refused() {
    for (arguments, reason) in [
        ("maybe", "invalid parameter \"maybe\""),
        ("on every=1s", "invalid parameter \"every=1s\""),
        ("on interval=199ms", "invalid interval in \"interval=199ms\""),
        ("on interval=61s", "invalid interval in \"interval=61s\""),
        ("on interval=x", "interval=x"),
        ("", "invalid number of arguments in \"dashboard\" directive"),
    ] {
        refused(&server(&format!("location / {{ dashboard {arguments}; }}")), reason);
    }
}

#[test]
fn reports_arrive_over_http_1() {
    on_each_driver(&dashboard(), |server| {
        for target in ["/dash/events", "/dash/", "/exact"] {
            let mut events = Events::open(server, target);
            events.wait_reports(2);
            let head = events.text.split("\r\n\r\n").next().unwrap();
            for line in ["HTTP/1.1 200 OK", "Cache-Control: no-store", "X-Accel-Buffering: no"] {
                assert!(head.contains(line), "{line}: {head}");
            }
            let report = first_report(&events.text);
            assert_eq!(report["generation"], 1);
            assert!(report["thread_pools"][0]["recent_wait_us"].is_object(), "{report}");
            assert!(report["findings"].is_array() && report["events"].is_array(), "{report}");
        }
        // Without an EventSource, by its name only.
        let mut client = server.client();
        client.send_get("/dash/events");
        until("a report", PATIENCE, || {
            let _ = client.arrives_within(PATIENCE);
            client.read_some(0);
            String::from_utf8_lossy(client.pending()).contains("data: {").then_some(())
        });
    });
}

#[test]
fn reports_arrive_over_http_2_and_tls() {
    let authority = Authority::new("CA");
    let own = authority.issue("localhost");
    let http = format!(
        "server {{ listen 127.0.0.1:%%PORT%%; http2 on; {SITE} }}
         server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name localhost;
         ssl_certificate %%DIR%%/a.pem; ssl_certificate_key %%DIR%%/a.key; {SITE} }}"
    );
    let builder = site(&http).file("a.pem", &own.chain).file("a.key", &own.key);
    on_each_driver(&builder, |server| {
        let mut http2 = Http2::to_port(server.port());
        let stream = http2.open("GET", "/dash/", &[("accept", "text/event-stream")], true);
        http2.until("two reports", |http2| {
            let body = String::from_utf8_lossy(&http2.so_far(stream).body).into_owned();
            body.matches("event: report").count() >= 2
        });
        let body = String::from_utf8_lossy(&http2.so_far(stream).body).into_owned();
        assert!(body.starts_with("retry: 1000\n\nevent: report\ndata: {"), "{body}");
        // Other streams of the connection go on.
        assert_eq!(http2.get("/dash/").status, 200);

        let socket = TcpStream::connect(("127.0.0.1", server.port_n(1))).unwrap();
        let mut tls = TlsClient::over(socket, &authority.client(None), "localhost");
        tls.send("GET /dash/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (mut text, mut piece) = (String::new(), vec![0; 65_536]);
        while text.matches("event: report").count() < 2 {
            let count = tls.reader().read(&mut piece).unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        // The certificate of the server is in it.
        assert_eq!(first_report(&text)["certificates"][0]["name"], "localhost");
    });
}

/// What a filter holds back is sent with each report.
#[test]
fn compressed_reports_arrive_one_by_one() {
    let site =
        server(&format!("gzip on; gzip_http_version 1.0; gzip_types text/event-stream; {SITE}"));
    on_each_driver(&site, |server| {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /dash/events HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let mut text = String::new();
        while text.matches("event: report").count() < 3 {
            let mut piece = vec![0; 1 << 20];
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "ended after {} bytes", bytes.len());
            bytes.extend_from_slice(&piece[..count]);
            let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            assert!(String::from_utf8_lossy(&bytes[..head]).contains("Content-Encoding: gzip"));
            // Everything that has arrived so far, without the end.
            let mut decoded = Vec::new();
            let _ = flate2::read::GzDecoder::new(&bytes[head + 4..]).read_to_end(&mut decoded);
            text = String::from_utf8_lossy(&decoded).into_owned();
        }
        assert_eq!(first_report(&text)["generation"], 1);
    });
}

/// Reads nothing: it gets no more than fits into the sockets, and nobody else waits for it.
#[test]
fn a_slow_reader_gets_fewer_reports() {
    const REPORTS: usize = 40;
    // Reports of about 300 KB.
    let zones: String = (0..190)
        .map(|n| format!("location /{n}/ {{ status_zone {n}-{}; }}\n", "x".repeat(1000)))
        .collect();
    let builder = server(&format!("{zones}\n{SITE}")).driver(Driver::Epoll);
    let server = builder.start();
    let mut slow = Events::open(&server, "/dash/");
    let mut quick = Events::open(&server, "/dash/");
    quick.wait_reports(REPORTS);
    // What is in the sockets by now, without waiting for more.
    slow.stream.set_nonblocking(true).unwrap();
    let mut piece = vec![0; 1 << 20];
    while let Ok(count) = slow.stream.read(&mut piece) {
        slow.text.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(slow.reports() < REPORTS, "{}", slow.reports());
    // It continues with current ones.
    slow.stream.set_nonblocking(false).unwrap();
    let before = slow.reports();
    slow.wait_reports(before + 2);
    drop((slow, quick));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_reload_ends_the_stream_and_frees_the_configuration() {
    on_each_driver(&dashboard(), |server| {
        let mut events = Events::open(server, "/dash/");
        events.wait_reports(1);
        server.reload();
        assert!(events.ends(), "not ended");
        server.wait_log("has released configuration 1");
        let mut again = Events::open(server, "/dash/");
        again.wait_reports(1);
        assert_eq!(first_report(&again.text)["generation"], 2);
    });
}

#[test]
fn a_shutdown_ends_the_stream() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = dashboard().driver(driver).start();
        let mut events = Events::open(&server, "/dash/");
        events.wait_reports(1);
        server.signal(Signal::QUIT);
        assert!(events.ends(), "not ended");
        assert_eq!(server.wait_exit(PATIENCE).code(), Some(0));
    }
}

/// All readers of an interval get the same report.
#[test]
fn readers_share_reports() {
    let server = server("location / { dashboard on interval=1s; }").workers(2).start();
    let mut readers: Vec<_> = (0..30).map(|_| Events::open(&server, "/")).collect();
    readers.iter_mut().for_each(|reader| reader.wait_reports(3));
    let times = |reader: &Events| -> Vec<u64> {
        let events = reader.text.split("\"time_ms\":").skip(1);
        events.map(|rest| rest.split([',', '}']).next().unwrap().parse().unwrap()).collect()
    };
    let mut all: Vec<u64> = readers.iter().flat_map(times).collect();
    let made = all.len();
    all.sort_unstable();
    all.dedup();
    // 30 readers have got at least three each; reports are told apart by their times.
    assert!(made >= 90 && all.len() * 10 <= made, "{} of {made}", all.len());
    assert_eq!(server.stop().code(), Some(0));
}
