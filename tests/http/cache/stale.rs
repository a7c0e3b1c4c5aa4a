//! Responses that are too old: revalidated, updated, or served all the same.

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, Server, wait};

use super::{Backend, get, gets, now, on_each, wait_objects, with_origin};
use crate::stage::ask;

/// Stored, and too old at once.
const OLD: &str =
    "200 OK\nX-Accel-Expires: @1\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\n\nold";

#[test]
fn what_is_too_old_is_fetched_again() {
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        &[
            ("/a", Some(OLD), "200\nX-Cache: MISS\n\nold"),
            (
                "/a",
                Some("200 OK\nCache-Control: max-age=60\n\nnew"),
                "200\nX-Cache: EXPIRED\n\nnew",
            ),
            ("/a", None, "200\nX-Cache: HIT\n\nnew"),
        ],
    );
}

#[test]
fn revalidation() {
    let replies = [
        "HTTP/1.1 200 OK\nX-Accel-Expires: @1\nETag: \"a\"\nLast-Modified: Thu, 01 Jan 2015 00:00:00 GMT\nContent-Length: 3\nConnection: close\n\nold",
        "HTTP/1.1 304 Not Modified\nCache-Control: max-age=60\nConnection: close\n\n",
    ];
    on_each(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_revalidate on; }",
        &replies,
        |backend, server, origin| {
            assert_eq!(get(server, "/a").header("X-Cache"), Some("MISS"));
            let response = get(server, "/a");
            assert_eq!((response.status, response.text()), (200, "old".into()));
            assert_eq!(response.header("X-Cache"), Some("REVALIDATED"));
            assert_eq!(get(server, "/a").header("X-Cache"), Some("HIT"));
            let field = |name| backend.field(&origin.received()[1], name);
            assert_eq!(field("If-None-Match").as_deref(), Some("\"a\""));
            let modified = Some("Thu, 01 Jan 2015 00:00:00 GMT");
            assert_eq!(field("If-Modified-Since").as_deref(), modified);
        },
    );
}

