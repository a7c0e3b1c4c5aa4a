//! Upstream servers, and those who pretend to be some.

use nowait_testkit::dns::{A, DnsAnswer};
use nowait_testkit::http2::Http2;
use nowait_testkit::origin::Step;
use nowait_testkit::{DnsServer, Driver, Origin};

use super::{pieces, with_origin};
use crate::fastcgi;
use crate::passing::{answer, ok};
use crate::stage::{ask, on_each_driver, site};

/// CVE-2026-1642: an attacker between this server and a TLS upstream answers in plain text, before the
/// request.
#[test]
fn plain_text_before_a_handshake() {
    let injected = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nX-Injected: 1\r\n\r\ninjected";
    for version in ["1.1", "2"] {
        let scripts = || (0..4).map(|_| vec![Step::reply(injected), Step::HalfClose]).collect();
        let http = format!(
            "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
             server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version {version};
                 proxy_next_upstream off;
                 location / {{ proxy_pass https://ORIGIN; }}
                 location /cached {{
                     proxy_pass https://ORIGIN; proxy_cache zone; proxy_cache_valid any 1h;
                 }} }}"
        );
        with_origin(scripts, &http, |server, _| {
            for path in ["/", "/cached", "/", "/cached"] {
                let response = ask(server, path, &[]);
                assert_eq!(response.status, 502);
                assert_eq!(response.header("x-injected"), None);
                assert!(!response.text().contains("injected"), "{response}");
            }
        });
    }
}

/// nginx until 1.29.4: a bad response that came before the request is no part of the next server's.
#[test]
fn an_answer_before_the_question_leaves_nothing_behind() {
    let early = "HTTP/1.1 500 Oops\r\nX-Old: 1\r\nContent-Length: 3\r\n\r\nold";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let first = Origin::start([[Step::reply(early), Step::Closed]]);
        let second = Origin::start([answer(ok("new"))]);
        let server = site(&format!(
            "upstream u {{ server {}; server {} backup; }}
             server {{ listen 127.0.0.1:%%PORT%%; location / {{
                 proxy_pass http://u; proxy_next_upstream error timeout invalid_header http_500;
             }} }}",
            first.addr(),
            second.addr()
        ));
        let mut server = server.driver(driver).start();
        server.allow_log("upstream");
        let response = ask(&server, "/", &[]);
        assert_eq!((response.status, response.text()), (200, "new".to_owned()));
        assert_eq!(response.header("x-old"), None);
        assert_eq!(first.received().len(), 1);
        server.stop();
        second.finish();
    }
}

/// CVE-2026-42946: a head of SCGI or uwsgi that almost begins with a status line, byte by byte.
#[test]
fn heads_that_almost_have_a_status_line() {
    let texts = [
        "HTTP/1.1 201 Made\r\nX-A: 1\r\n\r\nok",
        "HTTP/1.1\r\nX-A: 1\r\n\r\nok",
        "HTTP/1.1 2x0 OK\r\nX-A: 1\r\n\r\nok",
        "HTTP/x: 1\r\nStatus: 201 Made\r\n\r\nok",
        "HTTP: 1\r\nStatus: 201 Made\r\n\r\nok",
        "H: 1\r\nStatus: 201 Made\r\n\r\nok",
        "HTTPS: on\nStatus: 201 Made\n\nok",
        "Status: 201 Made\r\n\r\nok",
    ];
    for (pass, asked) in [("scgi_pass ORIGIN;", ","), ("uwsgi_pass ORIGIN;", "\0")] {
        let scripts = || {
            let both =
                |text: &&str| [pieces(asked, [*text]), pieces(asked, text.as_bytes().chunks(1))];
            texts.iter().flat_map(both).collect()
        };
        let http = format!(
            "server {{ listen 127.0.0.1:%%PORT%%; location / {{ {pass} scgi_param A 1; }} }}"
        );
        with_origin(scripts, &http, |server, _| {
            for text in texts {
                let [whole, parts] = [(); 2].map(|()| {
                    let response = ask(server, "/", &[]);
                    let x =
                        ["x-a", "http", "h"].map(|name| response.header(name).map(str::to_owned));
                    (response.status, x, response.text())
                });
                if whole.0 != 502 {
                    assert_eq!(whole.2, "ok", "{text}");
                }
                assert_eq!((whole.0, &whole.1), (parts.0, &parts.1), "{pass} {text}");
            }
        });
    }
}

