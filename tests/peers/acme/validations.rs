//! What an issuer sees that validates names, without pebble.

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
