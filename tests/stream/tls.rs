//! `listen ... ssl` in `stream`.

#[path = "../http/tls/client.rs"]
#[allow(dead_code, reason = "the client of other tests")]
mod client;
#[path = "../http/tls/responder.rs"]
mod responder;

use client::{Authority, TlsClient};
use nowait_testkit::ServerBuilder;

use responder::{Responder, Says};

use crate::stage::{Upstream, on_each, stream, wait_file};

/// A `stream` block whose servers have a certificate of the authority.
fn secured(authority: &Authority, block: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    let block =
        format!("ssl_certificate %%DIR%%/own.pem; ssl_certificate_key %%DIR%%/own.key;\n{block}");
    stream(&block).file("own.pem", own.chain).file("own.key", own.key)
}

#[test]
fn sessions_are_decrypted_for_the_upstream_server() {
    let upstream = Upstream::echo();
    let authority = Authority::new("CA");
    let block =
        format!("server {{ listen 127.0.0.1:%%PORT%% ssl; proxy_pass {}; }}", upstream.addr());
    on_each(&secured(&authority, &block), |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        let text: Vec<u8> = (0..60_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
        for _ in 0..10 {
            client.send(&text);
            let mut back = vec![0; text.len()];
            std::io::Read::read_exact(&mut client.reader(), &mut back).unwrap();
            assert!(back == text);
        }
        client.end();
        client.expect_end();
    });
}

#[test]
fn the_name_in_the_handshake_chooses_the_server() {
    let authority = Authority::new("CA");
    let other = authority.issue("other.example");
    let block = "ssl_alpn a b;
         server { listen 127.0.0.1:%%PORT%% ssl; server_name localhost; return first; }
         server { listen 127.0.0.1:%%PORT%% ssl; server_name other.example;
             ssl_certificate %%DIR%%/other.pem; ssl_certificate_key %%DIR%%/other.key;
             return \"$ssl_server_name $ssl_protocol $ssl_alpn_protocol $ssl_session_reused\"; }
         server { listen 127.0.0.1:%%PORT%% ssl; server_name no.example; ssl_reject_handshake on;
             return no; }";
    let site = secured(&authority, block).file("other.pem", other.chain);
    on_each(&site.file("other.key", other.key), |server| {
        let config = |protocol: &[u8]| {
            let mut config = (*authority.client(None)).clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            std::sync::Arc::new(config)
        };
        let b = config(b"b");
        let ask = |name| TlsClient::new(server, &b, name).rest();
        assert_eq!(ask("localhost"), b"first");
        assert_eq!(ask("other.example"), b"other.example TLSv1.3 b .");
        assert_eq!(ask("other.example"), b"other.example TLSv1.3 b r");
        let refused = TlsClient::new(server, &b, "no.example").failure();
        assert!(refused.contains("UnrecognisedName"), "{refused}");
        let refused = TlsClient::new(server, &config(b"c"), "localhost").failure();
        assert!(refused.contains("NoApplicationProtocol"), "{refused}");
    });
}

#[test]
fn a_client_needs_a_certificate() {
    let authority = Authority::new("CA");
    let block = "error_log %%DIR%%/sessions.log info; ssl_verify_client on;
         ssl_client_certificate %%DIR%%/ca.pem;
         server { listen 127.0.0.1:%%PORT%% ssl; return $ssl_client_s_dn; }";
    let site = secured(&authority, block).file("ca.pem", &authority.pem);
    let own = authority.issue("client");
    on_each(&site, |server| {
        let rest = |own| TlsClient::new(server, &authority.client(own), "localhost").rest();
        assert_eq!(rest(Some(&own)), b"CN=client");
        assert_eq!(rest(None), b"");
        wait_file(server, "sessions.log", "client sent no required SSL certificate");
    });
}

#[test]
fn a_connection_that_is_passed_on_is_judged_by_its_new_server() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let mut block = String::from("error_log %%DIR%%/sessions.log info;");
    for (from, to, file) in [("", "_1", "other.pem"), ("_2", "_3", "both.pem"), ("_4", "_5", "")] {
        let verify = match file {
            "" => String::new(),
            file => {
                format!("ssl_verify_client on; ssl_client_certificate %%DIR%%/{file};")
            }
        };
        block.push_str(&format!(
            "server {{ listen 127.0.0.1:%%PORT{from}%% ssl; ssl_verify_client on;
                 ssl_client_certificate %%DIR%%/ca.pem; pass 127.0.0.1:%%PORT{to}%%; }}
             server {{ listen 127.0.0.1:%%PORT{to}%% ssl; {verify}
                 return \"$ssl_client_verify $ssl_client_s_dn\"; }}\n"
        ));
    }
    let site = secured(&authority, &block).file("ca.pem", &authority.pem);
    let site = site.file("other.pem", &other.pem);
    let site = site.file("both.pem", format!("{}{}", other.pem, authority.pem));
    let own = authority.issue("client");
    on_each(&site, |server| {
        let config = authority.client(Some(&own));
        let rest = |n| {
            let addr = ("127.0.0.1", server.port_n(n));
            let socket = std::net::TcpStream::connect(addr).unwrap();
            let text = TlsClient::over(socket, &config, "localhost").rest();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(rest(0), "");
        wait_file(server, "sessions.log", "client SSL certificate verify error");
        assert_eq!(rest(2), "SUCCESS CN=client");
        // This one asks for no certificates.
        assert_eq!(rest(4), "NONE ");
    });
}

#[test]
fn variables_name_certificates() {
    let authority = Authority::new("CA");
    let own = authority.issue("a.example");
    let block = "ssl_certificate %%DIR%%/$ssl_server_name.pem;
         ssl_certificate_key %%DIR%%/$ssl_server_name.key;
         ssl_certificate_cache max=2;
         server { listen 127.0.0.1:%%PORT%% ssl; return $ssl_server_name; }";
    let site = stream(block).file("a.example.pem", &own.chain).file("a.example.key", &own.key);
    on_each(&site, |server| {
        let config = authority.client(None);
        assert_eq!(TlsClient::new(server, &config, "a.example").rest(), b"a.example");
        let failure = TlsClient::new(server, &config, "b.example").failure();
        assert!(failure.contains("InternalError"), "{failure}");
        server.wait_log("b.example.pem\": open() failed (2: No such file or directory)");
        std::fs::remove_file(server.dir().join("a.example.pem")).unwrap();
        assert_eq!(TlsClient::new(server, &config, "a.example").rest(), b"a.example");
    });
}

#[test]
fn responders_are_asked_about_certificates_of_clients() {
    let authority = Authority::new("CA");
    let responder = Responder::new(authority.key());
    let block = format!(
        "error_log %%DIR%%/sessions.log info; ssl_verify_client on; ssl_ocsp on;
         ssl_client_certificate %%DIR%%/ca.pem; ssl_ocsp_responder http://{};
         server {{ listen 127.0.0.1:%%PORT%% ssl; return $ssl_client_verify; }}",
        responder.addr
    );
    let site = secured(&authority, &block).file("ca.pem", &authority.pem);
    let own = authority.issue("client");
    on_each(&site, |server| {
        let config = authority.client(Some(&own));
        responder.says(Some(Says::Good));
        assert_eq!(TlsClient::new(server, &config, "localhost").rest(), b"SUCCESS");
        responder.says(Some(Says::Revoked));
        assert_eq!(TlsClient::new(server, &config, "localhost").rest(), b"");
        wait_file(server, "sessions.log", "verify error: (certificate revoked)");
    });
}
