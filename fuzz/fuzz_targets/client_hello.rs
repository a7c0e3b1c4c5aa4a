//! The first message of a TLS client: however it comes in pieces, the same is read of it, and nothing
//! that was not sent.
//!
//! Input: the size of pieces, then what a client sends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_stream::client_hello::{HelloReader, ParseStep};

fuzz_target!(|data: &[u8]| {
    let [size, input @ ..] = data else { return };
    let whole = HelloReader::default().read(input);
    let mut reader = HelloReader::default();
    let mut end = 0;
    let pieces = loop {
        end = (end + usize::from(*size).max(1)).min(input.len());
        match reader.read(&input[..end]) {
            ParseStep::More if end < input.len() => {}
            step => break step,
        }
    };
    assert_eq!(pieces, whole);
    if let ParseStep::Done(hello) = whole {
        assert!(hello.server_name.len() <= input.len() && hello.alpn.len() <= input.len());
        hello.version_name();
    }
});
