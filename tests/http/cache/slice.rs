//! `slice`: large responses in parts.

use nowait_testkit::{Response, Server, ServerBuilder, wait};

use crate::stage::{pattern, wait_file};
use crate::transport::{PendingResponse, TestRequest, Transport, on_each, site};

const BYTES: usize = 1000;

fn sliced() -> ServerBuilder {
    site(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         log_format asked '$http_range $status';
         server {
             %%LISTEN%%
             add_header X-Cache $upstream_cache_status;
             proxy_set_header Range $slice_range;
             slice 100;
             location / { proxy_pass http://127.0.0.1:%%PORT_2%%; }
             location /cache/ {
                 proxy_pass http://127.0.0.1:%%PORT_2%%/;
                 proxy_cache one;
                 proxy_cache_key $uri$is_args$args$slice_range;
                 proxy_cache_valid 200 206 1h;
                 proxy_cache_bypass $http_x_new;
                 proxy_cache_lock on;
                 proxy_cache_use_stale updating;
                 proxy_cache_background_update on;
                 proxy_cache_purge $purges;
                 proxy_cache_purge_soft 1;
             }
         }
         map $request_method $purges { PURGE 1; default 0; }
         server {
             listen 127.0.0.1:%%PORT_2%%;
             root %%DIR%%/html;
             access_log %%DIR%%/origin.log asked;
             location /whole { max_ranges 0; }
             location /dated { etag off; }
         }",
    )
    .file("html/f", pattern(BYTES))
    .file("html/whole", "all of it")
    .file("html/short", "short")
}

fn text(from: usize, to: usize) -> String {
    String::from_utf8(pattern(BYTES)[from..to].to_vec()).unwrap()
}

/// Sends a request with these lines.
#[track_caller]
fn send(
    server: &Server,
    transport: Transport,
    method: &str,
    target: &str,
    lines: &[&str],
) -> PendingResponse {
    let lines = lines.iter().map(|line| line.split_once(": ").expect("a line"));
    let fields: Vec<_> = lines.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let request = TestRequest { method, target, fields: &fields, ..TestRequest::default() };
    transport.send(server, &request)
}

/// Asks for a target.
#[track_caller]
fn ask(server: &Server, transport: Transport, target: &str, lines: &[&str]) -> Response {
    send(server, transport, "GET", target, lines).response()
}

#[test]
fn whole_responses_are_put_together() {
    on_each(&Transport::ALL, &sliced(), |server, transport| {
        let response = ask(server, transport, "/f", &[]);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("Content-Length"), Some("1000"));
        assert_eq!(response.header("Content-Range"), None);
        assert_eq!(response.text(), text(0, BYTES));
        let log = wait_file(server, "origin.log", "bytes=900-999 206");
        assert!(log.starts_with("bytes=0-99 206\nbytes=100-199 206\n"), "{log}");
        assert_eq!(ask(server, transport, "/short", &[]).text(), "short");
        assert_eq!(ask(server, transport, "/none", &[]).status, 404);
        // An origin that knows no ranges sends all.
        let whole = ask(server, transport, "/whole", &[]);
        assert_eq!((whole.status, whole.text()), (200, "all of it".into()));
    });
}

#[test]
fn only_the_parts_of_a_range_are_fetched() {
    on_each(&Transport::ALL, &sliced(), |server, transport| {
        let part = ask(server, transport, "/cache/f", &["Range: bytes=250-349"]);
        assert_eq!(part.status, 206);
        assert_eq!(part.header("Content-Range"), Some("bytes 250-349/1000"));
        assert_eq!(part.header("X-Cache"), Some("MISS"));
        assert_eq!(part.text(), text(250, 350));
        wait_file(server, "origin.log", "bytes=300-399 206");
        let part = ask(server, transport, "/cache/f", &["Range: bytes=200-399"]);
        assert_eq!(part.header("X-Cache"), Some("HIT"));
        assert_eq!(part.text(), text(200, 400));
        // The first part tells how long it is; those between are skipped.
        let part = ask(server, transport, "/cache/f", &["Range: bytes=-10"]);
        assert_eq!(part.text(), text(990, 1000));
        let log = wait_file(server, "origin.log", "bytes=900-999 206");
        assert_eq!(log.lines().count(), 4, "{log}");
        let all = ask(server, transport, "/cache/f", &[]);
        assert_eq!(all.text(), text(0, BYTES));
        let log = wait_file(server, "origin.log", "bytes=800-899 206");
        assert_eq!(log.lines().count(), 10, "{log}");
        // The origin says that there is nothing.
        assert_eq!(ask(server, transport, "/cache/f", &["Range: bytes=1000-"]).status, 416);
        wait_file(server, "origin.log", "bytes=1000-1099 416");
        assert_eq!(ask(server, transport, "/cache/f", &[]).text(), text(0, BYTES));
        assert_eq!(server.read("origin.log").lines().count(), 11);
    });
}

