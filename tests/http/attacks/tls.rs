//! Handshakes and sessions that are used for what they were not made for.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nowait_testkit::dns::{A, DnsAnswer};
use nowait_testkit::{DnsServer, client_hello, wait};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NamedGroup};

use super::memory_kb;
use crate::stage::{ask, on_each_driver, server, site};
use crate::tls::client::{Authority, TlsClient};
use crate::tls::responder::{Responder, Says};

/// Offers the sessions of any server to any other one.
#[derive(Debug, Default)]
struct AnyName {
    tls12: Mutex<Option<Tls12ClientSessionValue>>,
    tls13: Mutex<VecDeque<Tls13ClientSessionValue>>,
}

impl ClientSessionStore for AnyName {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        *self.tls12.lock().unwrap() = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.tls12.lock().unwrap().clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.tls13.lock().unwrap().push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tls13.lock().unwrap().pop_front()
    }
}

fn anywhere(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.resumption = Resumption::store(Arc::new(AnyName::default()));
    Arc::new(config)
}

/// CVE-2025-23419, CVE-2025-23048 and CVE-2023-41337: a session of one server is resumed with another one.
#[test]
fn sessions_do_not_open_other_servers() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let own = authority.issue("client");
    let mut servers =
        String::from("ssl_session_cache shared:all:1m; ssl_protocols TLSv1.2 TLSv1.3;\n");
    let answer =
        "location / { return 200 \"$ssl_client_verify|$ssl_client_s_dn|$ssl_session_reused\"; }";
    let names = [
        ("public.example", "%%PORT%%", ""),
        ("own.example", "%%PORT%%", "ssl_verify_client on; ssl_client_certificate ca.pem;"),
        ("other.example", "%%PORT%%", "ssl_verify_client on; ssl_client_certificate other.pem;"),
        (
            "elsewhere.example",
            "%%PORT_1%%",
            "ssl_verify_client on; ssl_client_certificate other.pem;",
        ),
    ];
    let mut files = Vec::new();
    for (name, port, verify) in names {
        let issued = authority.issue(name);
        servers.push_str(&format!(
            "server {{ listen 127.0.0.1:{port} ssl; server_name {name}; {verify} {answer}\n\
             ssl_certificate {name}.pem; ssl_certificate_key {name}.key; }}\n"
        ));
        files.push((format!("{name}.pem"), issued.chain));
        files.push((format!("{name}.key"), issued.key));
    }
    let mut builder = site(&servers).file("ca.pem", &authority.pem).file("other.pem", &other.pem);
    for (name, content) in files {
        builder = builder.file(&name, content);
    }
    let tls12 = authority.client_of(rustls::crypto::aws_lc_rs::default_provider());
    on_each_driver(&builder, |server| {
        let port = |name: &str| server.port_n(usize::from(name == "elsewhere.example"));
        let get = |config: &Arc<ClientConfig>, name: &str| {
            let socket = std::net::TcpStream::connect(("127.0.0.1", port(name))).unwrap();
            let mut client = TlsClient::over(socket, config, name);
            client.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
            let (head, body) = client.response();
            format!("{} {}", &head[9..12], String::from_utf8(body).unwrap())
        };
        for (config, anonymous) in [
            (authority.client(None), true),
            (tls12.clone(), true),
            (authority.client(Some(&own)), false),
        ] {
            let config = anywhere(&config);
            for from in ["public.example", "own.example"] {
                for to in ["own.example", "other.example", "elsewhere.example"] {
                    // Enough tickets for what follows.
                    get(&config, from);
                    get(&config, from);
                    let said = get(&config, to);
                    let allowed = !anonymous && to == "own.example";
                    match allowed {
                        true => assert!(
                            said.starts_with("200 SUCCESS|CN=client|"),
                            "{from} {to}: {said}"
                        ),
                        false => assert!(said.starts_with("400 "), "{from} {to}: {said}"),
                    }
                }
            }
        }
        // It is a store that makes other servers see sessions: the same server resumes them.
        let config = anywhere(&authority.client(None));
        get(&config, "public.example");
        assert_eq!(get(&config, "public.example"), "200 NONE||r");
    });
}

