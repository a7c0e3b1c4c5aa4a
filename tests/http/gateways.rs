//! `scgi_pass`, `uwsgi_pass`, `memcached_pass`.

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, Server};

use crate::stage::{self, ask, site};

/// Runs a test on each driver, with an origin and a server of its own each time. `content` stands in
/// the server, which has a group `u` with the origin.
#[track_caller]
fn on_each(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    content: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    let builder = |address: &str| {
        site(&format!(
            "scgi_cache_path %%DIR%%/scgi keys_zone=s:1m;
             uwsgi_cache_path %%DIR%%/uwsgi keys_zone=w:1m;
             upstream u {{ server {address}; keepalive 4; }}
             server {{\nlisten 127.0.0.1:%%PORT%%;\nroot %%DIR%%/html;\n{content}\n}}"
        ))
    };
    stage::with_origin(scripts, builder, test);
}

/// A script that waits for this, answers, and closes.
fn answer(until: &str, response: &str) -> Vec<Step> {
    vec![Step::expect(until), Step::reply(response), Step::HalfClose]
}

/// What the first connection has sent.
fn received(origin: &Origin) -> String {
    String::from_utf8_lossy(&origin.received()[0]).into_owned()
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a:81\r\nX-A: 1\r\nX-A: 2\r\n";

#[test]
fn an_scgi_request() {
    let conf = "location / { scgi_pass u; scgi_param SCGI 1; scgi_param M $request_method;
                             scgi_param E '' if_not_empty; }";
    for (body, buffering) in [
        ("Content-Length: 4\r\n\r\nbody", "on"),
        ("Content-Length: 4\r\n\r\nbody", "off"),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "off"),
    ] {
        let conf = format!("scgi_request_buffering {buffering}; {conf}");
        let script = || vec![answer("body", "Status: 201 Made\r\nA: b\r\n\r\nanswer")];
        on_each(script, &conf, |server, origin| {
            let mut client = server.client();
            client.send(format!("{POST}{body}"));
            let response = client.response();
            assert_eq!((response.status, &response.reason[..]), (201, "Made"));
            assert_eq!((response.header("status"), response.text()), (None, "answer".to_owned()));
            let sent = received(origin);
            let (length, rest) = sent.split_once(':').unwrap();
            let (head, content) = rest.split_at(length.parse().unwrap());
            assert_eq!(content, ",body");
            let parts: Vec<&str> = head.split('\0').collect();
            assert_eq!(parts[..6], ["CONTENT_LENGTH", "4", "SCGI", "1", "M", "POST"]);
            assert!(head.contains("\0HTTP_HOST\0a:81\0") && head.contains("\0HTTP_X_A\x001, 2\0"));
            assert!(!head.contains("\0E\0"));
        });
    }
}

#[test]
fn scgi_faults() {
    let conf = "location / { scgi_pass u; }";
    for (response, status, log) in [
        ("", 502, "upstream prematurely closed connection"),
        ("no colon\r\n\r\n", 502, "upstream sent invalid header"),
        ("Status: x\r\n\r\n", 502, "upstream sent invalid status \"x\""),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, "unexpected interim response"),
        ("Content-Length: 2\r\n\r\nbody", 200, "upstream sent more data than specified"),
    ] {
        on_each(
            || vec![answer("\0,", response)],
            conf,
            |server, _| {
                server.allow_log("upstream");
                assert_eq!(server.get("/").status, status, "{response}");
                server.wait_log(log);
            },
        );
    }
    on_each(
        || vec![answer("\0,", "Content-Length: 9\r\n\r\nbody")],
        conf,
        |server, _| {
            server.allow_log("upstream");
            let mut client = server.client();
            client.send_get("/");
            assert!(client.try_response(false).is_err());
            server.wait_log("upstream prematurely closed connection");
        },
    );
}

#[test]
fn scgi_and_uwsgi_responses_are_cached() {
    for (module, zone, until) in [("scgi", "s", "\0,"), ("uwsgi", "w", "HTTP_HOST")] {
        let conf = format!(
            "location / {{ {module}_pass u; {module}_cache {zone}; {module}_cache_valid 1m;
                           {module}_cache_key $uri; }}"
        );
        on_each(
            || vec![answer(until, "HTTP/1.0 200 OK\r\nA: b\r\n\r\nbody")],
            &conf,
            |server, _| {
                assert_eq!(server.get("/").text(), "body");
                assert_eq!(server.get("/").text(), "body");
            },
        );
    }
}

