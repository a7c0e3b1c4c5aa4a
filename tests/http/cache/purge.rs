//! `proxy_cache_purge` and its relatives.

use nowait_testkit::{Server, wait};

use super::{get, with_origin};

const PURGING: &str = "map $request_method $purge { PURGE 1; default ''; }
    %%SERVER%%
    location = /objects { status_api; }
    location / {
        proxy_pass http://%%ORIGIN%%;
        proxy_cache_key $uri;
        proxy_cache_tag $upstream_http_x_tags;
        proxy_cache_purge $purge;
        proxy_cache_purge_tag $http_x_tags;
        proxy_cache_purge_soft $http_x_soft;
        proxy_cache_revalidate on;
    }";

const REPLY: &str = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"a\"\nX-Tags: red, blue\nContent-Length: 1\nConnection: close\n\n1";

/// Purges; status and how many objects there were.
fn purge(server: &Server, target: &str, lines: &str) -> (u16, Option<String>) {
    let mut client = server.client();
    client.send(format!("PURGE {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let response = client.response();
    (response.status, response.header("X-Purged").map(str::to_owned))
}

/// Waits until so many objects are stored: a response reaches its client before.
fn wait_objects(server: &Server, count: u64) {
    wait::until("objects to be stored", wait::PATIENCE, || {
        let report: serde_json::Value =
            serde_json::from_str(&server.get("/objects").text()).ok()?;
        let cache = &report["caches"][0];
        (cache["objects"] == count && cache["filling"] == 0).then_some(())
    });
}

fn status(server: &Server, target: &str) -> String {
    get(server, target).header("X-Cache").unwrap_or_default().to_owned()
}

#[test]
fn by_key() {
    with_origin(PURGING, &[REPLY; 3], |server, _| {
        assert_eq!(purge(server, "/a", "").0, 404);
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/ab"), "MISS");
        assert_eq!(purge(server, "/a", ""), (204, Some("1".into())));
        assert_eq!(status(server, "/ab"), "HIT");
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/a"), "HIT");
    });
}

#[test]
fn by_the_beginning_of_the_key() {
    with_origin(PURGING, &[REPLY; 5], |server, _| {
        for target in ["/a", "/ab", "/b"] {
            assert_eq!(status(server, target), "MISS");
        }
        assert_eq!(purge(server, "/a*", ""), (204, Some("2".into())));
        assert_eq!(purge(server, "/a*", ""), (204, Some("0".into())));
        assert_eq!(status(server, "/b"), "HIT");
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/ab"), "MISS");
    });
}

#[test]
fn by_tag() {
    let other = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nX-Tags: green\nContent-Length: 1\nConnection: close\n\n1";
    with_origin(PURGING, &[REPLY, other, REPLY], |server, _| {
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/b"), "MISS");
        assert_eq!(purge(server, "/x", "X-Tags: blue\r\n"), (204, Some("1".into())));
        assert_eq!(purge(server, "/x", "X-Tags: yellow\r\n"), (204, Some("0".into())));
        assert_eq!(status(server, "/b"), "HIT");
        assert_eq!(status(server, "/a"), "MISS");
    });
}

#[test]
fn softly() {
    let unchanged = "HTTP/1.1 304 Not Modified\nCache-Control: max-age=60\nConnection: close\n\n";
    with_origin(PURGING, &[REPLY, unchanged], |server, _| {
        assert_eq!(status(server, "/a"), "MISS");
        // While it is on its way into the cache, nobody is given it after a soft purge.
        wait_objects(server, 1);
        assert_eq!(purge(server, "/a", "X-Soft: 1\r\n"), (204, Some("1".into())));
        assert_eq!(status(server, "/a"), "REVALIDATED");
        assert_eq!(status(server, "/a"), "HIT");
    });
}

#[test]
fn all_variants_of_a_key() {
    let varied = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nVary: X-A\nContent-Length: 1\nConnection: close\n\n1";
    with_origin(PURGING, &[varied; 4], |server, _| {
        let ask = |a: &str| {
            let response = crate::stage::ask(server, "/a", &[&format!("X-A: {a}")]);
            response.header("X-Cache").unwrap_or_default().to_owned()
        };
        assert_eq!((ask("1"), ask("2")), ("MISS".into(), "MISS".into()));
        assert_eq!((ask("1"), ask("2")), ("HIT".into(), "HIT".into()));
        assert_eq!(purge(server, "/a", ""), (204, Some("2".into())));
        assert_eq!((ask("1"), ask("2")), ("MISS".into(), "MISS".into()));
    });
}

#[test]
fn from_the_command_line() {
    with_origin(PURGING, &[REPLY; 4], |server, _| {
        let command = |words: &[&str]| {
            let mut command = server.binary().command();
            command.args(["cache", "purge", "-p"]).arg(server.dir());
            command.arg("-c").arg(server.dir().join("nginx.conf")).args(words);
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(said).unwrap())
        };
        let purged = |count: &str| (Some(0), format!("{count} purged\n"));
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/b"), "MISS");
        assert_eq!(command(&["one", "/a"]), purged("1 object"));
        assert_eq!(command(&["one", "/a"]), purged("0 objects"));
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(command(&["one", "--prefix", "/b"]), purged("1 object"));
        assert_eq!(status(server, "/b"), "MISS");
        assert_eq!(command(&["one", "--tag", "red"]), purged("2 objects"));
        let (code, said) = command(&["two", "--all"]);
        assert_eq!(code, Some(1));
        assert!(said.contains("cache \"two\" not found, there are: one"), "{said}");
        let (code, said) = command(&["one"]);
        assert_eq!(code, Some(1));
        assert!(said.contains("Usage: nowait cache purge"), "{said}");
    });
}
