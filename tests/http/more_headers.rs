//! `more_set_headers` and its relatives.

use nowait_testkit::Response;
use nowait_testkit::origin::{Origin, Step};

use crate::stage::{ask, on_each_driver, server, site};

/// All values of a field, joined by bars.
fn values(response: &Response, name: &str) -> String {
    let lines = response.headers.iter().filter(|(one, _)| one.eq_ignore_ascii_case(name));
    lines.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("|")
}

#[test]
fn fields_of_responses() {
    let builder = server(
        "more_set_headers 'X-Outer: $uri' 'Server: mine';
         location /file/ {
             more_set_headers 'Content-Type: text/x; charset=koi8-r' 'ETag: \"own\"' X-Outer
                 'Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT';
         }
         location /bare/ { more_clear_headers Server Date ETag Last-Modified Accept-Ranges Content-Type; }
         location /some {
             more_set_headers -s '404 410' -s 500 'X-Status: $status';
             more_set_headers -t 'text/plain text/css' 'X-Type: yes';
             types { } default_type text/plain;
             location /some/404 { return 404; }
             location /some/410 { return 410 gone; }
             location /some/200 { return 200 ok; }
         }
         location /order {
             add_header X-A added always;
             more_clear_headers 'X-*';
             more_set_headers 'X-B: 1' 'X-B: 2';
             more_set_headers -a 'Set-Cookie: a' 'Set-Cookie: b';
             return 200 ok;
         }
         location /if { if ($arg_a) { more_set_headers 'X-If: yes'; } return 200 ok; }
         location /moved { more_set_headers 'Location: /there'; return 301 /here; }
         location /split { set $v 'a\r\nX-Injected: b'; more_set_headers 'X-V: $v'; return 200 ok; }",
    )
    .file("html/file/a", "0123456789")
    .file("html/bare/a", "0123456789");
    on_each_driver(&builder, |server| {
        let file = ask(server, "/file/a", &[]);
        assert_eq!(values(&file, "content-type"), "text/x; charset=koi8-r");
        assert_eq!(
            (values(&file, "etag"), values(&file, "server")),
            ("\"own\"".into(), "mine".into())
        );
        assert_eq!(values(&file, "last-modified"), "Wed, 01 Jan 2020 00:00:00 GMT");
        assert_eq!((values(&file, "x-outer"), file.text()), (String::new(), "0123456789".into()));
        // Conditions and ranges know the fields that the client was given.
        let part = ask(server, "/file/a", &["Range: bytes=1-2", "If-Range: \"own\""]);
        assert_eq!((part.status, part.text()), (206, "12".into()));

        let bare = ask(server, "/bare/a", &[]);
        let names: Vec<_> = bare.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Content-Length", "Connection", "X-Outer"]);

        for (target, status, kind) in
            [("/some/404", "404", ""), ("/some/410", "410", "yes"), ("/some/200", "", "yes")]
        {
            let response = ask(server, target, &[]);
            assert_eq!(values(&response, "x-status"), status, "{target}");
            assert_eq!(values(&response, "x-type"), kind, "{target}");
        }

        let order = ask(server, "/order", &[]);
        assert_eq!(values(&order, "x-a"), "added");
        assert_eq!((values(&order, "x-outer"), values(&order, "x-b")), (String::new(), "2".into()));
        assert_eq!(values(&order, "set-cookie"), "a|b");

        assert_eq!(values(&ask(server, "/if", &[]), "x-if"), "");
        assert_eq!(values(&ask(server, "/if?a=1", &[]), "x-if"), "yes");
        assert!(values(&ask(server, "/moved", &[]), "location").ends_with("/there"));
        let split = ask(server, "/split", &[]);
        assert_eq!(values(&split, "x-injected"), "");
    });
}

