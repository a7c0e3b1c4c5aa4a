//! `proxy_pass https://…`: TLS to upstream servers, which are other servers of the same program.

use nowait_testkit::origin::Step;
use nowait_testkit::server::{Signal, freeze, signal, wait_ended};
use nowait_testkit::{Client, Driver, Origin, Server, ServerBuilder, wait};

use super::client::Authority;
use super::origin::TlsOrigin;
use crate::stage::{ask, on_each_driver, refused, site};

/// A server whose `locations` pass requests to `https://localhost:%%PORT_1%%`, a server with a
/// certificate of the authority and `content`. `more` goes into `http`.
fn passing(authority: &Authority, locations: &str, content: &str, more: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    let client = authority.issue("client");
    let http = format!(
        "proxy_http_version 1.1;\nproxy_set_header Connection '';\n{more}\n\
         server {{\nlisten 127.0.0.1:%%PORT%%;\n{locations}\n}}\n\
         server {{\nlisten 127.0.0.1:%%PORT_1%% ssl;\nssl_certificate own.pem;\n\
         ssl_certificate_key own.key;\nroot %%DIR%%/html;\n{content}\n}}"
    );
    site(&http)
        .file("own.pem", own.chain)
        .file("own.key", own.key)
        .file("ca.pem", &authority.pem)
        .file("client.pem", client.chain)
        .file("client.key", client.key)
        .file("html/page", "page")
}

const TO: &str = "proxy_pass https://127.0.0.1:%%PORT_1%%;";

/// Runs a test on each driver, with an origin of its own: `ORIGIN` stands for its URL, and `KEPT` for
/// that of a group whose connections are kept.
fn on_origin(authority: &Authority, locations: &str, test: impl Fn(&mut Server)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = TlsOrigin::start(authority);
        let locations = locations.replace("ORIGIN", &format!("https://{}", origin.addr()));
        let locations = locations.replace("KEPT", "https://kept");
        let group = format!("upstream kept {{ server {}; keepalive 4; }}", origin.addr());
        let mut server = passing(authority, &locations, "", &group).driver(driver).start();
        test(&mut server);
        server.stop();
    }
}

/// What the origin says of the connection, besides its number.
fn seen(server: &Server, target: &str) -> String {
    let said = said(server, target);
    said.split_once(' ').unwrap().1.to_owned()
}

/// What the origin says of the connection.
fn said(server: &Server, target: &str) -> String {
    let response = ask(server, target, &[]);
    assert_eq!(response.status, 200, "{target}");
    response.text()
}

#[test]
fn http2_is_chosen_by_alpn() {
    let authority = Authority::new("ca");
    let locations = format!(
        "location / {{ {TO} proxy_http_version 2; proxy_ssl_verify on; \
         proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name localhost; }}\n\
         location /call {{ grpc_pass grpcs://127.0.0.1:%%PORT_1%%; }}"
    );
    let content = "location / { return 200 \"$http2 $scheme\"; }";
    let site = passing(&authority, &locations, &format!("http2 on; {content}"), "");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/", &[]).text(), "h2 https");
        assert_eq!(ask(server, "/call", &[]).text(), "h2 https");
    });
    // A server that has only HTTP/1.1.
    on_each_driver(&passing(&authority, &locations, content, ""), |server| {
        assert_eq!(ask(server, "/", &[]).status, 502);
        server.wait_log("alert no application protocol");
    });
}

#[test]
fn requests_use_idle_connections_with_tls() {
    let authority = Authority::new("ca");
    on_origin(&authority, "location / { proxy_pass KEPT; }", |server| {
        for _ in 0..3 {
            assert_eq!(said(server, "/"), "1 TLSv1_3 unnamed new anonymous");
        }
    });
}

