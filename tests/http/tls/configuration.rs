//! What `-t` says about certificates, keys and settings.

use nowait_testkit::ServerBuilder;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{Authority, TlsClient, secured};
use crate::stage::{on_each_driver, site};

/// The error of a configuration that is refused.
#[track_caller]
fn refused(site: ServerBuilder) -> String {
    match site.try_start() {
        Ok(_) => panic!("it was accepted"),
        Err(failure) => failure.stderr,
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new("CA");
    let (own, other) = (authority.issue("localhost"), authority.issue("other"));
    let with = |lines: &str| {
        let http = format!("server {{ listen 127.0.0.1:%%PORT%% ssl;\n{lines}\n}}");
        site(&http)
            .file("own.pem", &own.chain)
            .file("own.key", &own.key)
            .file("other.key", &other.key)
            .file("text", "no PEM")
    };
    for (lines, expected) in [
        ("", "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive"),
        ("ssl_certificate own.pem;", "no \"ssl_certificate_key\" is defined for certificate"),
        ("ssl_certificate x.pem; ssl_certificate_key own.key;", "No such file or directory"),
        ("ssl_certificate own.pem; ssl_certificate_key x.key;", "cannot load certificate key"),
        ("ssl_certificate text; ssl_certificate_key own.key;", "no start line"),
        ("ssl_certificate own.pem; ssl_certificate_key text;", "no start line"),
        ("ssl_certificate own.pem; ssl_certificate_key other.key;", "key values mismatch"),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_verify_client on;",
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_protocols TLSv1;",
            "no protocol of \"ssl_protocols\" exists here",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_ciphers FOO;",
            "no cipher match",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_ecdh_curve foo;",
            "SSL_CTX_set1_curves_list(\"foo\") failed",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_ocsp on; \
             ssl_ocsp_responder https://localhost;",
            "invalid URL prefix in OCSP responder \"https://localhost\" in \"ssl_ocsp_responder\"",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_session_cache shared:a:1k;",
            "session cache \"shared:a:1k\" is too small",
        ),
        (
            "ssl_certificate own.pem; ssl_certificate_key own.key; ssl_conf_command Foo bar;",
            "SSL_CONF_cmd(\"Foo\", \"bar\") failed",
        ),
    ] {
        let error = refused(with(lines));
        assert!(error.contains(expected), "{lines}: {error}");
        assert!(error.contains("nginx.conf:"), "{lines}: {error}");
    }
}

#[test]
fn private_keys_are_in_no_dump() {
    let authority = Authority::new("CA");
    let server = secured(&authority, "").start();
    let command = server
        .binary()
        .command()
        .args(["-T", "-p"])
        .arg(server.dir())
        .arg("-c")
        .arg(server.dir().join("nginx.conf"))
        .output();
    let dump = String::from_utf8(command.unwrap().stdout).unwrap();
    assert!(dump.contains("ssl_certificate_key own.key"), "{dump}");
    assert!(!dump.contains("PRIVATE KEY"));
    assert!(!server.log().contains("PRIVATE KEY"));
    server.stop();
}

#[test]
fn commands_and_stores_name_files() {
    let authority = Authority::new("CA");
    let (own, other) = (authority.issue("localhost"), authority.issue("localhost"));
    let http = "server { listen 127.0.0.1:%%PORT%% ssl;\n\
                ssl_certificate own.pem; ssl_certificate_key store:file:own.key;\n\
                location / { return 200 a; } }\n\
                server { listen 127.0.0.1:%%PORT_1%% ssl;\n\
                ssl_certificate own.pem; ssl_certificate_key own.key;\n\
                ssl_conf_command Certificate other.pem; ssl_conf_command PrivateKey other.key;\n\
                location / { return 200 b; } }";
    let builder = site(http).file("own.pem", &own.chain).file("own.key", &own.key);
    let builder = builder.file("other.pem", &other.chain).file("other.key", &other.key);
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        let presented = |port| {
            let socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut client = TlsClient::over(socket, &config, "localhost");
            client.get("/");
            client.tls().peer_certificates().unwrap()[0].clone()
        };
        let der = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
        assert_eq!(presented(server.port()), der(&own.chain));
        assert_eq!(presented(server.port_n(1)), der(&other.chain));
    });
    let lone = http.replace("ssl_conf_command PrivateKey other.key;", "");
    let text = refused(site(&lone).file("own.pem", &own.chain).file("own.key", &own.key));
    assert!(text.contains("names a certificate without a key"), "{text}");
}

