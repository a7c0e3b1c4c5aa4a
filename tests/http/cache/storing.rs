//! What is stored, and for whom.

use std::time::Duration;

use nowait_testkit::{Origin, wait};

use super::{Case, builder, cached, gets, on_each, over_each, scripts, with_origin};
use crate::stage::{ask, asks_nginx, on_each_driver};

const HOUR: &str = "200 OK\nCache-Control: max-age=3600\nX-A: 1\n\nbody";

#[test]
fn a_response_is_stored_and_served() {
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("/a", Some(HOUR), "200 OK\nX-Cache: MISS\nX-A: 1\nContent-Length: 4\n\nbody"),
            ("/a", None, "200 OK\nX-Cache: HIT\nX-A: 1\nContent-Length: 4\n\nbody"),
            (
                "/b",
                Some("404 Gone Away\nExpires: Thu, 31 Dec 2037 23:55:55 GMT\n\nno"),
                "404 Gone Away\nX-Cache: MISS\n\nno",
            ),
            ("/b", None, "404 Gone Away\nX-Cache: HIT\n\nno"),
            (
                "/empty",
                Some("200 OK\nCache-Control: max-age=60\n\n"),
                "200\nX-Cache: MISS\nContent-Length: 0\n\n",
            ),
            ("/empty", None, "200\nX-Cache: HIT\nContent-Length: 0\n\n"),
        ],
    );
}

#[test]
fn objects_are_kept_in_memory() {
    let content = "proxy_cache_path %%DIR%%/other keys_zone=other:1m memory=1m;
        %%SERVER%%
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache other; }
        location /status/ { status_api; }";
    let reply = "HTTP/1.1 200 OK\nCache-Control: max-age=3600\nConnection: close\n\nbody";
    with_origin(content, &[reply], |server, _| {
        assert_eq!(server.get("/a").header("X-Cache"), Some("MISS"));
        wait::until("the object to be in memory", Duration::from_secs(20), || {
            let response = server.get("/a");
            assert_eq!((response.header("X-Cache"), response.text()), (Some("HIT"), "body".into()));
            let state: serde_json::Value =
                serde_json::from_str(&server.get("/status/caches/other").text()).unwrap();
            (state["memory"]["objects"] == 1).then_some(())
        });
    });
}

/// The file is checked while the copy in memory is served; then the object is fetched again.
#[test]
fn objects_in_memory_go_with_their_files() {
    let content = "proxy_cache_path %%DIR%%/other keys_zone=other:1m memory=1m;
        %%SERVER%%
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache other; }
        location /status/ { status_api; }";
    let reply = |text: &str| {
        format!("HTTP/1.1 200 OK\nCache-Control: max-age=3600\nConnection: close\n\n{text}")
    };
    let (old, new) = (reply("old"), reply("new"));
    over_each(content, &[&old, &new], |server, transport| {
        let get = |target: &str| transport.get(server, target).text();
        wait::until("the object to be in memory", wait::PATIENCE, || {
            assert_eq!(get("/a"), "old");
            let state: serde_json::Value =
                serde_json::from_str(&get("/status/caches/other")).unwrap();
            (state["memory"]["objects"] == 1).then_some(())
        });
        let is_object =
            |path: &std::path::Path| path.file_name().is_some_and(|name| name.len() == 32);
        for entry in std::fs::read_dir(server.dir().join("other")).unwrap() {
            let path = entry.unwrap().path();
            if is_object(&path) {
                std::fs::remove_file(path).unwrap();
            }
        }
        wait::until("the removal to be noticed", wait::PATIENCE, || {
            (get("/a") == "new").then_some(())
        });
    });
}

#[test]
fn chunked_responses_get_their_length_in_the_cache() {
    let chunked = "200 OK\nCache-Control: max-age=60\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("/a", Some(chunked), "200\nX-Cache: MISS\nTransfer-Encoding: chunked\n\nabcde"),
            ("/a", None, "200\nX-Cache: HIT\nContent-Length: 5\n!Transfer-Encoding\n\nabcde"),
        ],
    );
}

