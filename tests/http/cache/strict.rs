//! `proxy_cache_rfc9111 on;` and `proxy_cache_status`.

use std::sync::mpsc::channel;

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin};

use super::{Case, builder, cached, gets, now, with_origin};
use crate::proxy::wire;
use crate::stage::ask;

const STRICT: &str = "proxy_cache_rfc9111 on; proxy_cache_status edge;
    location / { proxy_pass http://%%ORIGIN%%; }";

#[test]
fn the_age_is_told() {
    gets(
        STRICT,
        &[
            (
                "/a",
                Some("200 OK\nCache-Control: max-age=1000\nAge: 100\n\n1"),
                "200\nX-Cache: MISS\nAge: 100\n\n1",
            ),
            ("/a", None, "200\nX-Cache: HIT\nAge: 10*\nCache-Status: edge; hit; ttl=*\n\n1"),
            // It was too old when it came.
            (
                "/b",
                Some("200 OK\nCache-Control: max-age=100\nAge: 100\nETag: \"a\"\n\n1"),
                "200\nX-Cache: MISS\n\n1",
            ),
            (
                "/b",
                Some("304 Not Modified\nCache-Control: max-age=100\n\n"),
                "200\nX-Cache: REVALIDATED\nCache-Status: edge; fwd=stale; fwd-status=304; ttl=*\n\n1",
            ),
            ("/b", None, "200\nX-Cache: HIT\n\n1"),
        ],
    );
}

#[test]
fn requests_say_what_they_accept() {
    gets(
        STRICT,
        &[
            (
                "/a",
                Some("200 OK\nCache-Control: max-age=1000\nAge: 100\n\n1"),
                "200\nX-Cache: MISS\nCache-Status: edge; fwd=uri-miss; stored\n\n1",
            ),
            ("/a\nCache-Control: max-age=200", None, "200\nX-Cache: HIT\n\n1"),
            (
                "/a\nCache-Control: max-age=50",
                Some("200 OK\nCache-Control: max-age=1000\n\n2"),
                "200\nX-Cache: EXPIRED\nCache-Status: edge; fwd=request; stored\n\n2",
            ),
            ("/a\nCache-Control: min-fresh=500", None, "200\nX-Cache: HIT\n\n2"),
            (
                "/a\nCache-Control: min-fresh=2000",
                Some("200 OK\nCache-Control: max-age=1000\n\n3"),
                "200\nX-Cache: EXPIRED\n\n3",
            ),
            (
                "/a\nCache-Control: no-cache",
                Some("200 OK\nCache-Control: max-age=1000\n\n4"),
                "200\nX-Cache: EXPIRED\n\n4",
            ),
            (
                "/a\nPragma: no-cache",
                Some("200 OK\nCache-Control: max-age=1000\n\n5"),
                "200\nX-Cache: EXPIRED\n\n5",
            ),
            ("/a\nCache-Control: only-if-cached", None, "200\nX-Cache: HIT\n\n5"),
            ("/none\nCache-Control: only-if-cached", None, "504\n"),
            (
                "/store\nCache-Control: no-store",
                Some("200 OK\nCache-Control: max-age=1000\n\n6"),
                "200\nX-Cache: MISS\n\n6",
            ),
            (
                "/store",
                Some("200 OK\nCache-Control: max-age=1000\nAge: 2000\nETag: \"a\"\n\n7"),
                "200\nX-Cache: MISS\n\n7",
            ),
            ("/store\nCache-Control: max-stale=1500", None, "200\nX-Cache: HIT\n\n7"),
        ],
    );
}

#[test]
fn responses_say_how_they_may_be_used() {
    let no_cache = "200 OK\nCache-Control: no-cache\nETag: \"a\"\n\n1";
    gets(
        STRICT,
        &[
            ("/a", Some(no_cache), "200\nX-Cache: MISS\n\n1"),
            (
                "/a",
                Some("304 Not Modified\nX-New: yes\n\n"),
                "200\nX-Cache: REVALIDATED\nX-New: yes\n\n1",
            ),
            ("/a", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\nX-New: yes\n\n1"),
            (
                "/fields",
                Some(
                    "200 OK\nCache-Control: max-age=60, private=\"X-A\", no-cache=\"X-B\"\nX-A: 1\nX-B: 2\nX-C: 3\n\n1",
                ),
                "200\nX-A: 1\nX-B: 2\n\n1",
            ),
            ("/fields", None, "200\nX-Cache: HIT\n!X-A\n!X-B\nX-C: 3\n\n1"),
            (
                "/cdn",
                Some("200 OK\nCache-Control: no-store\nCDN-Cache-Control: max-age=60\n\n1"),
                "200\nX-Cache: MISS\n\n1",
            ),
            ("/cdn", None, "200\nX-Cache: HIT\nCache-Control: no-store\n\n1"),
            (
                "/heuristic",
                Some("200 OK\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\n\n1"),
                "200\nX-Cache: MISS\n\n1",
            ),
            ("/heuristic", None, "200\nX-Cache: HIT\n\n1"),
            (
                "/auth\nAuthorization: x",
                Some("200 OK\nCache-Control: max-age=60\n\n1"),
                "200\nX-Cache: MISS\n\n1",
            ),
            (
                "/auth\nAuthorization: x",
                Some("200 OK\nCache-Control: max-age=60, public\n\n2"),
                "200\nX-Cache: MISS\n\n2",
            ),
            ("/auth", None, "200\nX-Cache: HIT\n\n2"),
            (
                "/cookie",
                Some("200 OK\nCache-Control: max-age=60, public\nSet-Cookie: a=b\n\n1"),
                "200\nX-Cache: MISS\n\n1",
            ),
            ("/cookie", None, "200\nX-Cache: HIT\nSet-Cookie: a=b\n\n1"),
        ],
    );
}

#[test]
fn what_must_be_revalidated_is_never_served_stale() {
    let past = now() - 100;
    let stale = |control: &str| {
        let date = String::from_utf8(date(past)).unwrap();
        format!("200 OK\nDate: {date}\nCache-Control: max-age=50, {control}\nETag: \"a\"\n\n1")
    };
    let (plain, must) =
        (stale("stale-if-error=1000"), stale("must-revalidate, stale-if-error=1000"));
    gets(
        STRICT,
        &[
            ("/a", Some(&plain), "200\nX-Cache: MISS\n\n1"),
            ("/a", Some("503 Down\n\nx"), "200\nX-Cache: STALE\n\n1"),
            ("/b", Some(&must), "200\nX-Cache: MISS\n\n1"),
            ("/b", Some("503 Down\n\nx"), "503\n\nx"),
        ],
    );
}

fn date(unix: u64) -> Vec<u8> {
    // 2001-09-09 01:46:40 and later: the tests need times of this day only.
    let (day, second) = (unix / 86_400, unix % 86_400);
    let mut year = 1970;
    let mut left = day;
    let leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    let names =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    format!(
        "{}, {:02} {} {year} {:02}:{:02}:{:02} GMT",
        week[(day % 7) as usize],
        left + 1,
        names[month],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
    .into_bytes()
}

#[test]
fn unsafe_methods_forget_what_they_changed() {
    let get = |target: &str| format!("GET {target} HTTP/1.1\nHost: localhost");
    let (a, b, c) = (get("/a"), get("/b"), get("/c"));
    let fresh = "200 OK\nCache-Control: max-age=60\n\n1";
    let post = "POST /a HTTP/1.1\nHost: localhost\nContent-Length: 0";
    let miss = "200\nX-Cache: MISS\n\n1";
    let hit = "200\nX-Cache: HIT\n\n1";
    cached(
        STRICT,
        &[
            Case { exchange: &a, reply: Some(fresh), expected: miss },
            Case { exchange: &b, reply: Some(fresh), expected: miss },
            Case { exchange: &c, reply: Some(fresh), expected: miss },
            Case { exchange: post, reply: Some("404 No\n\n"), expected: "404\n\n" },
            Case { exchange: &a, reply: None, expected: hit },
            Case {
                exchange: post,
                reply: Some("201 Created\nContent-Location: /b\nLocation: http://other/c\n\n"),
                expected: "201\n\n",
            },
            Case { exchange: &a, reply: Some(fresh), expected: miss },
            Case { exchange: &b, reply: Some(fresh), expected: miss },
            Case { exchange: &c, reply: None, expected: hit },
        ],
    );
}

#[test]
fn unsafe_requests_are_written_through() {
    let post = "POST /a HTTP/1.1\nHost: localhost\nContent-Length: 0";
    let fresh = "200 OK\nCache-Control: max-age=60\n\n1";
    cached(
        &format!("proxy_cache_methods POST; {STRICT}"),
        &[
            Case { exchange: post, reply: Some(fresh), expected: "200\n\n1" },
            Case { exchange: post, reply: Some(fresh), expected: "200\n\n1" },
        ],
    );
}

#[test]
fn an_entity_tag_counts_more_than_a_time() {
    let reply = "200 OK\nCache-Control: max-age=60\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\n\n1";
    let since = "If-Modified-Since: Wed, 01 Jan 2014 00:00:00 GMT";
    gets(
        STRICT,
        &[
            ("/a", Some(reply), "200\nX-Cache: MISS\n\n1"),
            (&format!("/a\n{since}\nIf-None-Match: \"a\""), None, "304\nX-Cache: HIT\n\n"),
            (&format!("/a\n{since}\nIf-None-Match: \"b\""), None, "200\nX-Cache: HIT\n\n1"),
            (&format!("/a\n{since}"), None, "200\nX-Cache: HIT\n\n1"),
        ],
    );
}

#[test]
fn a_time_need_not_be_that_of_the_modification() {
    let modified =
        "200 OK\nCache-Control: max-age=60\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\n\n1";
    // Without Last-Modified, Date stands in for it.
    let dated =
        "200 OK\nCache-Control: max-age=2000000000\nDate: Thu, 01 Jan 2015 00:00:00 GMT\n\n1";
    let later = "If-Modified-Since: Thu, 01 Jan 2015 00:00:01 GMT";
    let equal = "If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT";
    let earlier = "If-Modified-Since: Wed, 31 Dec 2014 23:59:59 GMT";
    for reply in [modified, dated] {
        gets(
            STRICT,
            &[
                ("/a", Some(reply), "200\nX-Cache: MISS\n\n1"),
                (&format!("/a\n{later}"), None, "304\nX-Cache: HIT\n\n"),
                (&format!("/a\n{equal}"), None, "304\nX-Cache: HIT\n\n"),
                (&format!("/a\n{earlier}"), None, "200\nX-Cache: HIT\n\n1"),
                ("/a\nIf-Modified-Since: yesterday", None, "200\nX-Cache: HIT\n\n1"),
            ],
        );
        gets(
            &format!("{STRICT} if_modified_since off;"),
            &[
                ("/a", Some(reply), "200\nX-Cache: MISS\n\n1"),
                (&format!("/a\n{equal}"), None, "200\nX-Cache: HIT\n\n1"),
            ],
        );
    }
    // nginx's rules: the times must be equal, and Date says nothing.
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("/a", Some(modified), "200\nX-Cache: MISS\n\n1"),
            (&format!("/a\n{later}"), None, "200\nX-Cache: HIT\n\n1"),
            ("/b", Some(dated), "200\nX-Cache: MISS\n\n1"),
            (&format!("/b\n{equal}"), None, "200\nX-Cache: HIT\n\n1"),
        ],
    );
}

/// Nothing marks it as one that may be stored.
#[test]
fn what_is_not_marked_is_not_stored() {
    let found = "302 Found\nETag: \"a\"\n\n1";
    let marked = "302 Found\nETag: \"a\"\nCache-Control: public\n\n1";
    gets(
        STRICT,
        &[
            ("/a", Some(found), "302\nX-Cache: MISS\nCache-Status: edge; fwd=uri-miss\n\n1"),
            (
                "/a",
                Some(marked),
                "302\nX-Cache: MISS\nCache-Status: edge; fwd=uri-miss; stored\n\n1",
            ),
        ],
    );
}

/// What has to be validated each time is not shared by those who have waited for it.
#[test]
fn requests_that_were_collapsed_are_forwarded_if_they_have_to_be() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let (go, halt) = channel();
        let reply = |text| {
            Step::reply(wire(&format!(
                "HTTP/1.1 200 OK\nCache-Control: no-cache\nETag: \"a\"\nConnection: close\nContent-Length: 3\n\n{text}"
            )))
        };
        let first = vec![Step::expect("\r\n\r\n"), Step::Wait(halt), reply("one")];
        let origin = Origin::start([first, vec![Step::expect("\r\n\r\n"), reply("two")]]);
        let content = format!("proxy_cache_lock on; proxy_cache_lock_age 1h; {STRICT}");
        let server = builder(&content, &origin.addr().to_string()).driver(driver).start();
        let mut waiting: Vec<_> = (0..2).map(|_| server.client()).collect();
        for client in &mut waiting {
            client.send_get("/a");
        }
        go.send(()).unwrap();
        let mut texts: Vec<_> = waiting.iter_mut().map(|client| client.response().text()).collect();
        texts.sort();
        assert_eq!(texts, ["one", "two"]);
        server.stop();
        origin.finish();
    }
}

