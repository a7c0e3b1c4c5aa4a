//! `upload_progress`, `track_uploads`, `report_uploads`: how far an upload is, over every transport.

use nowait_testkit::http2::{Http2, StreamId};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Response, Server, ServerBuilder};
use serde_json::{Value, json};

use crate::stage::{ask, asks_nginx, on_each_driver, site};
use crate::transport::{self, Transport};

/// Bytes of an upload, and of its part that is sent first.
const WHOLE: usize = 30_000;
const PART: usize = 20_000;

/// A server whose origin reads uploads and responds with their length.
fn tracking(zone: &str, content: &str) -> ServerBuilder {
    transport::site(&format!(
        "upload_progress {zone};
         upload_progress_json_output;
         log_format progress '$uri $status $uploadprogress_received/$uploadprogress_length $uploadprogress_status';
         access_log %%DIR%%/progress.log progress;
         upstream readers {{ server 127.0.0.1:%%PORT_2%%; }}
         server {{
             listen 127.0.0.1:%%PORT_2%%;
             location / {{ proxy_pass http://127.0.0.1:%%PORT_3%%; }}
         }}
         server {{
             listen 127.0.0.1:%%PORT_3%%;
             location / {{ return 200 $content_length; }}
             location /moved {{ return 302 /; }}
             location /refused {{ return 418; }}
         }}
         server {{
             %%LISTEN%%
             location = /progress {{ report_uploads up; }}
             {content}
         }}"
    ))
}

/// What the report says about an upload.
#[track_caller]
fn report(server: &Server, id: &str) -> Value {
    let response = ask(server, "/progress", &[&format!("X-Progress-ID: {id}")]);
    assert_eq!(response.status, 200, "{response}");
    assert_eq!(response.header("Content-Type"), Some("application/json"));
    serde_json::from_str(&response.text()).unwrap()
}

/// Waits until the report says this.
#[track_caller]
fn until_reported(server: &Server, id: &str, expected: &Value) {
    let mut last = Value::Null;
    let found = nowait_testkit::wait::try_until(PATIENCE, || {
        last = report(server, id);
        (last == *expected).then_some(())
    });
    assert!(found.is_some(), "{id}: {last} instead of {expected}");
}

fn uploading(received: usize, size: usize) -> Value {
    json!({ "state": "uploading", "received": received, "size": size })
}

fn done() -> Value {
    json!({ "state": "done" })
}

fn error(status: u16) -> Value {
    json!({ "state": "error", "status": status })
}

/// An upload whose client pauses.
enum Upload {
    Http1(Client),
    Http2(Box<Http2>, StreamId),
}

impl Upload {
    /// Sends the first part.
    #[track_caller]
    fn begin(server: &Server, transport: Transport, target: &str, fields: &[(&str, &str)]) -> Self {
        let length = WHOLE.to_string();
        if transport.is_http2() {
            let mut client = transport.http2(server);
            let fields = [fields, &[("content-length", &length[..])]].concat();
            let stream = client.open("POST", target, &fields, false);
            client.data(stream, &[b'x'; PART], false);
            return Self::Http2(Box::new(client), stream);
        }
        let mut client = transport.client(server);
        let lines: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{lines}\r\n"
        ));
        client.send([b'x'; PART]);
        Self::Http1(client)
    }

    /// Sends the rest.
    #[track_caller]
    fn finish(self) -> Response {
        let rest = [b'x'; WHOLE - PART];
        match self {
            Self::Http1(mut client) => {
                client.send(rest);
                client.response()
            }
            Self::Http2(mut client, stream) => {
                client.data(stream, &rest, true);
                client.response(stream)
            }
        }
    }
}