#[test]
fn idle_connections_do_not_outlive_the_trust_in_them() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other CA"));
    let lists = [2090, 2022].map(|year| super::trust::list_until(&authority, &[], year));
    let files = "proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_crl ca.crl;\n\
                 proxy_ssl_certificate client.pem; proxy_ssl_certificate_key client.key;";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = TlsOrigin::start(&authority);
        let group = format!("upstream kept {{ server {}; keepalive 4; }}\n{files}", origin.addr());
        let location = |name: &str| {
            format!("location / {{ proxy_pass https://kept; proxy_ssl_name {name}; }}")
        };
        let site = passing(&authority, &location("localhost"), "", &group);
        let server = site.file("ca.crl", &lists[0]).driver(driver).start();
        let certified = |number: u32| format!("{number} TLSv1_3 unnamed new certified");
        for _ in 0..2 {
            assert_eq!(said(&server, "/"), certified(1));
        }
        // What has not changed is kept.
        server.reload();
        assert_eq!(said(&server, "/"), certified(1));
        server.write("ca.pem", &other.pem);
        server.reload();
        assert_eq!(ask(&server, "/", &[]).status, 502);
        server.wait_log("upstream SSL certificate verify error");
        server.write("ca.pem", format!("{}{}", other.pem, authority.pem));
        server.reload();
        let second = said(&server, "/");
        assert_ne!(second, certified(1));
        server.write("ca.crl", &lists[1]);
        server.reload();
        assert_eq!(ask(&server, "/", &[]).status, 502);
        server.write("ca.crl", &lists[0]);
        let own = authority.issue("another client");
        server.write("client.pem", own.chain);
        server.write("client.key", own.key);
        server.reload();
        let third = said(&server, "/");
        assert_ne!(third, second);
        server.stop();
    }
}

#[test]
fn names_and_versions() {
    let authority = Authority::new("ca");
    let locations = "location /named { proxy_pass ORIGIN; proxy_ssl_server_name on;\n\
         proxy_ssl_name localhost:1; }\n\
         location /address { proxy_pass ORIGIN; proxy_ssl_server_name on; }\n\
         location /old { proxy_pass ORIGIN; proxy_ssl_protocols TLSv1.2; }\n\
         location /least { proxy_pass ORIGIN; proxy_ssl_conf_command MaxProtocol TLSv1.2; }\n\
         location /variable { set $to ORIGIN; proxy_pass $to; }";
    on_origin(&authority, locations, |server| {
        assert_eq!(seen(server, "/named"), "TLSv1_3 localhost new anonymous");
        assert_eq!(seen(server, "/address"), "TLSv1_3 unnamed new anonymous");
        assert_eq!(seen(server, "/old"), "TLSv1_2 unnamed new anonymous");
        assert_eq!(seen(server, "/least"), "TLSv1_2 unnamed new anonymous");
        assert_eq!(seen(server, "/variable"), "TLSv1_3 unnamed new anonymous");
    });
}

#[test]
fn sessions_are_resumed() {
    let authority = Authority::new("ca");
    // No connection is kept.
    let locations = "location /again { proxy_pass ORIGIN; proxy_bind $arg_own; }\n\
         location /also { proxy_pass ORIGIN; proxy_bind $arg_own; }\n\
         location /old { proxy_pass ORIGIN; proxy_bind $arg_own; proxy_ssl_protocols TLSv1.2; }\n\
         location /anew { proxy_pass ORIGIN; proxy_bind $arg_own; proxy_ssl_session_reuse off; }";
    on_origin(&authority, locations, |server| {
        for (target, version, kind) in [
            ("/again", "TLSv1_3", "resumed"),
            ("/old", "TLSv1_2", "resumed"),
            ("/anew", "TLSv1_3", "new"),
        ] {
            let first = seen(server, &format!("{target}?own=127.0.0.2"));
            assert_eq!(first, format!("{version} unnamed new anonymous"));
            let second = seen(server, &format!("{target}?own=127.0.0.3"));
            assert_eq!(second, format!("{version} unnamed {kind} anonymous"));
        }
        // A location with the same settings has the same sessions.
        let also = seen(server, "/also?own=127.0.0.4");
        assert_eq!(also, "TLSv1_3 unnamed resumed anonymous");
    });
}

