//! `slice`: large responses in parts.

use nowait_testkit::ServerBuilder;

use crate::stage::{ask, on_each_driver, pattern, site, wait_file};

const BYTES: usize = 1000;

fn sliced() -> ServerBuilder {
    site(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         log_format asked '$http_range $status';
         server {
             listen 127.0.0.1:%%PORT%%;
             add_header X-Cache $upstream_cache_status;
             proxy_set_header Range $slice_range;
             slice 100;
             location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }
             location /cache/ {
                 proxy_pass http://127.0.0.1:%%PORT_1%%/;
                 proxy_cache one;
                 proxy_cache_key $uri$is_args$args$slice_range;
                 proxy_cache_valid 200 206 1h;
             }
         }
         server {
             listen 127.0.0.1:%%PORT_1%%;
             root %%DIR%%/html;
             access_log %%DIR%%/origin.log asked;
             location /whole { max_ranges 0; }
         }",
    )
    .file("html/f", pattern(BYTES))
    .file("html/whole", "all of it")
    .file("html/short", "short")
}

fn text(from: usize, to: usize) -> String {
    String::from_utf8(pattern(BYTES)[from..to].to_vec()).unwrap()
}

#[test]
fn whole_responses_are_put_together() {
    on_each_driver(&sliced(), |server| {
        let response = ask(server, "/f", &[]);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("Content-Length"), Some("1000"));
        assert_eq!(response.header("Content-Range"), None);
        assert_eq!(response.text(), text(0, BYTES));
        let log = wait_file(server, "origin.log", "bytes=900-999 206");
        assert!(log.starts_with("bytes=0-99 206\nbytes=100-199 206\n"), "{log}");
        assert_eq!(ask(server, "/short", &[]).text(), "short");
        assert_eq!(ask(server, "/none", &[]).status, 404);
        // An origin that knows no ranges sends all.
        let whole = ask(server, "/whole", &[]);
        assert_eq!((whole.status, whole.text()), (200, "all of it".into()));
    });
}

#[test]
fn only_the_parts_of_a_range_are_fetched() {
    on_each_driver(&sliced(), |server| {
        let part = ask(server, "/cache/f", &["Range: bytes=250-349"]);
        assert_eq!(part.status, 206);
        assert_eq!(part.header("Content-Range"), Some("bytes 250-349/1000"));
        assert_eq!(part.header("X-Cache"), Some("MISS"));
        assert_eq!(part.text(), text(250, 350));
        wait_file(server, "origin.log", "bytes=300-399 206");
        let part = ask(server, "/cache/f", &["Range: bytes=200-399"]);
        assert_eq!(part.header("X-Cache"), Some("HIT"));
        assert_eq!(part.text(), text(200, 400));
        // The first part tells how long it is; those between are skipped.
        let part = ask(server, "/cache/f", &["Range: bytes=-10"]);
        assert_eq!(part.text(), text(990, 1000));
        let log = wait_file(server, "origin.log", "bytes=900-999 206");
        assert_eq!(log.lines().count(), 4, "{log}");
        let all = ask(server, "/cache/f", &[]);
        assert_eq!(all.text(), text(0, BYTES));
        let log = wait_file(server, "origin.log", "bytes=800-899 206");
        assert_eq!(log.lines().count(), 10, "{log}");
        // The origin says that there is nothing.
        assert_eq!(ask(server, "/cache/f", &["Range: bytes=1000-"]).status, 416);
        wait_file(server, "origin.log", "bytes=1000-1099 416");
        assert_eq!(ask(server, "/cache/f", &[]).text(), text(0, BYTES));
        assert_eq!(server.read("origin.log").lines().count(), 11);
    });
}

#[test]
fn a_file_that_changes_meanwhile_is_noticed() {
    let site = sliced().allow_log("etag mismatch in slice response");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/cache/f", &["Range: bytes=0-9"]).text(), text(0, 10));
        server.write("html/f", pattern(BYTES + 1));
        let mut client = server.client();
        client.send_get("/cache/f");
        assert!(client.try_response(false).is_err());
        server.wait_log("etag mismatch in slice response");
    });
}

/// The origin has no first byte; the client has asked for none in particular.
#[test]
fn an_empty_response_is_no_error() {
    on_each_driver(&sliced().file("html/empty", ""), |server| {
        for target in ["/empty", "/cache/empty", "/cache/empty"] {
            let whole = ask(server, target, &[]);
            assert_eq!((whole.status, whole.text()), (200, String::new()), "{target}");
            assert_eq!(whole.header("Content-Length"), Some("0"));
            assert_eq!(whole.header("Content-Range"), None);
            // As for an empty file: there is nothing that a range could leave out.
            assert_eq!(ask(server, target, &["Range: bytes=0-"]).status, 200, "{target}");
        }
    });
}
