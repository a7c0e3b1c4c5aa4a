//! Responses of upstreams: framing (RFC 9112 section 6.3), interim responses, reuse; what the
//! encoders write; and a client and a server core talking to each other.

use nowait_h1::client::{ClientConnection, HeadEvent, INTERIM_MAX, RequestKind};
use nowait_h1::encode::{self, HeadWriter};
use nowait_h1::{BodyEvent, BodyLength, Limits, ResponseError, server};
use nowait_message::{Known, RequestHead, ResponseBuilder, Version};

#[derive(Debug, Clone, PartialEq, Eq)]
enum ResponseOutcome {
    /// Status, body, whether the connection may be used again.
    Whole(u16, Vec<u8>, bool),
    /// The same, ended by the upstream's closing.
    Closed(u16, Vec<u8>),
    Error(ResponseError),
}

fn whole(status: u16, body: &str, reusable: bool) -> ResponseOutcome {
    ResponseOutcome::Whole(status, body.as_bytes().to_vec(), reusable)
}

fn closed(status: u16, body: &str) -> ResponseOutcome {
    ResponseOutcome::Closed(status, body.as_bytes().to_vec())
}

/// One response, then the end of the connection.
fn outcome(asked: RequestKind, pieces: &[&[u8]]) -> ResponseOutcome {
    let mut connection = ClientConnection::new(Limits::default());
    connection.request_sent(asked);
    let mut head = ResponseBuilder::new();
    let mut status = None;
    let mut body = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let mut rest = *piece;
        loop {
            if let Some(status) = status {
                let step = match connection.receive_body(rest) {
                    Ok(step) => step,
                    Err(error) => return ResponseOutcome::Error(error),
                };
                match step.event {
                    BodyEvent::NeedMore => break,
                    BodyEvent::Data(range) => body.extend_from_slice(&rest[range]),
                    BodyEvent::End => {
                        let more = pieces[i + 1..].iter().any(|p| !p.is_empty());
                        let leftover = rest.len() > step.consumed || more;
                        return ResponseOutcome::Whole(status, body, connection.reusable(leftover));
                    }
                }
                rest = &rest[step.consumed..];
                continue;
            }
            let step = match connection.receive_head(&mut head, rest) {
                Ok(step) => step,
                Err(error) => return ResponseOutcome::Error(error),
            };
            rest = &rest[step.consumed..];
            match step.event {
                HeadEvent::NeedMore => break,
                HeadEvent::Interim => head.clear(),
                HeadEvent::Final => status = Some(head.status()),
            }
        }
    }
    match (connection.receive_eof(), status) {
        (Ok(()), Some(status)) => ResponseOutcome::Closed(status, body),
        (Ok(()), None) => panic!("the end of a connection without a head was taken for a response"),
        (Err(error), _) => ResponseOutcome::Error(error),
    }
}

fn check(asked: RequestKind, input: &str, expected: ResponseOutcome) {
    let input = input.as_bytes();
    let shown = String::from_utf8_lossy(input);
    assert_eq!(outcome(asked, &[input]), expected, "{shown}");
    for at in 0..=input.len() {
        let (first, second) = input.split_at(at);
        assert_eq!(outcome(asked, &[first, second]), expected, "cut at {at}: {shown}");
    }
}