#[test]
fn fields_of_proxied_responses() {
    let reply = "HTTP/1.1 200 OK\r\nServer: theirs\r\nX-Powered-By: x\r\nX-Runtime: 1\r\n\
                 Set-Cookie: a\r\nSet-Cookie: b\r\nDate: Wed, 01 Jan 2020 00:00:00 GMT\r\n\
                 Content-Type: text/html\r\nContent-Length: 2\r\n\r\nok";
    let script = || vec![Step::expect("\r\n\r\n"), Step::reply(reply)];
    let origin = Origin::start([script(), script()]);
    let builder = server(
        "location / {
             proxy_pass http://%%UP%%;
             proxy_pass_header Server;
             more_clear_headers Server 'x-*';
             more_set_headers 'Set-Cookie: one' 'Content-Type: text/plain';
         }",
    )
    .variable("UP", origin.addr());
    on_each_driver(&builder, |server| {
        let response = ask(server, "/", &[]);
        for name in ["server", "x-powered-by", "x-runtime"] {
            assert_eq!(values(&response, name), "", "{name}");
        }
        assert_eq!(values(&response, "set-cookie"), "one");
        assert_eq!(values(&response, "content-type"), "text/plain");
        assert_eq!(response.text(), "ok");
    });
}

#[test]
fn fields_of_requests() {
    let builder = server(
        "proxy_set_header X-Host $host,$http_host;
         location /passed {
             more_set_input_headers 'X-A: $arg_a' 'Host: $arg_host' 'X-New: new';
             more_set_input_headers -r 'X-Here: replaced' 'X-Missing: added';
             more_set_input_headers -t 'text/plain' 'X-Text: yes';
             more_set_input_headers \"X-Line: a\r\nX-Injected: b\";
             more_clear_input_headers 'X-Secret*' Accept-Encoding 'Content-*';
             proxy_pass http://127.0.0.1:%%PORT%%/shown;
         }
         location /shown {
             set $own \"$http_x_a,$http_x_new,$http_x_here,$http_x_missing,$http_x_text\";
             set $gone \"$http_x_secret_a,$http_accept_encoding,$http_content_type\";
             return 200 \"$own;$gone;$http_x_line,$http_x_injected;$http_x_host\";
         }
         # Part of rewriting, like every return: the request is as the client sent it.
         location /returned { more_set_input_headers 'X-A: ours'; return 200 $http_x_a; }",
    );
    on_each_driver(&builder, |server| {
        let lines = [
            "X-A: theirs",
            "X-Here: 1",
            "X-Secret-A: 1",
            "Accept-Encoding: gzip",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Length: 0",
        ];
        let passed = ask(server, "/passed?a=b&host=Other.org:81", &lines);
        let expected = "b,new,replaced,,yes;,,;a  X-Injected: b,;other.org,Other.org:81";
        assert_eq!((passed.status, passed.text()), (200, expected.into()));
        // A host that is none stays what it was.
        let passed = ask(server, "/passed?host=a/b", &[]);
        assert_eq!(passed.text(), ",new,,,;,,;a  X-Injected: b,;localhost,localhost");
        server.wait_log("\"more_set_input_headers\": invalid host \"a/b\"");
        assert_eq!(ask(server, "/returned", &lines).text(), "theirs");
    });
}

#[test]
fn mistakes_are_named() {
    for (text, message) in [
        ("more_set_headers -x 'A: b';", "invalid option \"-x\""),
        ("more_set_headers -s 'OK' 'A: b';", "invalid status in \"OK\""),
        ("more_set_headers -t;", "\"-t\" needs a value"),
        ("more_set_headers -s 404;", "no header field is named"),
        ("more_set_headers 'A b: c';", "invalid header field \"A b: c\""),
        ("more_set_headers 'Content-Length: 1';", "\"Content-Length\" can't be changed"),
        ("more_set_input_headers 'Transfer-Encoding: x';", "can't be changed"),
        ("more_set_input_headers -s 404 'A: b';", "invalid option \"-s\""),
        ("more_clear_headers;", "invalid number of arguments in \"more_clear_headers\" directive"),
        ("more_set_headers 'A: $nosuch';", "unknown \"nosuch\" variable"),
    ] {
        let failure = site(text).try_start().expect_err(text);
        let said = format!("{}{}", failure.stderr, failure.log);
        assert!(said.contains(message), "{text}: {said}");
    }
}
