//! Requests for what is being fetched just now: they wait, read along, or ask themselves.

use std::sync::mpsc::{Sender, channel};

use nowait_testkit::origin::Step;
use nowait_testkit::{Client, Driver, Origin, Server, wait};

use super::{Backend, get};
use crate::fastcgi;
use crate::stage::{ask, pattern, send};
use crate::transport::{TestRequest, Transport};

const HEAD: &str =
    "HTTP/1.1 200 OK\nCache-Control: max-age=60\nContent-Length: 6\nConnection: close\n\n";

/// An origin that sends this, waits for the test, and sends that; then the next script.
fn halting(backend: Backend, first: &str, then: &str, next: &[&str]) -> (Origin, Sender<()>) {
    let (go, halt) = channel();
    let mut scripts =
        vec![vec![backend.asked(), backend.begin(first), Step::Wait(halt), backend.finish(then)]];
    scripts.extend(backend.scripts(next));
    (Origin::start(scripts), go)
}

/// An origin that waits for the test before it answers; then the next replies.
fn waiting(backend: Backend, reply: &str, next: &[&str]) -> (Origin, Sender<()>) {
    let (go, halt) = channel();
    let mut scripts = vec![vec![backend.asked(), Step::Wait(halt), backend.reply(reply)]];
    scripts.extend(backend.scripts(next));
    (Origin::start(scripts), go)
}

/// Runs a test for each module and driver, with two workers, which clients reach over each transport.
fn on_drivers(
    content: &str,
    make: impl Fn(Backend) -> (Origin, Sender<()>),
    test: impl Fn(&mut Server, &Origin, Sender<()>),
) {
    for backend in Backend::of(content) {
        for driver in [Driver::Epoll, Driver::IoUring] {
            eprintln!("backend: {backend:?}, driver: {driver:?}");
            let (origin, go) = make(backend);
            let address = origin.addr().to_string();
            let site = backend.builder_for_all(content, &address).driver(driver).workers(2);
            let mut server = site.start();
            test(&mut server, &origin, go);
            server.stop();
            origin.finish();
        }
    }
}

/// Reads the head and the first half of the body.
fn half(client: &mut Client) {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nabc") {
        read.extend(client.read_some(1024));
    }
}

fn asked(origin: &Origin, times: usize) {
    wait::until("the origin is asked", wait::PATIENCE, || {
        let received = origin.received();
        let ends = [&b"\r\n\r\n"[..], fastcgi::ASKED];
        let is_whole = |asked: &&Vec<u8>| ends.iter().any(|end| asked.ends_with(end));
        let whole = received.iter().filter(is_whole).count();
        (whole == times).then_some(())
    });
}

/// The response that is being stored may be outdated: it must not keep the newer one away.
#[test]
fn what_bypasses_the_cache_is_stored_during_a_fill() {
    on_drivers(
        "location / {
             proxy_pass http://%%ORIGIN%%;
             proxy_cache_key $uri;
             proxy_cache_lock on;
             proxy_cache_bypass $arg_new;
         }",
        |backend| {
            // Without a length, the client's response ends after that of the origin.
            let new = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nConnection: close\n\nnew";
            halting(backend, &format!("{HEAD}abc"), "def", &[new])
        },
        |server, _, go| {
            let mut first = server.client();
            first.send_get("/a");
            half(&mut first);
            let new = get(server, "/a?new=1");
            assert_eq!((new.header("X-Cache"), new.text()), (Some("BYPASS"), "new".into()));
            let hit = get(server, "/a");
            assert_eq!((hit.header("X-Cache"), hit.text()), (Some("HIT"), "new".into()));
            go.send(()).unwrap();
            assert_eq!(first.read_some(1024), b"def");
        },
    );
}

#[test]
fn others_read_along() {
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 1h; }",
        |backend| halting(backend, &format!("{HEAD}abc"), "def", &[]),
        |server, _, go| {
            let mut first = server.client();
            first.send_get("/a");
            half(&mut first);
            let mut others: Vec<_> = (0..3).map(|_| server.client()).collect();
            for other in &mut others {
                other.send_get("/a");
                half(other);
            }
            go.send(()).unwrap();
            for other in &mut others {
                assert_eq!(other.read_some(1024), b"def");
            }
            assert_eq!(get(server, "/a").header("X-Cache"), Some("HIT"));
        },
    );
}

