//! Requests: the same events however the input is cut, with and without reuse of the previous request's
//! fields, and every promise of a head kept.
//!
//! Input: limits, cuts, then the bytes of a connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_fuzz::{limits, pieces};
use nowait_h1::{BodyEvent, Limits, server::ServerConnection};
use nowait_message::RequestHead;

#[derive(Debug, PartialEq)]
enum Event {
    Head(String),
    Body(Vec<u8>),
    End(String),
    Error(String),
}

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let limits = limits(*choice);
    // A long unfinished line is judged when its end comes, so let there be one.
    let input = [rest, b"\n"].concat();
    let whole = connection(limits, std::iter::once(&input[..]), RequestHead::recycle);
    assert_eq!(whole, connection(limits, pieces(&input, *cuts), RequestHead::recycle));
    assert_eq!(
        whole,
        connection(limits, std::iter::once(&input[..]), RequestHead::recycle_for_next)
    );
    assert_eq!(whole, connection(limits, pieces(&input, *cuts), RequestHead::recycle_for_next));
});

fn connection<'a>(
    limits: Limits,
    pieces: impl Iterator<Item = &'a [u8]>,
    next: fn(&mut RequestHead),
) -> Vec<Event> {
    let mut connection = ServerConnection::new(limits);
    let mut head = RequestHead::new();
    let mut in_body = false;
    let mut events = Vec::new();
    for piece in pieces {
        let mut at = 0;
        loop {
            let input = &piece[at..];
            if !in_body {
                match connection.receive_head(&mut head, input) {
                    Ok(step) => {
                        at += step.consumed;
                        if !step.complete {
                            assert_eq!(step.consumed, input.len());
                            break;
                        }
                        events.push(Event::Head(check_head(&connection, &head, limits)));
                        in_body = true;
                    }
                    Err(error) => {
                        let text = head_error(&connection, &head, error);
                        events.push(Event::Error(text));
                        return events;
                    }
                }
                continue;
            }
            match connection.receive_body(input) {
                Ok(step) => {
                    at += step.consumed;
                    match step.event {
                        BodyEvent::NeedMore => {
                            assert_eq!(step.consumed, input.len());
                            break;
                        }
                        BodyEvent::Data(range) => {
                            assert!(!range.is_empty() && range.end <= step.consumed);
                            match events.last_mut() {
                                Some(Event::Body(body)) => body.extend_from_slice(&input[range]),
                                _ => events.push(Event::Body(input[range].to_vec())),
                            }
                        }
                        BodyEvent::End => {
                            let trailers = connection.trailers().map(|t| {
                                t.fields().iter().map(|f| format!("{f:?}")).collect::<Vec<_>>()
                            });
                            let received = connection.body().received();
                            events.push(Event::End(format!("{received} {trailers:?}")));
                            let keep_alive = connection.keep_alive(&head);
                            assert!(connection.next_request());
                            next(&mut head);
                            in_body = false;
                            if !keep_alive {
                                return events;
                            }
                        }
                    }
                }
                Err(error) => {
                    events.push(Event::Error(error.to_string()));
                    return events;
                }
            }
        }
    }
    events
}

fn head_error(
    connection: &ServerConnection,
    head: &RequestHead,
    error: nowait_h1::RequestError,
) -> String {
    assert!(matches!(error.status(), 400 | 414 | 494 | 501 | 505));
    let _ = (head.request_line(), head.uri(), head.host(), head.normalize(true));
    format!("{error:?} {:?}", error.describe(connection, head))
}

fn check_head(connection: &ServerConnection, head: &RequestHead, limits: Limits) -> String {
    let clean = |bytes: &[u8]| !bytes.iter().any(|c| matches!(c, b'\r' | b'\n' | 0));
    assert!(clean(&head.request_line()) && clean(head.uri()) && clean(head.target()));
    assert!(!head.method_bytes().is_empty());
    let most = limits.header_buffer + limits.large_buffers * limits.large_buffer;
    assert!(head.length() <= most as usize);
    assert!(head.fields().len() <= usize::from(limits.headers_max));
    for field in head.fields().iter() {
        assert!(!field.name.is_empty() && clean(field.name) && clean(field.value));
        assert!(!field.name.iter().any(|c| *c <= b' ' || *c == b':'));
        assert_eq!(field.known, nowait_message::Known::from_bytes(field.name));
    }
    if let Some(host) = head.host() {
        assert!(!host.iter().any(|c| c.is_ascii_uppercase() || matches!(c, b'/' | b'\\' | 0)));
    }
    for merge_slashes in [true, false] {
        let Ok(normal) = head.normalize(merge_slashes) else { continue };
        let path = &normal.path;
        assert_eq!(path.first(), Some(&b'/'));
        assert!(!path.contains(&0));
        assert!(path.split(|&c| c == b'/').all(|s| s != b"." && s != b".."));
        assert!(!merge_slashes || !path.windows(2).any(|w| w == b"//"));
        let again = nowait_message::uri::normalize(head.uri(), merge_slashes);
        assert_eq!(again.as_ref(), Ok(&normal));
    }
    let fields: Vec<_> = head.fields().iter().collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {} {} {fields:?}",
        head.method(),
        head.request_line(),
        head.target(),
        head.target_form(),
        head.uri(),
        head.version(),
        head.host(),
        head.host_port(),
        connection.body_length(head),
        connection.options(),
        head.length(),
        connection.ignored_fields(),
    )
}
