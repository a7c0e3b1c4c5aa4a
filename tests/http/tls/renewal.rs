//! `ssl_certificate_watch`: renewed certificates are used without a reload.

use std::sync::Arc;

use nowait_testkit::{Driver, Server, TempDir, wait};
use rcgen::KeyPair;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::client::Issued;
use super::{Authority, TlsClient, secured};
use crate::stage::on_each_driver;

fn presented(server: &Server, config: &Arc<ClientConfig>) -> CertificateDer<'static> {
    let mut client = TlsClient::new(server, config, "localhost");
    assert!(client.get("/").0.starts_with("HTTP/1.1 "));
    client.tls().peer_certificates().unwrap()[0].clone()
}

#[track_caller]
fn wait_for(server: &Server, config: &Arc<ClientConfig>, own: &Issued) {
    let wanted = CertificateDer::from_pem_slice(own.chain.as_bytes()).unwrap();
    let is_it = || (presented(server, config) == wanted).then_some(());
    assert!(wait::try_until(wait::PATIENCE, is_it).is_some(), "{}", server.log());
}

#[test]
fn renewed_certificates_are_used_without_a_reload() {
    let authority = Authority::new("CA");
    let site = secured(&authority, "").main("ssl_certificate_watch on;");
    on_each_driver(&site, |server| {
        let mut config = ClientConfig::clone(&authority.client(None));
        config.resumption = rustls::client::Resumption::disabled();
        let config = Arc::new(config);
        let mut idle = TlsClient::new(server, &config, "localhost");
        idle.get("/");
        // What else was changed has to wait for a reload.
        server.write("nginx.conf", "no configuration");

        // In place, one file after the other.
        let next = authority.issue("localhost");
        let before = presented(server, &config);
        server.write("own.pem", &next.chain);
        server.wait_log("key values mismatch");
        server.wait_log("cannot be used: the previous ones stay in use");
        assert_eq!(presented(server, &config), before);
        server.write("own.key", &next.key);
        wait_for(server, &config, &next);

        // By renaming.
        let next = authority.issue("localhost");
        for (name, text) in [("own.pem", &next.chain), ("own.key", &next.key)] {
            let new = server.write(&format!("{name}.new"), text);
            std::fs::rename(new, server.dir().join(name)).unwrap();
        }
        wait_for(server, &config, &next);

        // By changing a link, as tools do that keep old certificates.
        let next = authority.issue("localhost");
        for (name, text) in [("own.pem", &next.chain), ("own.key", &next.key)] {
            let kept = server.write(&format!("html/{name}"), text);
            std::fs::remove_file(server.dir().join(name)).unwrap();
            std::os::unix::fs::symlink(kept, server.dir().join(name)).unwrap();
        }
        wait_for(server, &config, &next);
        let next = authority.issue("localhost");
        for (name, text) in [("own.pem", &next.chain), ("own.key", &next.key)] {
            server.write(&format!("html/{name}"), text);
        }
        wait_for(server, &config, &next);
        assert!(idle.get("/").0.starts_with("HTTP/1.1 "), "connections survive");
    });
}

/// A key whose password is "secret".
const ENCRYPTED: &str = include_str!("../../../crates/tls/src/testdata/pkcs8.pem");
/// The same without.
const DECRYPTED: &str = "-----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNR0bwcVzTEDXTTSI\n\
    LQUA+RD7AUyQoQV78r6MugM+gOahRANCAAR7RjgtDh5roktx/LuYxMfVB/YIumyx\n\
    PKB9XzuQFk32vxfOwjSmR/sUQaIbqXnOGqA0u1/TK+CUfEQsv8VlWm8I\n\
    -----END PRIVATE KEY-----";

/// What an administrator has written into a FIFO for the start stays, and nothing waits for it again.
#[test]
fn passwords_of_a_fifo_are_read_once() {
    let key = || KeyPair::from_pem(DECRYPTED).unwrap();
    let authority = Authority::new("CA");
    let dir = TempDir::new("fifo");
    let fifo = dir.path().join("passwords");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let site = secured(&authority, &format!("ssl_password_file {};", fifo.display()))
        .main("ssl_certificate_watch on;")
        .file("own.pem", authority.issue_for("localhost", key()).chain)
        .file("own.key", ENCRYPTED);
    // A writer for each start; the program reads it once.
    let writer = || {
        let fifo = fifo.clone();
        std::thread::spawn(move || std::fs::write(fifo, "secret\n").unwrap())
    };
    let mut config = ClientConfig::clone(&authority.client(None));
    config.resumption = rustls::client::Resumption::disabled();
    let config = Arc::new(config);
    for driver in [Driver::Epoll, Driver::IoUring] {
        let writing = writer();
        let server = site.clone().driver(driver).start();
        writing.join().unwrap();
        let next = authority.issue_for("localhost", key());
        server.write("own.pem", &next.chain);
        wait_for(&server, &config, &next);
        // By HUP, and by the command, which reads the configuration, too.
        server.reload();
        let mut command = server.binary().command();
        command.arg("-p").arg(server.dir()).args(["-c", "nginx.conf", "-s", "reload"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(
            presented(&server, &config)
                == CertificateDer::from_pem_slice(next.chain.as_bytes()).unwrap()
        );
        server.stop();
    }
}
