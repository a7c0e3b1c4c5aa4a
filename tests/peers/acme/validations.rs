//! What an issuer sees that validates names, without pebble.

use nowait_testkit::Client;
use nowait_testkit::ports::free_port;

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