#[test]
fn uploads_are_counted_over_every_transport() {
    let site = tracking(
        "up 1m",
        "track_uploads up 1h;
         location /whole { proxy_pass http://readers/; }
         location /streamed { proxy_pass http://readers/; proxy_request_buffering off; }",
    )
    .workers(2);
    transport::on_each(&Transport::ALL, &site, |server, transport| {
        assert_eq!(report(server, "none"), json!({ "state": "starting" }));
        for location in ["/whole", "/streamed"] {
            let id = &location[1..];
            // As a field, and as an argument.
            let upload = match location {
                "/whole" => Upload::begin(server, transport, location, &[("x-progress-id", id)]),
                _ => Upload::begin(
                    server,
                    transport,
                    &format!("{location}?a&x-progress-id={id}&b"),
                    &[],
                ),
            };
            until_reported(server, id, &uploading(PART, WHOLE));
            let response = upload.finish();
            assert_eq!((response.status, response.text()), (200, WHOLE.to_string()));
            until_reported(server, id, &done());
        }
        let log = server.wait_file("progress.log", "/streamed 200");
        for line in ["/whole 200 30000/30000 0", "/streamed 200 30000/30000 0"] {
            assert!(log.contains(line), "{log}");
        }
    });
}

#[test]
fn identifiers_may_come_from_rewriting() {
    // As configurations for Drupal have it.
    let site = tracking(
        "up 1m",
        "location ~ (.*)/x-progress-id:(\\w*) { rewrite ^(.*)/x-progress-id:(\\w*) $1?X-Progress-ID=$2; }
         location /node { proxy_pass http://readers/; track_uploads up 1h; }",
    );
    on_each_driver(&site, |server| {
        let target = "/node/x-progress-id:abc";
        let upload = Upload::begin(server, Transport::Http1, target, &[]);
        until_reported(server, "abc", &uploading(PART, WHOLE));
        assert_eq!(
            ask(server, "/progress/x-progress-id:abc", &[]).text(),
            "{ \"state\" : \"uploading\", \"received\" : 20000, \"size\" : 30000 }\r\n"
        );
        assert_eq!(upload.finish().status, 200);
        until_reported(server, "abc", &done());
    });
}

#[test]
fn contents_without_a_stated_length() {
    let site = tracking(
        "up 1m",
        "location / { proxy_pass http://readers/; proxy_http_version 1.1; track_uploads up 1h; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(
            "PUT / HTTP/1.1\r\nHost: localhost\r\nX-Progress-ID: chunked\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        );
        until_reported(server, "chunked", &uploading(5, 0));
        client.send("3\r\n678\r\n0\r\n\r\n");
        assert_eq!(client.response().status, 200);
        until_reported(server, "chunked", &done());
        // GET requests are not tracked, nor those of the location that reports.
        ask(server, "/", &["X-Progress-ID: get"]);
        assert_eq!(report(server, "get"), json!({ "state": "starting" }));
    });
}

/// A POST request with this content on a connection of its own.
#[track_caller]
fn post(server: &Server, target: &str, id: &str, content: &str) -> Response {
    let mut client = server.client();
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nX-Progress-ID: {id}\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    ));
    client.response()
}

