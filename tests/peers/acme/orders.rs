//! Orders: both challenges, refused names, accounts, profiles, chains.

use std::io::{Read, Write};
use std::net::TcpListener;

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::{Server, wait};

use super::pebble::{AcmeStage, first, presented, presented_at, wait_for_other};
use crate::stage::{DRIVERS, program, said};

/// Of an issuer that refuses some nonces.
#[test]
fn a_certificate_is_ordered_served_and_kept() {
    for driver in DRIVERS {
        let Some(mut stage) = AcmeStage::new() else { return };
        stage.variables.push(("PEBBLE_WFE_NONCEREJECT", "20"));
        let plain = format!(
            "{} server {{ listen 127.0.0.1:%%PORT_1%%; return 200 plain; }}",
            stage.challenges()
        );
        let server = stage.site("", "", &plain).driver(driver).start();
        // The issuer is still dead: that harms no other server, and the attempt is repeated.
        server.wait_log("next attempt in");
        assert!(presented(&server).is_none());
        assert!(server.log().contains("no certificate for localhost yet"));
        let _issuer = stage.start();
        server.reload();
        let own = wait_for_other(&server, None);
        server.reload();
        assert_eq!(presented(&server), Some(own));
        let files = std::fs::read_dir(stage.state()).unwrap().map(Result::unwrap);
        let files: Vec<_> = files.collect();
        for file in &files {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{:?}", file.path());
        }
        assert_eq!(files.len(), 4, "{files:?}");
        server.stop();
    }
}

/// What a client gets that offers this protocol.
fn negotiated(port: u16, name: &str, alpn: &str) -> String {
    let mut openssl = program("openssl").expect("it was found");
    openssl.args(["s_client", "-servername", name, "-alpn", alpn, "-connect"]);
    said(&openssl.arg(format!("127.0.0.1:{port}")).output().unwrap())
}

/// Several names, which are validated beside servers that reject handshakes and that speak HTTP/2.
#[test]
fn names_are_validated_by_tls() {
    for driver in DRIVERS {
        let Some(stage) = AcmeStage::new() else { return };
        let _issuer = stage.start();
        let port = stage.tls_port;
        let others = format!(
            "server {{ listen 127.0.0.1:{port} ssl default_server; ssl_reject_handshake on; }}
             server {{
                 listen 127.0.0.1:{port} ssl; http2 on; server_name localhost;
                 acme_certificate local localhost 127.0.0.1;
                 ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
                 return 200 two;
             }}"
        );
        let site = stage.site("localhost 127.0.0.1", "challenge tls-alpn-01;", &others);
        let server = site.driver(driver).start();
        wait_for_other(&server, None);
        assert!(server.log().contains("challenge tls-alpn-01 was answered for localhost"));
        assert!(server.log().contains("challenge tls-alpn-01 was answered for 1.0.0.127.in-addr"));
        let said = negotiated(port, "localhost", "h2,acme-tls/1");
        assert!(said.contains("ALPN protocol: h2"), "{said}");
        // Nothing is pending any more, and no other protocol takes the place of this one.
        for name in ["localhost", "other.test"] {
            let said = negotiated(port, name, "acme-tls/1");
            assert!(said.contains("alert no application protocol"), "{said}");
            server.wait_log(&format!("no challenge tls-alpn-01 is pending for \"{name}\""));
        }
        server.stop();
    }
}

/// A listening socket of `stream` answers for the certificate, which its servers can use, too.
#[test]
fn stream_servers_answer_validations() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let own = stage.authority.issue("fallback.test");
    let stream = format!(
        "stream {{ server {{
             listen 127.0.0.1:{} ssl;
             ssl_certificate own.pem; ssl_certificate_key own.key;
             return streamed;
         }} }}",
        stage.tls_port
    );
    let site = stage.site("", "challenge tls-alpn;", "").main(&stream);
    let server = site.file("own.pem", own.chain).file("own.key", own.key).start();
    let certificate = wait_for_other(&server, None);
    server.wait_log("challenge tls-alpn-01 was answered for localhost");
    let refused = negotiated(stage.tls_port, "localhost", "acme-tls/1");
    assert!(refused.contains("alert no application protocol"), "{refused}");
    // Its own certificate is for everybody else.
    let mut openssl = program("openssl").expect("it was found");
    openssl.args(["s_client", "-ign_eof", "-showcerts", "-servername", "localhost", "-connect"]);
    let said = said(&openssl.arg(format!("127.0.0.1:{}", stage.tls_port)).output().unwrap());
    assert!(said.contains("streamed") && first(&said) != certificate, "{said}");
    server.stop();
}

