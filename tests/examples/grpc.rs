//! `examples/grpc.conf`: services, their health, and statuses of calls that fail.

use nowait_testkit::Http2Origin;
use nowait_testkit::http2::Http2;
use nowait_testkit::http2_origin::Http2Peer;

use super::example;

/// Answers probes until another request comes.
fn next_call(origin: &Http2Origin) -> (Http2Peer, nowait_testkit::http2::StreamId) {
    loop {
        let mut peer = origin.accept();
        let asked = peer.request();
        if peer.asked(asked).field(":path") != Some("/grpc.health.v1.Health/Check") {
            return (peer, asked);
        }
        assert_eq!(peer.complete(asked).body, b"\0\0\0\0\x0b\x0a\x09shop.Cart");
        peer.respond(asked, 200, &[], false);
        peer.data(asked, b"\0\0\0\0\x02\x08\x01", false);
        peer.trailers(asked, &[("grpc-status", "0")]);
    }
}

#[test]
fn grpc() {
    let (cart, dead) = (Http2Origin::start(), nowait_testkit::ports::free_port());
    let text = include_str!("../../examples/grpc.conf")
        .replace("127.0.0.1:9001", &format!("127.0.0.1:{}", cart.port()))
        .replace("        server 127.0.0.1:9002;\n", "")
        .replace("127.0.0.1:9003", &format!("127.0.0.1:{dead}"));
    let server = example(&text).file("log/calls.log", "").start();
    let mut client = Http2::to_port(server.port());
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    let status = |client: &mut Http2, path: &str| {
        let call = client.open("POST", path, &fields, true);
        client.response(call).header("grpc-status").map(str::to_owned)
    };
    let call = client.open("POST", "/shop.Cart/Add", &fields, true);
    let (mut peer, asked) = next_call(&cart);
    peer.respond(asked, 200, &[("content-type", "application/grpc")], false);
    peer.data(asked, b"answer", false);
    peer.trailers(asked, &[("grpc-status", "0")]);
    let response = client.response(call);
    assert_eq!(response.text(), "answer");
    assert_eq!(response.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    assert_eq!(status(&mut client, "/shop.Feed/Watch").as_deref(), Some("14"));
    assert_eq!(status(&mut client, "/shop.Other/Get").as_deref(), Some("12"));
    assert!(server.quit().success());
}