#[test]
fn framing() {
    use RequestKind::{Connect, Content, Head, Upgrade};
    let length5 = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    check(Content, &format!("{length5}hello"), whole(200, "hello", true));
    check(Content, &format!("{length5}hello!"), whole(200, "hello", false));
    check(
        Content,
        &format!("{length5}hell"),
        ResponseOutcome::Error(ResponseError::PrematureClose),
    );
    check(Head, length5, whole(200, "", true));
    check(Head, &format!("{length5}hello"), whole(200, "", false));
    check(Content, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", whole(200, "", true));
    check(Content, "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", whole(204, "", true));
    check(Content, "HTTP/1.1 304\r\nTransfer-Encoding: chunked\r\n\r\n", whole(304, "", true));
    check(Content, "HTTP/1.1 200 OK\r\n\r\nhello", closed(200, "hello"));
    check(Content, "HTTP/1.0 200 OK\r\n\r\n", closed(200, ""));
    check(Content, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", whole(200, "x", false));
    check(
        Content,
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
        whole(200, "x", true),
    );
    check(
        Content,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        whole(200, "x", false),
    );
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(Content, &format!("{chunked}1\r\nx\r\n0\r\n\r\n"), whole(200, "x", true));
    check(Content, &format!("{chunked}1\r\nx\r\n0\r\nA: b\r\n\r\n"), whole(200, "x", true));
    check(
        Content,
        &format!("{chunked}1\r\nx\r\n"),
        ResponseOutcome::Error(ResponseError::PrematureClose),
    );
    check(
        Content,
        &format!("{chunked}x"),
        ResponseOutcome::Error(ResponseError::InvalidChunkedBody),
    );
    let http10 =
        chunked.replace("1.1", "1.0").replace("OK\r\n", "OK\r\nConnection: keep-alive\r\n");
    check(Content, &format!("{http10}1\r\nx\r\n0\r\n\r\n"), whole(200, "x", false));
    check(Connect, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz", closed(200, "xyz"));
    check(Connect, "HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx", whole(403, "x", true));
    check(Upgrade, "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nxyz", closed(101, "xyz"));
    check(Upgrade, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", whole(200, "x", true));
}

#[test]
fn interim_responses() {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    check(RequestKind::Content, &format!("{early}{last}"), whole(200, "x", true));
    // A long job may report its progress.
    let many = "HTTP/1.1 102 Processing\r\n\r\n".repeat(usize::from(INTERIM_MAX));
    check(RequestKind::Content, &format!("{many}{last}"), whole(200, "x", true));
    let error = ResponseOutcome::Error(ResponseError::UnexpectedInterimResponse);
    check(RequestKind::Content, "HTTP/1.1 101 x\r\n\r\n", error.clone());
    check(RequestKind::Content, "HTTP/1.0 100 x\r\n\r\n", error);
    check(RequestKind::Content, early, ResponseOutcome::Error(ResponseError::PrematureClose));
}

#[test]
fn interim_responses_have_a_total_number() {
    let mut connection = ClientConnection::new(Limits::one_buffer(4096));
    connection.request_sent(RequestKind::Content);
    let mut head = ResponseBuilder::new();
    let interim = b"HTTP/1.1 102 Processing\r\n\r\n";
    for _ in 0..INTERIM_MAX {
        let step = connection.receive_head(&mut head, interim).unwrap();
        assert_eq!((step.event, step.consumed), (HeadEvent::Interim, interim.len()));
        assert_eq!((head.take().length, head.length()), (interim.len(), 0));
    }
    let error = connection.receive_head(&mut head, interim).unwrap_err();
    assert_eq!(error, ResponseError::TooManyInterimResponses);
    // Those of the next request are counted again.
    let mut connection = ClientConnection::new(Limits::one_buffer(4096));
    for _ in 0..2 {
        connection.request_sent(RequestKind::Content);
        for _ in 0..INTERIM_MAX {
            assert!(connection.receive_head(&mut head, interim).is_ok());
            head.clear();
        }
    }
}

#[test]
fn icy_is_a_status_line_where_it_is_allowed() {
    let limits = Limits { icy: true, ..Limits::one_buffer(4096) };
    let text = b"ICY 200 OK\r\nicy-name: radio\r\n\r\n";
    for cut in 0..text.len() {
        let mut connection = ClientConnection::new(limits);
        connection.request_sent(RequestKind::Content);
        let mut head = ResponseBuilder::new();
        let step = connection.receive_head(&mut head, &text[..cut]).unwrap();
        assert_eq!((step.event, step.consumed), (HeadEvent::NeedMore, cut));
        let step = connection.receive_head(&mut head, &text[cut..]).unwrap();
        assert_eq!(step.event, HeadEvent::Final);
        assert_eq!((head.status(), head.version()), (200, Version::Http10));
        assert!(connection.body().is_until_close());
    }
    for bad in ["ICX 200 OK\r\n", "IC 200", "ICY200 OK\r\n", "ICY x\r\n", "ICY/1.0 200 OK\r\n"] {
        let mut connection = ClientConnection::new(limits);
        connection.request_sent(RequestKind::Content);
        let result = connection.receive_head(&mut ResponseBuilder::new(), bad.as_bytes());
        assert_eq!(result.unwrap_err(), ResponseError::InvalidStatusLine, "{bad}");
    }
}

#[test]
fn names_of_fields_may_be_odd() {
    let text = "HTTP/1.1 200 OK\r\nX_User: a\r\nX.Y: b\r\nX@Y: c\r\nX/Y: d\r\n!: e\r\n\r\n";
    let mut connection = ClientConnection::new(Limits::one_buffer(4096));
    connection.request_sent(RequestKind::Content);
    let mut builder = ResponseBuilder::new();
    connection.receive_head(&mut builder, text.as_bytes()).unwrap();
    let head = builder.take();
    let names: Vec<&[u8]> = head.fields().map(|field| field.name).collect();
    assert_eq!(names, [&b"X_User"[..], b"X.Y", b"X@Y", b"X/Y", b"!"]);
}

#[test]
fn malformed_heads() {
    use ResponseError as E;
    for (head, error) in [
        ("HTTP/1.1 20 OK", E::InvalidStatusLine),
        ("HTTP/1.1 2000 OK", E::InvalidStatusLine),
        ("HTTP/1.1 099 OK", E::InvalidStatusLine),
        ("HTTP/1.1  OK", E::InvalidStatusLine),
        ("HTTP/2 200 OK", E::InvalidStatusLine),
        ("HTTP/1. 200 OK", E::InvalidStatusLine),
        ("http/1.1 200 OK", E::InvalidStatusLine),
        ("HTTP/1.1 200 O\rK", E::InvalidStatusLine),
        ("HTTP/1.1 200 O\0K", E::InvalidStatusLine),
        ("ICY 200 OK", E::InvalidStatusLine),
        ("<html>", E::InvalidStatusLine),
        ("HTTP/1.1 200 OK\r\nX : y", E::InvalidHeaderLine),
        ("HTTP/1.1 200 OK\r\nX: y\r\n z", E::InvalidHeaderLine),
        ("HTTP/1.1 200 OK\r\nX: y\rz", E::InvalidHeaderLine),
        ("HTTP/1.1 200 OK\r\nContent-Length: x", E::InvalidContentLength),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1",
            E::DuplicateHeader(Known::ContentLength),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
            E::ContentLengthAndTransferEncoding,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip", E::UnknownTransferEncoding),
    ] {
        check(RequestKind::Content, &format!("{head}\r\n\r\n"), ResponseOutcome::Error(error));
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(9000));
    check(RequestKind::Content, &long, ResponseOutcome::Error(E::HeaderTooLarge));
}

#[test]
fn bytes_without_a_request_are_no_response() {
    let mut connection = ClientConnection::new(Limits::default());
    assert!(connection.reusable(false));
    let mut head = ResponseBuilder::new();
    assert!(connection.receive_head(&mut head, b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    assert!(!connection.reusable(false));
}

#[test]
fn heads_are_written_in_order() {
    let mut out = Vec::new();
    let mut writer = HeadWriter::response(&mut out, 206);
    writer.lines("Server: nowait\r\n").content_length(1234567890123);
    writer.field(b"X-A", b"").field(b"X-B", b"b \xff");
    writer.finish();
    let expected = b"HTTP/1.1 206 Partial Content\r\nServer: nowait\r\n\
        Content-Length: 1234567890123\r\nX-A: \r\nX-B: b \xff\r\n\r\n";
    assert_eq!(out, expected);

    let mut out = Vec::new();
    HeadWriter::response(&mut out, 299).finish();
    HeadWriter::response_with_reason(&mut out, 200, b"Fine\r\nX: y").finish();
    HeadWriter::request(&mut out, b"GET", b"/a b\r\n\x7f", false).finish();
    let expected = "HTTP/1.1 299 \r\n\r\nHTTP/1.1 200 Fine  X: y\r\n\r\n\
        GET /a%20b%0D%0A%7F HTTP/1.0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn responses_cannot_be_split() {
    let mut out = Vec::new();
    let mut writer = HeadWriter::response(&mut out, 200);
    writer.field(b"X-A", b"a\r\nSet-Cookie: b\r\n\r\n<html>\0");
    writer.field(b"X-B\r\nX-C", b"c").field(b"", b"d").field(b"X D", b"e").field(b"X:E", b"f");
    writer.finish();
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nX-A: a  Set-Cookie: b    <html> \r\n\r\n");
}

#[test]
fn numbers() {
    for number in [0, 1, 9, 10, 4096, 65535, u64::from(u32::MAX), u64::MAX] {
        let mut out = Vec::new();
        encode::put_decimal(&mut out, number);
        assert_eq!(out, number.to_string().as_bytes());
        let mut out = Vec::new();
        encode::chunk_start(&mut out, number);
        let expected = if number == 0 { String::new() } else { format!("{number:x}\r\n") };
        assert_eq!(out, expected.as_bytes());
    }
}

/// A client core and a server core, all bytes in between cut at every size.
#[test]
fn both_sides_understand_each_other() {
    for piece in 1..80 {
        let mut request = Vec::new();
        let mut writer = HeadWriter::request(&mut request, b"POST", b"/up?x", true);
        writer.field(b"Host", b"Up.example").lines("Transfer-Encoding: chunked\r\n");
        writer.finish();
        for part in [&b"first "[..], b"", b"second"] {
            encode::chunk_start(&mut request, part.len() as u64);
            request.extend_from_slice(part);
            if !part.is_empty() {
                request.extend_from_slice(encode::CHUNK_END);
            }
        }
        request.extend_from_slice(encode::LAST_CHUNK);

        let mut server = server::ServerConnection::new(Limits::default());
        let mut head = RequestHead::new();
        let mut received = Vec::new();
        let mut complete = false;
        for mut input in request.chunks(piece) {
            while !input.is_empty() {
                if !complete {
                    let step = server.receive_head(&mut head, input).unwrap();
                    complete = step.complete;
                    input = &input[step.consumed..];
                    continue;
                }
                let step = server.receive_body(input).unwrap();
                if let BodyEvent::Data(range) = step.event {
                    received.extend_from_slice(&input[range]);
                }
                input = &input[step.consumed..];
            }
        }
        assert!(server.is_body_complete());
        assert_eq!(received, b"first second");
        assert_eq!(head.host(), Some(&b"up.example"[..]));
        assert_eq!(server.body_length(&head), BodyLength::Chunked);

        let mut response = encode::CONTINUE.to_vec();
        let mut writer = HeadWriter::response(&mut response, 200);
        for field in head.fields().iter() {
            writer.field(field.name, field.value);
        }
        writer.finish();
        encode::chunk_start(&mut response, received.len() as u64);
        response.extend_from_slice(&received);
        response.extend_from_slice(encode::CHUNK_END);
        encode::last_chunk(&mut response, head.fields());

        let pieces: Vec<&[u8]> = response.chunks(piece).collect();
        assert_eq!(outcome(RequestKind::Content, &pieces), whole(200, "first second", true));
    }
}