#[test]
fn variants_are_compared_by_their_meaning() {
    let varied = "200 OK\nCache-Control: max-age=60\nVary: Accept-Encoding, X-A\n\n1";
    gets(
        STRICT,
        &[
            ("/a\nAccept-Encoding: gzip, br;q=0.5", Some(varied), "200\nX-Cache: MISS\n\n1"),
            ("/a\nAccept-Encoding: BR;q=0.5,gzip;q=1.0", None, "200\nX-Cache: HIT\n\n1"),
            (
                "/a\nAccept-Encoding: gzip",
                Some(varied),
                "200\nX-Cache: MISS\nCache-Status: edge; fwd=vary-miss; stored\n\n1",
            ),
        ],
    );
}

#[test]
fn a_status_of_the_origin_stays_in_front() {
    with_origin(
        "proxy_cache_status \"a b\"; location / { proxy_pass http://%%ORIGIN%%; proxy_cache_bypass $arg_b; }",
        &["HTTP/1.1 200 OK\nCache-Status: inner; hit\nContent-Length: 1\nConnection: close\n\n1"],
        |server, _| {
            let response = ask(server, "/?b=1", &[]);
            let all: Vec<_> = response.all("Cache-Status").collect();
            assert_eq!(all, ["inner; hit", "\"a b\"; fwd=bypass"]);
        },
    );
}

