//! Requests over TLS.

use std::io::Write;

use nowait_testkit::server::Signal;

use super::{Authority, TlsClient, beside, secured};
use crate::stage::{ask, on_each_driver, site, wait_file};

#[test]
fn requests_and_responses_are_encrypted() {
    let authority = Authority::new("CA");
    let content = "location /v { return 200 \"$scheme $server_name\"; }\n\
                   location /r { return 301 /x; }";
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let site = secured(&authority, content).file("html/small", "hello").file("html/big", &big);
    on_each_driver(&site, |server| {
        let config = authority.client(None);
        let mut client = TlsClient::new(server, &config, "localhost");
        assert_eq!(client.text("/small"), "hello");
        assert_eq!(client.text("/v"), "https localhost");
        assert!(client.get("/big").1 == big);
        let (head, _) = client.get("/r");
        let port = server.port();
        assert!(head.contains(&format!("Location: https://localhost:{port}/x\r\n")), "{head}");
        assert_eq!(client.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
        client.send("GET /v HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().1, b"https localhost");
        client.expect_end();
    });
}

#[test]
fn responses_wait_for_a_client_that_reads_late() {
    const COUNT: usize = 2000;
    let authority = Authority::new("CA");
    let body = "x".repeat(3000);
    let content = format!("keepalive_requests {COUNT};\nlocation / {{ return 200 {body}; }}");
    on_each_driver(&secured(&authority, &content), |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        // More than the sockets hold: the end of a response finds them full, now and then.
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(COUNT));
        let received = String::from_utf8(client.rest()).unwrap();
        assert_eq!(received.matches("HTTP/1.1 200 OK\r\n").count(), COUNT);
        assert_eq!(received.matches(&body).count(), COUNT);
    });
}

#[test]
fn the_name_in_the_handshake_chooses_the_server() {
    let authority = Authority::new("CA");
    let other = authority.issue("other.example");
    let more = "server { listen 127.0.0.1:%%PORT%% ssl; server_name other.example;\n\
                ssl_certificate other.pem; ssl_certificate_key other.key;\n\
                location / { return 200 \"$server_name $host\"; } }\n";
    let site = beside(&authority, "location / { return 200 localhost; }", more);
    let site = site.file("other.pem", other.chain).file("other.key", other.key);
    on_each_driver(&site, |server| {
        let config = authority.client(None);
        let mut client = TlsClient::new(server, &config, "other.example");
        // The host of the request counts, wherever the connection leads.
        assert_eq!(client.text("/"), "localhost");
        client.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(client.response().1, b"other.example other.example");
    });
}

#[test]
fn plain_http_is_answered_in_plain() {
    let authority = Authority::new("CA");
    let content = "location / { return 200 ok; }\nerror_page 497 =200 /plain;\n\
                   location /plain { return 200 \"plain $scheme\"; }";
    let own = authority.issue("localhost");
    let bare = "server { listen 127.0.0.1:%%PORT%% ssl;\n\
                ssl_certificate own.pem; ssl_certificate_key own.key; }";
    let bare = site(bare).file("own.pem", own.chain).file("own.key", own.key);
    on_each_driver(&bare, |server| {
        let response = ask(server, "/", &[]);
        assert_eq!(response.status, 400);
        let text = response.text();
        assert!(text.contains("The plain HTTP request was sent to HTTPS port"), "{text}");
    });
    on_each_driver(&secured(&authority, content), |server| {
        assert_eq!(ask(server, "/", &[]).text(), "plain http");
    });
}

#[test]
fn sessions_survive_a_reload() {
    let authority = Authority::new("CA");
    let content = "location / { return 200 ok; }";
    on_each_driver(&secured(&authority, content), |server| {
        let config = authority.client(None);
        let kind = |server| {
            let mut client = TlsClient::new(server, &config, "localhost");
            assert_eq!(client.text("/"), "ok");
            client.tls().handshake_kind().unwrap()
        };
        assert_ne!(kind(server), rustls::HandshakeKind::Resumed);
        assert_eq!(kind(server), rustls::HandshakeKind::Resumed);
        // A connection that was open before goes on.
        let mut open = TlsClient::new(server, &config, "localhost");
        assert_eq!(open.text("/"), "ok");
        server.reload();
        assert_eq!(open.text("/"), "ok");
        assert_eq!(kind(server), rustls::HandshakeKind::Resumed);
    });
}

#[test]
fn the_proxy_protocol_precedes_the_handshake() {
    let authority = Authority::new("CA");
    let own = authority.issue("localhost");
    let http = "server { listen 127.0.0.1:%%PORT%% ssl proxy_protocol;\n\
                ssl_certificate own.pem; ssl_certificate_key own.key;\n\
                location / { return 200 \"$proxy_protocol_addr $https\"; } }";
    let site = site(http).file("own.pem", own.chain).file("own.key", own.key);
    on_each_driver(&site, |server| {
        let mut socket = std::net::TcpStream::connect(server.addr()).unwrap();
        socket.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\n").unwrap();
        let mut client = TlsClient::over(socket, &authority.client(None), "localhost");
        assert_eq!(client.text("/"), "192.0.2.1 on");
    });
}

