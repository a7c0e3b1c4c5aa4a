//! The examples in `examples/` run as they stand: only paths, ports and the words that a test needs are
//! put in.

mod api_gateway;
mod curl;
mod download_mirror;
mod lan_cache;
mod static_site;

use std::process::Output;

use nowait_testkit::{Binary, Server, ServerBuilder, TempDir, wait};

/// An example as a server to start: its port and its paths below the server's directory.
fn example(text: &str) -> ServerBuilder {
    let mut text = text
        .replace("listen 8000", "listen %%PORT%%")
        .replace("/storage", "%%DIR%%/storage")
        .replace("/srv/", "%%DIR%%/srv/")
        .replace("/var/cache/", "%%DIR%%/var/cache/")
        .replace("/etc/nginx/", "%%DIR%%/etc/")
        .replace("/var/log/nginx/", "%%DIR%%/log/")
        .replace("pid /var/run/nginx.pid;", "")
        .replace("user www-data;", "")
        .replace("events {", "events { event_loop_guard strict;\n");
    text.push_str("daemon off; pid %%DIR%%/nginx.pid; error_log %%DIR%%/error.log info;\n");
    Server::of(binary()).config(&text)
}

fn binary() -> Binary {
    Binary::nowait(env!("CARGO_BIN_EXE_nowait"))
}

/// Contents that differ from piece to piece, so that a mistake in an offset shows.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 * 31 % 251) as u8).collect()
}

#[test]
fn static_benchmark() {
    let large = content(3 << 20);
    let server = example(include_str!("../../examples/static-benchmark.conf"))
        .file("storage/page.html", "<p>hello")
        .file("storage/deep/large.bin", &large)
        .file("storage/index.html", "the index")
        .start();
    assert!(!server.stderr().contains("mime.types"), "{}", server.stderr());
    let page = server.get("/page.html");
    assert_eq!((page.status, page.text()), (200, "<p>hello".into()));
    assert_eq!(page.header("Content-Type"), Some("text/html"));
    assert_eq!(server.get("/").text(), "the index");
    let response = server.get("/deep/large.bin");
    assert_eq!(response.header("Content-Type"), Some("application/octet-stream"));
    assert!(response.body == large);
    assert_eq!(server.get("/none").status, 404);
    assert!(server.quit().success());
}

#[test]
fn types_beside_the_configuration_come_first() {
    let server = example(include_str!("../../examples/static-benchmark.conf"))
        .file("mime.types", "types { text/own own; }")
        .file("storage/a.own", "a")
        .start();
    assert_eq!(server.get("/a.own").header("Content-Type"), Some("text/own"));
    assert!(!server.stderr().contains("mime.types"), "{}", server.stderr());
    server.stop();
}

#[test]
fn named_pools() {
    let large = content(300_000);
    let server = example(include_str!("../../examples/named-pools.conf"))
        .file("storage/a", "default")
        .file("storage/one/a", "one")
        .file("storage/two/a", &large)
        .start();
    assert_eq!(server.get("/a").text(), "default");
    assert_eq!(server.get("/one/a").text(), "one");
    assert!(server.get("/two/a").body == large);
    assert!(server.quit().success());
}

#[test]
fn direct_io() {
    let large = content(300_000);
    let server = example(include_str!("../../examples/direct-io.conf"))
        .file("storage/small/a", "small")
        .file("storage/archive/large", &large)
        .file("storage/archive/tiny", "below 4k")
        .start();
    assert_eq!(server.get("/a").text(), "small");
    assert!(server.get("/large").body == large);
    assert_eq!(server.get("/tiny").text(), "below 4k");
    let mut client = server.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=5000-99999\r\n\r\n");
    let range = client.response();
    assert_eq!(range.status, 206);
    assert!(range.body == large[5000..=99_999]);
    // The location is internal.
    assert_eq!(server.get("/archive/large").status, 404);
    assert!(server.quit().success());
}

