//! TLS over QUIC: names, certificates of both sides, sessions, early data.

use std::net::UdpSocket;

use nowait_testkit::http3::{Http3, Http3Options, trusting};
use nowait_testkit::origin::Step;
use nowait_testkit::quic::{ConnectionError, Quic, StreamId};
use nowait_testkit::wait::PATIENCE;
use nowait_testkit::{Driver, Origin, Server};

use crate::client::Authority;
use crate::stage::{http3, on_each_driver, options_of, site, tls_of};

fn named(options: &Http3Options, name: &str) -> Http3Options {
    let mut options = options.clone();
    options.quic.name = name.to_owned();
    options
}

#[test]
fn the_name_chooses_the_certificate_and_the_server() {
    let authority = Authority::new("authority");
    let mut http = String::new();
    let mut files = Vec::new();
    for name in ["a.test", "b.test"] {
        let own = authority.issue(name);
        http.push_str(&format!(
            "server {{ listen 127.0.0.1:%%PORT%% ssl; listen 127.0.0.1:%%PORT%% quic reuseport; server_name {name};\
             ssl_certificate {name}.pem; ssl_certificate_key {name}.key; return 200 \"$server_name|$ssl_server_name|$ssl_ja4\"; }}\n"
        ));
        files.push((name, own));
    }
    let mut builder = site(&http);
    for (name, own) in &files {
        builder =
            builder.file(&format!("{name}.pem"), &own.chain).file(&format!("{name}.key"), &own.key);
    }
    on_each_driver(&builder, |server| {
        let options = options_of(tls_of(&authority.client(None)));
        for name in ["a.test", "b.test"] {
            let mut http3 = Http3::connect(server.port(), &named(&options, name)).unwrap();
            let shown = http3.get("/").text();
            assert!(shown.starts_with(&format!("{name}|{name}|q13d")), "{shown}");
            // The application protocol is `h3`; two hashes follow.
            assert!(shown.contains("h3_") && shown.matches('_').count() == 2, "{shown}");
        }
        let other = Http3::connect(server.port(), &named(&options, "c.test"));
        assert!(other.is_err(), "the certificate of another name");
    });
}

#[test]
fn certificates_named_by_variables() {
    let authority = Authority::new("authority");
    let http = "server { listen 127.0.0.1:%%PORT%% ssl; listen 127.0.0.1:%%PORT%% quic; ssl_certificate $ssl_server_name.pem;\
                ssl_certificate_key $ssl_server_name.key; return 200 $ssl_server_name; }";
    let mut builder = site(http);
    for name in ["a.test", "b.test"] {
        let own = authority.issue(name);
        builder =
            builder.file(&format!("{name}.pem"), own.chain).file(&format!("{name}.key"), own.key);
    }
    on_each_driver(&builder, |server| {
        let options = options_of(tls_of(&authority.client(None)));
        for name in ["a.test", "b.test", "a.test"] {
            let mut http3 = Http3::connect(server.port(), &named(&options, name)).unwrap();
            assert_eq!(http3.get("/").text(), name);
        }
        assert!(Http3::connect(server.port(), &named(&options, "missing.test")).is_err());
        server.wait_log("missing.test.pem");
    });
}

#[test]
fn certificates_of_clients() {
    let authority = Authority::new("authority");
    let other = Authority::new("other");
    for (verify, expected) in [("on", ["200", "400", "400"]), ("optional", ["200", "200", "400"])] {
        let own = authority.issue("localhost");
        let http = format!(
            "server {{ listen 127.0.0.1:%%PORT%% ssl; listen 127.0.0.1:%%PORT%% quic; server_name localhost;\
             ssl_certificate own.pem; ssl_certificate_key own.key; ssl_client_certificate ca.pem;\
             ssl_verify_client {verify}; location / {{ return 200 \"$ssl_client_verify|$ssl_client_s_dn\"; }} }}"
        );
        let builder = site(&http)
            .file("own.pem", own.chain)
            .file("own.key", own.key)
            .file("ca.pem", &authority.pem);
        on_each_driver(&builder, |server| {
            let (good, bad) = (authority.issue("client"), other.issue("client"));
            let clients = [Some(&good), None, Some(&bad)];
            for (client, expected) in clients.into_iter().zip(expected) {
                let options = options_of(tls_of(&authority.client(client)));
                let mut http3 = Http3::connect(server.port(), &options).unwrap();
                let response = http3.get("/");
                assert_eq!(response.status.to_string(), expected, "{verify}: {response}");
                if client.is_some() && expected == "200" {
                    assert_eq!(response.text(), "SUCCESS|CN=client");
                }
            }
        });
    }
}