#[test]
fn a_uwsgi_request() {
    let conf = "location / { uwsgi_pass uwsgi://u; uwsgi_param M $request_method;
                             uwsgi_modifier1 5; uwsgi_modifier2 7; uwsgi_string [$uri]; }";
    let script = || vec![answer("body", "HTTP/1.1 404 Nothing here\r\nStatus: 200\r\n\r\nanswer")];
    on_each(script, conf, |server, origin| {
        let mut client = server.client();
        client.send(format!("{POST}Content-Length: 4\r\n\r\nbody"));
        let response = client.response();
        assert_eq!((response.status, &response.reason[..]), (404, "Nothing here"));
        let sent = origin.received()[0].clone();
        let (head, rest) = sent.split_at(4);
        assert_eq!((head[0], head[3]), (5, 7));
        let (vars, rest) = rest.split_at(u16::from_le_bytes([head[1], head[2]]).into());
        assert_eq!(rest, b"[/]body");
        let vars = String::from_utf8_lossy(vars);
        assert!(vars.starts_with("\x01\0M\x04\0POST"), "{vars:?}");
        assert!(vars.contains("\x09\0HTTP_HOST\x04\0a:81"), "{vars:?}");
    });
}

#[test]
fn a_uwsgi_request_that_is_too_big() {
    let long = "x".repeat(7000);
    let conf = "large_client_header_buffers 4 8k;
                location / { uwsgi_pass u; uwsgi_param A $http_l$http_l$http_l$http_l$http_l;
                             uwsgi_param B $http_l$http_l$http_l$http_l$http_l; }";
    on_each(Vec::new, conf, |server, _| {
        server.allow_log("uwsgi request is too big");
        assert_eq!(ask(server, "/", &[&format!("L: {long}")]).status, 500);
    });
}

#[test]
fn a_web_socket_over_uwsgi() {
    let conf = "location / { uwsgi_pass u; }";
    let script = || {
        vec![vec![
            Step::expect("HTTP_UPGRADE"),
            Step::reply("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\nhello "),
            Step::expect("late"),
            Step::reply("bye"),
        ]]
    };
    on_each(script, conf, |server, _| {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n");
        assert_eq!(client.response_to_head().status, 101);
        client.send("late");
        assert_eq!(client.rest(), b"hello bye");
    });
}

const MEMCACHED: &str = "location / { set $memcached_key $uri?$args; memcached_pass u;
                                      default_type text/x; }";

#[test]
fn a_value_of_memcached() {
    let script = || {
        vec![vec![
            Step::expect("get /a%20b?c=d\r\n"),
            Step::reply("VALUE /a%20b?c=d 0 5\r\nval"),
            Step::reply("ue\r\nEND\r\n"),
            Step::expect("get /?\r\n"),
            Step::reply("END\r\n"),
            Step::expect("get /empty?\r\n"),
            Step::reply("VALUE /empty? 0 0\r\n\r\nEND\r\n"),
            Step::Closed,
        ]]
    };
    on_each(script, MEMCACHED, |server, _| {
        let mut client = server.client();
        let response = client.get("/a%20b?c=d");
        assert_eq!((response.status, response.text()), (200, "value".to_owned()));
        assert_eq!(response.header("content-type"), Some("text/x"));
        assert_eq!(response.header("content-length"), Some("5"));
        assert_eq!(client.get("/").status, 404);
        assert_eq!(client.get("/empty").text(), "");
    });
}

#[test]
fn ranges_heads_and_flags_of_values() {
    let conf = format!("memcached_gzip_flag 2; {MEMCACHED}");
    let found = |flags: u32| {
        vec![
            Step::expect("\r\n"),
            Step::reply(format!("VALUE /? {flags} 5\r\nvalue\r\nEND\r\n")),
            Step::Closed,
        ]
    };
    on_each(
        || vec![found(0)],
        &conf,
        |server, _| {
            let response = ask(server, "/", &["Range: bytes=1-2"]);
            assert_eq!((response.status, response.text()), (206, "al".to_owned()));
        },
    );
    on_each(
        || vec![found(0)],
        &conf,
        |server, _| {
            let mut client = server.client();
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response_to_head().header("content-length"), Some("5"));
        },
    );
    for (flags, coding) in [(2, Some("gzip")), (3, Some("gzip")), (1, None)] {
        on_each(
            || vec![found(flags)],
            &conf,
            |server, _| {
                assert_eq!(
                    ask(server, "/", &["Accept-Encoding: gzip"]).header("content-encoding"),
                    coding
                );
            },
        );
    }
}