/// CVE-2026-55203: a record whose content and padding together are longer than 16 bits can say.
#[test]
fn records_with_much_padding() {
    let content = vec![b'c'; 65_535];
    // What would be read as a record, if the length were cut to 16 bits.
    let mut padding = fastcgi::record(6, "HIDDEN");
    padding.resize(255, 0);
    let full = [&[1, 6, 0, 1, 0xff, 0xff, 255, 0][..], &content, &padding].concat();
    let head = fastcgi::record(6, "X-A: 1\r\n\r\n");
    let script = || {
        let reply = [&head[..], &full, &full, &fastcgi::end()].concat();
        vec![vec![Step::expect(fastcgi::ASKED), Step::reply(reply), Step::HalfClose]]
    };
    let http = "server { listen 127.0.0.1:%%PORT%%; location / { fastcgi_pass ORIGIN; } }";
    with_origin(script, http, |server, _| {
        assert!(ask(server, "/", &[]).body == [&content[..], &content].concat());
    });
}

/// A server of HTTP/1.1 offers another protocol; a client of HTTP/2 must not see that (RFC 9113 section 8.2.2).
#[test]
fn offers_of_another_protocol_end_here() {
    let response = "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade, x-hop\r\nX-Hop: 1\r\n\
                    Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nContent-Length: 2\r\n\r\nok";
    let scripts = || vec![answer(response)];
    let http =
        "server { listen 127.0.0.1:%%PORT%%; http2 on; location / { proxy_pass http://ORIGIN; } }";
    with_origin(scripts, http, |server, _| {
        let response = Http2::to_port(server.port()).get("/");
        assert_eq!(response.text(), "ok");
        for name in ["upgrade", "connection", "keep-alive", "proxy-connection", "transfer-encoding"]
        {
            assert_eq!(response.header(name), None, "{name}");
        }
    });
}

/// CVE-2024-32475: a name that no certificate can have.
#[test]
fn names_that_no_server_has() {
    let http = "server { listen 127.0.0.1:%%PORT%%; location / {
        proxy_pass https://127.0.0.1:1; proxy_ssl_server_name on; proxy_ssl_name $arg_name; } }";
    let long = "a".repeat(300);
    let dotted = "a.".repeat(200);
    on_each_driver(&site(http).allow_log("upstream"), |server| {
        for name in [&*long, &dotted, "", ".", "..", "a..b", "%00", "[::1]", "-", "*.a"] {
            assert_eq!(ask(server, &format!("/?name={name}"), &[]).status, 502, "{name}");
        }
    });
}

/// Responses of name servers that are cut short, lead in circles, or lie about their lengths (nginx until
/// 1.29.5 read beyond the end).
#[test]
fn names_that_lead_in_circles() {
    let dns = DnsServer::start(|query| {
        if query.name == "good.example" {
            return vec![match query.kind {
                A => DnsAnswer::address(&query.name, 60, "127.0.0.1"),
                _ => DnsAnswer::new(),
            }];
        }
        let valid = DnsAnswer::new().with_cname(&query.name, 60, "good.example");
        let message = valid.message(query).expect("an answer");
        // The owner of the answer, or what it stands for, becomes something else.
        let end = message.len();
        let mut all = Vec::new();
        for tail in [&b"\xc0\xff"[..], b"\xff\xff", b"\xc0", b"\x3f", b"\x40", b"\x80a"] {
            let mut bad = message.clone();
            bad.truncate(end - 2);
            bad.extend_from_slice(tail);
            all.push(DnsAnswer::raw(&bad));
        }
        for at in 12..end {
            all.push(DnsAnswer::raw(&message[..at]));
            let mut circle = message.clone();
            circle[at] = 0xc0;
            if at + 1 < end {
                circle[at + 1] = u8::try_from(at).unwrap();
            }
            all.push(DnsAnswer::raw(&circle));
        }
        all
    });
    let origin = || Origin::start([answer(ok("found"))]);
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = origin();
        let server = site(&format!(
            "resolver {}; resolver_timeout 2s;
             server {{ listen 127.0.0.1:%%PORT%%;
                 location / {{ proxy_pass http://$arg_name:{}; }} }}",
            dns.addr(),
            origin.addr().port()
        ));
        let mut server = server.driver(driver).start();
        server.allow_log("could not be resolved");
        let mut bad = server.client();
        bad.send_get("/?name=bad.example");
        assert_eq!(ask(&server, "/?name=good.example", &[]).text(), "found");
        assert!(matches!(bad.response().status, 502 | 504));
        server.stop();
        origin.finish();
    }
}