/// One range is served as soon as it is there; several are not, before all of it is.
#[test]
fn ranges_of_what_is_being_fetched() {
    let head = HEAD.replace("Cache-Control", "Accept-Ranges: bytes\nCache-Control");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 1h; }",
        |backend| halting(backend, &format!("{head}abc"), "def", &[]),
        |server, _, go| {
            let mut first = server.client();
            first.send_get("/a");
            half(&mut first);
            let part = ask(server, "/a", &["Range: bytes=1-2"]);
            assert_eq!((part.status, part.text()), (206, "bc".into()));
            assert_eq!(part.header("Content-Range"), Some("bytes 1-2/6"));
            let several = ["Range: bytes=0-0,5-5"];
            let mut client = server.client();
            send(&mut client, "/a", &several);
            half(&mut client);
            let mut late = server.client();
            send(&mut late, "/a", &["Range: bytes=-2"]);
            go.send(()).unwrap();
            assert_eq!(client.read_some(1024), b"def");
            let late = late.response();
            assert_eq!((late.status, late.text()), (206, "ef".into()));
            // Its last byte may be read before the server knows that it was the last.
            let parts = wait::until("several parts", wait::PATIENCE, || {
                Some(ask(server, "/a", &several)).filter(|parts| parts.status == 206)
            });
            assert!(parts.text().contains("Content-Range: bytes 5-5/6"), "{parts}");
        },
    );
}

#[test]
fn others_wait_for_all_of_it_where_that_is_wanted() {
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_read_while_filling off; }",
        |backend| halting(backend, &format!("{HEAD}abc"), "def", &[]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            asked(origin, 1);
            let mut other = server.client();
            other.send_get("/a");
            go.send(()).unwrap();
            assert_eq!(first.response().text(), "abcdef");
            let response = other.response();
            assert_eq!(response.header("X-Cache"), Some("HIT"));
            assert_eq!(response.text(), "abcdef");
        },
    );
}

#[test]
fn without_the_lock_each_asks() {
    let whole = format!("{HEAD}second");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        |backend| halting(backend, &format!("{HEAD}abc"), "def", &[&whole]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            asked(origin, 1);
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some("MISS"));
            assert_eq!(response.text(), "second");
            go.send(()).unwrap();
            assert_eq!(first.response().text(), "abcdef");
        },
    );
}

#[test]
fn who_has_waited_long_enough_asks_and_does_not_store() {
    let whole = format!("{HEAD}second");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_timeout 50ms; }",
        |backend| waiting(backend, &format!("{HEAD}first!"), &[&whole]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            asked(origin, 1);
            assert_eq!(get(server, "/a").text(), "second");
            go.send(()).unwrap();
            assert_eq!(first.response().text(), "first!");
            assert_eq!(get(server, "/a").text(), "first!");
        },
    );
}

#[test]
fn one_more_is_sent_when_the_first_takes_too_long() {
    let whole = format!("{HEAD}second");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 50ms; }",
        |backend| waiting(backend, &format!("{HEAD}first!"), &[&whole]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            asked(origin, 1);
            assert_eq!(get(server, "/a").text(), "second");
            assert_eq!(get(server, "/a").header("X-Cache"), Some("HIT"));
            go.send(()).unwrap();
            assert_eq!(first.response().text(), "first!");
        },
    );
}

/// The origin has begun to send and says nothing more: later clients cause a new request.
#[test]
fn one_more_is_sent_when_nothing_comes_any_more() {
    let whole = format!("{HEAD}second");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 100ms; }",
        |backend| halting(backend, &format!("{HEAD}abc"), "def", &[&whole]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            half(&mut first);
            // Time has to pass.
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(get(server, "/a").text(), "second");
            assert_eq!(get(server, "/a").header("X-Cache"), Some("HIT"));
            asked(origin, 2);
            go.send(()).unwrap();
            assert_eq!(first.read_some(1024), b"def");
        },
    );
}

#[test]
fn what_may_not_be_stored_holds_nobody_up() {
    let other = "HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close\n\nother";
    let no =
        "HTTP/1.1 200 OK\nCache-Control: no-store\nContent-Length: 6\nConnection: close\n\nabc";
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; }",
        |backend| halting(backend, no, "def", &[other]),
        |server, origin, go| {
            let mut first = server.client();
            first.send_get("/a");
            asked(origin, 1);
            assert_eq!(get(server, "/a").text(), "other");
            go.send(()).unwrap();
            assert_eq!(first.response().text(), "abcdef");
        },
    );
}