#[test]
fn what_may_not_be_stored_is_not() {
    let once = |reply| ("/a", Some(reply), "200\nX-Cache: MISS\n\nbody");
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            once("200 OK\n\nbody"),
            once("200 OK\nCache-Control: no-store\n\nbody"),
            once("200 OK\nCache-Control: max-age=60\nSet-Cookie: a=b\n\nbody"),
            once("200 OK\nCache-Control: max-age=60\nVary: *\n\nbody"),
            once("200 OK\nExpires: 0\n\nbody"),
            once("200 OK\nX-Accel-Expires: 0\nCache-Control: max-age=60\n\nbody"),
            once("200 OK\nCache-Control: max-age=60\nX-Accel-Buffering: no\n\nbody"),
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
            ("/a", None, "200\nX-Cache: HIT\n\nbody"),
        ],
    );
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }",
        &[
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
        ],
    );
}

#[test]
fn proxy_cache_valid_fills_the_gap() {
    gets(
        "proxy_cache_valid 404 1h; proxy_cache_valid 1h;
         location / { proxy_pass http://%%ORIGIN%%; }
         location /any { proxy_pass http://%%ORIGIN%%; proxy_cache_valid 500 0; proxy_cache_valid any 1h; }",
        &[
            ("/a", Some("200 OK\n\na"), "200\nX-Cache: MISS\n\na"),
            ("/a", None, "200\nX-Cache: HIT\n\na"),
            ("/b", Some("404 Not Found\n\nb"), "404\nX-Cache: MISS\n\nb"),
            ("/b", None, "404\nX-Cache: HIT\n\nb"),
            ("/c", Some("403 Forbidden\n\nc"), "403\nX-Cache: MISS\n\nc"),
            ("/c", Some("403 Forbidden\n\nc"), "403\nX-Cache: MISS\n\nc"),
            ("/any/a", Some("500 Oops\n\na"), "500\nX-Cache: MISS\n\na"),
            ("/any/a", Some("501 Oops\n\nb"), "501\nX-Cache: MISS\n\nb"),
            ("/any/a", None, "501\nX-Cache: HIT\n\nb"),
        ],
    );
}

#[test]
fn ignored_headers_do_not_count() {
    gets(
        "proxy_cache_valid 1h; proxy_ignore_headers Cache-Control Expires X-Accel-Expires;
         proxy_ignore_headers Set-Cookie Vary;
         location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            (
                "/a",
                Some(
                    "200 OK\nCache-Control: no-store\nExpires: 0\nX-Accel-Expires: 0\nSet-Cookie: a=b\nVary: *\n\na",
                ),
                "200\nX-Cache: MISS\n\na",
            ),
            ("/a", None, "200\nX-Cache: HIT\nSet-Cookie: a=b\n\na"),
        ],
    );
}

#[test]
fn keys() {
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; add_header X-Key $upstream_cache_key; }
         location /uri { proxy_pass http://%%ORIGIN%%/other/; add_header X-Key $upstream_cache_key; }
         location /key { proxy_pass http://%%ORIGIN%%; proxy_cache_key $arg_k; add_header X-Key $upstream_cache_key; }",
        &[
            ("/a?b=%20", Some(HOUR), "200\nX-Key: http://127.0.0.1:*/a?b=%20\n\nbody"),
            ("/uri/x", Some(HOUR), "200\nX-Key: http://127.0.0.1:*/other//x\n\nbody"),
            ("/key/1?k=one", Some(HOUR), "200\nX-Key: one\n\nbody"),
            ("/key/2?k=one", None, "200\nX-Key: one\n\nbody"),
        ],
    );
}

#[test]
fn bypassed_and_not_stored() {
    gets(
        "location / {
             proxy_pass http://%%ORIGIN%%;
             proxy_cache_key $uri;
             proxy_cache_bypass $arg_bypass $arg_other;
             proxy_no_cache $arg_no;
         }",
        &[
            ("/a?no=1", Some("200 OK\nCache-Control: max-age=60\n\n1"), "200\nX-Cache: MISS\n\n1"),
            ("/a?no=0", Some("200 OK\nCache-Control: max-age=60\n\n2"), "200\nX-Cache: MISS\n\n2"),
            ("/a?bypass=0", None, "200\nX-Cache: HIT\n\n2"),
            // What bypasses the cache renews it.
            (
                "/a?other=x",
                Some("200 OK\nCache-Control: max-age=60\n\n3"),
                "200\nX-Cache: BYPASS\n\n3",
            ),
            ("/a", None, "200\nX-Cache: HIT\n\n3"),
            (
                "/a?bypass=1&no=1",
                Some("200 OK\nCache-Control: max-age=60\n\n4"),
                "200\nX-Cache: BYPASS\n\n4",
            ),
            ("/a", None, "200\nX-Cache: HIT\n\n3"),
        ],
    );
}