/// What is answered to HEAD renews the stored content that it is about, and does not take its place.
#[test]
fn an_answer_to_head_renews_what_is_stored() {
    let content = "proxy_cache_rfc9111 on; proxy_cache_status edge;
        location / {
            proxy_pass http://%%ORIGIN%%; proxy_cache_convert_head off; proxy_cache_key $uri;
        }";
    let old = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nAge: 60\nETag: \"a\"\nX-Is: old\n\
               Content-Length: 4\nConnection: close\n\nbody";
    let same = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"a\"\nX-Is: new\n\
                Content-Length: 4\nConnection: close\n\n";
    with_origin(content, &[old, same], |server, origin| {
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("MISS"));
        let mut client = server.client();
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response_to_head();
        assert_eq!(response.header("X-Cache"), Some("REVALIDATED"));
        assert_eq!(response.header("X-Is"), Some("new"));
        let status = response.header("Cache-Status").unwrap_or_default().to_owned();
        assert!(status.starts_with("edge; fwd=stale; fwd-status=200"), "{status}");
        let response = ask(server, "/a", &[]);
        assert_eq!(response.header("X-Cache"), Some("HIT"));
        assert_eq!(response.text(), "body");
        assert_eq!(response.header("X-Is"), Some("new"));
        assert!(origin.received()[1].starts_with(b"HEAD /a "));
    });
    // It has another one now: what is stored is of no use any more.
    let other = same.replace("\"a\"", "\"b\"");
    let newer = old.replace("\"a\"", "\"b\"").replace("Age: 60\n", "");
    with_origin(content, &[old, &other, &newer], |server, _| {
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("MISS"));
        let mut client = server.client();
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response_to_head();
        assert_eq!(response.header("X-Cache"), Some("EXPIRED"));
        let response = ask(server, "/a", &[]);
        assert_eq!(
            (response.header("X-Cache"), response.header("ETag")),
            (Some("MISS"), Some("\"b\""))
        );
    });
}

