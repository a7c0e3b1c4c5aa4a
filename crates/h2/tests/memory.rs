//! What a connection costs.

mod support;

use nowait_h2::{Limits, client, server};
use support::*;

/// A typical request of a browser, and its response.
fn exchange(
    client: &mut client::ClientConnection,
    server: &mut server::ServerConnection,
    number: u64,
    buffers: &mut (Vec<u8>, Vec<u8>),
) {
    let (to_server, to_client) = buffers;
    let path = format!("/path/{number}");
    let target = client::RequestControl { path: path.as_bytes(), ..request(b"GET") };
    let mut head = client.open(&target, to_server).unwrap();
    head.field(b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101");
    head.field(b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    head.field(b"accept-language", b"en-US,en;q=0.5").field(b"accept-encoding", b"gzip, br");
    head.field(b"cookie", b"session=0123456789abcdef0123456789abcdef");
    let stream = head.finish(true);
    let events = feed(server, to_server);
    assert_eq!(events.last(), Some(&format!("request {stream} end")), "{events:?}");
    to_server.clear();
    let mut head = server.respond(stream, 200, to_client).unwrap();
    head.field(b"server", b"nowait").field(b"content-type", b"text/html; charset=utf-8");
    head.field(b"date", b"Mon, 21 Oct 2013 20:13:21 GMT").field_number(b"x-request", number);
    head.field(b"etag", format!("\"{number}\"").as_bytes()).field(b"x-cache", b"HIT");
    head.finish(false);
    server.data_header(stream, 100, true, to_client).unwrap();
    to_client.extend_from_slice(&[b'x'; 100]);
    let events = feed(client, to_client);
    assert!(events.last().is_some_and(|event| event.ends_with("end")), "{events:?}");
    to_client.clear();
    client.poll_output(to_server);
}

#[test]
fn an_idle_connection_is_small() {
    let size = size_of::<server::ServerConnection>();
    assert!(size <= 640, "{size} bytes");
    let mut client = client::ClientConnection::new(Limits::default());
    let mut server = server::ServerConnection::new(Limits::default());
    let mut buffers: (Vec<u8>, Vec<u8>) = Default::default();
    server.poll_output(&mut buffers.1);
    for number in 1..200 {
        exchange(&mut client, &mut server, number, &mut buffers);
    }
    assert!(server.heap() <= 20 * 1024, "{} bytes", server.heap());
    server.shrink();
    // The client's table must stay: it may refer to it.
    assert!(server.heap() <= 4096 + 128 * 12, "{} bytes", server.heap());
    let mut fresh = server::ServerConnection::new(Limits::default());
    fresh.poll_output(&mut Vec::new());
    fresh.shrink();
    assert_eq!(fresh.heap(), 0);
    exchange(&mut client, &mut server, 200, &mut buffers);
}

/// Streams of a warm connection use the memory of earlier ones.
#[test]
fn requests_allocate_nothing() {
    let mut client = client::ClientConnection::new(Limits::default());
    let mut server = server::ServerConnection::new(Limits::default());
    let mut buffers: (Vec<u8>, Vec<u8>) = Default::default();
    server.poll_output(&mut buffers.1);
    for number in 1..500 {
        exchange(&mut client, &mut server, number, &mut buffers);
    }
    let warm = (client.heap(), server.heap());
    for number in 500..2000 {
        exchange(&mut client, &mut server, number, &mut buffers);
        assert_eq!((client.heap(), server.heap()), warm, "{number}");
    }
}
