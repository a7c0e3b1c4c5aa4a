//! What a client sends before there are keys: however it comes in pieces, the server's session sends
//! and says the same.
//!
//! Input: the size of pieces, then what a client sends.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use nowait_tls::{Acceptor, ServerSettings, Stop, TlsServer};

static SERVER: LazyLock<TlsServer> =
    LazyLock::new(|| TlsServer::new(ServerSettings::default()).expect("the default settings"));

fuzz_target!(|data: &[u8]| {
    let [size, input @ ..] = data else { return };
    let whole = accept(input, input.len().max(1));
    assert_eq!(accept(input, usize::from(*size).max(1)), whole);
});

/// The server name, and how the session goes on: its output and its error.
fn accept(input: &[u8], piece: usize) -> Option<(Option<String>, Vec<u8>, String)> {
    let mut acceptor = Acceptor::default();
    let mut pieces = input.chunks(piece);
    let hello = loop {
        match acceptor.receive(pieces.next()?) {
            Ok(None) => {}
            Ok(Some(hello)) => break hello,
            Err(refusal) => return Some((None, refusal.alert, refusal.error.to_string())),
        }
    };
    let name = hello.server_name();
    let (mut session, mut received) = hello.begin(&SERVER).expect("the default settings");
    pieces.for_each(|piece| received.extend_from_slice(piece));
    let mut output = Vec::new();
    // Without a certificate, every hello ends here.
    let error = match session.open(&mut received, &mut [], &mut output, true) {
        Ok(opened) => {
            assert!(opened.consumed <= received.len() && opened.written == 0);
            assert!(matches!(opened.stop, Stop::Input | Stop::Ended));
            String::new()
        }
        Err(error) => error.to_string(),
    };
    Some((name, output, error))
}
