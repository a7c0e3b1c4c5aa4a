//! Certificates of clients, and the variables that show them.

use super::{Authority, TlsClient, beside, secured};
use crate::stage::on_each_driver;

#[test]
fn a_required_certificate_is_demanded_of_each_request() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let content = "ssl_verify_client on; ssl_client_certificate ca.pem;\n\
                   location / { return 200 \"$ssl_client_verify $ssl_client_s_dn $ssl_client_i_dn\"; }\n\
                   error_page 495 =200 /wrong; error_page 496 =200 /none;\n\
                   location /wrong { return 200 \"wrong $ssl_client_verify\"; }\n\
                   location /none { return 200 \"none $ssl_client_verify\"; }";
    let site = secured(&authority, content).file("ca.pem", &authority.pem);
    let (own, foreign) = (authority.issue("client"), other.issue("client"));
    on_each_driver(&site, |server| {
        let ask = |own| {
            let config = authority.client(own);
            let answer = || TlsClient::new(server, &config, "localhost").text("/");
            // The second time, the session is resumed.
            let (first, second) = (answer(), answer());
            assert_eq!(first, second);
            first
        };
        assert_eq!(ask(Some(&own)), "SUCCESS CN=client CN=CA");
        assert_eq!(ask(None), "none NONE");
        let wrong = ask(Some(&foreign));
        assert!(wrong.starts_with("wrong FAILED:unable to"), "{wrong}");
    });
}

#[test]
fn without_error_pages_the_status_is_400() {
    let authority = Authority::new("CA");
    let content = "ssl_verify_client on; ssl_trusted_certificate ca.pem;";
    let site = secured(&authority, content).file("ca.pem", &authority.pem);
    on_each_driver(&site, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        let (head, body) = client.get("/");
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("No required SSL certificate was sent"), "{body}");
        client.expect_end();
    });
}

#[test]
fn optional_certificates() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let show = "location / { return 200 \"$ssl_client_verify\"; }\n\
                error_page 495 =200 /wrong; location /wrong { return 200 wrong; }";
    let foreign = other.issue("client");
    for (mode, without, with) in
        [("optional", "NONE", "wrong"), ("optional_no_ca", "NONE", "FAILED:unable to verify")]
    {
        let content = format!("ssl_verify_client {mode}; ssl_client_certificate ca.pem; {show}");
        let site = secured(&authority, &content).file("ca.pem", &authority.pem);
        on_each_driver(&site, |server| {
            let ask = |own| TlsClient::new(server, &authority.client(own), "localhost").text("/");
            assert_eq!(ask(None), without);
            let shown = ask(Some(&foreign));
            assert!(shown.starts_with(with), "{mode}: {shown}");
        });
    }
}

#[test]
fn certificates_of_one_server_do_not_open_another() {
    let authority = Authority::new("CA");
    let own = authority.issue("private.example");
    let more = "server { listen 127.0.0.1:%%PORT%% ssl; server_name private.example;\n\
                ssl_certificate private.pem; ssl_certificate_key private.key;\n\
                ssl_verify_client optional; ssl_client_certificate ca.pem;\n\
                location / { return 200 private; } }";
    let site = beside(&authority, "location / { return 200 public; }", more);
    let site = site.file("private.pem", &own.chain).file("private.key", &own.key);
    let site = site.file("ca.pem", &authority.pem);
    on_each_driver(&site, |server| {
        let config = authority.client(None);
        let mut client = TlsClient::new(server, &config, "localhost");
        assert_eq!(client.text("/"), "public");
        client.send("GET / HTTP/1.1\r\nHost: private.example\r\n\r\n");
        let (head, _) = client.response();
        assert!(head.starts_with("HTTP/1.1 421 Misdirected Request\r\n"), "{head}");
        let mut client = TlsClient::new(server, &config, "private.example");
        client.send("GET / HTTP/1.1\r\nHost: private.example\r\n\r\n");
        assert_eq!(client.response().1, b"private");
        // The other server demands nothing.
        assert_eq!(client.text("/"), "public");
    });
}

#[test]
fn variables_show_the_connection() {
    let authority = Authority::new("CA");
    let content = "location / { return 200 \"$ssl_protocol|$ssl_cipher|$ssl_curve|$ssl_server_name|\
                   $ssl_alpn_protocol|$ssl_session_reused|$ssl_early_data|$ssl_session_id|$ssl_sigalg\"; }\n\
                   location /offers { return 200 \"$ssl_ciphers|$ssl_curves|$ssl_sigalgs\"; }\n\
                   location /ja4 { return 200 $ssl_ja4; }\n\
                   location /cert { return 200 \"$ssl_client_serial|$ssl_client_fingerprint|\
                   $ssl_client_v_remain|$ssl_client_escaped_cert|$ssl_client_raw_cert\"; }\n\
                   location /sigalg { return 200 \"$ssl_client_sigalg $ssl_session_reused\"; }\n\
                   ssl_verify_client optional_no_ca;";
    on_each_driver(&secured(&authority, content), |server| {
        let config = authority.client(None);
        let ask = |target| TlsClient::new(server, &config, "localhost").text(target);
        let first = "TLSv1.3|TLS_AES_256_GCM_SHA384|X25519|localhost|http/1.1|.|||\
                     ecdsa_secp256r1_sha256";
        assert_eq!(ask("/"), first);
        assert!(ask("/").contains("|http/1.1|r|||"));
        let offers = ask("/offers");
        assert!(offers.starts_with("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:"), "{offers}");
        assert!(offers.contains("|X25519:prime256v1:secp384r1:"), "{offers}");
        assert!(offers.contains("|ecdsa_secp384r1_sha384:ecdsa_secp256r1_sha256:"), "{offers}");
        assert_eq!(ask("/cert"), "||||");
        // This client has nine suites and offers HTTP/1.1. It shuffles its extensions, which changes nothing.
        let fingerprint = || {
            let fresh = authority.client(None);
            TlsClient::new(server, &fresh, "localhost").text("/ja4")
        };
        let ja4 = fingerprint();
        let parts: Vec<&str> = ja4.split('_').collect();
        assert!(parts[0].starts_with("t13d") && parts[0].ends_with("h1"), "{ja4}");
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [10, 12, 12], "{ja4}");
        for _ in 0..4 {
            assert_eq!(fingerprint(), ja4);
        }

        assert_eq!(ask("/sigalg"), " r");
        let own = authority.issue("client");
        let with_one = authority.client(Some(&own));
        let ask = || TlsClient::new(server, &with_one, "localhost").text("/sigalg");
        assert_eq!(ask(), "ecdsa_secp256r1_sha256 .");
        assert_eq!(ask(), " r");
        let mut client = TlsClient::new(server, &with_one, "localhost");
        let shown = client.text("/cert");
        let parts: Vec<&str> = shown.split('|').collect();
        assert!(parts[0].len() >= 2 && parts[0].bytes().all(|b| b.is_ascii_hexdigit()), "{shown}");
        assert_eq!(parts[1].len(), 40);
        assert!(parts[2].parse::<u64>().unwrap() > 300, "{shown}");
        assert!(parts[3].starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{shown}");
        assert_eq!(parts[4].replace("\r\n", "\n"), own.chain.replace("\r\n", "\n"));
    });
}