#[test]
fn servers_are_verified() {
    let authority = Authority::new("ca");
    let trusted = "proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;";
    // The client's certificate is as good as any that did not issue the server's.
    let locations = format!(
        "location /right {{ proxy_pass KEPT; {trusted} proxy_ssl_name localhost; }}\n\
         location /wrong {{ proxy_pass KEPT; {trusted} proxy_ssl_name example.com; }}\n\
         location /asked {{ proxy_pass KEPT; {trusted} proxy_ssl_name $arg_name; }}\n\
         location /distrusted {{ proxy_pass KEPT; proxy_ssl_verify on;\n\
         proxy_ssl_name localhost; proxy_ssl_trusted_certificate client.pem; }}"
    );
    on_origin(&authority, &locations, |server| {
        assert_eq!(said(server, "/right"), "1 TLSv1_3 unnamed new anonymous");
        // The idle connection is for the other name.
        assert_eq!(ask(server, "/wrong", &[]).status, 502);
        server.wait_log(
            "upstream SSL certificate does not match \"example.com\" while SSL handshaking to \
             upstream",
        );
        assert_eq!(said(server, "/asked?name=localhost"), "1 TLSv1_3 unnamed new anonymous");
        for name in ["", "a_b", "%FF", "local"] {
            assert_eq!(ask(server, &format!("/asked?name={name}"), &[]).status, 502, "{name}");
        }
        assert_eq!(ask(server, "/distrusted", &[]).status, 502);
        server.wait_log(
            "upstream SSL certificate verify error: (21:unable to verify the first certificate) \
             while SSL handshaking to upstream",
        );
    });
}

#[test]
fn the_client_has_a_certificate() {
    let authority = Authority::new("ca");
    let locations = "location /none { proxy_pass KEPT; }\n\
         location /own { proxy_pass KEPT; proxy_ssl_certificate client.pem;\n\
         proxy_ssl_certificate_key client.key; }\n\
         location /asked { proxy_pass KEPT; proxy_ssl_certificate $arg_a.pem;\n\
         proxy_ssl_certificate_key $arg_a.key; proxy_ssl_certificate_cache max=2; }";
    on_origin(&authority, locations, |server| {
        assert_eq!(said(server, "/none"), "1 TLSv1_3 unnamed new anonymous");
        assert_eq!(said(server, "/own"), "2 TLSv1_3 unnamed new certified");
        assert_eq!(said(server, "/none"), "1 TLSv1_3 unnamed new anonymous");
        for _ in 0..2 {
            assert_eq!(said(server, "/asked?a=client"), "3 TLSv1_3 unnamed new certified");
        }
        assert_eq!(ask(server, "/asked?a=missing", &[]).status, 500);
        server.wait_log("cannot load certificate \"");
    });
}

