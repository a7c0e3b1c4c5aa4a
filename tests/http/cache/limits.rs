//! Limits of what the origin is asked for: `limit_req ... fetches`, `limit_conn ... fetches`.

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, wait};

use super::{Case, builder, cached, get, with_origin};
use crate::proxy::wire;
use crate::stage::{ask, on_each_driver, pattern, site, wait_file};

const LONG: &str = "200 OK\nX-Accel-Expires: 60\n\nlong";
const OLD: &str = "200 OK\nX-Accel-Expires: @1\nETag: \"e\"\n\nold";

#[track_caller]
fn gets(content: &str, cases: &[(&str, Option<&str>, &str)]) {
    let exchanges: Vec<String> =
        cases.iter().map(|(target, ..)| format!("GET {target} HTTP/1.1\nHost: a")).collect();
    let cases: Vec<Case<'_>> = cases
        .iter()
        .zip(&exchanges)
        .map(|((_, reply, expected), exchange)| Case { exchange, reply: *reply, expected })
        .collect();
    cached(&format!("error_log %%DIR%%/limits.log; {content}"), &cases);
}

#[test]
fn what_the_cache_answers_costs_nothing() {
    gets(
        "limit_req_zone $uri zone=clients:32k rate=1r/m;
         limit_req_zone $server_port zone=origin:32k rate=1r/m;
         add_header X-Limit $limit_req_status always;
         limit_req zone=clients burst=9 nodelay;
         %%SERVER%%
         location / { proxy_pass http://%%ORIGIN%%; limit_req zone=origin burst=1 nodelay fetches; }",
        &[
            ("/a", Some(LONG), "200\nX-Cache: MISS\nX-Limit: PASSED\n\nlong"),
            ("/a", None, "200\nX-Cache: HIT\nX-Limit: PASSED\n\nlong"),
            ("/a", None, "200\nX-Cache: HIT\nX-Limit: PASSED\n\nlong"),
            ("/a", None, "200\nX-Cache: HIT\nX-Limit: PASSED\n\nlong"),
            ("/b", Some(LONG), "200\nX-Cache: MISS\nX-Limit: PASSED\n\nlong"),
            ("/c", None, "503\nX-Cache: MISS\nX-Limit: REJECTED"),
            ("/b", None, "200\nX-Cache: HIT\nX-Limit: PASSED\n\nlong"),
        ],
    );
}

#[test]
fn a_limit_of_clients_still_counts_all() {
    gets(
        "limit_req_zone $uri zone=clients:32k rate=1r/m;
         limit_req_zone $server_port zone=origin:32k rate=1r/m;
         limit_req zone=clients burst=1 nodelay;
         %%SERVER%%
         location / {
             proxy_pass http://%%ORIGIN%%;
             limit_req zone=origin fetches;
             limit_req_status 429;
         }",
        &[
            ("/a", Some(LONG), "200\nX-Cache: MISS\n\nlong"),
            ("/a", None, "200\nX-Cache: HIT\n\nlong"),
            ("/a", None, "429"),
        ],
    );
}

#[test]
fn revalidation_counts_and_what_is_stale_helps_out() {
    gets(
        "limit_req_zone $uri zone=origin:32k rate=1r/m;
         %%SERVER%%
         proxy_cache_revalidate on;
         limit_req zone=origin burst=1 nodelay fetches;
         location / { proxy_pass http://%%ORIGIN%%; }
         location /stale { proxy_pass http://%%ORIGIN%%; proxy_cache_use_stale http_503; }",
        &[
            ("/stale", Some(OLD), "200\nX-Cache: MISS\n\nold"),
            ("/stale", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\n\nold"),
            ("/stale", None, "200\nX-Cache: STALE\n\nold"),
            ("/stale", None, "200\nX-Cache: STALE\n\nold"),
            ("/a", Some(OLD), "200\nX-Cache: MISS\n\nold"),
            ("/a", Some("304 Not Modified\n\n"), "200\nX-Cache: REVALIDATED\n\nold"),
            ("/a", None, "503\nX-Cache: EXPIRED"),
        ],
    );
}

#[test]
fn a_trial_run_refuses_nothing() {
    gets(
        "limit_req_zone $server_port zone=origin:32k rate=1r/m;
         limit_conn_zone $server_port zone=connections:32k;
         add_header X-Limit $limit_req_status;
         add_header X-Conn $limit_conn_status;
         %%SERVER%%
         location / {
             proxy_pass http://%%ORIGIN%%;
             limit_req zone=origin fetches;
             limit_req_dry_run on;
             limit_conn connections 1 fetches;
         }",
        &[
            ("/a", Some(LONG), "200\nX-Limit: PASSED\nX-Conn: PASSED\n\nlong"),
            ("/b", Some(LONG), "200\nX-Limit: REJECTED_DRY_RUN\nX-Conn: PASSED\n\nlong"),
            ("/b", None, "200\n!X-Limit\n!X-Conn\n\nlong"),
        ],
    );
}

#[test]
fn without_a_cache_every_request_counts() {
    gets(
        "limit_req_zone $server_port zone=origin:32k rate=1r/m;
         %%SERVER%%
         location / { proxy_cache off; proxy_pass http://%%ORIGIN%%; limit_req zone=origin fetches; }
         location /own { limit_req zone=origin fetches; return 200 own; }",
        &[
            ("/own", None, "200"),
            ("/a", Some(LONG), "200"),
            ("/a", None, "503"),
            ("/own", None, "200"),
        ],
    );
}

#[test]
fn a_refused_update_leaves_what_is_stored() {
    with_origin(
        "limit_req_zone $uri zone=origin:32k rate=1r/m;
         error_log %%DIR%%/limits.log;
         %%SERVER%%
         location / {
             proxy_pass http://%%ORIGIN%%;
             proxy_cache_use_stale updating;
             proxy_cache_background_update on;
             limit_req zone=origin fetches;
         }",
        &["HTTP/1.1 200 OK\nX-Accel-Expires: @1\nContent-Length: 3\nConnection: close\n\nold"],
        |server, _| {
            assert_eq!(get(server, "/a").header("X-Cache"), Some("MISS"));
            for _ in 0..3 {
                let response = get(server, "/a");
                assert_eq!((response.status, response.text()), (200, "old".into()));
            }
            wait_file(server, "limits.log", "limiting requests, excess: ");
            assert_eq!(get(server, "/a").text(), "old");
        },
    );
}

#[test]
fn each_part_counts() {
    let origin = site(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         limit_req_zone $uri zone=origin:32k rate=1r/m;
         error_log %%DIR%%/limits.log info;
         server {
             listen 127.0.0.1:%%PORT%%;
             slice 100;
             location / {
                 proxy_pass http://127.0.0.1:%%PORT_1%%;
                 proxy_set_header Range $slice_range;
                 proxy_cache one;
                 proxy_cache_key $uri$slice_range;
                 proxy_cache_valid 200 206 1h;
                 limit_req zone=origin burst=2 nodelay fetches;
             }
         }
         server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; }",
    )
    .file("html/three", pattern(300))
    .file("html/four", pattern(400));
    on_each_driver(&origin, |server| {
        let three = String::from_utf8(pattern(300)).unwrap();
        assert_eq!(ask(server, "/three", &[]).text(), three);
        assert_eq!(ask(server, "/three", &[]).text(), three);
        let mut client = server.client();
        client.send("GET /four HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let rest = client.rest();
        let head = rest.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
        assert_eq!(rest.len() - head - 4, 300, "the fourth part is refused");
        wait_file(server, "limits.log", "limiting requests, excess: ");
    });
}

/// An origin that answers this when the test says so, then the next ones at once.
fn holding(reply: &str, next: &[&str]) -> (Origin, std::sync::mpsc::Sender<()>) {
    let (go, halt) = std::sync::mpsc::channel();
    let mut scripts =
        vec![vec![Step::expect("\r\n\r\n"), Step::Wait(halt), Step::reply(wire(reply))]];
    scripts.extend(super::scripts(next));
    (Origin::start(scripts), go)
}

fn asked(origin: &Origin, times: usize) {
    wait::until("the origin is asked", wait::PATIENCE, || {
        (origin.received().len() == times).then_some(())
    });
}

const WHOLE: &str =
    "HTTP/1.1 200 OK\nX-Accel-Expires: 60\nContent-Length: 4\nConnection: close\n\nlong";

#[test]
fn who_waits_for_another_fetch_does_not_count() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let (origin, go) = holding(WHOLE, &[]);
        let server = builder(
            "limit_req_zone $server_port zone=origin:32k rate=1r/m;
             limit_conn_zone $server_port zone=connections:32k;
             %%SERVER%%
             location / {
                 proxy_pass http://%%ORIGIN%%;
                 proxy_cache_lock on;
                 limit_req zone=origin fetches;
                 limit_conn connections 1 fetches;
             }",
            &origin.addr().to_string(),
        );
        let server = server.driver(driver).workers(2).start();
        let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
        clients[0].send_get("/a");
        asked(&origin, 1);
        for client in &mut clients[1..] {
            client.send_get("/a");
        }
        go.send(()).unwrap();
        for client in &mut clients {
            let response = client.response();
            assert_eq!((response.status, response.text()), (200, "long".into()));
        }
        server.stop();
        assert_eq!(origin.received().len(), 1);
        origin.finish();
    }
}

#[test]
fn so_many_fetches_at_once() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let (origin, go) = holding(WHOLE, &[WHOLE]);
        let server = builder(
            "limit_conn_zone $server_port zone=origin:32k;
             %%SERVER%%
             location / {
                 proxy_pass http://%%ORIGIN%%;
                 limit_conn origin 1 fetches;
                 limit_conn_status 429;
             }
             location /own { limit_conn origin 1 fetches; return 200 own; }",
            &origin.addr().to_string(),
        );
        let server = server.driver(driver).allow_log("limiting connections").start();
        let mut first = server.client();
        first.send_get("/a");
        asked(&origin, 1);
        assert_eq!(get(&server, "/b").status, 429);
        assert_eq!(get(&server, "/own").text(), "own");
        server.wait_log("limiting connections by zone \"origin\"");
        go.send(()).unwrap();
        assert_eq!(first.response().text(), "long");
        // It counts until its response was received, and no longer.
        assert_eq!(get(&server, "/b").text(), "long");
        assert_eq!(get(&server, "/a").header("X-Cache"), Some("HIT"));
        server.stop();
        origin.finish();
    }
}

#[test]
fn a_fetch_waits_for_its_turn() {
    gets(
        "limit_req_zone $server_port zone=origin:32k rate=10r/s;
         add_header X-Limit $limit_req_status;
         %%SERVER%%
         location / { proxy_pass http://%%ORIGIN%%; limit_req zone=origin burst=5 fetches; }",
        &[
            ("/a", Some(LONG), "200\nX-Limit: PASSED"),
            ("/b", Some(LONG), "200\n\nlong"),
            ("/c", Some(LONG), "200\n\nlong"),
        ],
    );
}

#[test]
fn mistakes_are_told() {
    let conf = |line: &str| {
        site(&format!(
            "limit_conn_zone $uri zone=c:32k; limit_req_zone $uri zone=r:32k rate=1r/s;
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ {line} }} }}"
        ))
    };
    for (line, reason) in [
        ("limit_conn c 1 fetch;", "invalid parameter \"fetch\""),
        (
            "limit_conn c 1 fetches; limit_conn c 2 fetches;",
            "\"limit_conn\" directive is duplicate",
        ),
        (
            "limit_req zone=r fetches; limit_req fetches zone=r;",
            "\"limit_req\" directive is duplicate",
        ),
        ("limit_req fetches;", "\"limit_req\" must have \"zone\" parameter"),
    ] {
        crate::stage::refused(&conf(line), reason);
    }
    // Each kind for itself.
    let both =
        conf("limit_req zone=r; limit_req zone=r fetches; limit_conn c 1; limit_conn c 1 fetches;");
    both.start().stop();
}