#[test]
fn tuned_site() {
    // The site itself stands in a file that the example includes.
    let text = include_str!("../../examples/tuned-site.conf").replace(
        "include /etc/nginx/sites-enabled/*;",
        "include /etc/nginx/sites-enabled/*; server { listen 8000; return 404; }",
    );
    let port = nowait_testkit::ports::free_port();
    let dir = TempDir::new("site");
    dir.write("a.css", "p {}");
    dir.write("b", "no extension");
    dir.write("long.css", "p { color: black } ".repeat(100));
    let root = dir.path().display();
    let server = example(&text)
        .file("etc/conf.d/ignored.txt", "not a configuration")
        .file("etc/sites-enabled/site", format!("server {{ listen {port}; root {root}; }}"))
        .file("log/kept", "")
        .start();
    let warning = "/etc/mime.types\" does not exist, the built-in copy is used in ";
    assert!(server.stderr().contains(warning), "{}", server.stderr());
    let get = |path: &str| nowait_testkit::Client::to_port(port).get(path);
    let style = get("/a.css");
    assert_eq!((style.status, style.text()), (200, "p {}".into()));
    assert_eq!(style.header("Content-Type"), Some("text/css"));
    assert_eq!(style.header("Server"), Some("nowait"));
    assert_eq!(get("/b").header("Content-Type"), Some("text/html; charset=UTF-8"));
    let mut client = nowait_testkit::Client::to_port(port);
    client.send("GET /long.css HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.response().header("Content-Encoding"), Some("gzip"));
    assert_eq!(get("/none").status, 404);
    // The errors that open_file_cache_errors keeps are the same the second time.
    assert_eq!(get("/none").status, 404);
    assert!(server.quit().success());
}

/// A caching example, in front of an origin that serves the files in `storage` with this header.
fn caching(text: &str, header: &str) -> ServerBuilder {
    let origin =
        format!("server {{ listen 127.0.0.1:%%PORT_1%%; root /storage; {header} }}\n    server {{");
    let text = text
        .replacen(
            "    server {\n        listen 8000",
            &format!("    {origin}\n        listen 8000"),
            1,
        )
        .replace("127.0.0.1:8080", "127.0.0.1:%%PORT_1%%")
        .replace("/mnt/disk", "%%DIR%%/mnt/disk")
        .replace("proxy_cache_path /cache", "proxy_cache_path %%DIR%%/cache");
    example(&text)
}

/// Files below a directory.
fn files(directory: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let each = entries.flatten().map(|entry| match entry.path() {
        path if path.is_dir() => files(&path),
        // The saved index is no object.
        path => usize::from(path.file_name().is_some_and(|name| name.len() == 32)),
    });
    each.sum()
}

#[test]
fn cdn_node_three_disks() {
    const OBJECTS: usize = 30;
    let large = content(3 << 20);
    let text = include_str!("../../examples/cdn-node-three-disks.conf");
    let server = caching(text, "add_header Cache-Control max-age=600;")
        .file("mnt/kept", "")
        .file("storage/large", &large)
        .start();
    for n in 0..OBJECTS {
        server.write(&format!("storage/{n}"), format!("object {n}"));
        assert_eq!(server.get(&format!("/{n}")).text(), format!("object {n}"));
    }
    assert!(server.get("/large").body == large);
    // Each disk has its share of the objects, and all of them are there.
    let disk = |n: usize| files(&server.dir().join(format!("mnt/disk{n}")));
    wait::until("the objects are stored", wait::PATIENCE, || {
        let all = [disk(1), disk(2), disk(3)];
        (all.iter().sum::<usize>() == OBJECTS + 1).then(|| assert!(!all.contains(&0), "{all:?}"))
    });
    for n in 0..OBJECTS {
        server.write(&format!("storage/{n}"), "something else");
        assert_eq!(server.get(&format!("/{n}")).text(), format!("object {n}"));
    }
    server.write("storage/large", "something else");
    assert!(server.get("/large").body == large);
    assert!(server.quit().success());
}

#[test]
fn cache_tail_latency() {
    let text = include_str!("../../examples/cache-tail-latency.conf");
    let server = caching(text, "").file("storage/a", "an object").start();
    assert_eq!(server.get("/a").text(), "an object");
    server.write("storage/a", "something else");
    assert_eq!(server.get("/a").text(), "an object");
    assert_eq!(server.get("/none").status, 404);
    wait::until("the object is stored", wait::PATIENCE, || {
        (files(&server.dir().join("cache")) == 1).then_some(())
    });
    assert_eq!(server.get("/a").text(), "an object");
    assert!(server.quit().success());
}

/// `nowait -t` of a text, as an operator runs it.
fn tested(text: &str) -> (Output, String) {
    let dir = TempDir::new("later");
    let path = dir.write("nginx.conf", text);
    let output = binary().command().arg("-t").arg("-c").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said.replace(&path.display().to_string(), "FILE"))
}

/// Of these directives (with their lines) exactly those that do not exist yet are refused, and the
/// summary names them.
#[track_caller]
fn check_refused(text: &str, directives: &[(usize, &str)]) {
    let reference = binary().command().args(["reference", "unsupported"]).output().unwrap();
    let reference = String::from_utf8_lossy(&reference.stdout).into_owned();
    let is_missing = |name: &str| {
        let modules = ["| ngx_http_", "| ngx_stream_module "];
        let mut lines =
            reference.lines().filter(|line| modules.iter().any(|m| line.starts_with(m)));
        lines.any(|line| line.contains(&format!("`{name}`")))
    };
    let missing: Vec<_> = directives.iter().filter(|(_, name)| is_missing(name)).collect();
    let (output, said) = tested(text);
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("[emerg]")).collect();
    let expected: Vec<String> = missing
        .iter()
        .map(|(line, name)| {
            format!(
                "nowait: [emerg] directive \"{name}\" is not supported by nowait: \
                 it is not implemented yet in FILE:{line}"
            )
        })
        .collect();
    assert_eq!(errors, expected, "{said}");
    assert_eq!(output.status.success(), missing.is_empty(), "{said}");
    let summary = said.split("that nowait does not have:\n").nth(1).unwrap_or_default();
    for (_, name) in missing {
        assert!(summary.contains(name), "{said}");
    }
}

#[test]
fn streams_are_all_that_reuseport_lacks() {
    check_refused(include_str!("../../examples/reuseport.conf"), &[(19, "stream")]);
}
