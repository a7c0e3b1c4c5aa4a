//! `proxy_cache_purge` and its relatives.

use nowait_testkit::Server;

use super::{get, wait_objects, with_origin};

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
        // While it is on its way into the cache, no client gets it after a soft purge.
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
        assert_eq!(code, Some(2));
        assert!(said.contains("Usage: nowait cache purge"), "{said}");
    });
}

/// Status and content.
fn ask(server: &Server, method: &str, target: &str) -> (u16, String) {
    let mut client = server.client();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let response = client.response();
    (response.status, response.text())
}

#[test]
fn in_a_location_of_its_own() {
    let site = "%%SERVER%%
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache_key $uri; }
        location ~ ^/purge(/.*) { proxy_cache_purge one $1; location ~ /inner { } }
        location /denied { deny all; proxy_cache_purge one $arg_key; }";
    with_origin(site, &[REPLY; 7], |server, _| {
        assert_eq!(ask(server, "GET", "/purge/a").0, 404);
        for method in ["GET", "DELETE", "PURGE"] {
            assert_eq!(status(server, "/a"), "MISS");
            assert_eq!(status(server, "/a"), "HIT");
            let (code, page) = ask(server, method, "/purge/a");
            assert_eq!(code, 200, "{page}");
            assert!(page.contains("<h1>Successful purge</h1>") && page.contains("Key: /a<"));
        }
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/a<"), "MISS");
        assert_eq!(ask(server, "POST", "/purge/a").0, 405);
        assert_eq!(ask(server, "GET", "/denied?key=/a").0, 403);
        // The inner location is one of files.
        assert_eq!(ask(server, "GET", "/purge/a/inner").0, 404);
        assert_eq!(status(server, "/a"), "HIT");
        let (code, page) = ask(server, "GET", "/purge/a*");
        assert_eq!(code, 200);
        assert!(page.contains("Key: /a*<") && page.contains("Objects: 2<"), "{page}");
        assert_eq!(status(server, "/a"), "MISS");
        assert_eq!(status(server, "/<"), "MISS");
        let (code, page) = ask(server, "GET", "/purge/%3C");
        assert_eq!(code, 200);
        assert!(page.contains("Key: /&lt;<"), "{page}");
    });
}

#[test]
fn by_a_method_from_addresses() {
    let site = "%%SERVER%%
        proxy_cache_key $arg_key;
        proxy_cache_purge on from 192.0.2.0/24 127.0.0.1;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /off { proxy_pass http://%%ORIGIN%%; proxy_cache_purge off; }
        location /delete { proxy_pass http://%%ORIGIN%%; proxy_cache_purge DELETE; }
        location /others { proxy_pass http://%%ORIGIN%%; proxy_cache_purge PURGE from 192.0.2.1; }
        location /all { proxy_pass http://%%ORIGIN%%; proxy_cache_purge on purge_all from all; }";
    with_origin(site, &[REPLY; 7], |server, _| {
        assert_eq!(status(server, "/?key=a"), "MISS");
        assert_eq!(status(server, "/delete?key=b"), "MISS");
        assert_eq!(ask(server, "PURGE", "/?key=none").0, 404);
        let (code, page) = ask(server, "PURGE", "/?key=a");
        assert_eq!(code, 200);
        assert!(page.contains("Objects: 1<"), "{page}");
        assert_eq!(status(server, "/?key=a"), "MISS");
        assert_eq!(ask(server, "PURGE", "/others?key=a").0, 403);
        server.wait_log("cache purge: access forbidden by rule");
        // The origin answers.
        assert_eq!(ask(server, "PURGE", "/off?key=a"), (200, "1".into()));
        assert_eq!(ask(server, "PURGE", "/delete?key=a"), (200, "1".into()));
        assert_eq!(status(server, "/?key=a"), "HIT");
        assert_eq!(ask(server, "DELETE", "/delete?key=b").0, 200);
        assert_eq!(status(server, "/delete?key=b"), "MISS");
        let (code, page) = ask(server, "PURGE", "/all?key=none");
        assert_eq!(code, 200);
        assert!(page.contains("Objects: 2<"), "{page}");
        assert_eq!(status(server, "/?key=a"), "MISS");
    });
}

#[test]
fn wrong_forms_are_refused() {
    let cases = [
        (
            "proxy_cache_purge one $uri;",
            "",
            "\"proxy_cache_purge\" with a zone and a key is allowed in locations only",
        ),
        ("", "proxy_cache_purge two $uri;", "\"proxy_cache\" zone \"two\" is unknown"),
        ("", "fastcgi_cache_purge two $uri;", "\"fastcgi_cache\" zone \"two\" is unknown"),
        ("", "proxy_cache_purge purge;", "invalid parameter \"purge\""),
        ("", "proxy_cache_purge PURGE for all;", "invalid parameter \"for\""),
        ("", "proxy_cache_purge PURGE purge_all from;", "invalid parameter \"from\""),
        ("", "proxy_cache_purge PURGE from here;", "invalid parameter \"here\""),
        ("", "proxy_cache_purge on from all here;", "invalid parameter \"here\""),
        ("", "proxy_cache_purge on; proxy_cache_purge on;", "directive is duplicate"),
        ("", "proxy_cache_purge $a; proxy_cache_purge on;", "directive is duplicate"),
        ("", "proxy_cache_purge on; proxy_cache_purge $a;", "directive is duplicate"),
    ];
    for (http, location, reason) in cases {
        let site = crate::stage::site(&format!(
            "proxy_cache_path cache keys_zone=one:1m; map x $a {{ default ''; }} {http}
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ {location} }} }}"
        ));
        crate::stage::refused(&site, reason);
    }
}