#[test]
fn a_key_has_to_be_used_often_enough() {
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_min_uses 3; }",
        &[
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
            ("/a", Some(HOUR), "200\nX-Cache: MISS\n\nbody"),
            ("/a", None, "200\nX-Cache: HIT\n\nbody"),
        ],
    );
}

#[test]
fn methods() {
    let post = "POST /a HTTP/1.1\nHost: localhost\nContent-Length: 1\n\nx";
    let head = "HEAD /a HTTP/1.1\nHost: localhost";
    let get = "GET /a HTTP/1.1\nHost: localhost";
    cached(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            Case { exchange: post, reply: Some(HOUR), expected: "200\n!X-Cache\n\nbody" },
            Case { exchange: post, reply: Some(HOUR), expected: "200\n!X-Cache\n\nbody" },
            // Asked for as GET, so that it can be stored.
            Case {
                exchange: head,
                reply: Some(HOUR),
                expected: "200\nX-Cache: MISS\nContent-Length: 4\n",
            },
            Case { exchange: get, reply: None, expected: "200\nX-Cache: HIT\n\nbody" },
            Case {
                exchange: head,
                reply: None,
                expected: "200\nX-Cache: HIT\nContent-Length: 4\n",
            },
        ],
    );
    cached(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_methods POST; proxy_cache_key $request_body; }",
        &[
            Case { exchange: post, reply: Some(HOUR), expected: "200\nX-Cache: MISS\n\nbody" },
            Case { exchange: post, reply: None, expected: "200\nX-Cache: HIT\n\nbody" },
        ],
    );
}

#[test]
fn head_stays_head_where_it_is_not_converted() {
    let content = "location / {
        proxy_pass http://%%ORIGIN%%; proxy_cache_convert_head off; proxy_cache_key $request_method$uri; }";
    with_origin(
        content,
        &["HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 7\nConnection: close\n\n"],
        |server, origin| {
            for status in ["MISS", "HIT"] {
                let mut client = server.client();
                client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
                let response = client.response_to_head();
                assert_eq!(response.header("X-Cache"), Some(status));
                assert_eq!(response.header("Content-Length"), Some("7"));
            }
            assert!(origin.received()[0].starts_with(b"HEAD /a "));
        },
    );
}

/// No matter what the key is: a response without content is none to GET.
#[test]
fn what_head_was_answered_is_not_served_to_get() {
    let content = "location / {
        proxy_pass http://%%ORIGIN%%; proxy_cache_convert_head off; proxy_cache_key $uri; }";
    let replies = [
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 4\nConnection: close\n\n",
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 4\nConnection: close\n\nbody",
    ];
    if asks_nginx() {
        return;
    }
    with_origin(content, &replies, |server, _| {
        let mut client = server.client();
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().header("X-Cache"), Some("MISS"));
        for status in ["MISS", "HIT"] {
            let response = ask(server, "/a", &[]);
            assert_eq!(response.header("X-Cache"), Some(status));
            assert_eq!(response.text(), "body");
        }
        let mut client = server.client();
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().header("X-Cache"), Some("HIT"));
    });
}

/// It has not looked what is stored.
#[test]
fn a_head_that_bypasses_the_cache_leaves_content_alone() {
    let content = "location / {
        proxy_pass http://%%ORIGIN%%; proxy_cache_convert_head off; proxy_cache_key $uri;
        proxy_cache_bypass $arg_fresh; }";
    let replies = [
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 4\nConnection: close\n\nbody",
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 4\nConnection: close\n\n",
    ];
    if asks_nginx() {
        return;
    }
    with_origin(content, &replies, |server, _| {
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("MISS"));
        let mut client = server.client();
        client.send("HEAD /a?fresh=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().header("X-Cache"), Some("BYPASS"));
        let response = ask(server, "/a", &[]);
        assert_eq!(response.header("X-Cache"), Some("HIT"));
        assert_eq!(response.text(), "body");
    });
}

