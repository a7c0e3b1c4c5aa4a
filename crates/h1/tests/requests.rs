//! Requests as bytes, and what becomes of them: tables, every way of cutting the input in two,
//! the corpus of request smuggling, nginx's size limits.

use nowait_h1::server::ServerConnection;
use nowait_h1::{BodyEvent, BodyLength, Limits, RequestError};
use nowait_message::{Known, Method, RequestHead, TargetForm, Version};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// Request line and body length.
    Head(String),
    Body(Vec<u8>),
    End,
    Error(RequestError),
}

fn head(line: &str, length: BodyLength) -> Event {
    Event::Head(format!("{line} {length:?}"))
}

fn body(bytes: &[u8]) -> Event {
    Event::Body(bytes.to_vec())
}

/// Feeds the pieces and collects the events.
fn events(limits: Limits, pieces: &[&[u8]]) -> Vec<Event> {
    let mut connection = ServerConnection::new(limits);
    let mut request = RequestHead::new();
    let mut in_body = false;
    let mut events = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            if in_body {
                let step = match connection.receive_body(rest) {
                    Ok(step) => step,
                    Err(error) => {
                        events.push(Event::Error(error));
                        return events;
                    }
                };
                match step.event {
                    BodyEvent::NeedMore => break,
                    BodyEvent::Data(range) => match events.last_mut() {
                        Some(Event::Body(body)) => body.extend_from_slice(&rest[range]),
                        _ => events.push(body(&rest[range])),
                    },
                    BodyEvent::End => {
                        events.push(Event::End);
                        assert!(connection.next_request());
                        request.recycle();
                        in_body = false;
                    }
                }
                rest = &rest[step.consumed..];
                continue;
            }
            match connection.receive_head(&mut request, rest) {
                Ok(step) => {
                    rest = &rest[step.consumed..];
                    if !step.complete {
                        assert!(rest.is_empty());
                        break;
                    }
                    let line = request.request_line();
                    let line = String::from_utf8_lossy(&line);
                    events.push(head(&line, connection.body_length(&request)));
                    in_body = true;
                }
                Err(error) => {
                    events.push(Event::Error(error));
                    return events;
                }
            }
        }
    }
    events
}

