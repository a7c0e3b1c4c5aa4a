//! `examples/lan-cache.conf`: parts, what is asked for once only, and what it is not for.

use nowait_testkit::{Server, wait};

use super::curl::{curl, is_installed};
use super::{content, example};

const BYTES: usize = 2_500_000;

/// The cache, with the servers of the world in the same server.
fn cache() -> Server {
    let text = include_str!("../../examples/lan-cache.conf")
        .replace("198.51.100.10:80", "127.0.0.1:%%PORT_1%%")
        .replace("198.51.100.20:80", "127.0.0.1:%%PORT_1%%")
        .replace(" max_size=2000g min_free=20g", " max_size=1g");
    let world = "log_format world '$host $uri $http_range';
    server {
        listen 127.0.0.1:%%PORT_1%%;
        root /storage;
        access_log %%DIR%%/world.log world;
        add_header Cache-Control no-store;
        add_header Set-Cookie a=b;
    }
    server {";
    let text = text.replacen(
        "    server {\n        listen 8000",
        &format!("    {world}\n        listen 8000"),
        1,
    );
    example(&text)
        .file("log/kept", "")
        .file("srv/kept", "")
        .file("storage/depot/chunk", content(BYTES))
        .file("storage/debian/Packages.gz", "list 1")
        .start()
}

fn get(server: &Server, host: &str, target: &str) -> nowait_testkit::Response {
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

#[test]
fn lan_cache() {
    let server = cache();
    assert_eq!(get(&server, "a.games.example", "/lan-cache-heartbeat").status, 204);
    assert_eq!(get(&server, "evil.example", "/").status, 403);
    let first = get(&server, "a.games.example", "/depot/chunk?token=1");
    assert!(first.status == 200 && first.body == content(BYTES));
    assert_eq!(first.header("X-Cache"), Some("MISS"));
    // Another server of the same group, another token: the same file.
    let hit = || {
        let again = get(&server, "b.games.example", "/depot/chunk?token=2");
        assert!(again.body == content(BYTES));
        (again.header("X-Cache") == Some("HIT")).then_some(())
    };
    wait::until("the parts are stored", wait::PATIENCE, hit);
    let world = server.wait_file("world.log", "bytes=2097152-");
    assert_eq!(
        world,
        "a.games.example /depot/chunk bytes=0-1048575\n\
         a.games.example /depot/chunk bytes=1048576-2097151\n\
         a.games.example /depot/chunk bytes=2097152-3145727\n"
    );
    // Another group has a key of its own.
    assert_eq!(get(&server, "x.packages.example", "/debian/Packages.gz").text(), "list 1");
    assert_eq!(get(&server, "a.games.example", "/none").status, 404);
    assert!(server.quit().success());
}

#[test]
fn lan_cache_with_curl() {
    if !is_installed() {
        return;
    }
    let server = cache();
    let port = server.port();
    let url = "http://cdn.games.example/depot/chunk";
    let end = curl(port, url, &["--range", "2400000-"]);
    assert_eq!(end.status, 206);
    assert!(end.content == content(BYTES)[2_400_000..]);
    // Only the part that has it was fetched.
    let world = server.wait_file("world.log", "bytes=2097152-");
    assert_eq!(world.lines().count(), 1, "{world}");
    assert!(curl(port, url, &[]).content == content(BYTES));
    assert_eq!(curl(port, "http://cdn.other.example/", &[]).status, 403);
    assert!(server.quit().success());
}