#[test]
fn the_rest_is_stored_when_the_client_has_left() {
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; }",
        |backend| halting(backend, &format!("{HEAD}abc"), "def", &[]),
        |server, _, go| {
            let mut client = server.client();
            client.send_get("/a");
            half(&mut client);
            client.reset();
            go.send(()).unwrap();
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some("HIT"));
            assert_eq!(response.text(), "abcdef");
        },
    );
}

#[test]
fn the_request_goes_on_when_the_client_has_left_before_the_head() {
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; }",
        |backend| waiting(backend, &format!("{HEAD}abcdef"), &[]),
        |server, origin, go| {
            let mut client = server.client();
            client.send_get("/a");
            asked(origin, 1);
            client.reset();
            go.send(()).unwrap();
            assert_eq!(get(server, "/a").text(), "abcdef");
        },
    );
}

#[test]
fn half_a_response_is_not_stored() {
    let whole = format!("{HEAD}second");
    on_drivers(
        "location / { proxy_pass http://%%ORIGIN%%; }",
        |backend| {
            let half = vec![backend.asked(), backend.begin(&format!("{HEAD}abc"))];
            let mut scripts = vec![half];
            scripts.extend(backend.scripts(&[&whole]));
            (Origin::start(scripts), channel().0)
        },
        |server, _, _| {
            server.allow_log("prematurely closed");
            let mut client = server.client();
            client.send_get("/a");
            assert!(client.try_response(false).is_err());
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some("MISS"));
            assert_eq!(response.text(), "second");
        },
    );
}

#[test]
fn large_responses_come_whole() {
    const BYTES: usize = 3_000_000;
    let body = String::from_utf8(pattern(BYTES)).unwrap();
    let reply = format!(
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nAccept-Ranges: bytes\nContent-Length: {BYTES}\nConnection: close\n\n{body}"
    );
    super::with_origin("location / { proxy_pass http://%%ORIGIN%%; }", &[&reply], |server, _| {
        for status in ["MISS", "HIT", "HIT"] {
            let response = get(server, "/a");
            assert_eq!(response.header("X-Cache"), Some(status));
            assert!(response.text() == body);
        }
        let part = crate::stage::ask(server, "/a", &["Range: bytes=2000000-2000009"]);
        assert_eq!(part.text(), body[2_000_000..2_000_010]);
    });
}

const TAGGED: &str = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"a\"\nContent-Length: 9\nConnection: close\n\n";

/// The origin breaks off twice, and has the rest: no client is cut off.
#[test]
fn a_fill_that_breaks_off_goes_on_where_it_was() {
    let rest = |at: u64, length: u64, text: &str| {
        format!(
            "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Range: bytes {at}-8/9\n\
             Content-Length: {length}\nConnection: close\n\n{text}"
        )
    };
    let rests = [rest(3, 6, "def"), rest(6, 3, "ghi")];
    let rests: Vec<&str> = rests.iter().map(String::as_str).collect();
    on_drivers(
        "proxy_force_ranges on; location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 1h; }",
        |backend| breaking(backend, &format!("{TAGGED}abc"), &rests),
        |server, origin, go| {
            server.allow_log("prematurely closed");
            let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
            for client in &mut clients {
                client.send_get("/a");
                half(client);
            }
            let mut part = server.client();
            send(&mut part, "/a", &["Range: bytes=7-"]);
            go.send(()).unwrap();
            for client in &mut clients {
                let mut text = client.read_some(1024);
                while text.len() < 6 {
                    text.extend(client.read_some(1024));
                }
                assert_eq!(text, b"defghi");
            }
            let part = part.response();
            assert_eq!((part.status, part.text()), (206, "hi".into()));
            let stored = get(server, "/a");
            assert_eq!(
                (stored.header("X-Cache"), stored.text()),
                (Some("HIT"), "abcdefghi".into())
            );
            let received = origin.received();
            let asked =
                |at: usize, text: &str| String::from_utf8_lossy(&received[at]).contains(text);
            assert_eq!(received.len(), 3);
            assert!(asked(1, "bytes=3-") && asked(1, "\"a\"") && asked(2, "bytes=6-"));
        },
    );
}

