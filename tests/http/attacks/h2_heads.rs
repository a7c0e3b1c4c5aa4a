//! Requests of HTTP/2 that would be other requests in HTTP/1.1.

use super::{GOAWAY, HEADERS, RST_STREAM, Wire, field, headers};
use crate::stage::{on_each_driver, site};

/// A block with these pseudo-fields, in order, and these fields.
fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

const GET: [(&[u8], &[u8]); 4] =
    [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a")];

/// `GET` with another value of a pseudo-field.
fn with(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut fields = GET;
    fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value);
    // The lifetimes of both are those of the constants.
    block(&fields)
}

/// CRLF, blanks and fields of the connection that a server behind would take for lines of its own: request
/// smuggling by downgrade (h2 for Python, GHSA-847f-9342-265h, and many before).
#[test]
fn nothing_of_a_head_becomes_a_line_of_its_own() {
    let builder = site(
        "log_format line '$request|$http_x_injected|$http_transfer_encoding';
         server { listen 127.0.0.1:%%PORT%%; http2 on; ignore_invalid_headers off;
             underscores_in_headers on; access_log off;
             location / { proxy_pass http://127.0.0.1:%%PORT_1%%; } }
         server { listen 127.0.0.1:%%PORT_1%%; access_log %%DIR%%/behind.log line;
             location / { return 200 behind; } }",
    );
    let extra = |name: &[u8], value: &[u8]| [block(&GET), field(name, value)].concat();
    let mut blocks = vec![
        with(b":method", b"GET / HTTP/1.1\r\nX-Injected: 1\r\n\r\nGET"),
        with(b":method", b"GET /x"),
        with(b":method", b""),
        with(b":path", b"/ HTTP/1.1\r\nX-Injected: 1"),
        with(b":path", b"/a b"),
        with(b":path", b"/\r\n"),
        with(b":path", b"x"),
        with(b":path", b""),
        with(b":scheme", b"http://x/\r\nX-Injected: 1"),
        with(b":scheme", b"http "),
        with(b":authority", b"a\r\nX-Injected: 1"),
        with(b":authority", b"a b"),
        with(b":authority", b"user@a"),
        with(b":authority", b"a/../b"),
        // Twice, missing, after other fields.
        [block(&GET), field(b":path", b"/other")].concat(),
        block(&GET[..2]),
        block(&[GET[0], GET[1], (b"x-a", b"1"), GET[2], GET[3]]),
        block(&[GET[0], GET[1], GET[2], GET[3], (b":unknown", b"x")]),
        [block(&GET), field(b"host", b"other")].concat(),
        [block(&GET), field(b"content-length", b"1"), field(b"content-length", b"2")].concat(),
    ];
    for value in
        [&b"1\r\nX-Injected: 1"[..], b"1\nX-Injected: 1", b"1\rX", b"1\0", b"\r\n\r\nGET /"]
    {
        blocks.push(extra(b"x-a", value));
    }
    for name in [
        &b"x-a: 1\r\nx-injected"[..],
        b"x-a\r\n\r\nGET / HTTP/1.1\r\nx",
        b"x a",
        b"x:a",
        b"X-Injected",
        b"",
        b"x\0",
    ] {
        blocks.push(extra(name, b"1"));
    }
    for (name, value) in [
        (&b"transfer-encoding"[..], &b"chunked"[..]),
        (b"connection", b"close"),
        (b"connection", b"x-a"),
        (b"proxy-connection", b"close"),
        (b"keep-alive", b"1"),
        (b"upgrade", b"h2c"),
        (b"te", b"chunked"),
        (b"content-length", b"+1"),
        (b"content-length", b"1, 1"),
    ] {
        blocks.push(extra(name, value));
    }
    on_each_driver(&builder, |server| {
        for block in &blocks {
            let mut wire = Wire::to(server, &[]);
            wire.send(&headers(1, block, true));
            let answer = wire.next_of_stream();
            let refused = answer.as_ref().is_none_or(|frame| match frame.kind {
                HEADERS => frame.payload[0] == 0x8c,
                kind => kind == RST_STREAM || kind == GOAWAY,
            });
            assert!(refused, "{}: {answer:?}", block.escape_ascii());
        }
        let mut wire = Wire::to(server, &[]);
        wire.send(&headers(1, &block(&GET), true));
        assert_eq!(wire.content(1), "behind".len());
        assert_eq!(server.wait_file("behind.log", "\n"), "GET / HTTP/1.1|-|-\n");
    });
}