/// The client that notices the change has got a part of the old file; the next one gets the new file.
#[test]
fn a_file_that_changes_meanwhile_is_noticed() {
    let site = sliced().allow_log("etag mismatch in slice response");
    on_each(&Transport::ALL, &site, |server, transport| {
        assert_eq!(ask(server, transport, "/cache/f", &["Range: bytes=0-9"]).text(), text(0, 10));
        server.write("html/f", changed(BYTES + 1));
        is_cut(server, transport, "/cache/f");
        server.wait_log("etag mismatch in slice response");
        let whole = ask(server, transport, "/cache/f", &[]);
        assert_eq!(whole.header("X-Cache"), Some("MISS"));
        assert!(whole.body == changed(BYTES + 1), "the new file");
        assert!(ask(server, transport, "/cache/f", &[]).body == changed(BYTES + 1), "the new file");
    });
}

/// Parts of the old file behind the first new one are replaced when they are met.
#[test]
fn parts_of_an_old_file_are_replaced_by_those_of_the_new_one() {
    let site = sliced().allow_log("etag mismatch in slice response");
    on_each(&Transport::ALL, &site, |server, transport| {
        assert!(ask(server, transport, "/cache/f", &[]).body == pattern(BYTES), "the old file");
        server.write("html/f", changed(BYTES + 1));
        let new = ask(server, transport, "/cache/f", &["Range: bytes=500-509", "X-New: 1"]);
        assert_eq!(new.header("Content-Range"), Some("bytes 500-509/1001"));
        assert!(new.body == changed(BYTES + 1)[500..510], "a part of the new file");
        // All parts of this range are old ones.
        let old = ask(server, transport, "/cache/f", &["Range: bytes=100-299"]);
        assert!(old.body == pattern(BYTES)[100..300], "the old file");
        is_cut(server, transport, "/cache/f");
        assert!(ask(server, transport, "/cache/f", &[]).body == changed(BYTES + 1), "the new file");
        let last = ask(server, transport, "/cache/f", &["Range: bytes=900-999"]);
        assert_eq!(last.header("X-Cache"), Some("HIT"), "the old part was replaced");
        assert!(last.body == changed(BYTES + 1)[900..1000], "the new file");
    });
}

/// Without `ETag`, the times tell old parts from new ones.
#[test]
fn a_changed_file_without_tag_is_noticed_by_its_time() {
    let site = sliced()
        .file("html/dated", pattern(BYTES))
        .allow_log("last modification time mismatch in slice response");
    on_each(&Transport::ALL, &site, |server, transport| {
        assert_eq!(
            ask(server, transport, "/cache/dated", &["Range: bytes=0-9"]).text(),
            text(0, 10)
        );
        server.write("html/dated", changed(BYTES));
        let hour = std::time::Duration::from_secs(3600);
        let file = std::fs::File::options().write(true).open(server.dir().join("html/dated"));
        file.unwrap().set_modified(std::time::SystemTime::now() - hour).unwrap();
        is_cut(server, transport, "/cache/dated");
        assert!(ask(server, transport, "/cache/dated", &[]).body == changed(BYTES), "the new file");
    });
}

/// The background update asks for the part, and replaces it.
#[test]
fn a_stale_part_is_updated_in_the_background() {
    on_each(&Transport::ALL, &sliced(), |server, transport| {
        let range = "Range: bytes=250-259";
        assert_eq!(ask(server, transport, "/cache/f", &[range]).header("X-Cache"), Some("MISS"));
        // The part is stored a moment after the response.
        wait::until("the part is purged", wait::PATIENCE, || {
            let purge = send(server, transport, "PURGE", "/cache/f", &[range]);
            (purge.response().status == 204).then_some(())
        });
        let stale = ask(server, transport, "/cache/f", &[range]);
        assert_eq!((stale.header("X-Cache"), stale.text()), (Some("STALE"), text(250, 260)));
        wait::until("the part is fresh", wait::PATIENCE, || {
            let part = ask(server, transport, "/cache/f", &[range]);
            assert_eq!(part.text(), text(250, 260));
            (part.header("X-Cache") == Some("HIT")).then_some(())
        });
        let asked = "bytes=200-299 206\n".repeat(2);
        assert_eq!(wait_file(server, "origin.log", &asked), asked);
    });
}

/// A file with other bytes than the first one.
fn changed(length: usize) -> Vec<u8> {
    pattern(length).iter().map(|byte| byte + 40).collect()
}

/// The response breaks off.
#[track_caller]
fn is_cut(server: &Server, transport: Transport, target: &str) {
    assert!(!send(server, transport, "GET", target, &[]).ends_well(), "a whole response");
}

/// The origin has no first byte; the client has asked for none in particular.
#[test]
fn an_empty_response_is_no_error() {
    on_each(&Transport::ALL, &sliced().file("html/empty", ""), |server, transport| {
        for target in ["/empty", "/cache/empty", "/cache/empty"] {
            let whole = ask(server, transport, target, &[]);
            assert_eq!((whole.status, whole.text()), (200, String::new()), "{target}");
            assert_eq!(whole.header("Content-Length"), Some("0"));
            assert_eq!(whole.header("Content-Range"), None);
            // As for an empty file: there is nothing that a range could leave out.
            assert_eq!(
                ask(server, transport, target, &["Range: bytes=0-"]).status,
                200,
                "{target}"
            );
        }
    });
}