/// The events of the input in one piece, which must be those of every cut in two, and of single
/// bytes.
fn check_with(limits: Limits, input: &[u8], expected: &[Event]) {
    let shown = String::from_utf8_lossy(&input[..input.len().min(300)]);
    assert_eq!(events(limits, &[input]), expected, "{shown}");
    for at in 0..=input.len() {
        let (first, second) = input.split_at(at);
        assert_eq!(events(limits, &[first, second]), expected, "cut at {at}: {shown}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(events(limits, &bytes), expected, "byte by byte: {shown}");
}

fn check(input: &[u8], expected: &[Event]) {
    check_with(Limits::default(), input, expected);
}

/// The one head that `input` is, and its connection.
fn parse(input: &[u8]) -> (ServerConnection, RequestHead) {
    let (mut connection, mut head) = (ServerConnection::new(Limits::default()), RequestHead::new());
    let step = connection.receive_head(&mut head, input).unwrap();
    assert_eq!((step.consumed, step.complete), (input.len(), true));
    (connection, head)
}

/// `GET / HTTP/1.1`, `Host: a`, then these lines.
fn with_fields(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

#[test]
fn requests_in_a_row() {
    use BodyLength::{Chunked, Empty, Known};
    check(
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\n\nGET /b HTTP/1.0\r\n\r\n",
        &[head("GET /a HTTP/1.1", Empty), Event::End, head("GET /b HTTP/1.0", Empty), Event::End],
    );
    check(
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: y\r\n\r\n",
        &[
            head("POST /a HTTP/1.1", Known(5)),
            body(b"hello"),
            Event::End,
            head("GET /b HTTP/1.1", Empty),
            Event::End,
        ],
    );
    check(
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n\
          5;x=y\r\nhello\r\nA\r\n0123456789\r\n00\r\nT: 1\r\n\r\nGET /b HTTP/1.1\r\nHost: y\r\n\r\n",
        &[
            head("POST /a HTTP/1.1", Chunked),
            body(b"hello0123456789"),
            Event::End,
            head("GET /b HTTP/1.1", Empty),
            Event::End,
        ],
    );
    // Several spaces, trailing spaces, bare line feeds: nginx lets them pass.
    check(
        b"GET   /a   HTTP/1.1  \nHost:x\n\n",
        &[head("GET   /a   HTTP/1.1  ", Empty), Event::End],
    );
    check(b"GET /simple\r\n", &[head("GET /simple", Empty), Event::End]);
    check(b"GET /simple \n", &[head("GET /simple ", Empty), Event::End]);
}

/// Regardless of the first head of a connection, the second is read as if it were the first.
#[test]
fn a_head_after_another() {
    let fields = [
        "\r\n",
        "Host: a\r\n\r\n",
        "Host: b\r\n\r\n",
        "Host: a.Example.ORG:8080\r\nAccept: */*\r\n\r\n",
        "Host: a\r\nConnection: close\r\nConnection: upgrade\r\n\r\n",
        "Host: a\r\nX-Some: 1\r\nCookie: a=b\r\nx-some: 2\r\nCookie: c=d\r\n\r\n",
        "Host: a\r\nContent-Length: 0\r\n\r\n",
        "Host: a\r\nContent-Length: 2\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Host: a\r\nodd$name: 1\r\n\r\n",
        "Host: a\nAccept:  */* \r\n\n",
        "Host: a\r\nHost: a\r\n\r\n",
        "Host: a\r\nbad name: 1\r\n\r\n",
    ];
    let lines = [
        "GET / HTTP/1.1\r\n",
        "GET /longer?a=b HTTP/1.1\r\n",
        "HEAD / HTTP/1.0\r\n",
        "GET http://c/d HTTP/1.1\r\n",
    ];
    let heads = lines.iter().flat_map(|line| fields.map(|fields| format!("{line}{fields}")));
    let heads: Vec<String> = heads.collect();
    let body = |head: &str| match () {
        () if head.contains("Content-Length: 2") => "hi",
        () if head.contains("Transfer-Encoding") => "0\r\n\r\n",
        () => "",
    };
    let mut compared = 0;
    for first in &heads {
        for second in &heads {
            for cut in [0, 1, second.len() / 2] {
                let mut connection = ServerConnection::new(Limits::default());
                let mut head = RequestHead::new();
                if connection.receive_head(&mut head, first.as_bytes()).is_err() {
                    continue;
                }
                let (_, ended) = connection.discard_body(body(first).as_bytes()).unwrap();
                assert!(ended && connection.next_request());
                head.recycle_for_next();
                assert!(head.is_empty() && head.fields().is_empty() && head.host().is_none());
                let (fresh_connection, fresh) =
                    (ServerConnection::new(Limits::default()), RequestHead::new());
                let read = |mut connection: ServerConnection, mut head: RequestHead| {
                    let (begin, rest) = second.as_bytes().split_at(cut);
                    let mut result = connection.receive_head(&mut head, begin);
                    if result.is_ok() {
                        result = connection.receive_head(&mut head, rest);
                    }
                    (result.map(|step| step.complete), all_of(&connection, &head))
                };
                let expected = read(fresh_connection, fresh);
                assert_eq!(read(connection, head), expected, "{second} after {first}");
                compared += 1;
            }
        }
    }
    assert!(compared > 2000, "{compared}");
}

/// Everything that a head and its connection tell.
fn all_of(connection: &ServerConnection, head: &RequestHead) -> String {
    let fields: Vec<_> = head.fields().iter().collect();
    let cookies: Vec<_> = head.fields().all(Known::Cookie).collect();
    let ignored: Vec<_> = connection.ignored_lines(head).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {:?} {} {fields:?} {cookies:?} {ignored:?} {:?}",
        head.method(),
        head.request_line(),
        head.uri(),
        head.version(),
        head.host(),
        head.host_port(),
        head.content_length(),
        connection.body_length(head),
        connection.keep_alive(head),
        head.length(),
        connection.options(),
    )
}

#[test]
fn identical_fields_are_reused() {
    const FIRST: &[u8] = b"GET / HTTP/1.1\r\nHost: A\r\nAccept: x\r\n\r\n";
    let fields_at = FIRST.iter().position(|&c| c == b'\n').unwrap() + 1;
    // Whether the kept fields are still there after the next head.
    let kept_after = |next: &[u8]| {
        let (mut connection, mut head) = parse(FIRST);
        assert_eq!(connection.discard_body(b""), Ok((0, true)));
        assert!(connection.next_request());
        head.recycle_for_next();
        if !next.is_empty() {
            assert!(connection.receive_head(&mut head, next).unwrap().complete);
        }
        head.reuse_fields(FIRST, fields_at) == Some(FIRST.len())
    };
    assert!(kept_after(b""));
    assert!(!kept_after(FIRST));
    assert!(!kept_after(b"HEAD /longer?a HTTP/1.0\r\nHost: A\r\nAccept: x\r\n\r\n"));
    assert!(kept_after(b"GET / HTTP/1.1\r\nHost: A\r\nAccept: y\r\n\r\n"));
    assert!(kept_after(b"GET / HTTP/1.1\r\nHost: A\r\nAccept: x\r\nB: c\r\n\r\n"));
}

/// A handler may have changed the fields, and a new configuration may accept others.
#[test]
fn changed_fields_and_limits_prevent_reuse() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: x\r\nunder_score: 1\r\n\r\n";
    let next = |mut connection: ServerConnection, mut head: RequestHead| {
        assert_eq!(connection.discard_body(b""), Ok((0, true)));
        assert!(connection.next_request());
        head.recycle_for_next();
        assert!(connection.receive_head(&mut head, input).unwrap().complete);
        let fields = head.fields().iter().map(|field| field.name.to_vec());
        let names = fields.collect::<Vec<_>>().join(&b' ');
        (String::from_utf8(names).unwrap(), head.header(Known::Accept).unwrap().to_vec())
    };
    let limits = Limits { underscores_in_headers: true, ..Limits::default() };
    let first = || {
        let (mut connection, mut head) = (ServerConnection::new(limits), RequestHead::new());
        assert!(connection.receive_head(&mut head, input).unwrap().complete);
        (connection, head)
    };
    let expected = ("Host Accept under_score".to_owned(), b"x".to_vec());
    let (connection, head) = first();
    assert_eq!(next(connection, head), expected);
    let (connection, mut head) = first();
    head.set_field(b"accept", b"y").unwrap();
    assert_eq!(next(connection, head), expected);
    let (connection, mut head) = first();
    head.set_field(b"accept", b"").unwrap();
    assert_eq!(next(connection, head), expected);
    let (connection, mut head) = first();
    head.remove_fields(|name| name.eq_ignore_ascii_case(b"accept"));
    assert_eq!(next(connection, head), expected);
    let (mut connection, head) = first();
    connection.set_limits(Limits::default());
    assert_eq!(next(connection, head), ("Host Accept".to_owned(), b"x".to_vec()));
}

#[test]
fn accessors() {
    let (connection, head) = parse(
        b"PROPFIND /a/%62/../c.txt?d=e HTTP/1.1\r\nhost: WWW.Example.org:8080\r\nX-Empty:\r\n\
          Cookie: a=1\r\nCOOKIE:  b=2 \t\r\nConnection: Keep-Alive, UPGRADE\r\nUpgrade: h2c\r\n\
          Expect: 100-Continue\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!(head.method(), Method::Propfind);
    assert_eq!(head.method_bytes(), b"PROPFIND");
    assert_eq!(head.version(), Version::Http11);
    assert_eq!(head.protocol(), b"HTTP/1.1");
    assert_eq!(head.uri(), b"/a/%62/../c.txt?d=e");
    assert_eq!(head.target(), head.uri());
    let uri = head.normalize(true).unwrap();
    assert_eq!((&*uri.path, uri.args), (&b"/a/c.txt"[..], Some(&b"d=e"[..])));
    assert_eq!(head.host(), Some(&b"www.example.org"[..]));
    assert_eq!(head.host_port(), 8080);
    assert_eq!(head.header(Known::Host), Some(&b"WWW.Example.org:8080"[..]));
    let cookies: Vec<_> = head.fields().all(Known::Cookie).collect();
    assert_eq!(cookies, [b"a=1", b"b=2"]);
    assert!(head.fields().is_repeated(Known::Cookie));
    assert_eq!(head.fields().named(b"x-empty").collect::<Vec<_>>(), [b""]);
    assert_eq!(head.fields().len(), 8);
    assert_eq!(head.header(Known::Upgrade), Some(&b"h2c"[..]));
    assert!(connection.options().upgrade && connection.keep_alive(&head));
    assert!(head.expects_continue());
    assert_eq!(
        (connection.body_length(&head), head.content_length()),
        (BodyLength::Empty, Some(0))
    );
    assert_eq!(head.header(Known::Range), None);
}

#[test]
fn keep_alive() {
    for (input, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.7\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: a, Close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false),
        ("GET /\r\n", false),
    ] {
        let (connection, head) = parse(input.as_bytes());
        assert_eq!(connection.keep_alive(&head), expected, "{input}");
    }
}

#[test]
fn target_forms() {
    for (line, form, uri, host, port) in [
        ("GET /x", TargetForm::Origin, "/x", "a", 0),
        ("GET http://B.c/x?y", TargetForm::Absolute, "/x?y", "b.c", 0),
        ("GET http://b.c:81", TargetForm::Absolute, "/", "b.c", 81),
        ("GET HTTPS://b.c?y=/z", TargetForm::Absolute, "?y=/z", "b.c", 0),
        ("GET http://[::1]:8/", TargetForm::Absolute, "/", "[::1]", 8),
        ("GET /\u{e9}/%2e?\u{fc}", TargetForm::Origin, "/%C3%A9/%2e?%C3%BC", "a", 0),
        ("GET http://b.c?\u{e9}", TargetForm::Absolute, "?%C3%A9", "b.c", 0),
        ("CONNECT b.c:443", TargetForm::Authority, "/", "b.c", 443),
        ("CONNECT [::1]:443", TargetForm::Authority, "/", "[::1]", 443),
        ("OPTIONS *", TargetForm::Asterisk, "*", "a", 0),
    ] {
        let (_, head) = parse(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(head.target_form(), form, "{line}");
        assert_eq!(String::from_utf8_lossy(head.uri()), uri, "{line}");
        assert_eq!(head.host(), Some(host.as_bytes()), "{line}");
        assert_eq!(head.host_port(), port, "{line}");
        assert_eq!(head.normalize(true).is_ok(), form != TargetForm::Asterisk, "{line}");
    }
}

#[test]
fn malformed_request_lines() {
    use RequestError as E;
    for (line, error) in [
        ("get / HTTP/1.1", E::InvalidMethod),
        ("G3T / HTTP/1.1", E::InvalidMethod),
        (" GET / HTTP/1.1", E::InvalidMethod),
        ("\rGET / HTTP/1.1", E::InvalidMethod),
        ("\r\n\r\rGET / HTTP/1.1", E::InvalidMethod),
        ("\n\rGET / HTTP/1.1", E::InvalidMethod),
        ("\x16\x03\x01\x02", E::InvalidMethod),
        ("GET\t/ HTTP/1.1", E::InvalidMethod),
        ("GET\r", E::InvalidMethod),
        ("GET x HTTP/1.1", E::InvalidRequest),
        ("GET * HTTP/1.1", E::InvalidRequest),
        ("OPTIONS ** HTTP/1.1", E::InvalidRequest),
        ("OPTIONS *", E::InvalidRequest),
        ("GET %2f HTTP/1.1", E::InvalidRequest),
        ("GET /\0 HTTP/1.1", E::InvalidRequest),
        ("GET /\x7f HTTP/1.1", E::InvalidRequest),
        ("GET /\t HTTP/1.1", E::InvalidRequest),
        ("GET /a\rb HTTP/1.1", E::InvalidRequest),
        ("GET / HTTP/1.1\rX: y", E::InvalidRequest),
        ("GET / /b HTTP/1.1", E::InvalidRequest),
        ("GET / http/1.1", E::InvalidRequest),
        ("GET / HTTP/0.9", E::InvalidRequest),
        ("GET / HTTP/1", E::InvalidRequest),
        ("GET / HTTP/1.", E::InvalidRequest),
        ("GET / HTTP/1.1x", E::InvalidRequest),
        ("GET / HTTP/1.1 x", E::InvalidRequest),
        ("GET / HTTP/1.1000", E::InvalidRequest),
        ("GET / HTTP/1.10", E::InvalidRequest),
        ("GET / HTTP/1.01", E::InvalidRequest),
        ("GET / HTTP/1.00", E::InvalidRequest),
        ("GET / HTTP/2.0", E::InvalidVersion),
        ("GET / HTTP/9", E::InvalidVersion),
        ("GET / HTTP/11.1", E::InvalidVersion),
        ("PRI * HTTP/2.0", E::InvalidRequest),
        ("POST /", E::InvalidMethodInHttp09),
        ("GET http:/a HTTP/1.1", E::InvalidRequest),
        ("GET http//a HTTP/1.1", E::InvalidRequest),
        ("GET http://a", E::InvalidRequest),
        ("GET http:///x HTTP/1.1", E::InvalidHostInRequestLine),
        ("GET http://. HTTP/1.1", E::InvalidHostInRequestLine),
        ("GET http://a..b/ HTTP/1.1", E::InvalidHostInRequestLine),
        ("GET http://a:99999/ HTTP/1.1", E::InvalidHostInRequestLine),
        ("GET http://u@a/ HTTP/1.1", E::InvalidRequest),
        ("GET http://a_b/ HTTP/1.1", E::InvalidRequest),
        ("GET http://a#f HTTP/1.1", E::InvalidRequest),
        ("GET http://a/#f HTTP/1.1", E::InvalidRequest),
        ("GET /#f HTTP/1.1", E::InvalidRequest),
        ("GET /a?b#f HTTP/1.1", E::InvalidRequest),
        ("GET ftp://a/ HTTP/1.1", E::InvalidRequest),
        ("GET x+y.z-1://a/ HTTP/1.1", E::InvalidRequest),
        ("GET http://a,b/ HTTP/1.1", E::InvalidRequest),
        ("GET http://[::1/ HTTP/1.1", E::InvalidRequest),
        ("GET http://[::1]x HTTP/1.1", E::InvalidRequest),
        ("CONNECT a HTTP/1.1", E::InvalidRequest),
        ("CONNECT a: HTTP/1.1", E::InvalidRequest),
        ("CONNECT 443 HTTP/1.1", E::InvalidRequest),
        ("CONNECT :443 HTTP/1.1", E::InvalidHostInRequestLine),
        ("CONNECT a:443/ HTTP/1.1", E::InvalidRequest),
        ("CONNECT /x HTTP/1.1", E::InvalidRequest),
    ] {
        check(format!("{line}\r\nHost: a\r\n\r\n").as_bytes(), &[Event::Error(error)]);
    }
}

/// Nonsense is refused without waiting for the end of a line.
#[test]
fn nonsense_is_refused_at_once() {
    for input in [&b"\x16"[..], b"G\x01", b"GET *", b"GET / Q", b"GET / HTTP/2"] {
        let mut head = RequestHead::new();
        let result = ServerConnection::new(Limits::default()).receive_head(&mut head, input);
        assert!(result.is_err(), "{input:?}");
        assert_eq!(&head.request_line()[..], input);
    }
}

#[test]
fn malformed_fields() {
    use RequestError as E;
    for (lines, error) in [
        (" X: folded\r\n", E::InvalidHeaderLine),
        ("X: a\r\n folded\r\n", E::InvalidHeaderLine),
        ("X: a\r\n\tfolded\r\n", E::InvalidHeaderLine),
        ("X : a\r\n", E::InvalidHeaderLine),
        ("X\t: a\r\n", E::InvalidHeaderLine),
        ("X\0: a\r\n", E::InvalidHeaderLine),
        ("X: a\0\r\n", E::InvalidHeaderLine),
        ("X: \0\r\n", E::InvalidHeaderLine),
        ("X: a\rb\r\n", E::InvalidHeaderLine),
        ("X: a\r\r\n", E::InvalidHeaderLine),
        ("X: \rY: b\r\n", E::InvalidHeaderLine),
        ("X\rY: b\r\n", E::InvalidHeaderLine),
        ("X: a\x01\r\n", E::InvalidHeaderLine),
        ("X: \x08b\r\n", E::InvalidHeaderLine),
        ("X: a\x0bb\r\n", E::InvalidHeaderLine),
        ("X: a\x0c\r\n", E::InvalidHeaderLine),
        ("X: a\x1bb, and more text behind it\r\n", E::InvalidHeaderLine),
        ("X: some text before it and \x1f\r\n", E::InvalidHeaderLine),
        ("X: a\x7fb\r\n", E::InvalidHeaderLine),
        (": a\r\n", E::InvalidHeaderLine),
        ("X\r\n", E::InvalidHeaderLine),
        ("\rX: a\r\n", E::InvalidHeaderLine),
        ("Host: b\r\n", E::DuplicateHost),
        ("Host: a\r\n", E::DuplicateHost),
        ("Range: x\r\nIf-Range: a\r\nif-range: b\r\n", E::DuplicateHeader(Known::IfRange)),
        ("Expect: a\r\nExpect: a\r\n", E::DuplicateHeader(Known::Expect)),
        ("Authorization: a\r\nAuthorization: b\r\n", E::DuplicateHeader(Known::Authorization)),
    ] {
        let expected = [Event::Error(error)];
        check(&with_fields(lines), &expected);
    }
    check(b"GET / HTTP/1.1\r\n\r\n", &[Event::Error(E::MissingHost)]);
    check(b"GET http://a/ HTTP/1.1\r\n\r\n", &[Event::Error(E::MissingHost)]);
    for host in
        ["", ".", "a/b", "a b", "a\tb", "..", "a:x", "../../etc", "%zz", "a%", "a%4", "%%30"]
    {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        check(input.as_bytes(), &[Event::Error(E::InvalidHost)]);
    }
}

/// Ways in which two readers have been made to see different requests.
#[test]
fn smuggling() {
    use RequestError as E;
    let framing = |fields: &str| {
        let error = match events(Limits::default(), &[&with_fields(fields)]).remove(0) {
            Event::Error(error) => error,
            other => panic!("{fields:?}: {other:?}"),
        };
        check(&with_fields(fields), &[Event::Error(error)]);
        error
    };
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "TRANSFER-ENCODING: CHUNKED\r\ncontent-length: 4\r\n",
        "Transfer-Encoding:\tchunked\t\r\nContent-Length: 4\r\n",
    ] {
        assert_eq!(framing(fields), E::ContentLengthAndTransferEncoding, "{fields}");
    }
    for value in [
        "chunked, chunked",
        "identity",
        "gzip, chunked",
        "chunked, identity",
        "xchunked",
        "",
        "\"chunked\"",
        "chunked;q=1",
        "'chunked'",
        "chunk",
        "cow",
        "chunked,",
    ] {
        let error = framing(&format!("Transfer-Encoding: {value}\r\n"));
        assert_eq!(error, E::UnknownTransferEncoding, "{value}");
    }
    for value in [
        "",
        "+4",
        "-4",
        "4, 4",
        "4,4",
        "0x4",
        "4 4",
        "4;",
        "1e1",
        "\u{664}",
        "\"4\"",
        "9223372036854775808",
        "18446744073709551620",
    ] {
        let error = framing(&format!("Content-Length: {value}\r\n"));
        assert_eq!(error, E::InvalidContentLength, "{value}");
    }
    for (fields, error) in [
        ("Content-Length: 4\r\nContent-Length: 4\r\n", E::DuplicateHeader(Known::ContentLength)),
        ("Content-Length: 4\r\ncontent-length: 5\r\n", E::DuplicateHeader(Known::ContentLength)),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            E::DuplicateHeader(Known::TransferEncoding),
        ),
        ("Transfer-Encoding : chunked\r\n", E::InvalidHeaderLine),
        ("Transfer-Encoding: \x0bchunked\r\n", E::InvalidHeaderLine),
        ("Content-Length : 4\r\n", E::InvalidHeaderLine),
        ("Transfer-Encoding\r\n: chunked\r\n", E::InvalidHeaderLine),
        ("Transfer-Encoding:\r\n chunked\r\n", E::UnknownTransferEncoding),
        ("X: y\rTransfer-Encoding: chunked\r\n", E::InvalidHeaderLine),
        ("Content-Length: 4\rX: y\r\n", E::InvalidHeaderLine),
        ("Content-Length: 4\0\r\n", E::InvalidHeaderLine),
        ("Transfer-Encoding\u{a0}: chunked\r\n", E::InvalidHeaderLine),
        ("\"Content-Length\": 4\r\n", E::InvalidHeaderLine),
        ("(X): 4\r\n", E::InvalidHeaderLine),
    ] {
        // An empty value followed by a fold is refused for the fold, which comes first.
        let error = if fields.contains("\r\n ") { E::InvalidHeaderLine } else { error };
        assert_eq!(framing(fields), error, "{fields}");
    }
    // Names that are only alike are not taken for framing, and dropped as odd.
    for name in ["Transfer_Encoding", "Content_Length", "Transfer-Encoding'", "Content.Length"] {
        let input = with_fields(&format!("{name}: 5\r\n"));
        let line = head("GET / HTTP/1.1", BodyLength::Empty);
        check(&input, &[line, Event::End]);
    }
    let input = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(input, &[Event::Error(E::TransferEncodingInHttp10)]);
    // HTTP/0.9 has no fields: what follows is the next request, here refused.
    let simple = b"GET /\r\nHost: a\r\n\r\n";
    check(simple, &[head("GET /", BodyLength::Empty), Event::End, Event::Error(E::InvalidMethod)]);
}