#[test]
fn what_memcached_has_no_words_for() {
    let conf =
        format!("location /none {{ set $memcached_key $arg_none; memcached_pass u; }} {MEMCACHED}");
    on_each(Vec::new, &conf, |server, _| {
        server.allow_log("variable is not set");
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(client.response().status, 405);
        assert_eq!(client.get("/none").status, 500);
        server.wait_log("the \"$memcached_key\" variable is not set");
    });
}

#[test]
fn memcached_faults() {
    for (response, status, log) in [
        ("ERROR\r\n", 502, "memcached sent invalid response: \"ERROR\""),
        ("VALUE /other 0 1\r\n", 502, "memcached sent invalid key in response"),
        ("VALUE /? x 1\r\n", 502, "memcached sent invalid flags in response"),
        ("VALUE /? 0 -1\r\n", 502, "memcached sent invalid length in response"),
        ("VALUE /? 0 99999999999999999999\r\n", 502, "memcached sent invalid length"),
        ("VALUE /? 0 3\r\nvalue\r\nEND\r\n", 200, "memcached sent invalid trailer"),
        ("", 502, "upstream prematurely closed connection"),
    ] {
        let conf = format!("memcached_gzip_flag 1; {MEMCACHED}");
        on_each(
            || vec![answer("\r\n", response)],
            &conf,
            |server, _| {
                server.allow_log("memcached");
                server.allow_log("upstream");
                assert_eq!(server.get("/").status, status, "{response}");
                server.wait_log(log);
            },
        );
    }
    let endless = "x".repeat(100_000);
    on_each(
        || vec![vec![Step::expect("\r\n"), Step::reply_some(&endless)]],
        MEMCACHED,
        |server, _| {
            server.allow_log("upstream");
            assert_eq!(server.get("/").status, 502);
            server.wait_log("upstream sent too big header");
        },
    );
    on_each(
        || vec![answer("\r\n", "VALUE /? 0 9\r\nvalue")],
        MEMCACHED,
        |server, _| {
            server.allow_log("upstream");
            let mut client = server.client();
            client.send_get("/");
            assert!(client.try_response(false).is_err());
            server.wait_log("upstream prematurely closed connection");
        },
    );
}

#[test]
fn another_server_may_have_the_value() {
    let other = Origin::start([answer("\r\n", "VALUE /? 0 5\r\nvalue\r\nEND\r\n")]);
    let conf = "location / { set $memcached_key $uri?$args; memcached_pass both;
                             memcached_next_upstream not_found; }";
    let first = Origin::start([answer("\r\n", "END\r\n")]);
    let server = site(&format!(
        "upstream both {{ server {}; server {} backup; }}
         server {{ listen 127.0.0.1:%%PORT%%; {conf} }}",
        first.addr(),
        other.addr()
    ))
    .start();
    assert_eq!(server.get("/").text(), "value");
    server.stop();
}

#[test]
fn names_of_fields_may_be_odd() {
    let reply = "Status: 200\r\nX_User: me\r\nX.Y: 1\r\nX@Y: 2\r\nX/Y: 3\r\n\r\nok";
    for (module, until) in [("scgi", "\0,"), ("uwsgi", "HTTP_HOST")] {
        let conf =
            format!("location / {{ {module}_pass u; add_header X-Who $upstream_http_x_user; }}");
        on_each(
            || vec![answer(until, reply)],
            &conf,
            |server, _| {
                let response = server.get("/");
                for (name, value) in
                    [("x_user", "me"), ("x.y", "1"), ("x@y", "2"), ("x/y", "3"), ("x-who", "me")]
                {
                    assert_eq!(response.header(name), Some(value), "{module} {name}");
                }
            },
        );
    }
}