/// An origin that breaks off when the test says so; then the next replies.
fn breaking(backend: Backend, first: &str, next: &[&str]) -> (Origin, Sender<()>) {
    let (go, halt) = channel();
    let mut scripts = vec![vec![backend.asked(), backend.begin(first), Step::Wait(halt)]];
    scripts.extend(backend.scripts(next));
    (Origin::start(scripts), go)
}

/// What the origin has is not the rest: the response is cut, nothing is stored, and it is asked once.
#[test]
fn a_fill_is_not_completed_with_something_else() {
    let other = "HTTP/1.1 200 OK\nETag: \"b\"\nContent-Length: 9\nConnection: close\n\nABCDEFGHI";
    let whole = format!("{}ABCDEFGHI", TAGGED.replace("\"a\"", "\"b\""));
    let weak = TAGGED.replace("\"a\"", "W/\"a\"");
    let off = "proxy_next_upstream off;";
    for (settings, first, next) in [
        ("proxy_force_ranges on;", TAGGED, vec![other, &whole]),
        ("proxy_force_ranges on;", &weak, vec![&*whole]),
        (off, TAGGED, vec![&*whole]),
        ("proxy_next_upstream_tries 1;", TAGGED, vec![&*whole]),
    ] {
        let content = format!(
            "{settings} location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; }}"
        );
        on_drivers(
            &content,
            |backend| breaking(backend, &format!("{first}abc"), &next),
            |server, _, go| {
                for text in
                    ["prematurely closed", "the rest of a response", "could not be completed"]
                {
                    server.allow_log(text);
                }
                let mut client = server.client();
                client.send_get("/a");
                half(&mut client);
                let mut other = server.client();
                other.send_get("/a");
                half(&mut other);
                go.send(()).unwrap();
                assert_eq!(client.read_some(1024), b"");
                assert_eq!(other.read_some(1024), b"");
                let after = get(server, "/a");
                assert_eq!(
                    (after.header("X-Cache"), after.text()),
                    (Some("MISS"), "ABCDEFGHI".into())
                );
            },
        );
    }
}

/// Without a strong validator nothing completes the response. Clients that have received nothing of it yet wait for the
/// one new request.
#[test]
fn a_fill_that_breaks_off_cuts_only_who_has_a_part() {
    let head = HEAD.replace("Cache-Control", "Accept-Ranges: bytes\nCache-Control");
    let whole = format!("{head}second");
    for (sent, field, rest) in [
        ("", ("x-none", "1"), "second"),
        ("abc", ("range", "bytes=4-"), "nd"),
        ("abc", ("range", "bytes=-2"), "nd"),
    ] {
        eprintln!("sent: {sent:?}, {field:?}");
        on_drivers(
            "location / { proxy_pass http://%%ORIGIN%%; proxy_cache_lock on; proxy_cache_lock_age 1h; }
             location /status/ { status_api; }",
            |backend| breaking(backend, &format!("{head}{sent}"), &[&whole]),
            |server, origin, go| {
                server.allow_log("prematurely closed");
                server.allow_log("could not be completed");
                // Without a part, only the client of the fill gets the head.
                let mut transports = Transport::ALL.into_iter().cycle();
                let mut ask = |fields: &[(&str, &str)]| {
                    let request = TestRequest { target: "/a", fields, ..TestRequest::default() };
                    transports.next().expect("a circle").send(server, &request)
                };
                let mut readers = Vec::new();
                for _ in 0..if sent.is_empty() { 1 } else { 4 } {
                    let mut reader = ask(&[]);
                    reader.until(sent.as_bytes());
                    readers.push(reader);
                }
                let joined = readers.len() - 1 + 8;
                let others: Vec<_> = (0..8).map(|_| ask(&[field])).collect();
                wait::until("the others to join", wait::PATIENCE, || {
                    let status: serde_json::Value =
                        serde_json::from_str(&server.get("/status/caches/one").text()).unwrap();
                    (status["operations"]["hits_filling"] == joined).then_some(())
                });
                go.send(()).unwrap();
                for reader in readers {
                    assert!(!reader.ends_well(), "a whole response");
                }
                for other in others {
                    assert_eq!(other.response().text(), rest);
                }
                assert_eq!(get(server, "/a").header("X-Cache"), Some("HIT"));
                asked(origin, 2);
            },
        );
    }
}