#[test]
fn conditions_and_ranges_are_answered_from_the_whole() {
    let reply = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"a\"\nAccept-Ranges: bytes\nContent-Length: 5\nConnection: close\n\nabcde";
    on_each(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[reply, reply, reply],
        |backend, server, origin| {
            let matching = ["If-None-Match: \"a\""];
            assert_eq!(ask(server, "/a", &matching).status, 304);
            assert_eq!(ask(server, "/a", &matching).header("X-Cache"), Some("HIT"));
            assert_eq!(ask(server, "/a", &["If-Match: \"b\""]).status, 412);
            let part = ask(server, "/b", &["Range: bytes=1-2"]);
            assert_eq!((part.status, part.text()), (206, "bc".into()));
            assert_eq!(part.header("X-Cache"), Some("MISS"));
            let part = ask(server, "/b", &["Range: bytes=-2"]);
            assert_eq!((part.status, part.text()), (206, "de".into()));
            assert_eq!(part.header("Content-Range"), Some("bytes 3-4/5"));
            assert_eq!(part.header("X-Cache"), Some("HIT"));
            // Once its file has a name.
            wait::until("several ranges", wait::PATIENCE, || {
                let parts = ask(server, "/b", &["Range: bytes=0-0,4-4"]);
                let kind = parts.header("Content-Type").unwrap_or_default();
                kind.starts_with("multipart/byteranges").then_some(())
            });
            assert_eq!(ask(server, "/b", &["Range: bytes=9-"]).status, 416);
            let whole = ask(server, "/c", &["Range: bytes=1-2", "If-Range: \"b\""]);
            assert_eq!((whole.status, whole.text()), (200, "abcde".into()));
            for asked in origin.received() {
                for name in ["If-None-Match", "If-Match", "If-Range", "Range"] {
                    assert_eq!(backend.field(&asked, name), None, "{name}");
                }
            }
        },
    );
}

#[test]
fn far_ranges_go_to_the_origin() {
    let part = "HTTP/1.1 206 Partial Content\nCache-Control: max-age=60\nContent-Range: bytes 10-11/99\nContent-Length: 2\nConnection: close\n\nxy";
    let whole = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nAccept-Ranges: bytes\nContent-Length: 5\nConnection: close\n\nabcde";
    on_each(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_max_range_offset 10; }",
        &[part, whole],
        |backend, server, origin| {
            assert_eq!(ask(server, "/a", &["Range: bytes=10-11"]).text(), "xy");
            assert_eq!(ask(server, "/a", &["Range: bytes=1-2"]).text(), "bc");
            assert_eq!(ask(server, "/a", &["Range: bytes=1-2"]).header("X-Cache"), Some("HIT"));
            let asked = origin.received();
            assert_eq!(backend.field(&asked[0], "Range").as_deref(), Some("bytes=10-11"));
            assert_eq!(backend.field(&asked[1], "Range"), None);
        },
    );
}

#[test]
fn variants() {
    let varied = |body: &str| {
        format!("200 OK\nCache-Control: max-age=60\nVary: X-A, Accept-Encoding\n\n{body}")
    };
    let (one, two, three) = (varied("1"), varied("2"), varied("3"));
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("/a\nX-A: 1", Some(&one), "200\nX-Cache: MISS\n\n1"),
            ("/a\nX-A: 1", None, "200\nX-Cache: HIT\n\n1"),
            ("/a\nX-A: 2", Some(&two), "200\nX-Cache: MISS\n\n2"),
            ("/a\nX-A: 2", None, "200\nX-Cache: HIT\n\n2"),
            ("/a\nX-A: 1", None, "200\nX-Cache: HIT\n\n1"),
            ("/a\nAccept-Encoding: gzip, br", Some(&three), "200\nX-Cache: MISS\n\n3"),
            ("/a\nAccept-Encoding: gzip ,br", None, "200\nX-Cache: HIT\n\n3"),
            ("/a\nX-A: 1", None, "200\nX-Cache: HIT\n\n1"),
        ],
    );
}