#[test]
fn a_handshake_that_fails_is_logged() {
    let authority = Authority::new("CA");
    let site = secured(&authority, "").main("error_log error.log info;");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(b"\x16\x03\x01\x00\x02\x01\x00");
        client.half_close();
        client.rest();
        let log = wait_file(server, "error.log", "while SSL handshaking");
        assert!(log.contains("client: 127.0.0.1"), "{log}");
    });
}

#[test]
fn clients_that_do_not_trust_the_server_leave() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let site = secured(&authority, "").main("error_log error.log info;");
    on_each_driver(&site, |server| {
        let client = TlsClient::new(server, &other.client(None), "localhost");
        let why = client.failure();
        assert!(why.contains("UnknownIssuer") || why.contains("certificate"), "{why}");
        wait_file(server, "error.log", "while SSL handshaking");
    });
}

#[test]
fn a_graceful_end_waits_for_responses_and_says_goodbye() {
    let authority = Authority::new("CA");
    let body = vec![b'x'; 600_000];
    let site = secured(&authority, "limit_rate 400k;").file("html/slow", &body);
    on_each_driver(&site, |server| {
        let config = authority.client(None);
        let mut idle = TlsClient::new(server, &config, "localhost");
        assert!(idle.get("/none").0.starts_with("HTTP/1.1 404"));
        let mut busy = TlsClient::new(server, &config, "localhost");
        busy.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut first = [0];
        std::io::Read::read_exact(&mut busy.reader(), &mut first).unwrap();
        assert_eq!(first, [b'H']);
        server.signal(Signal::QUIT);
        idle.expect_end();
        let (head, received) = busy.response();
        assert!(head.starts_with("TTP/1.1 200"), "{head}");
        assert!(received == body);
    });
}

#[test]
fn connections_move_to_other_workers() {
    let authority = Authority::new("CA");
    let content = "location / { return 200 $connection_requests; }";
    let site = secured(&authority, content).workers(4);
    on_each_driver(&site, |server| {
        let config = authority.client(None);
        let mut clients: Vec<TlsClient> =
            (0..12).map(|_| TlsClient::new(server, &config, "localhost")).collect();
        for client in &mut clients {
            assert_eq!(client.text("/"), "1");
        }
        // Some have not begun their handshake.
        let mut silent: Vec<TlsClient> =
            (0..12).map(|_| TlsClient::new(server, &config, "localhost")).collect();
        server.set_workers(1);
        server.reload();
        for client in &mut clients {
            assert_eq!(client.text("/"), "2");
        }
        for client in &mut silent {
            assert_eq!(client.text("/"), "1");
        }
        assert_eq!(clients[0].text("/"), "3");
    });
}

#[test]
fn handshakes_are_counted() {
    let authority = Authority::new("CA");
    let site = secured(&authority, "location /status/ { status_api; }");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(b"\x16\x03\x01\x00\x02\x01\x00");
        client.half_close();
        client.rest();
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        let text = client.text("/status/ssl");
        let text: String = text.split_whitespace().collect();
        let expected = r#"{"handshakes":1,"handshakes_failed":1,"handshakes_refused":0,"ktls":{"connections":0,"fallbacks":0,"keys_refused":0}}"#;
        assert_eq!(text, expected);
    });
}

#[test]
fn cold_files_and_uploads() {
    let authority = Authority::new("CA");
    let big: Vec<u8> = (0..9_000_000u32).map(|n| (n * 13 + n / 509) as u8).collect();
    let own = authority.issue("localhost");
    let http = "server { listen 127.0.0.1:%%PORT%% ssl; root %%DIR%%/html;\n\
                ssl_certificate own.pem; ssl_certificate_key own.key; sendfile on;\n\
                client_max_body_size 20m; aio threads;\n\
                location = /up { return 200 $content_length; } }";
    let site = site(http).file("own.pem", own.chain).file("own.key", own.key);
    let site = site.file("html/big", &big);
    on_each_driver(&site, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert!(client.get("/big").1 == big);
        client.send("GET /big HTTP/1.1\r\nHost: x\r\nRange: bytes=5000000-5000099\r\n\r\n");
        assert_eq!(client.response().1, &big[5_000_000..5_000_100]);
        let head = format!("PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", big.len());
        client.send(head);
        client.send(&big);
        assert_eq!(client.response().1, big.len().to_string().as_bytes());
    });
}

/// As in nginx before 1.25.1.
#[test]
fn the_obsolete_directive_encrypts_all_addresses() {
    let authority = Authority::new("CA");
    let own = authority.issue("localhost");
    let http = "server { listen 127.0.0.1:%%PORT%%; ssl on; server_name localhost;
                ssl_certificate own.pem; ssl_certificate_key own.key; location / { return 200 $scheme; } }
                server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 $scheme; } }";
    let site = site(http).file("own.pem", own.chain).file("own.key", own.key);
    if crate::stage::asks_nginx() {
        return;
    }
    on_each_driver(&site, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert_eq!(client.text("/"), "https");
        let mut plain =
            nowait_testkit::Client::to((std::net::Ipv4Addr::LOCALHOST, server.port_n(1)).into());
        crate::stage::send(&mut plain, "/", &[]);
        assert_eq!(plain.response().text(), "http");
        let log = wait_file(server, "error.log", "the \"ssl\" directive is deprecated");
        // Only where it stands.
        assert_eq!(log.matches("is deprecated").count(), 1, "{log}");
    });
}