#[test]
fn odd_names() {
    let input = with_fields("x_y: 1\r\nx.y: 2\r\nX!: 3\r\nx-y: 4\r\n");
    let names = |limits| {
        let mut head = RequestHead::new();
        let mut connection = ServerConnection::new(limits);
        connection.receive_head(&mut head, &input).unwrap();
        let values = head.fields().iter().skip(1).map(|f| f.value[0] - b'0').collect::<Vec<_>>();
        (values, connection.ignored_fields())
    };
    let nginx = Limits::default();
    assert_eq!(names(nginx), (vec![4], 3));
    let (connection, head) = parse(&input);
    let lines: Vec<_> = connection.ignored_lines(&head).map(<[u8]>::to_vec).collect();
    assert_eq!(lines[..2], [b"x_y: 1", b"x.y: 2"]);
    assert_eq!(names(Limits { underscores_in_headers: true, ..nginx }), (vec![1, 4], 2));
    assert_eq!(names(Limits { ignore_invalid_headers: false, ..nginx }), (vec![1, 2, 3, 4], 0));
}

/// nginx's accounting, at the byte: `client_header_buffer_size 64`, buffers of 2 × 128.
#[test]
fn size_limits() {
    let limits =
        Limits { header_buffer: 64, large_buffers: 2, large_buffer: 128, ..Limits::default() };
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(length - 16));
    let field = |length: usize| format!("X: {}\r\n", "b".repeat(length - 5));
    let input = |line: &str, fields: &[usize]| {
        let fields: String = fields.iter().map(|&length| field(length)).collect();
        format!("{line}Host: a\r\n{fields}\r\n").into_bytes()
    };
    let ok = |line: &str, fields: &[usize]| {
        let events = [head(line.trim_end(), BodyLength::Empty), Event::End];
        check_with(limits, &input(line, fields), &events);
    };
    let fails = |line: &str, fields: &[usize], error: RequestError| {
        check_with(limits, &input(line, fields), &[Event::Error(error)]);
    };
    use RequestError::{HeaderLineTooLong, UriTooLong};
    ok(&line(64), &[]);
    ok(&line(128), &[]);
    fails(&line(129), &[], UriTooLong);
    fails(&line(5000), &[], UriTooLong);
    ok(&line(16), &[128]);
    fails(&line(16), &[129], HeaderLineTooLong);
    // 16 + 9 in the first buffer, 120 in the second, 120 + the empty line in the third.
    ok(&line(16), &[120, 120]);
    fails(&line(16), &[120, 120, 120], HeaderLineTooLong);
    // The line fills the second buffer exactly: the rest goes to the third.
    ok(&line(128), &[100]);
    fails(&line(128), &[100, 100], HeaderLineTooLong);

    let many = "X: y\r\n".repeat(9);
    let limits = Limits { headers_max: 9, ..Limits::default() };
    let error = [Event::Error(RequestError::TooManyHeaders)];
    check_with(limits, &with_fields(&many), &error);
    let limits = Limits { headers_max: 10, ..limits };
    check_with(
        limits,
        &with_fields(&many),
        &[head("GET / HTTP/1.1", BodyLength::Empty), Event::End],
    );
}

