//! What an issuer sees that validates names, without pebble.

use std::os::unix::fs::PermissionsExt;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Client, TempDir};

use super::issuer::Issuer;
use super::pebble::wait_for_other;
use crate::stage::DRIVERS;

#[test]
fn names_are_proved_by_tls() {
    for driver in DRIVERS {
        let port = free_port();
        let Some(issuer) = Issuer::start(&["honest", &format!("tls:{port}")]) else { return };
        let servers = format!("server {{ listen 127.0.0.1:{port} ssl; ssl_reject_handshake on; }}");
        let server = issuer.site("challenge tls-alpn-01;", &servers).driver(driver).start();
        wait_for_other(&server, None);
        server.wait_log("challenge tls-alpn-01 was answered for localhost");
        server.stop();
    }
}

#[test]
fn names_are_proved_by_http() {
    for driver in DRIVERS {
        let port = free_port();
        let Some(issuer) = Issuer::start(&["honest", &format!("http:{port}")]) else { return };
        let servers = format!("server {{ listen 127.0.0.1:{port}; deny all; }}");
        let server = issuer.site("", &servers).driver(driver).start();
        wait_for_other(&server, None);
        server.stop();
    }
}

/// A program that adds records to a file, removes them there, and notes what it was called with.
const HOOK: &str = r#"#!/bin/sh
set -e
records=$1
echo "$2 $3" >> "$records.calls"
case $2 in
    present) echo "$3 $4" >> "$records";;
    cleanup) grep -vxF "$3 $4" "$records" > "$records.new" || true; mv "$records.new" "$records";;
esac
"#;

/// The directive for a program with this text, which is readable for everybody.
fn hook(dir: &TempDir, text: &str) -> String {
    let program = dir.write("hook", text);
    for (path, mode) in [(&program, 0o755), (&dir.path().to_owned(), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let (program, records) = (program.display(), dir.path().join("records"));
    format!(
        "challenge dns-01; dns_hook {program} {}; dns_propagation_delay 10ms;",
        records.display()
    )
}

#[test]
fn names_and_wildcards_are_proved_by_the_dns() {
    for driver in DRIVERS {
        for arguments in [&["honest"][..], &["honest", "wildcard"]] {
            let dir = TempDir::new("records");
            let records = dir.path().join("records");
            let validated = format!("dns:{}", records.display());
            let arguments = [arguments, &[&validated]].concat();
            let Some(issuer) = Issuer::start(&arguments) else { return };
            let name = if arguments.len() == 3 { "*.a.test" } else { "localhost" };
            let record = format!("_acme-challenge.{}.", name.trim_start_matches("*."));
            let servers = format!(
                "server {{ listen 127.0.0.1:%%PORT%% ssl; server_name {name}; acme_certificate own;
                     ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }}"
            );
            let site = issuer.servers(&hook(&dir, HOOK), &servers);
            let server = site.driver(driver).start();
            server.wait_log(&format!("new certificate for {name}, valid for"));
            assert!(server.log().contains(&format!("of {record} is published")));
            let of = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!(of("records"), "");
            let calls = format!("present {record}\ncleanup {record}\n");
            assert_eq!(of("records.calls"), calls);
            server.stop();
        }
    }
}

#[test]
fn a_program_for_the_dns_that_fails_is_reported() {
    let dir = TempDir::new("records");
    let Some(issuer) = Issuer::start(&["honest", "dns:nothing"]) else { return };
    let failing = "#!/bin/sh\necho no access; echo to the zone >&2\nexit 7\n";
    let server = issuer.site(&hook(&dir, failing), "").start();
    server.wait_log("next attempt in");
    let log = server.log();
    for expected in [
        "hook\" (present) failed with exit status: 7: no access; to the zone; next attempt in",
        "hook\" (cleanup) failed with exit status: 7: no access; to the zone; the TXT record of \
         _acme-challenge.localhost. may remain",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    server.stop();
    // The record is not there: the issuer's reason, and what to do.
    let Some(issuer) = Issuer::start(&["honest", "dns:/dev/null"]) else { return };
    let server = issuer.site(&hook(&dir, "#!/bin/sh\n"), "").start();
    server.wait_log("has to be public when dns_propagation_delay has passed");
    server.stop();
}

/// Two instances share a state: one of them orders, and the issuer asks the other one.
#[test]
fn instances_answer_for_each_other() {
    let port = free_port();
    let Some(issuer) = Issuer::start(&["honest", &format!("http:{port}")]) else { return };
    let state = issuer.state();
    let secret = "-----BEGIN PRIVATE KEY-----";
    std::fs::create_dir(&state).unwrap();
    // What has the form of a response, what has not, and what a crash has left.
    std::fs::write(state.join("challenge-good"), "good.print").unwrap();
    std::fs::write(state.join("challenge-bad"), format!("bad.{secret}")).unwrap();
    std::fs::write(state.join("challenge-left.tmp"), "").unwrap();
    let plain =
        format!("server {{ listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:{port}; return 404 own; }}");
    // It has no certificate to order.
    let other = issuer.servers("", &plain).start();
    let answer = |path: &str| {
        let mut client = Client::to_port(port);
        client.send(format!(
            "GET /.well-known/acme-challenge/{path} HTTP/1.1\r\nHost: localhost\r\n\
             Connection: close\r\n\r\n"
        ));
        let response = client.response();
        (response.status, String::from_utf8(response.body.to_vec()).unwrap())
    };
    assert_eq!(answer("good"), (200, "good.print".to_owned()));
    let long = "a".repeat(300);
    for path in ["bad", "left.tmp", "other", "", "../account.key", "%2e%2e%2flock", "a/b", &long] {
        assert_eq!(answer(path), (404, "own".to_owned()), "{path}");
    }
    let first = issuer.site("", "").start();
    wait_for_other(&first, None);
    let left = std::fs::read_dir(&state).unwrap().map(|file| file.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("challenge")).collect();
    assert!(left.is_empty(), "{left:?}");
    first.stop();
    other.stop();
}