#[test]
fn a_refused_name_is_reported() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let server = stage.site("blocked.example", "", &stage.challenges()).start();
    server.wait_log("next attempt in");
    let log = server.log();
    assert!(
        log.contains("the issuer refused the order") && log.contains("rejectedIdentifier"),
        "{log}"
    );
    assert!(presented(&server).is_none());
    server.stop();
}

/// The name leads to another server, which knows no challenges.
#[test]
fn a_name_that_leads_elsewhere_is_reported() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let elsewhere = TcpListener::bind(("127.0.0.1", stage.http_port)).unwrap();
    std::thread::spawn(move || {
        for stream in elsewhere.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let page =
                "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nelsewhere";
            let _ = stream.write_all(page.as_bytes());
        }
    });
    let server = stage.site("", "", "").start();
    server.wait_log("next attempt in");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("next attempt in")).unwrap();
    // The issuer's own words.
    assert!(line.contains("authorization of localhost is \"invalid\" (unauthorized: "), "{line}");
    assert!(line.contains("elsewhere") || line.contains("404"), "{line}");
    server.stop();
}

#[test]
fn accounts_are_bound_to_external_ones() {
    let Some(mut stage) = AcmeStage::new() else { return };
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    stage.settings = format!(
        "\"externalAccountBindingRequired\": true, \"externalAccountMACKeys\": {{ \"kid-1\": \"{key}\" }},"
    );
    // And validations take their time.
    stage.variables = vec![("PEBBLE_VA_SLEEPTIME", "3")];
    let _issuer = stage.start();
    let server = stage.site("", "", &stage.challenges()).start();
    server.wait_log("external_account_key in the acme_issuer block names its key");
    server.stop();
    let wrong = format!("external_account_key kid-1 data:{};", key.replace('z', "A"));
    let server = stage.site("", &wrong, &stage.challenges()).start();
    server.wait_log("the issuer refused the account with status");
    server.stop();
    let right = format!("external_account_key kid-1 data:{key};");
    let server = stage.site("", &right, &stage.challenges()).start();
    wait_for_other(&server, None);
    server.stop();
}

#[test]
fn profiles_are_asked_for() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let server = stage.site("", "profile long require;", &stage.challenges()).start();
    server.wait_log("the issuer has no profile \"long\"");
    server.stop();
    let server = stage.site("", "profile short require;", &stage.challenges()).start();
    wait_for_other(&server, None);
    server.stop();
}

#[test]
fn the_preferred_chain_is_presented() {
    let Some(mut stage) = AcmeStage::new() else { return };
    stage.variables.push(("PEBBLE_ALTERNATE_ROOTS", "2"));
    let _issuer = stage.start();
    let roots = [stage.root(0), stage.root(1), stage.root(2)];
    let issued_by = |server: &Server, root: &str| {
        let said = presented_at(server.port()).unwrap();
        let last = said.lines().rfind(|line| line.trim_start().starts_with("i:"));
        assert!(last.is_some_and(|line| line.contains(root)), "{root}: {said}");
    };
    for (wanted, root) in [(&roots[2][..], &roots[2]), ("No Such Root", &roots[0])] {
        let preferred = format!("preferred_chain '{wanted}';");
        let server = stage.site("", &preferred, &stage.challenges()).start();
        wait_for_other(&server, None);
        issued_by(&server, root);
        let warns = server.log().contains("offers no chain of \"No Such Root\"");
        assert_eq!(warns, wanted == "No Such Root");
        server.stop();
        std::fs::remove_file(stage.file()).unwrap();
    }
}

/// Two instances share a state: one of them orders, and the other takes over when it is killed.
#[test]
fn one_instance_orders_at_a_time() {
    let Some(mut stage) = AcmeStage::new() else { return };
    // Validations take so long that the first instance does not see their end.
    stage.variables = vec![("PEBBLE_VA_SLEEPTIME", "1000")];
    let slow = stage.start();
    let first = stage.site("", "", &stage.challenges());
    let first = first.allow_log("the master process has gone").start();
    wait::until("an order", wait::PATIENCE, || {
        stage.state().join("account.key").exists().then_some(())
    });
    let second = stage.site("", "", "").start();
    second.wait_log("another instance is ordering, localhost waits");
    drop(slow);
    stage.variables = vec![("PEBBLE_VA_ALWAYS_VALID", "1")];
    let _issuer = stage.start();
    // Its master first, which would start another one.
    for pid in [vec![first.pid()], first.children()].concat() {
        signal(pid, Signal::KILL);
    }
    let own = wait_for_other(&second, None);
    let third = stage.site("", "", "").start();
    assert_eq!(wait_for_other(&third, None), own);
    assert!(!third.log().contains("new certificate for localhost"));
    third.stop();
    second.stop();
}
