//! The client's side of HTTP/3: a possible order of events, whatever a server sends.
//!
//! Input: limits, then packets of streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::h3::{Feeder, limits, packets};
use nowait_h3::StreamId;
use nowait_h3::client::{ClientConnection, RequestControl};

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let mut feeder = Feeder::new(ClientConnection::new(limits(*choice)));
    let methods: [&[u8]; 4] = [b"GET", b"HEAD", b"POST", b"CONNECT"];
    for (number, method) in (0..).zip(methods) {
        let stream = StreamId::new(4 * number);
        let request =
            RequestControl { method, scheme: b"", authority: b"x", path: b"", protocol: None };
        let mut out = Vec::new();
        feeder
            .core
            .open(stream, &request, &mut out)
            .expect("nothing ends")
            .finish(method != b"POST");
        feeder.asked(stream);
    }
    for packet in &packets(rest, true) {
        if !feeder.feed(packet, &mut |_, _, _| {}) {
            return;
        }
        feeder.drain();
    }
});