#[test]
fn sessions_are_resumed() {
    let builder = crate::stage::server("location / { return 200 $ssl_session_reused; }");
    on_each_driver(&builder, |server| {
        let options = options_of(trusting("h3"));
        for expected in [".", "r", "r"] {
            let mut http3 = Http3::connect(server.port(), &options).unwrap();
            assert_eq!(http3.get("/").text(), expected);
        }
    });
}

/// A request in early data, by a client whose address is proven. All that it sends later is lost, so the handshake is
/// not completed before the response has come.
#[track_caller]
fn early(server: &Server, path: &str) -> (Http3, StreamId) {
    let mut options = options_of(trusting("h3"));
    options.quic.records = true;
    let mut first = Http3::connect(server.port(), &options).unwrap();
    assert_eq!(first.get("/").text(), "text");
    let tokens = options.quic.tokens.clone();
    first.until("a token", |_| !tokens.is_empty());
    let quic = Quic::begin(server.port(), &options.quic);
    assert!(quic.has_early_data());
    let mut http3 = Http3::over(quic, &options);
    let id = http3.open("GET", path, &[], true);
    assert!(!http3.quic.is_connected());
    http3.quic.lose(true);
    (http3, id)
}

#[test]
fn early_data_can_be_refused_by_the_origin() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = Origin::start(["425 Too Early", "200 OK"].map(|status| {
            let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            [Step::expect("\r\n\r\n"), Step::reply(reply)]
        }));
        let content = format!(
            "ssl_early_data on; location = / {{ return 200 text; }} location /early {{ proxy_pass http://{};\
             proxy_set_header Early-Data $ssl_early_data; proxy_set_header Connection close; }}",
            origin.addr()
        );
        let server = crate::stage::server(&content).driver(driver).start();
        let (mut http3, id) = early(&server, "/early");
        assert_eq!(http3.response(id).status, 425);
        http3.quic.lose(false);
        // What is asked with the handshake complete can't be a repetition.
        assert_eq!(http3.get("/early").status, 200);
        assert!(http3.quic.is_early_data_accepted());
        let received = origin.received();
        let is_early = |head: &Vec<u8>| String::from_utf8_lossy(head).contains("Early-Data: 1\r\n");
        assert_eq!(received.iter().map(is_early).collect::<Vec<_>>(), [true, false]);
        server.stop();
        origin.finish();
    }
}

#[test]
fn early_data_that_is_replayed_has_no_effect() {
    let content = "ssl_early_data on; location = / { return 200 text; } location = /early { return 200 $ssl_early_data; }";
    on_each_driver(&crate::stage::server(content), |server| {
        let (mut client, id) = early(server, "/early");
        assert_eq!(client.response(id).text(), "1");
        // Those behind the request were lost.
        let replay = UdpSocket::bind("127.0.0.1:0").unwrap();
        replay.set_read_timeout(Some(PATIENCE)).unwrap();
        for datagram in client.quic.sent() {
            replay.send_to(datagram, server.addr()).unwrap();
        }
        // The hello is answered, as that of a new client, who has no session and no token.
        replay.recv(&mut [0; 2048]).unwrap();
        client.quic.lose(false);
        for mut other in [client, http3(server)] {
            assert_eq!(other.request("GET", "/after", &[], b"").status, 404);
        }
        let log = server.wait_file("access.log", "/after");
        assert_eq!(log.matches("GET /early").count(), 1, "{log}");
    });
}

#[test]
fn protocols_that_are_not_enabled_are_refused() {
    let builder = crate::stage::server("");
    on_each_driver(&builder, |server| {
        match Http3::connect(server.port(), &options_of(trusting("h2"))) {
            // no_application_protocol (RFC 9001, 8.1)
            Err(ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(u64::from(close.error_code), 0x100 + 120, "{close:?}");
            }
            other => panic!("{:?}", other.err()),
        }
    });
    on_each_driver(&crate::stage::server("http3 off;"), |server| {
        assert!(Http3::connect(server.port(), &options_of(trusting("h3"))).is_err());
    });
}
