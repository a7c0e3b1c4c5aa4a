//! Certificates whose names have variables: `ssl_certificate $ssl_server_name.pem`.

use std::sync::Arc;

use nowait_testkit::{Server, wait};
use rustls::ClientConfig;

use super::{Authority, TlsClient};
use crate::stage::{on_each_driver, site};

/// A server at `%%PORT%%` that names its certificates after its clients' wishes.
fn named(content: &str) -> nowait_testkit::ServerBuilder {
    site(&format!(
        "map $ssl_server_name $certificate {{ volatile; default $ssl_server_name; alias.example a.example; }}\n\
         server {{ listen 127.0.0.1:%%PORT%% ssl;\n\
         ssl_certificate $certificate.pem; ssl_certificate_key $certificate.key;\n{content}\n\
         location / {{ return 200 $ssl_server_name; }} }}"
    ))
}

/// The certificate that a client gets for a name.
fn presented(server: &Server, config: &Arc<ClientConfig>, name: &str) -> Vec<u8> {
    let mut client = TlsClient::new(server, config, name);
    assert_eq!(client.text("/"), name);
    client.tls().peer_certificates().unwrap()[0].to_vec()
}

fn failure(server: &Server, config: &Arc<ClientConfig>, name: &str) -> String {
    TlsClient::new(server, config, name).failure()
}

#[test]
fn variables_name_certificates() {
    let authority = Authority::new("CA");
    let (a, b) = (authority.issue("a.example"), authority.issue("b.example"));
    let pem = |text: &str| pem::certificate(text);
    let builder = named("").file("a.example.pem", &a.chain).file("a.example.key", &a.key);
    let builder = builder.file("b.example.pem", &b.chain).file("b.example.key", &b.key);
    let builder = builder.file("mixed.example.pem", &a.chain).file("mixed.example.key", &b.key);
    let builder = builder.file("odd.example.pem", "not PEM").file("odd.example.key", &b.key);
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        assert_eq!(presented(server, &config, "a.example"), pem(&a.chain));
        assert_eq!(presented(server, &config, "b.example"), pem(&b.chain));
        for name in ["none.example", "mixed.example", "odd.example"] {
            let text = failure(server, &config, name);
            assert!(text.contains("InternalError"), "{name}: {text}");
        }
        server.wait_log("cannot load certificate \"");
        server.wait_log("none.example.pem\": open() failed (2: No such file or directory)");
        server.wait_log("cannot load certificate \"mixed.example.pem\": SSL_CTX_use_PrivateKey()");
        server.wait_log("cannot load certificate \"odd.example.pem\": PEM_read_bio_X509_AUX()");
        assert_eq!(presented(server, &config, "b.example"), pem(&b.chain));
    });
}

#[test]
fn contents_may_come_from_variables() {
    let authority = Authority::new("CA");
    let (a, b) = (authority.issue("a.example"), authority.issue_for("a.example", rsa_key()));
    let text = format!(
        "map $ssl_server_name $chain {{ default \"{}\"; }}\nmap $ssl_server_name $key {{ default \"{}\"; }}\n\
         server {{ listen 127.0.0.1:%%PORT%% ssl;\n\
         ssl_certificate data:$chain; ssl_certificate_key data:$key;\n\
         ssl_certificate rsa.pem; ssl_certificate_key rsa.key;\n\
         location / {{ return 200 $ssl_server_name; }} }}",
        a.chain, a.key
    );
    let builder = site(&text).file("rsa.pem", &b.chain).file("rsa.key", &b.key);
    on_each_driver(&builder, |server| {
        // Each client gets the type that suits it.
        use rustls::CipherSuite as Suite;
        for (suite, own) in [
            (Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, &a),
            (Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, &b),
        ] {
            let config = authority.client(None);
            let mut provider = (**config.crypto_provider()).clone();
            provider.cipher_suites.retain(|known| known.suite() == suite);
            let config = authority.client_of(provider);
            assert_eq!(presented(server, &config, "a.example"), pem::certificate(&own.chain));
        }
        assert!(!server.log().contains("BEGIN"));
    });
}

#[test]
fn a_bounded_cache_keeps_certificates() {
    let authority = Authority::new("CA");
    let issue = |name| (name, authority.issue(name));
    let all = [issue("a.example"), issue("b.example"), issue("c.example")];
    let mut builder = named("ssl_certificate_cache max=4 valid=1h inactive=1h;");
    for (name, own) in &all {
        builder = builder.file(&format!("{name}.pem"), &own.chain);
        builder = builder.file(&format!("{name}.key"), &own.key);
    }
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        let [(a, _), (b, _), (c, _)] = &all;
        presented(server, &config, a);
        presented(server, &config, b);
        for (name, _) in &all[..2] {
            std::fs::remove_file(server.dir().join(format!("{name}.pem"))).unwrap();
        }
        presented(server, &config, b);
        presented(server, &config, a);
        // The third one takes the place of the one that was used least recently.
        presented(server, &config, c);
        presented(server, &config, a);
        assert!(failure(server, &config, b).contains("InternalError"));
    });
}

#[test]
fn without_a_cache_files_are_read_each_time() {
    let authority = Authority::new("CA");
    let (old, new) = (authority.issue("a.example"), authority.issue("a.example"));
    let builder = named("ssl_session_tickets off;");
    let builder = builder.file("a.example.pem", &old.chain).file("a.example.key", &old.key);
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        assert_eq!(presented(server, &config, "a.example"), pem::certificate(&old.chain));
        std::fs::write(server.dir().join("a.example.pem"), &new.chain).unwrap();
        std::fs::write(server.dir().join("a.example.key"), &new.key).unwrap();
        assert_eq!(presented(server, &config, "a.example"), pem::certificate(&new.chain));
    });
}

#[test]
fn files_that_have_not_changed_are_not_read_again() {
    let authority = Authority::new("CA");
    let (old, new) = (authority.issue("a.example"), authority.issue("a.example"));
    let builder = named("ssl_session_tickets off; location /status/ { status_api; }");
    let builder = builder.file("a.example.pem", &old.chain).file("a.example.key", &old.key);
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        let mut watcher = TlsClient::new(server, &config, "a.example");
        let mut reads = || watcher.text("/status/thread_pools/default/operations/read/started");
        let mut unread = |chain: &str| {
            wait::until("a handshake that reads no file", wait::PATIENCE, || {
                let before = reads();
                assert_eq!(presented(server, &config, "a.example"), pem::certificate(chain));
                (reads() == before).then_some(())
            });
        };
        unread(&old.chain);
        std::fs::write(server.dir().join("a.example.pem"), &new.chain).unwrap();
        std::fs::write(server.dir().join("a.example.key"), &new.key).unwrap();
        unread(&new.chain);
        std::fs::remove_file(server.dir().join("a.example.key")).unwrap();
        assert!(failure(server, &config, "a.example").contains("InternalError"));
    });
}

fn rsa_key() -> rcgen::KeyPair {
    rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap()
}

mod pem {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    pub fn certificate(text: &str) -> Vec<u8> {
        CertificateDer::from_pem_slice(text.as_bytes()).unwrap().to_vec()
    }
}