#[test]
fn a_304_without_times_leaves_it_to_the_configuration() {
    gets(
        "proxy_cache_valid 200 1h;
         location / { proxy_pass http://%%ORIGIN%%; proxy_cache_revalidate on; proxy_ignore_headers X-Accel-Expires; }
         location /old { proxy_pass http://%%ORIGIN%%; proxy_cache_revalidate on; }",
        &[
            ("/old", Some(OLD), "200\nX-Cache: MISS\n\nold"),
            // What was stored says when it ended, and does so again.
            ("/old", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\n\nold"),
            ("/old", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\n\nold"),
            ("/old", Some("304 Not Modified\nX-Accel-Expires: 60\n\n"), "200\nX-Cache: REVALIDATED\n\nold"),
            ("/old", None, "200\nX-Cache: HIT\n\nold"),
        ],
    );
}

#[test]
fn stale_after_failures() {
    gets(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_use_stale http_500 http_404; }",
        &[
            ("/a", Some(OLD), "200\nX-Cache: MISS\n\nold"),
            ("/a", Some("500 Oops\n\nx"), "200\nX-Cache: STALE\n\nold"),
            ("/a", Some("404 Oops\n\nx"), "200\nX-Cache: STALE\n\nold"),
            ("/a", Some("503 Oops\n\nx"), "503\nX-Cache: EXPIRED\n\nx"),
            ("/a", Some("200 OK\nX-Accel-Expires: 60\n\nnew"), "200\nX-Cache: EXPIRED\n\nnew"),
            ("/a", None, "200\nX-Cache: HIT\n\nnew"),
        ],
    );
}

#[test]
fn stale_when_the_origin_is_gone() {
    let stale = format!("X-Accel-Expires: @{}\nCache-Control: stale-if-error=1000", now() - 5);
    let stale = format!("HTTP/1.1 200 OK\n{stale}\nContent-Length: 3\nConnection: close\n\nold");
    let old = "HTTP/1.1 200 OK\nX-Accel-Expires: @1\nContent-Length: 3\nConnection: close\n\nold";
    with_origin(
        "location / { proxy_pass http://%%ORIGIN%%; }
         location /stale { proxy_pass http://%%ORIGIN%%; proxy_cache_use_stale error; }",
        &[old, old, &stale],
        |server, _| {
            server.allow_log("upstream");
            for target in ["/a", "/stale", "/error"] {
                assert_eq!(get(server, target).header("X-Cache"), Some("MISS"));
            }
            // The origin closes what comes now.
            assert_eq!(get(server, "/a").status, 502);
            assert_eq!(get(server, "/stale").header("X-Cache"), Some("STALE"));
            assert_eq!(get(server, "/error").header("X-Cache"), Some("STALE"));
        },
    );
}

/// A response that is too old, but may be served while it is updated.
fn updatable() -> String {
    let past = now() - 5;
    format!(
        "HTTP/1.1 200 OK\nX-Accel-Expires: @{past}\nCache-Control: stale-while-revalidate=1000\n\
         Content-Length: 3\nConnection: close\n\nold"
    )
}

const NEW: &str =
    "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 3\nConnection: close\n\nnew";

/// Asks until what was updated in the background is served.
#[track_caller]
fn becomes_new(server: &Server) {
    wait::until("the update", wait::PATIENCE, || {
        let response = get(server, "/a");
        let status = response.header("X-Cache").unwrap_or_default().to_owned();
        match &*response.text() {
            "new" => {
                assert_eq!(status, "HIT");
                Some(())
            }
            _ => {
                assert!(status == "UPDATING" || status == "STALE", "{status}");
                None
            }
        }
    });
}

#[test]
fn updates_in_the_background() {
    with_origin(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_background_update on; }",
        &[&updatable(), NEW],
        |server, _| {
            assert_eq!(get(server, "/a").header("X-Cache"), Some("MISS"));
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some("STALE"));
            assert_eq!(response.text(), "old");
            becomes_new(server);
        },
    );
}

#[test]
fn what_is_updated_has_the_same_key() {
    on_each(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_background_update on; }",
        &[&updatable(), NEW],
        |backend, server, origin| {
            assert_eq!(get(server, "/%61").header("X-Cache"), Some("MISS"));
            assert_eq!(get(server, "/%61").header("X-Cache"), Some("STALE"));
            wait::until("the update", wait::PATIENCE, || {
                (get(server, "/%61").text() == "new").then_some(())
            });
            assert_eq!(backend.target(&origin.received()[1]), "/%61");
        },
    );
}

#[test]
fn others_are_served_while_one_updates() {
    let content = "location = /objects { status_api; }
                   location / { proxy_pass http://%%ORIGIN%%; }";
    for backend in Backend::of(content) {
        let (go, wait) = std::sync::mpsc::channel();
        let origin = Origin::start([
            backend.scripts(&[&updatable()]).remove(0),
            vec![backend.asked(), Step::Wait(wait), backend.reply(NEW)],
        ]);
        let server = backend.builder(content, &origin.addr().to_string()).workers(2).start();
        assert_eq!(get(&server, "/a").header("X-Cache"), Some("MISS"));
        wait_objects(&server, 1);
        let mut updating = server.client();
        updating.send_get("/a");
        wait::until("the origin is asked", wait::PATIENCE, || {
            (origin.received().len() == 2).then_some(())
        });
        for _ in 0..3 {
            let response = get(&server, "/a");
            assert_eq!(response.header("X-Cache"), Some("UPDATING"));
            assert_eq!(response.text(), "old");
        }
        go.send(()).unwrap();
        let response = updating.response();
        assert_eq!(response.header("X-Cache"), Some("EXPIRED"));
        assert_eq!(response.text(), "new");
        // Stored a moment later.
        wait::until("a hit", wait::PATIENCE, || {
            (ask(&server, "/a", &[]).header("X-Cache") == Some("HIT")).then_some(())
        });
        server.stop();
        origin.finish();
    }
}