/// A proxy does not transform what is marked with `no-transform`; nginx does, and so do we without
/// `proxy_cache_rfc9111`.
#[test]
fn what_must_not_be_transformed_is_not_compressed() {
    for coding in ["gzip", "br", "zstd"] {
        let directives = "gzip on; gzip_min_length 1; gzip_proxied any; gzip_vary on;
            brotli on; brotli_min_length 1; zstd on; zstd_min_length 1;
            gzip_types text/plain; brotli_types text/plain; zstd_types text/plain;";
        let strict = format!(
            "proxy_cache_rfc9111 on; {directives} location / {{ proxy_pass http://%%ORIGIN%%; }}"
        );
        let usual = format!("{directives} location / {{ proxy_pass http://%%ORIGIN%%; }}");
        let text = "a text that could be shorter ".repeat(20);
        let marked = format!(
            "200 OK\nContent-Type: text/plain\nCache-Control: max-age=60, No-Transform\n\n{text}"
        );
        let plain = format!(
            "200 OK\nContent-Type: text/plain\nCache-Control: max-age=60, x=\"no-transform\"\n\n{text}"
        );
        for (content, reply, expected) in [
            (&strict, super::closing(&marked), None),
            (&strict, super::closing(&plain), Some(coding)),
            (&usual, super::closing(&marked), Some(coding)),
        ] {
            with_origin(content, &[&reply], |server, _| {
                for status in ["MISS", "HIT"] {
                    let response = ask(server, "/a", &[&format!("Accept-Encoding: {coding}")]);
                    assert_eq!(response.header("X-Cache"), Some(status), "{coding}");
                    assert_eq!(response.header("Content-Encoding"), expected, "{coding}, {status}");
                    assert_eq!(response.header("Vary").is_some(), expected.is_some(), "{coding}");
                }
            });
        }
    }
}