/// A peer that sends one endless line is refused when the buffers are full, not later.
#[test]
fn memory_is_bounded() {
    let limits = Limits::default();
    for (start, error) in [
        ("GET /", RequestError::UriTooLong),
        ("GET / HTTP/1.1\r\nX: ", RequestError::HeaderLineTooLong),
        ("GET / HTTP/1.1\r\n", RequestError::HeaderLineTooLong),
    ] {
        let mut connection = ServerConnection::new(limits);
        let mut head = RequestHead::new();
        connection.receive_head(&mut head, start.as_bytes()).unwrap();
        let filler =
            if start.ends_with('\n') { &b"X: yyyyyyyyyyyy\r\n"[..] } else { b"aaaaaaaaaa" };
        let mut sent = start.len();
        let result = loop {
            assert!(sent < 40_000);
            sent += filler.len();
            if let Err(error) = connection.receive_head(&mut head, filler) {
                break error;
            }
        };
        assert!(result == error || result == RequestError::TooManyHeaders);
    }
}

#[test]
fn log_texts() {
    let describe = |input: &[u8]| {
        let mut head = RequestHead::new();
        let mut connection = ServerConnection::new(Limits::default());
        let error = connection.receive_head(&mut head, input).unwrap_err();
        String::from_utf8(error.describe(&connection, &head)).unwrap()
    };
    let with = |lines: &str| describe(&with_fields(lines));
    assert_eq!(describe(b"get"), "client sent invalid method");
    assert_eq!(with("a b: c\r\n"), r#"client sent invalid header line: "a\x20...""#);
    assert_eq!(
        with("Host: b\r\n"),
        r#"client sent duplicate host header: "Host: b", previous value: "Host: a""#
    );
    assert_eq!(
        with("Transfer-Encoding: cow\r\n"),
        r#"client sent unknown "Transfer-Encoding": "cow""#
    );
    let long = format!("X: {}", "y".repeat(9000));
    assert!(with(&long).starts_with(r#"client sent too long header line: "X: yyy"#));
    assert!(with(&long).ends_with(r#"yyy...""#));
}

/// The answer to a malformed head comes from the server that was asked for.
#[test]
fn a_refused_head_tells_what_was_read() {
    let input = b"HEAD /x HTTP/1.1\r\nHost: Some.Example\r\nX: 1\r\n bad\r\n\r\n";
    for at in 0..=input.len() - 8 {
        let mut head = RequestHead::new();
        let mut connection = ServerConnection::new(Limits::default());
        connection.receive_head(&mut head, &input[..at]).unwrap();
        assert!(connection.receive_head(&mut head, &input[at..]).is_err());
        assert_eq!(head.method(), Method::Head);
        assert_eq!(&head.request_line()[..], b"HEAD /x HTTP/1.1");
        assert_eq!(head.host(), Some(&b"some.example"[..]), "cut at {at}");
        assert_eq!(head.header(Known::Host), Some(&b"Some.Example"[..]));
        assert_eq!(head.length(), 18 + 20 + 6);
    }
}

#[test]
fn chunk_framing_is_strict() {
    let chunked = |body: &str| {
        let input = with_fields("Transfer-Encoding: chunked\r\n");
        [&input, body.as_bytes()].concat()
    };
    let start = || head("GET / HTTP/1.1", BodyLength::Chunked);
    for bad in [
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        " 1\r\n",
        "0x1\r\n",
        "1\nx\r\n",
        "1;a\nx\r\n",
        "1 x\r\n",
        "1\rx",
        "1;\rx",
        ";\r\n",
        "8000000000000000\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        "00000000000000001\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "0\r\n\rx",
        "\u{ff11}\r\n",
        "1;\0\r\n",
    ] {
        let expected = [start(), Event::Error(RequestError::InvalidChunkedBody)];
        check(&chunked(bad), &expected);
    }
    for bad in ["1\r\nxx\r\n", "1\r\nx\n", "1\r\nx1\r\n", "1\r\nx\rx"] {
        let expected = [start(), body(b"x"), Event::Error(RequestError::InvalidChunkedBody)];
        check(&chunked(bad), &expected);
    }
    for bad in [
        "X\r\n\r\n",
        " a: b\r\n\r\n",
        "a: b\n\r\n",
        "a: b\r\n\n",
        "a : b\r\n\r\n",
        "a: \0\r\n",
        "a: \x01\r\n",
    ] {
        let expected = [start(), Event::Error(RequestError::InvalidTrailers)];
        check(&chunked(&format!("0\r\n{bad}")), &expected);
    }
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(1024));
    check(&chunked(&extension), &[start(), body(b"x"), Event::End]);
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(1025));
    let error = Event::Error(RequestError::InvalidChunkedBody);
    check(&chunked(&extension), &[start(), error.clone()]);
    let blanks = |n| format!("1{}\r\nx\r\n0\r\n\r\n", " \t".repeat(n));
    check(&chunked(&blanks(512)), &[start(), body(b"x"), Event::End]);
    check(&chunked(&blanks(513)), &[start(), error.clone()]);
    let both = format!("1{};{}\r\nx\r\n0\r\n\r\n", " ".repeat(600), "e".repeat(600));
    check(&chunked(&both), &[start(), error]);
    let limits = Limits { large_buffer: 64, ..Limits::default() };
    let trailers = format!("0\r\nT: {}\r\n\r\n", "t".repeat(70));
    let error = Event::Error(RequestError::TrailersTooLarge);
    check_with(limits, &chunked(&trailers), &[start(), error]);
}

#[test]
fn trailers_are_kept_apart() {
    let mut connection = ServerConnection::new(Limits::default());
    let mut head = RequestHead::new();
    let input = with_fields("Transfer-Encoding: chunked\r\n");
    connection.receive_head(&mut head, &input).unwrap();
    assert!(!connection.is_body_complete() && !connection.next_request());
    let rest = b"0\r\nContent-Length: 7\r\nX-Sum: 1\r\n\r\nGET";
    let step = connection.receive_body(rest).unwrap();
    assert_eq!((step.event, step.consumed), (BodyEvent::End, rest.len() - 3));
    let trailers = connection.trailers().unwrap().fields();
    assert_eq!(trailers.first(Known::ContentLength), Some(&b"7"[..]));
    assert_eq!(head.header(Known::ContentLength), None);
    assert!(connection.next_request() && connection.trailers().is_none());
}

#[test]
fn a_body_can_be_discarded() {
    let mut connection = ServerConnection::new(Limits::default());
    let mut head = RequestHead::new();
    connection.receive_head(&mut head, &with_fields("Content-Length: 10\r\n")).unwrap();
    assert_eq!(connection.discard_body(b"0123").unwrap(), (4, false));
    assert_eq!(connection.body().remaining(), Some(6));
    assert_eq!(connection.discard_body(b"456789GET").unwrap(), (6, true));
    assert!(connection.next_request());
}