/// CVE-2025-49812, Opossum: a plain connection never becomes one with TLS.
#[test]
fn plain_connections_stay_plain() {
    let site = server(
        "location / { return 200 plain; }
         location /proxied { proxy_pass http://127.0.0.1:%%PORT%%/seen; }
         location /seen { return 200 \"[$http_upgrade]\"; }",
    );
    on_each_driver(&site, |server| {
        let upgrade = "Upgrade: TLS/1.0, HTTP/1.1\r\nConnection: Upgrade\r\n";
        for (target, expected) in [("/", "plain"), ("/proxied", "[]")] {
            let mut client = server.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"));
            let response = client.response();
            assert_eq!((response.status, &*response.text()), (200, expected));
            assert_eq!(response.header("upgrade"), None);
            client.send(client_hello("localhost", &["http/1.1"], 16_384));
            assert_eq!(client.response().status, 400);
            client.expect_closed();
        }
        let mut client = server.client();
        client.send(format!("OPTIONS * HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"));
        assert_ne!(client.response().status, 101);
    });
}

/// CVE-2024-32650: the end is announced within a handshake. CVE-2026-45416: a hello announces 16 MB.
#[test]
fn hellos_that_end_or_go_on() {
    let authority = Authority::new("CA");
    let own = authority.issue("localhost");
    let site = site(
        "server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate own.pem; ssl_certificate_key own.key;
            location / { return 200 here; } }",
    );
    let site = site.file("own.pem", own.chain).file("own.key", own.key);
    let hello = client_hello("localhost", &["http/1.1"], 16_384);
    let notify = [21, 3, 3, 0, 2, 1, 0];
    on_each_driver(&site, |server| {
        let serves = || {
            let mut client = TlsClient::new(server, &authority.client(None), "localhost");
            assert_eq!(client.text("/"), "here");
        };
        serves();
        for bytes in [
            [&hello[..], &notify].concat(),
            [&hello[..20], &notify].concat(),
            notify.to_vec(),
            [&hello[..], &hello].concat(),
            client_hello("localhost", &["http/1.1"], 1)[..60].repeat(2),
        ] {
            let mut client = server.client();
            client.send(&bytes);
            client.half_close();
            // Alerts and the server's hello may come first.
            while !client.read_some(usize::MAX).is_empty() {}
            serves();
        }
        let before = memory_kb(server);
        let mut held = Vec::new();
        for _ in 0..50 {
            let client = server.client();
            let _ = client.stream().write_all(&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3]);
            held.push(client);
        }
        serves();
        let more = memory_kb(server).saturating_sub(before);
        assert!(more < 8 * 1024, "{more} KB");
    });
}

/// CVE-2026-40701: a client leaves while the name of the OCSP responder is looked up.
#[test]
fn a_client_leaves_while_a_responder_is_looked_for() {
    let authority = Authority::new("CA");
    let responder = Responder::new(authority.key());
    let (own, site_key) = (authority.issue("client"), authority.issue("localhost"));
    let open = Arc::new(AtomicBool::new(false));
    let opened = open.clone();
    let dns = DnsServer::start(move |query| {
        while !opened.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        vec![match query.kind {
            A => DnsAnswer::address(&query.name, 0, "127.0.0.1"),
            _ => DnsAnswer::new(),
        }]
    });
    let site = site(&format!(
        "server {{ listen 127.0.0.1:%%PORT%% ssl; ssl_certificate own.pem; ssl_certificate_key own.key;
            resolver {}; ssl_verify_client on; ssl_client_certificate ca.pem; ssl_ocsp leaf;
            ssl_ocsp_responder http://responder.example:{};
            location / {{ return 200 \"$ssl_client_verify\"; }} }}",
        dns.addr(),
        responder.addr.port()
    ));
    let site = site.file("own.pem", site_key.chain).file("own.key", site_key.key);
    on_each_driver(&site.file("ca.pem", &authority.pem), |server| {
        responder.says(Some(Says::Good));
        open.store(false, Ordering::Release);
        let before = dns.count("responder.example", A);
        let config = authority.client(Some(&own));
        for _ in 0..5 {
            let mut client = TlsClient::new(server, &config, "localhost");
            client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        wait::until("a query", wait::PATIENCE, || {
            (dns.count("responder.example", A) > before).then_some(())
        });
        open.store(true, Ordering::Release);
        let mut client = TlsClient::new(server, &config, "localhost");
        assert_eq!(client.text("/"), "SUCCESS");
    });
}

/// CVE-2025-66220: a zero byte does not end a name in a certificate.
#[test]
fn names_with_a_zero_byte() {
    let authority = Authority::new("CA");
    let mut only_common = rcgen::CertificateParams::default();
    only_common.distinguished_name = rcgen::DistinguishedName::new();
    only_common.distinguished_name.push(rcgen::DnType::CommonName, "localhost\0.evil.test");
    let key = || rcgen::KeyPair::generate().unwrap();
    let certificates = [
        authority.issue("localhost\0.evil.test"),
        authority.sign(only_common, key()),
        authority.issue("localhost"),
    ];
    let mut http = String::new();
    for n in 0..certificates.len() {
        http.push_str(&format!(
            "server {{ listen 127.0.0.1:%%PORT_{}%% ssl; ssl_certificate {n}.pem;
                 ssl_certificate_key {n}.key; return 200 reached; }}",
            n + 1
        ));
    }
    let mut locations = String::new();
    for n in 0..certificates.len() {
        locations.push_str(&format!(
            "location /{n} {{ proxy_pass https://127.0.0.1:%%PORT_{}%%; }}",
            n + 1
        ));
    }
    let mut builder = site(&format!(
        "{http} server {{ listen 127.0.0.1:%%PORT%%; proxy_ssl_verify on; proxy_ssl_name localhost;
             proxy_ssl_trusted_certificate ca.pem; {locations} }}"
    ))
    .file("ca.pem", &authority.pem)
    .allow_log("upstream");
    for (n, issued) in certificates.iter().enumerate() {
        builder =
            builder.file(&format!("{n}.pem"), &issued.chain).file(&format!("{n}.key"), &issued.key);
    }
    on_each_driver(&builder, |server| {
        for (path, status) in [("/0", 502), ("/1", 502), ("/2", 200)] {
            assert_eq!(ask(server, path, &[]).status, status, "{path}");
        }
    });
}