/// What an origin makes of it is the origin's concern.
#[test]
fn requests_with_content_have_nothing_to_do_with_the_cache() {
    let get = "GET /a HTTP/1.1\nHost: localhost";
    let known = "GET /a HTTP/1.1\nHost: localhost\nContent-Length: 1\n\nx";
    let empty = "GET /a HTTP/1.1\nHost: localhost\nContent-Length: 0";
    let fresh = "200 OK\nCache-Control: max-age=60\n\n1";
    cached(
        STRICT,
        &[
            Case { exchange: known, reply: Some(fresh), expected: "200\n!X-Cache\n\n1" },
            Case { exchange: get, reply: Some(fresh), expected: "200\nX-Cache: MISS\n\n1" },
            Case { exchange: known, reply: Some(fresh), expected: "200\n!X-Cache\n\n1" },
            Case { exchange: get, reply: None, expected: "200\nX-Cache: HIT\n\n1" },
            Case { exchange: empty, reply: None, expected: "200\nX-Cache: HIT\n\n1" },
        ],
    );
}

#[test]
fn nor_have_requests_with_chunked_content() {
    let fresh =
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 1\nConnection: close\n\n1";
    with_origin(STRICT, &[fresh; 2], |server, _| {
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("MISS"));
        let mut client = server.client();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("1\r\nx\r\n0\r\n\r\n");
        let response = client.response();
        assert_eq!((response.status, response.header("X-Cache")), (200, None));
        assert_eq!(ask(server, "/a", &[]).header("X-Cache"), Some("HIT"));
    });
}