#[test]
fn bodies_pass_in_both_directions() {
    let authority = Authority::new("ca");
    let large: String = (0..300_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let locations = format!(
        "location / {{ {TO} }}\n\
         location /unbuffered/ {{ {TO} proxy_buffering off; proxy_request_buffering off; }}"
    );
    // The body comes back through a second hop.
    let content =
        "rewrite ^/unbuffered(/.*) $1; location = /length { return 200 $content_length; }";
    let builder = passing(&authority, &locations, content, "client_max_body_size 1m;");
    on_each_driver(&builder.file("html/large", &large), |server| {
        for prefix in ["", "/unbuffered"] {
            let response = ask(server, &format!("{prefix}/large"), &[]);
            assert!(response.status == 200 && response.text() == large, "{prefix}");
            let mut client = Client::to_port(server.port());
            client.send(format!(
                "POST {prefix}/length HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{large}",
                large.len()
            ));
            assert_eq!(client.response().text(), large.len().to_string());
        }
    });
}

#[test]
fn another_server_is_tried() {
    let authority = Authority::new("ca");
    // The first one does not speak TLS.
    let more = "upstream u { server 127.0.0.1:%%PORT_2%%; server 127.0.0.1:%%PORT_1%%; }\n\
                server { listen 127.0.0.1:%%PORT_2%%; return 200 plain; }";
    let locations = "location / { proxy_pass https://u; add_header X-Tries $upstream_addr; }";
    on_each_driver(&passing(&authority, locations, "", more), |server| {
        let response = ask(server, "/page", &[]);
        assert_eq!(response.text(), "page");
        let tries = response.header("X-Tries").unwrap();
        assert_eq!(tries.split(", ").count(), 2, "{tries}");
        server.wait_log("SSL_do_handshake() failed (SSL: ");
    });
}

#[test]
fn health_checks_have_tls() {
    let authority = Authority::new("ca");
    let more = "upstream u { zone u 64k; server 127.0.0.1:%%PORT_1%%; }";
    let locations = "location / { proxy_pass https://u; proxy_ssl_verify on;\n\
         proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name localhost;\n\
         health_check interval=20ms uri=/health mandatory; }";
    let builder = passing(&authority, locations, "", more).file("html/health", "fine");
    on_each_driver(&builder, |server| {
        if server.binary().is_nginx() {
            return;
        }
        let wait_status = |status| {
            wait::until("another status", wait::PATIENCE, || {
                (ask(server, "/page", &[]).status == status).then_some(())
            });
        };
        wait_status(200);
        std::fs::remove_file(server.dir().join("html/health")).unwrap();
        wait_status(502);
    });
}

#[test]
fn websockets_pass() {
    let authority = Authority::new("ca");
    let origin = Origin::start([[
        Step::expect("\r\n\r\n"),
        Step::reply(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        ),
        Step::expect("ping"),
        Step::reply("pong"),
        Step::Closed,
    ]]);
    let upgrade = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
    let locations = format!("location / {{ {TO} {upgrade} }}");
    let content = format!("location / {{ proxy_pass http://{}; {upgrade} }}", origin.addr());
    let server = passing(&authority, &locations, &content, "").start();
    let mut client = Client::to_port(server.port());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(client.response_to_head().status, 101);
    client.send("ping");
    let mut got = Vec::new();
    while got.len() < 9 {
        got.extend(client.read_some(9 - got.len()));
    }
    assert_eq!(got, b"hellopong");
    drop(client);
    origin.finish();
    server.stop();
}

#[test]
fn mistakes_are_refused() {
    for (settings, reason) in [
        ("proxy_ssl_verify on;", "no proxy_ssl_trusted_certificate for proxy_ssl_verify"),
        (
            "proxy_ssl_certificate a.pem;",
            "no \"proxy_ssl_certificate_key\" is defined for certificate \"a.pem\"",
        ),
        (
            "proxy_ssl_certificate a.pem; proxy_ssl_certificate_key a.key;",
            "cannot load certificate",
        ),
        ("proxy_ssl_verify on; proxy_ssl_trusted_certificate a.pem;", "cannot load certificate"),
        ("proxy_ssl_protocols SSLv3;", "no protocol of \"proxy_ssl_protocols\" exists here"),
        ("proxy_ssl_certificate_cache inactive=1;", "must have the \"max\" parameter"),
        ("proxy_ssl_conf_command Nothing 1;", "SSL_CONF_cmd(\"Nothing\", \"1\") failed"),
    ] {
        let content = format!("location / {{ proxy_pass https://127.0.0.1; {settings} }}");
        refused(&crate::stage::server(&content), reason);
    }
}

/// A `stream` server with these settings, in front of a TLS server with this certificate.
fn streaming(authority: &Authority, settings: &str, listen: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    site(&format!(
        "server {{ listen 127.0.0.1:%%PORT_1%% {listen}; ssl_certificate own.pem;\n\
         ssl_certificate_key own.key; return 200 'page $proxy_protocol_server_port'; }}"
    ))
    .main(&format!(
        "stream {{ server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:%%PORT_1%%;\n\
         proxy_ssl on; {settings} }} }}"
    ))
    .file("own.pem", own.chain)
    .file("own.key", own.key)
    .file("ca.pem", &authority.pem)
}

#[test]
fn sessions_of_stream_have_tls() {
    let authority = Authority::new("ca");
    let verified = "proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name";
    for (settings, works) in [
        (String::new(), true),
        ("proxy_ssl_alpn http/1.1 '';".to_owned(), true),
        ("proxy_ssl_protocols TLSv1.2; proxy_ssl_server_name on;".to_owned(), true),
        (format!("{verified} localhost;"), true),
        (format!("{verified} $remote_addr;"), false),
    ] {
        on_each_driver(&streaming(&authority, &settings, "ssl"), |server| {
            let mut client = server.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            if works {
                assert_eq!(client.response().text(), "page ", "{settings}");
            } else {
                client.expect_closed();
                server.wait_log(
                    "upstream SSL certificate does not match \"127.0.0.1\" while SSL handshaking \
                     to upstream",
                );
            }
        });
    }
}

#[test]
fn the_proxy_protocol_precedes_the_handshake_with_a_server() {
    let authority = Authority::new("ca");
    let builder = streaming(&authority, "proxy_protocol on;", "ssl proxy_protocol");
    on_each_driver(&builder, |server| {
        let text = ask(server, "/", &[]).text();
        assert_eq!(text, format!("page {}", server.port()));
    });
}

/// The application gets what a terminator of TLS in front of it receives.
#[test]
fn uwsgi_over_tls() {
    let authority = Authority::new("Test CA");
    let own = authority.issue("localhost");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let response = "Status: 201 Made\r\n\r\nbody";
        let script = [Step::expect("HTTP_HOST"), Step::reply(response), Step::HalfClose];
        let origin = Origin::start([script]);
        let pass = "uwsgi_pass suwsgi://127.0.0.1:%%PORT_1%%; uwsgi_ssl_verify on;
                    uwsgi_ssl_trusted_certificate ca.pem;";
        let mut server = site(&format!(
            "server {{ listen 127.0.0.1:%%PORT%%;
                 location / {{ {pass} uwsgi_ssl_name localhost; }}
                 location /other {{ {pass} uwsgi_ssl_name other; }} }}"
        ))
        .main(&format!(
            "stream {{ server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate own.pem;
                 ssl_certificate_key own.key; proxy_pass {}; }} }}",
            origin.addr()
        ))
        .file("own.pem", &own.chain)
        .file("own.key", &own.key)
        .file("ca.pem", &authority.pem)
        .driver(driver)
        .start();
        let response = server.get("/");
        assert_eq!((response.status, response.text()), (201, "body".to_owned()));
        server.allow_log("upstream");
        assert_eq!(server.get("/other").status, 502);
        server.stop();
    }
}

#[test]
fn a_post_does_not_go_out_on_a_connection_that_has_ended() {
    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let authority = Authority::new("authority");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let origin = TlsOrigin::start(&authority);
        let group = format!("upstream kept {{ server {}; keepalive 4; }}", origin.addr());
        let locations = "location / { proxy_pass https://kept; }";
        let server = passing(&authority, locations, "", &group).driver(driver).start();
        let mut client = server.client();
        client.send(POST);
        assert_eq!(client.response().status, 200);
        let worker = server.children()[0];
        for _ in 0..3 {
            freeze(worker);
            client.send(POST);
            origin.hang_up();
            wait_ended(origin.addr().port());
            signal(worker, Signal::CONT);
            assert_eq!(client.response().status, 200);
        }
        server.stop();
    }
}