#[test]
fn acme_certificates_need_names_and_issuers() {
    let authority = Authority::new("CA");
    let with = |issuer: &str, lines: &str| {
        let http = format!(
            "acme_issuer a {{ {issuer} ssl_trusted_certificate ca.pem; state_path off; }}
             server {{ listen 127.0.0.1:%%PORT%% ssl; {lines}
             ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }}"
        );
        site(&http).file("ca.pem", &authority.pem)
    };
    let uri = "uri https://localhost:1/dir;";
    let dns = "uri https://localhost:1/dir; challenge dns-01; dns_hook /bin/true;";
    let no_hook = "uri https://localhost:1/dir; challenge dns;";
    for (issuer, lines, expected) in [
        ("", "server_name a.test; acme_certificate a;", "acme_issuer \"a\" has no \"uri\""),
        ("uri http://a/;", "server_name a.test; acme_certificate a;", "invalid URL \"http://a/\""),
        (uri, "server_name a.test; acme_certificate b;", "no acme_issuer \"b\" is defined"),
        (uri, "acme_certificate a;", "the server has no names for a certificate"),
        (uri, "server_name *.a.test; acme_certificate a;", "wildcards can't be proved by http-01"),
        (uri, "server_name ~^a; acme_certificate a;", "a regular expression in server_name"),
        (uri, "acme_certificate a a.test key=dsa;", "unsupported kind of key \"key=dsa\""),
        (uri, "server_name www.*; acme_certificate a;", "stands for the first of three labels"),
        (uri, "acme_certificate a *.a.test;", "use the challenge dns-01"),
        (dns, "acme_certificate a 192.0.2.1;", "addresses can't be proved by dns-01"),
        (no_hook, "acme_certificate a a.test;", "acme_issuer \"a\" has no \"dns_hook\""),
        ("dns_hook;", "acme_certificate a a.test;", "invalid number of arguments in \"dns_hook\""),
        (
            "challenge dns; dns_hook /bin/true; dns_hook /bin/true;",
            "acme_certificate a a.test;",
            "\"dns_hook\" directive is duplicate",
        ),
        // Warnings, next to the error that there is no URI.
        (
            "dns_hook /bin/true;",
            "acme_certificate a a.test;",
            "\"dns_hook\" has no effect with the challenge http-01",
        ),
        (
            "dns_hook nowhere/hook;",
            "acme_certificate a a.test;",
            "nowhere/hook\" of \"dns_hook\" can't be used (2: No such file or directory)",
        ),
        (
            "dns_hook ca.pem;",
            "acme_certificate a a.test;",
            "ca.pem\" of \"dns_hook\" is not executable",
        ),
        ("dns_hook /;", "acme_certificate a a.test;", "\"/\" of \"dns_hook\" is not a file"),
        ("dns_propagation_delay 2h;", "acme_certificate a a.test;", "^ expected a time up to 1h"),
        ("challenge x;", "acme_certificate a a.test;", "unsupported challenge \"x\""),
        ("foo bar;", "acme_certificate a a.test;", "unknown directive \"foo\" in \"acme_issuer\""),
    ] {
        let error = refused(with(issuer, lines));
        assert!(error.contains(expected), "{issuer} {lines}: {error}");
        assert!(error.contains("nginx.conf:"), "{issuer} {lines}: {error}");
    }
}