#[test]
fn expires_is_read_as_the_standard_has_it() {
    let reply = |expires: &str| format!("200 OK\nETag: \"a\"\nExpires: {expires}\n\n1");
    let not_modified = "304 Not Modified\n\n";
    for good in [
        "Fri, 01 Jan 2038 00:00:00 GMT",
        "FRI, 01 JAN 2038 00:00:00 gmt",
        "Friday, 01-Jan-38 00:00:00 GMT",
        "Fri Jan  1 00:00:00 2038",
    ] {
        eprintln!("{good}");
        let cases = [
            ("/a", Some(&*reply(good)), "200\nX-Cache: MISS\n\n1"),
            ("/a", None, "200\nX-Cache: HIT\n\n1"),
        ];
        gets(STRICT, &cases);
    }
    for bad in [
        "Fri, 01 Jan 2038 00:00:00 AEST",
        "Fri, 01 Jan 2038 00:00:00 UTC",
        "Fri, 01 Jan 2038 00:00:00",
        "Fri, 01-Jan-2038 00:00:00 GMT",
        "Fri, 01 Jan 38 00:00:00 GMT",
        "0",
    ] {
        eprintln!("{bad}");
        let cases = [
            ("/a", Some(&*reply(bad)), "200\nX-Cache: MISS\n\n1"),
            ("/a", Some(not_modified), "200\nX-Cache: REVALIDATED\n\n1"),
        ];
        gets(STRICT, &cases);
    }
}

/// `Age` counts from it.
#[test]
fn the_date_is_the_origins() {
    let date = "Sun, 22 Nov 2026 04:00:00 GMT";
    let reply = format!("200 OK\nCache-Control: max-age=4000000000\nDate: {date}\n\n1");
    let dated = |status: &str| format!("200\nX-Cache: {status}\nDate: {date}\n\n1");
    let (miss, hit) = (dated("MISS"), dated("HIT"));
    let renewed =
        "304 Not Modified\nCache-Control: max-age=60\nDate: Sun, 22 Nov 2026 05:00:00 GMT\n\n";
    gets(
        STRICT,
        &[
            ("/a", Some(&reply), &miss),
            ("/a", None, &hit),
            ("/a", None, &hit),
            ("/b", Some("200 OK\nETag: \"a\"\n\n1"), "200\nX-Cache: MISS\n\n1"),
            (
                "/b",
                Some(renewed),
                "200\nX-Cache: REVALIDATED\nDate: Sun, 22 Nov 2026 05:00:00 GMT\n\n1",
            ),
        ],
    );
    // The time when it came, where the origin says none.
    with_origin(
        STRICT,
        &["HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 1\nConnection: close\n\n1"],
        |server, _| {
            let before = now();
            let miss = ask(server, "/a", &[]);
            let after = now();
            let hit = ask(server, "/a", &[]);
            assert_eq!((miss.status, hit.header("X-Cache")), (200, Some("HIT")));
            let told = hit.header("Date").unwrap_or_default();
            let came = (before - 1..=after).any(|time| date_text(time) == told);
            assert!(came, "{told}");
        },
    );
}

fn date_text(unix: u64) -> String {
    String::from_utf8(date(unix)).expect("ASCII")
}

#[test]
fn a_targeted_lifetime_is_an_integer() {
    let quoted = "200 OK\nETag: \"a\"\nCDN-Cache-Control: max-age=\"60\"\n\n1";
    gets(
        STRICT,
        &[
            ("/a", Some(quoted), "200\nX-Cache: MISS\n\n1"),
            ("/a", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\n\n1"),
        ],
    );
}

#[test]
fn white_space_makes_no_variant() {
    let varied = "200 OK\nCache-Control: max-age=60\nVary: X-A\n\n1";
    gets(
        STRICT,
        &[
            ("/a\nX-A: a, b;c", Some(varied), "200\nX-Cache: MISS\n\n1"),
            ("/a\nX-A:  a  ,b ; c", None, "200\nX-Cache: HIT\n\n1"),
            ("/a\nX-A: a b", Some(varied), "200\nX-Cache: MISS\n\n1"),
        ],
    );
}
