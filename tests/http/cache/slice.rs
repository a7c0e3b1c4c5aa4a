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
             location /single/ { proxy_pass http://127.0.0.1:%%PORT_2%%; max_ranges 1; }
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
        // Until it is stored, others get the old part.
        wait::until("the new part to be stored", wait::PATIENCE, || {
            let part = ask(server, transport, "/cache/f", &["Range: bytes=500-509"]);
            (part.body == changed(BYTES + 1)[500..510]).then_some(())
        });
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

/// Where a range begins that is counted from the end, and whether `If-Range` holds, is known only with the first
/// part. When that is an old one, the client still gets the new file.
#[test]
fn a_range_that_begins_anywhere_is_one_of_the_new_file() {
    let longer = changed(BYTES + 150);
    let site = ["a", "b", "c", "d", "e"]
        .into_iter()
        .fold(sliced(), |site, name| site.file(&format!("html/{name}"), pattern(BYTES)));
    on_each(&Transport::ALL, &site, |server, transport| {
        // Only the first part is stored when the file changes.
        let change = |name: &str, content: &[u8]| {
            let first = ask(server, transport, &format!("/cache/{name}"), &["Range: bytes=0-9"]);
            assert_eq!(first.text(), text(0, 10));
            server.write(&format!("html/{name}"), content);
            first.header("ETag").expect("a tag").to_owned()
        };
        let ask = |name: &str, lines: &[&str]| {
            let response = ask(server, transport, &format!("/cache/{name}"), lines);
            let range = response.header("Content-Range").map(str::to_owned);
            (response.status, range, response.body)
        };
        change("a", &longer);
        let part = (206, Some("bytes 1140-1149/1150".into()), longer[1140..].to_vec());
        assert_eq!(ask("a", &["Range: bytes=-10"]), part);
        assert_eq!(ask("a", &[]), (200, None, longer.clone()), "all parts are new ones");
        let old = change("b", &longer);
        // It holds for the file that is gone.
        let whole = ask("b", &["Range: bytes=500-509", &format!("If-Range: {old}")]);
        assert_eq!(whole, (200, None, longer.clone()));
        // The new file has no part where the range of the old one began.
        change("c", &longer[..150]);
        let part = (206, Some("bytes 140-149/150".into()), longer[140..150].to_vec());
        assert_eq!(ask("c", &["Range: bytes=-10"]), part);
        change("d", b"");
        assert_eq!(ask("d", &["Range: bytes=-10"]), (200, None, Vec::new()));
        change("e", b"");
        std::fs::remove_file(server.dir().join("html/e")).expect("it is there");
        assert_eq!(ask("e", &["Range: bytes=-10"]).0, 404);
    });
}

/// An unchanged file: ranges that begin anywhere, with and without a condition.
#[test]
fn a_range_that_begins_anywhere_costs_no_other_parts() {
    on_each(&Transport::ALL, &sliced(), |server, transport| {
        let ask = |lines: &[&str]| ask(server, transport, "/cache/f", lines);
        let first = ask(&["Range: bytes=0-9"]);
        let holds = format!("If-Range: {}", first.header("ETag").expect("a tag"));
        for (lines, from, to) in [
            (&["Range: bytes=-10"][..], 990, 1000),
            (&["Range: bytes=-1", &holds], 999, 1000),
            (&["Range: bytes=500-509", &holds], 500, 510),
            (&["Range: bytes=950-", &holds], 950, 1000),
            (&["Range: bytes=-10", "If-Range: \"other\""], 0, 1000),
        ] {
            let part = ask(lines);
            assert_eq!(part.text(), text(from, to), "{lines:?}");
            assert_eq!(part.all("X-Cache").count(), 1, "{lines:?}");
            if from == 950 {
                let log = wait_file(server, "origin.log", "bytes=500-599 206");
                assert_eq!(log.lines().count(), 3, "{log}");
            }
        }
    });
}

/// What `multipart/byteranges` has to contain.
#[track_caller]
fn has_ranges(response: &Response, content: &[u8], ranges: &[(usize, usize)], why: &str) {
    assert_eq!(response.status, 206, "{why}");
    let kind = response.header("Content-Type").expect("a type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("parts");
    let mut expected = Vec::new();
    for &(from, last) in ranges {
        let length = content.len();
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes \
             {from}-{last}/{length}\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&content[from..=last]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(response.body == expected, "{why}: {}", response.text());
    assert_eq!(response.header("Content-Length"), Some(&*expected.len().to_string()), "{why}");
}

/// nginx sends the whole.
#[test]
fn several_ranges_are_put_together() {
    let site = sliced().file("html/single/f", pattern(BYTES));
    on_each(&Transport::ALL, &site, |server, transport| {
        let ask = |target: &str, lines: &[&str]| ask(server, transport, target, lines);
        let ranges = [(90, 110), (750, 760), (5, 5)];
        let several = ask("/cache/f", &["Range: bytes=90-110, 750-760,5-5"]);
        has_ranges(&several, &pattern(BYTES), &ranges, "not stored before");
        // The first part is always fetched first. Range 5-5 then takes it from the cache.
        let log = wait_file(server, "origin.log", "bytes=700-799 206");
        let asked: Vec<_> = log.lines().collect();
        assert_eq!(asked, ["bytes=0-99 206", "bytes=100-199 206", "bytes=700-799 206"]);
        has_ranges(
            &ask("/cache/f", &["Range: bytes=90-110, 750-760,5-5"]),
            &pattern(BYTES),
            &ranges,
            "stored",
        );
        let mut state = 27u32;
        let mut random = |end: usize| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (state >> 8) as usize % end
        };
        for target in ["/cache/f", "/f"] {
            for _ in 0..40 {
                let ranges: Vec<_> = (0..2 + random(3))
                    .map(|_| {
                        let from = random(BYTES);
                        (from, (from + random(40)).min(BYTES - 1))
                    })
                    .collect();
                let list = ranges.iter().map(|(from, last)| format!("{from}-{last}"));
                let line = format!("Range: bytes={}", list.collect::<Vec<_>>().join(","));
                has_ranges(&ask(target, &[&line]), &pattern(BYTES), &ranges, &line);
            }
        }
        // More than the whole would have to be fetched.
        let lists = ["0-0"; 11].join(",");
        for list in [lists.as_str(), "0-999,5-6"] {
            let whole = ask("/cache/f", &[&format!("Range: bytes={list}")]);
            assert_eq!((whole.status, whole.text()), (200, text(0, BYTES)), "{list}");
        }
        let one = ask("/cache/f", &["Range: bytes=200-209,1000-"]);
        assert_eq!((one.status, one.text()), (206, text(200, 210)));
        let none = ask("/cache/f", &["Range: bytes=1000-,2000-3000"]);
        assert_eq!(none.status, 416);
        let single = ask("/single/f", &["Range: bytes=0-1,5-6"]);
        assert_eq!((single.status, single.text()), (200, text(0, BYTES)), "max_ranges 1");
        let mut client = server.client();
        client.send("HEAD /cache/f HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1,5-6\r\n\r\n");
        assert_eq!(client.response_to_head().status, 206);
    });
}

/// No head was sent before the first byte of the first range: the client gets the new file.
#[test]
fn several_ranges_are_those_of_the_new_file() {
    on_each(&Transport::ALL, &sliced(), |server, transport| {
        let first = ask(server, transport, "/cache/f", &["Range: bytes=0-9"]);
        assert_eq!(first.text(), text(0, 10));
        let new = changed(BYTES + 50);
        server.write("html/f", &new);
        let several = ask(server, transport, "/cache/f", &["Range: bytes=500-509,0-9,-1"]);
        has_ranges(&several, &new, &[(500, 509), (0, 9), (1049, 1049)], "the new file");
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