#[test]
fn errors_are_reported() {
    let site = tracking(
        "up 1m",
        "track_uploads up 1h;
         location /app/ { proxy_pass http://readers/; }
         location /small { client_max_body_size 4; error_page 413 /page; proxy_pass http://readers/; }
         location /denied { deny all; error_page 403 = @elsewhere; }
         location = /page { return 200 page; }
         location @elsewhere { proxy_pass http://readers; proxy_method GET; }",
    )
    .allow_log("client intended to send too large body")
    .allow_log("access forbidden by rule");
    on_each_driver(&site, |server| {
        let refused = post(server, "/app/refused", "refused", "content");
        assert_eq!(refused.status, 418);
        until_reported(server, "refused", &error(418));
        assert_eq!(post(server, "/app/moved", "moved", "content").status, 302);
        until_reported(server, "moved", &done());
        // Refused before its location has handled it.
        assert_eq!(post(server, "/small", "large", "content").status, 413);
        until_reported(server, "large", &error(413));
        let mut client = server.client();
        client.send(
            "POST /small?x-progress-id=larger HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: 5\r\n\r\n12345",
        );
        assert_eq!(client.response().status, 413);
        until_reported(server, "larger", &error(413));
        let denied = post(server, "/denied", "denied", "content");
        assert_eq!(denied.status, 200);
        until_reported(server, "denied", &done());
        // The client disconnects.
        let gone = Upload::begin(server, Transport::Http1, "/app/", &[("x-progress-id", "gone")]);
        until_reported(server, "gone", &uploading(PART, WHOLE));
        drop(gone);
        until_reported(server, "gone", &error(400));
        let log = server.wait_file("progress.log", "/app/ 400");
        assert!(log.contains("/app/ 400 20000/30000 400"), "{log}");
        // Its identifier can be used again.
        assert_eq!(post(server, "/app/", "gone", "content").status, 200);
        until_reported(server, "gone", &done());
    });
}

#[test]
fn identifiers_in_use_and_full_zones_leave_uploads_untracked() {
    // Room for 64 uploads with long identifiers.
    let site = tracking("up 32k", "location / { proxy_pass http://readers; track_uploads up 1h; }")
        .allow_log("is full of uploads in progress");
    on_each_driver(&site, |server| {
        let id = |n: usize| format!("{n}{}", "x".repeat(200));
        let begin =
            |id: &str| Upload::begin(server, Transport::Http1, "/", &[("x-progress-id", id)]);
        let mut uploads: Vec<Upload> = (0..64).map(|n| begin(&id(n))).collect();
        until_reported(server, &id(0), &uploading(PART, WHOLE));
        assert_eq!(post(server, "/", &id(0), "12").status, 200);
        assert_eq!(report(server, &id(0)), uploading(PART, WHOLE));
        (1..64).for_each(|n| until_reported(server, &id(n), &uploading(PART, WHOLE)));
        assert_eq!(post(server, "/", &id(64), "123").text(), "3");
        server.wait_log("upload_progress zone \"up\" is full of uploads in progress");
        assert_eq!(report(server, &id(64)), json!({ "state": "starting" }));
        // A finished one makes room.
        assert_eq!(uploads.remove(0).finish().status, 200);
        until_reported(server, &id(0), &done());
        let next = begin(&id(65));
        until_reported(server, &id(65), &uploading(PART, WHOLE));
        assert_eq!(report(server, &id(0)), json!({ "state": "starting" }));
        assert_eq!(next.finish().status, 200);
        // Too long to be tracked.
        assert_eq!(post(server, "/", &"y".repeat(256), "1").status, 200);
    });
}

#[test]
fn reloads_keep_uploads() {
    let content = "location / { proxy_pass http://readers; track_uploads up 1h; }";
    let site = tracking("up 1m", content);
    on_each_driver(&site, |server| {
        let upload = Upload::begin(server, Transport::Http1, "/", &[("x-progress-id", "a")]);
        until_reported(server, "a", &uploading(PART, WHOLE));
        server.reload();
        assert_eq!(report(server, "a"), uploading(PART, WHOLE));
        assert_eq!(upload.finish().status, 200);
        until_reported(server, "a", &done());
    });
}

#[test]
fn formats() {
    let site = site(
        "upload_progress up 1m;
         server {
             listen 127.0.0.1:%%PORT%%;
             upload_progress_template done 'finished: $uploadprogress_received of $uploadprogress_length, $uploadprogress_remaining left, $arg_x';
             location / { empty_gif; track_uploads up 1h; }
             location = /plain { report_uploads up; }
             location = /java { report_uploads up; upload_progress_java_output; }
             location = /json { report_uploads up; upload_progress_json_output; upload_progress_content_type text/plain; }
             location = /named {
                 report_uploads up;
                 upload_progress_jsonp_output;
                 upload_progress_jsonp_parameter call;
                 upload_progress_header X-Upload;
                 upload_progress_template starting '$uploadprogress_callback: unknown';
             }
         }",
    );
    on_each_driver(&site, |server| {
        let of = |target: &str| {
            let response = ask(server, target, &[]);
            assert_eq!(response.status, 200, "{response}");
            assert_eq!(response.header("Cache-Control"), Some("no-cache"));
            assert_eq!(response.header("Expires"), Some("Thu, 01 Jan 1970 00:00:01 GMT"));
            (response.header("Content-Type").unwrap().to_owned(), response.text())
        };
        let text = |media: &str, text: &str| (media.to_owned(), text.to_owned());
        assert_eq!(post(server, "/", "a", "content").status, 405);
        until("the end of the upload", PATIENCE, || {
            of("/plain?X-Progress-ID=a").1.contains("error").then_some(())
        });
        assert_eq!(
            of("/plain?X-Progress-ID=a&callback=jQuery.done_1"),
            text(
                "text/javascript",
                "jQuery.done_1({ \"state\" : \"error\", \"status\" : 405 });\r\n"
            )
        );
        // What is no name is not sent back.
        assert_eq!(
            of("/plain?X-Progress-ID=a&callback=alert(1)"),
            text("text/javascript", "({ \"state\" : \"error\", \"status\" : 405 });\r\n")
        );
        assert_eq!(
            of("/java?x-progress-id=a"),
            text("text/javascript", "new Object({ 'state' : 'error', 'status' : 405 })\r\n")
        );
        assert_eq!(
            of("/json?X-Progress-ID=a"),
            text("text/plain", "{ \"state\" : \"error\", \"status\" : 405 }\r\n")
        );
        assert_eq!(of("/named?x-upload=b&call=f"), text("application/javascript", "f: unknown"));
        assert_eq!(
            of("/named?x-upload=a&call=f"),
            text("application/javascript", "f({ \"state\" : \"error\", \"status\" : 405 });\r\n")
        );
        let mut client = server.client();
        client.send("HEAD /json?x-progress-id=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = client.response_to_head();
        assert_eq!((head.status, head.header("Content-Length")), (200, Some("39")));
        assert_eq!(post(server, "/json", "a", "").status, 405);
        server.allow_log("No such file");
        assert_eq!(ask(server, "/json", &[]).status, 404);
    });
}

#[test]
fn templates_are_inherited_state_by_state() {
    let site = tracking(
        "up 1m",
        "upload_progress_template done 'finished: $uploadprogress_received of $uploadprogress_length, $uploadprogress_remaining left, $arg_x';
         location / { proxy_pass http://readers; track_uploads up 1h; }
         location = /xml { report_uploads up; upload_progress_content_type text/xml; upload_progress_template uploading '<n>$uploadprogress_remaining</n>'; }",
    );
    on_each_driver(&site, |server| {
        let xml = |server: &Server| {
            let response = ask(server, "/xml?X-Progress-ID=a&x=1", &[]);
            assert_eq!(response.header("Content-Type"), Some("text/xml"));
            response.text()
        };
        assert_eq!(xml(server), "{ \"state\" : \"starting\" }\r\n");
        let upload = Upload::begin(server, Transport::Http1, "/", &[("x-progress-id", "a")]);
        let expected = format!("<n>{}</n>", WHOLE - PART);
        until("the first part", PATIENCE, || (xml(server) == expected).then_some(()));
        assert_eq!(upload.finish().status, 200);
        let expected = "finished: 30000 of 30000, 0 left, 1";
        until("the end", PATIENCE, || (xml(server) == expected).then_some(()));
    });
}

#[test]
fn wrong_directives() {
    if asks_nginx() {
        return;
    }
    for (http, expected) in [
        ("upload_progress a 1m; upload_progress a 1m;", "zone \"a\" is already defined"),
        ("upload_progress a 4k;", "^ expected 32k or more"),
        ("upload_progress a x;", "^ expected a size such as 1m"),
        ("track_uploads a 30s;", "= hint: define it with upload_progress"),
        ("upload_progress a 1m; track_uploads a x;", "^ expected a time such as 30s"),
        ("upload_progress_template begun x;", "^ expected \"starting\", \"uploading\""),
        (
            "upload_progress_template done $uploadprogress_recieved;",
            "\"uploadprogress_recieved\" variable",
        ),
        (
            "server { listen 1; location / { report_uploads b; } }",
            "= hint: define it with upload_progress",
        ),
    ] {
        let Err(failure) = site(http).try_start() else { panic!("{http} is accepted") };
        let said = format!("{}{}", failure.stderr, failure.log);
        assert!(said.contains(expected), "{http}: {said}");
    }
}
