//! Sessions whose server is not one of its group any more.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};

use nowait_testkit::dns::{A, DnsAnswer, DnsServer};
use nowait_testkit::{Client, ports};

use crate::stage::{PATIENCE, Upstream, on_each, say, stream};

#[test]
fn they_end_if_they_should() {
    let address = Arc::new(Mutex::new("127.0.0.1"));
    let now = address.clone();
    let dns = DnsServer::start(move |query| match query.kind {
        A => vec![DnsAnswer::address(&query.name, 1, *now.lock().unwrap())],
        _ => vec![DnsAnswer::new()],
    });
    let up = Upstream::echo();
    let datagrams = UdpSocket::bind(up.addr()).expect("the same port");
    let [stays, by_datagrams] = [ports::free_port(), ports::free_port()];
    let block = format!(
        "resolver {} valid=1s ipv6=off;
         upstream u {{ zone u 64k; server moving.example:{} resolve; }}
         server {{ listen 127.0.0.1:%%PORT%%; proxy_pass u; proxy_session_drop on; }}
         server {{ listen 127.0.0.1:{stays}; proxy_pass u; }}
         server {{ listen 127.0.0.1:{by_datagrams} udp; proxy_pass u; proxy_session_drop on; }}",
        dns.addr(),
        up.addr().port()
    );
    on_each(&stream(&block), |server| {
        let mut bytes = [0; 16];
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut session = server.client();
        say(&mut session, "here", "here");
        let mut other = Client::to((Ipv4Addr::LOCALHOST, stays).into());
        say(&mut other, "here", "here");
        client.send_to(b"x", (Ipv4Addr::LOCALHOST, by_datagrams)).expect("it goes");
        datagrams.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        assert_eq!(datagrams.recv(&mut bytes).expect("a datagram"), 1);

        *address.lock().unwrap() = "127.0.0.2";
        assert_eq!(session.rest(), b"");
        server.wait_log("upstream server was removed while proxying connection, client:");
        server.wait_log("upstream server was removed while proxying connection, udp client:");
        say(&mut other, "still", "still");
        // For the next server.
        *address.lock().unwrap() = "127.0.0.1";
    });
}
