//! Behind the server: upstream servers with and without buffering, uploads to them, tunnels, early hints.

use nowait_testkit::Origin;
use nowait_testkit::http3::{Http3, code, frame, frame_of};
use nowait_testkit::origin::Step;
use nowait_testkit::wait::{PATIENCE, until};

use crate::stage::{block, http3, on_each_driver, pattern, server, site, writable};

/// A server that answers for the one under test, in the same process.
fn relayed(content: &str) -> nowait_testkit::ServerBuilder {
    let block = crate::stage::block(content);
    site(&format!(
        "{block}\nserver {{ listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/origin; client_max_body_size 0;\n\
         location /dav {{ dav_methods PUT; root %%DIR%%; }} \
         location /said {{ return 200 \"$request|$http_host|$http_x\"; }} }}"
    ))
}

#[test]
fn responses_of_every_length() {
    let lengths = [0, 1, 4095, 4096, 16_384, 65_536, 100_000, 3 << 20];
    let content = "proxy_http_version 1.1; location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }\
                   location /direct/ { proxy_buffering off; proxy_pass http://127.0.0.1:%%PORT_1%%/; }";
    let mut builder = relayed(content);
    for len in lengths {
        builder = builder.file(&format!("origin/{len}"), pattern(len));
    }
    on_each_driver(&builder, |server| {
        let mut http3 = http3(server);
        for len in lengths {
            for path in [format!("/{len}"), format!("/direct/{len}")] {
                let response = http3.get(&path);
                assert_eq!(response.status, 200, "{path}");
                assert!(response.body == pattern(len), "{path}");
            }
        }
        let said = http3.request("GET", "/said", &[("x", "1")], b"");
        let port = server.port_n(1);
        assert_eq!(said.text(), format!("GET /said HTTP/1.1|127.0.0.1:{port}|1"));
    });
}

#[test]
fn uploads_with_and_without_buffering() {
    let content = "client_max_body_size 0; proxy_http_version 1.1;\
                   location /dav/ { proxy_pass http://127.0.0.1:%%PORT_1%%; }\
                   location /stream/ { proxy_request_buffering off; proxy_pass http://127.0.0.1:%%PORT_1%%/dav/; }";
    let builder = relayed(content).file("dav/x", "");
    on_each_driver(&builder, |server| {
        writable(server, "dav");
        let mut http3 = http3(server);
        for len in [0, 1, 16_384, 65_537, 3 << 20] {
            for place in ["dav", "stream"] {
                let body = pattern(len);
                let path = format!("/{place}/{place}{len}");
                let response = http3.request("PUT", &path, &[], &body);
                assert!([201, 204].contains(&response.status), "{path}: {response}");
                let stored = std::fs::read(server.dir().join(format!("dav/{place}{len}"))).unwrap();
                assert!(stored == body, "{path}");
            }
        }
    });
}

#[test]
fn an_origin_that_breaks_off_resets_the_stream() {
    for driver in [nowait_testkit::Driver::Epoll, nowait_testkit::Driver::IoUring] {
        let origin = Origin::start(vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"),
        ]]);
        let content = format!("location / {{ proxy_pass http://{}; }}", origin.addr());
        let server = server(&content).driver(driver).start();
        let mut http3 = http3(&server);
        let id = http3.open("GET", "/", &[], true);
        let end = http3.end_of(id);
        assert_eq!(end.reset, Some(code::INTERNAL_ERROR), "{end:?}");
        // A reset may overtake what was sent before.
        assert!(b"part".starts_with(&end.body));
        server.stop();
        origin.finish();
    }
}

#[test]
fn tiny_frames_of_content_are_joined() {
    const FRAMES: usize = 3000;
    for driver in [nowait_testkit::Driver::Epoll, nowait_testkit::Driver::IoUring] {
        let origin = Origin::start(vec![vec![
            Step::expect("\r\n0\r\n\r\n"),
            Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nread"),
        ]]);
        let content = format!(
            "location / {{ proxy_http_version 1.1; proxy_request_buffering off; proxy_pass http://{}; }}",
            origin.addr()
        );
        let server = server(&content).driver(driver).start();
        let mut http3 = http3(&server);
        let id = http3.open("POST", "/", &[], false);
        // The length is not known when the upstream server's request begins.
        http3.data(id, b"y", false);
        http3.until("its start", |_| origin.received().iter().any(|sent| sent.ends_with(b"y\r\n")));
        http3.quic.write(id, &frame_of(frame::DATA, b"x").repeat(FRAMES));
        http3.quic.finish(id);
        assert_eq!(http3.response(id).text(), "read");
        let sent = origin.received().remove(0);
        let head = sent.windows(3).position(|end| end == b"y\r\n").unwrap() + 3;
        assert_eq!(sent[head..].iter().filter(|byte| **byte == b'x').count(), FRAMES);
        // A chunk per frame would take six bytes for each.
        assert!(sent.len() - head < 2 * FRAMES, "{}", sent.len() - head);
        server.stop();
        origin.finish();
    }
}

#[test]
fn the_progress_of_an_upload_is_reported() {
    let http = format!(
        "upload_progress up 1m;
         upload_progress_json_output;
         server {{ listen 127.0.0.1:%%PORT_1%%; location / {{ return 200 $content_length; }} }}
         {}",
        block(
            "location / { proxy_pass http://127.0.0.1:%%PORT_1%%; track_uploads up 1h; }
             location = /progress { report_uploads up; }"
        )
    );
    on_each_driver(&site(&http), |server| {
        let mut client = http3(server);
        // Content is sent while the connection is asked for something else.
        let until_reported = |client: &mut Http3, expected: &str| {
            until(expected, PATIENCE, || {
                let text = client.get("/progress?X-Progress-ID=a").text();
                (text.trim_end() == expected).then_some(())
            });
        };
        until_reported(&mut client, "{ \"state\" : \"starting\" }");
        for size in [30_000, 0] {
            let length = size.to_string();
            let fields = [("x-progress-id", "a"), ("content-length", &length)];
            let stated = if size > 0 { 2 } else { 1 };
            let id = client.open("POST", "/", &fields[..stated], false);
            client.data(id, &pattern(20_000), false);
            until_reported(
                &mut client,
                &format!(
                    "{{ \"state\" : \"uploading\", \"received\" : 20000, \"size\" : {size} }}"
                ),
            );
            client.data(id, &pattern(10_000), true);
            assert_eq!(client.response(id).text(), "30000");
            until_reported(&mut client, "{ \"state\" : \"done\" }");
        }
    });
}
