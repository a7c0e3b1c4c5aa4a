//! What the kernel seals arrives byte for byte, regardless of the version, the cipher, and the size.

use std::io::Read;

use crate::stage::{
    ALWAYS, Authority, LARGE, SUITES, TlsClient, assert_same, client_of, content, counters, curl,
    has_ktls, on_each, site,
};

#[test]
fn curl_gets_large_files_with_every_suite() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    let sizes = [LARGE, LARGE + 12_345];
    let builder = site(&authority, &sizes, "");
    on_each(&builder, |server| {
        for (n, (version, option, name, _)) in SUITES.into_iter().enumerate() {
            for (m, size) in sizes.into_iter().enumerate() {
                let arguments =
                    [&format!("--tlsv{version}")[..], "--tls-max", version, option, name];
                let target = format!("/files/{size}");
                let Some(received) = curl(server, &target, &arguments) else { return };
                assert_same(&received, &content(size), name);
                assert_eq!(counters(server), [(n * sizes.len() + m) as u64 + 1, 0, 0], "{name}");
            }
        }
    });
}

#[test]
fn every_response_of_a_connection_is_sealed() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    let sizes = [LARGE + 1, 0, 1, 1000, 16_384, 16_385, 65_536, 65_537, 300_000];
    for server_block in ["", ALWAYS] {
        let builder = site(&authority, &sizes, server_block);
        on_each(&builder, |server| {
            for (_, _, name, suite) in SUITES {
                let mut client = TlsClient::new(server, &client_of(&authority, suite), "localhost");
                assert_eq!(client.text("/small"), "1");
                for size in sizes {
                    let received = client.get(&format!("/files/{size}")).1;
                    assert_same(&received, &content(size), &format!("{size} bytes with {name}"));
                }
                // A range: from within a page.
                client.send(format!(
                    "GET /files/{} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=70001-1970000\r\n\r\n",
                    LARGE + 1
                ));
                let (head, body) = client.response();
                assert!(head.starts_with("HTTP/1.1 206"), "{head}");
                assert_same(&body, &content(LARGE + 1)[70_001..=1_970_000], name);
                assert_eq!(client.text("/small"), "12");
                client.send(
                    "GET /files/65537 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                );
                assert_same(&client.response().1, &content(65_537), name);
                client.expect_end();
            }
            assert_eq!(counters(server), [SUITES.len() as u64, 0, 0]);
        });
    }
}

#[test]
fn pipelined_requests_and_several_ranges() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    let builder = site(&authority, &[1000, LARGE], "");
    on_each(&builder, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        let request = |size| format!("GET /files/{size} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let sizes = [LARGE, 1000, 1000, LARGE, 1000];
        client.send(sizes.map(request).concat());
        for size in sizes {
            assert_same(&client.response().1, &content(size), "pipelined");
        }
        client.send(format!(
            "GET /files/{LARGE} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=5-400004,500000-1000000\r\n\r\n"
        ));
        let (head, body) = client.response();
        assert!(head.contains("multipart/byteranges"), "{head}");
        let all = content(LARGE);
        for part in [&all[5..=400_004], &all[500_000..=1_000_000]] {
            assert!(body.windows(part.len()).any(|window| window == part), "a part is missing");
        }
        assert_eq!(counters(server), [1, 0, 0]);
    });
}

/// A client that takes nothing until the server's buffers are full gets everything all the same, with
/// the end of a connection right behind it.
#[test]
fn slow_clients_lose_nothing() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    const SIZE: usize = 3 * LARGE + 7;
    let builder = site(&authority, &[SIZE], "aio threads;");
    on_each(&builder, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        client.send(format!(
            "GET /files/{SIZE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        nowait_testkit::wait::until("the kernel to seal", nowait_testkit::wait::PATIENCE, || {
            (counters(server) == [1, 0, 0]).then_some(())
        });
        let mut received = Vec::new();
        let mut part = vec![0; 3000];
        loop {
            match client.reader().read(&mut part).unwrap() {
                0 => break,
                count => received.extend_from_slice(&part[..count]),
            }
        }
        let head = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert_same(&received[head..], &content(SIZE), "a slow client");
    });
}

#[test]
fn sessions_of_stream() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    let config = format!(
        "%%MAIN%%
         events {{ %%EVENTS%% }}
         http {{
             %%HTTP%%
             server {{
                 listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html;
                 location /status/ {{ status_api; }}
             }}
         }}
         stream {{
             server {{
                 listen 127.0.0.1:%%PORT%% ssl; ssl_certificate own.pem; ssl_certificate_key own.key;
                 proxy_pass 127.0.0.1:%%PORT_1%%;
                 {ALWAYS}
             }}
         }}"
    );
    let builder = site(&authority, &[1000, LARGE], "").config(&config);
    on_each(&builder, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        for size in [1000, LARGE, 1000] {
            assert_same(&client.get(&format!("/files/{size}")).1, &content(size), "relayed");
        }
        client.send("GET /files/1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_same(&client.response().1, &content(1000), "the last one");
        client.expect_end();
        assert_eq!(counters(server), [1, 0, 0]);
    });
}

#[test]
fn uploads_and_http2_on_connections_that_the_kernel_seals() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    let more = "http2 on; location = /up { client_body_in_file_only clean; proxy_pass http://127.0.0.1:%%PORT_1%%/small; }";
    let builder = site(&authority, &[LARGE], &format!("{ALWAYS} {more}"));
    on_each(&builder, |server| {
        std::fs::write(server.dir().join("upload"), content(LARGE / 2)).unwrap();
        let upload = format!("@{}", server.dir().join("upload").display());
        let answer = curl(server, "/up", &["--data-binary", &upload]);
        assert_eq!(answer.as_deref(), Some(&b"1"[..]));
        let received = curl(server, &format!("/files/{LARGE}"), &["--http2"]).unwrap();
        assert_same(&received, &content(LARGE), "HTTP/2");
        assert_eq!(counters(server), [2, 0, 0]);
    });
}
