//! Clients of HTTP/3 that are libraries: quic-go.

use crate::stage::{ca, https, on_each, program, succeed};

/// The same port as over TCP.
const QUIC: &str = "listen 127.0.0.1:%%PORT%% quic;
    ssl_early_data on;
    location = /early { return 200 \"early $ssl_early_data\"; }";

/// Several connections at once, with downloads and uploads that it verifies; early data; changes of its address.
#[test]
fn quic_go() {
    if program("http3-client").is_none() {
        return;
    }
    for more in [QUIC.to_owned(), format!("{QUIC} quic_retry on;")] {
        on_each(&more, |server| {
            let Some(mut client) = program("http3-client") else { return };
            let address = https(server).replace("localhost", "127.0.0.1");
            succeed(client.arg(address).arg(ca(server)));
        });
    }
}