#[test]
fn failures_of_the_origin_are_remembered_where_that_is_wanted() {
    let content = "proxy_cache_valid 502 1h;
        location / { proxy_pass http://%%ORIGIN%%; error_page 502 /down; }
        location = /down { return 200 down; }";
    with_origin(content, &["nonsense\n\n"], |server, _| {
        server.allow_log("upstream sent no valid HTTP");
        server.allow_log("upstream");
        assert_eq!(ask(server, "/a", &[]).text(), "down");
        // The origin is not asked again.
        assert_eq!(ask(server, "/a", &[]).text(), "down");
    });
}

#[test]
fn caches_by_variable() {
    let origin =
        Origin::start(scripts(&["HTTP/1.1 200 OK\nContent-Length: 1\nConnection: close\n\n1"; 3]));
    let origin_address = origin.addr().to_string();
    let second =
        Origin::start(scripts(&["HTTP/1.1 200 OK\nContent-Length: 1\nConnection: close\n\n2"; 3]));
    drop(second);
    let site = builder(
        "proxy_cache_path %%DIR%%/cache2 keys_zone=two:1m;
         %%SERVER%%
         location / { proxy_pass http://%%ORIGIN%%; proxy_cache $arg_c; proxy_cache_valid 1h; }",
        &origin_address,
    )
    .allow_log("cache \"three\" not found");
    let server = site.start();
    assert_eq!(ask(&server, "/?c=two", &[]).header("X-Cache"), Some("MISS"));
    assert_eq!(ask(&server, "/?c=two", &[]).header("X-Cache"), Some("HIT"));
    assert_eq!(ask(&server, "/?c=three", &[]).status, 500);
    assert_eq!(ask(&server, "/?c=", &[]).header("X-Cache"), None);
    assert_eq!(ask(&server, "/?c=off", &[]).header("X-Cache"), None);
    server.wait_log("cache \"three\" not found");
    server.stop();
    origin.finish();
}

#[test]
fn a_reload_keeps_what_is_stored() {
    let origin = Origin::start(scripts(
        &["HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 1\nConnection: close\n\n1";
            2],
    ));
    let address = origin.addr().to_string();
    let site = builder("location / { proxy_pass http://%%ORIGIN%%; }", &address);
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("MISS"));
        server.reload();
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("HIT"));
    });
    origin.finish();
}

/// What is kept of a response that was made of an object serves neither another location nor a
/// request whose variables have a say in it.
#[test]
fn every_location_makes_its_own_response_of_an_object() {
    let reply = "200 OK\nCache-Control: max-age=60\nX-A: 1\nX-B: 2\nSet-Cookie: c=1; Path=/\n\n1";
    let hit = |lines| format!("200\nX-Cache: HIT\n{lines}\n\n1");
    let (a, b) = (hit("X-A: 1\n!X-B"), hit("!X-A\nX-B: 2"));
    let (p, q) = (hit("Set-Cookie: c=1; Path=/p"), hit("Set-Cookie: c=1; Path=/q"));
    gets(
        "proxy_cache_key same;
         proxy_ignore_headers Set-Cookie;
         location /a { proxy_pass http://%%ORIGIN%%; proxy_hide_header X-B; proxy_hide_header Set-Cookie; }
         location /b { proxy_pass http://%%ORIGIN%%; proxy_hide_header X-A; proxy_hide_header Set-Cookie; }
         location /c { proxy_pass http://%%ORIGIN%%; proxy_cookie_path / $arg_to; }",
        &[
            ("/a", Some(reply), "200\nX-Cache: MISS\n!X-B\n\n1"),
            ("/a", None, &a),
            ("/a", None, &a),
            ("/b", None, &b),
            ("/b", None, &b),
            ("/a", None, &a),
            ("/c?to=/p", None, &p),
            ("/c?to=/q", None, &q),
            ("/c?to=/p", None, &p),
        ],
    );
}

/// What is kept of a response is not what one request made of it.
#[test]
fn a_head_and_a_get_share_what_is_in_memory() {
    cached(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            Case {
                exchange: "GET /a HTTP/1.1\nHost: a",
                reply: Some("200 OK\nCache-Control: max-age=60\nETag: \"x\"\n\nbody"),
                expected: "200\nX-Cache: MISS\n\nbody",
            },
            Case {
                exchange: "HEAD /a HTTP/1.1\nHost: a\nConnection: close",
                reply: None,
                expected: "200\nX-Cache: HIT\nContent-Length: 4\nETag: \"x\"",
            },
            Case {
                exchange: "GET /a HTTP/1.1\nHost: a\nIf-None-Match: \"x\"",
                reply: None,
                expected: "304\nX-Cache: HIT\n!Content-Length",
            },
            Case {
                exchange: "GET /a HTTP/1.1\nHost: a",
                reply: None,
                expected: "200\nX-Cache: HIT\nContent-Length: 4\n\nbody",
            },
        ],
    );
}
