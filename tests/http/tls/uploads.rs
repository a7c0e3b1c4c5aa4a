//! Uploads over TLS: regardless of their length, each byte arrives.
//!
//! `NOWAIT_TESTS_UPLOADS` is the number of uploads per driver, location and framing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use nowait_testkit::Server;

use super::{Authority, TlsClient, beside};
use crate::stage::on_each_driver;

/// Uploads per location and framing, unless the environment says otherwise.
const UPLOADS: usize = 60;
/// Uploads on one connection.
const PER_CONNECTION: usize = 20;

/// The content of an upload: another one at each place, and for each number.
fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ number.wrapping_mul(97)) as u8)
        .collect()
}

/// Lengths from below a record to several buffers, by the number of the upload.
fn length(number: usize) -> usize {
    const AROUND: [usize; 8] = [8190, 16_382, 20_478, 24_000, 32_766, 40_958, 65_534, 81_918];
    match number % 3 {
        0 => AROUND[number / 3 % AROUND.len()] + number / 24 % 5,
        _ => number.wrapping_mul(2_654_435_761) % 90_000,
    }
}

fn count() -> usize {
    let given = std::env::var("NOWAIT_TESTS_UPLOADS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(UPLOADS)
}

/// Stores each upload below `place`, which leads to the file below `html`, and compares that file.
fn upload_all(server: &Server, authority: &Authority, place: &str, chunked: bool) {
    let config = authority.client(None);
    let mut client = TlsClient::new(server, &config, "localhost");
    for number in 0..count() {
        if number % PER_CONNECTION == 0 {
            client = TlsClient::new(server, &config, "localhost");
        }
        let body = content(number, length(number));
        let file = format!("file-{}", number % PER_CONNECTION);
        let head = format!("PUT {place}{file} HTTP/1.1\r\nHost: localhost\r\n");
        let mut request = head.into_bytes();
        if chunked {
            request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for piece in body.chunks(1 + number * 1117 % 30_000) {
                request.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                request.extend_from_slice(piece);
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\n\r\n");
        } else {
            request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            request.extend_from_slice(&body);
        }
        client.send(&request);
        let (head, _) = client.response();
        let bytes = body.len();
        assert!(head.starts_with("HTTP/1.1 20"), "{place}{number}, {bytes} bytes: {head}");
        let stored = std::fs::read(server.dir().join("html").join(&file)).unwrap();
        assert!(stored == body, "{place}{number}, {bytes} bytes: other bytes, {}", stored.len());
    }
}

#[test]
fn uploads_of_all_lengths_arrive() {
    let authority = Authority::new("CA");
    let content = "keepalive_requests 100000; client_max_body_size 1m; dav_methods PUT;
        location /default/ { alias %%DIR%%/html/; }
        location /small/ { alias %%DIR%%/html/; client_body_buffer_size 1k; }
        location /large/ { alias %%DIR%%/html/; client_body_buffer_size 128k; }
        location /proxied/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; }
        location /unbuffered/ {
            proxy_pass http://127.0.0.1:%%PORT_1%%/;
            proxy_request_buffering off;
            proxy_http_version 1.1;
        }";
    let more = "server {
        listen 127.0.0.1:%%PORT_1%%;
        root %%DIR%%/html;
        client_max_body_size 1m;
        dav_methods PUT;
    }";
    on_each_driver(&beside(&authority, content, more), |server| {
        let html = server.dir().join("html");
        std::fs::create_dir_all(&html).unwrap();
        std::fs::set_permissions(&html, Permissions::from_mode(0o777)).unwrap();
        for place in ["/default/", "/small/", "/large/", "/proxied/", "/unbuffered/"] {
            upload_all(server, &authority, place, false);
            upload_all(server, &authority, place, true);
        }
    });
}
