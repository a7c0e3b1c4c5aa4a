//! Names in trailers: of requests, and of responses, which are read as leniently as their heads.

use nowait_h1::{BodyDecoder, BodyEvent, BodyLength, Limits};

/// Whether trailers with this name are accepted.
fn accepts(mut decoder: BodyDecoder, name: &str) -> bool {
    let text = format!("1\r\nx\r\n0\r\na: b\r\n{name}: c\r\n\r\n");
    let mut rest = text.as_bytes();
    while let Ok(step) = decoder.receive(rest) {
        rest = &rest[step.consumed..];
        if step.event == BodyEvent::End {
            return rest.is_empty();
        }
    }
    false
}

#[test]
fn names_are_tokens() {
    let limits = Limits::default();
    let request = || BodyDecoder::of_request(BodyLength::Chunked, &limits);
    let response = || BodyDecoder::new(BodyLength::Chunked, &limits);
    // nginx calls some of them invalid.
    for name in ["a", "A-b", "a_b", "a!b", "a~"] {
        assert!(accepts(request(), name) && accepts(response(), name), "{name}");
    }
    for name in ["a(b)", "a/b", "\"a\"", "a@", "\u{e9}"] {
        assert!(!accepts(request(), name), "{name}");
        assert!(accepts(response(), name), "{name}");
    }
    for name in ["", "a ", "a b", " a"] {
        assert!(!accepts(request(), name) && !accepts(response(), name), "{name:?}");
    }
}
