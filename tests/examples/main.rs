//! The examples in `examples/` run as they stand: only paths, ports and the words that a test needs are
//! put in.

mod api_gateway;
mod curl;
mod docs;
mod download_mirror;
mod grpc;
mod http3;
mod lan_cache;
mod pages;
mod php;
mod static_site;
mod stream;
mod webdav;

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

/// The first configuration of the README, with everything around it that a reader would have.
#[test]
fn readme() {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("cat > nginx.conf <<'END'\n").expect("an example");
    let (text, _) = rest.split_once("\nEND\n").expect("its end");
    let text = text.replace("events {}", "events { }").replace("listen 8080", "listen 8000");
    let server = example(&text)
        .file("html/index.html", "It works.")
        .file("storage/iso/debian.iso", "an image")
        .file("logs/access.log", "")
        .start();
    assert_eq!(server.get("/").text(), "It works.");
    assert_eq!(server.get("/iso/debian.iso").text(), "an image");
    // The server's own files there are not checked.
    for path in ["/nginx.conf", "/nginx.pid", "/error.log", "/logs/access.log", "/html/index.html"]
    {
        assert!(server.dir().join(path.trim_start_matches('/')).exists(), "{path}");
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert!(server.quit().success());
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
    // Without proxy_cache_lock, an object that is being stored is fetched again.
    wait::until("the object is stored", wait::PATIENCE, || {
        (files(&server.dir().join("cache")) == 1).then_some(())
    });
    server.write("storage/a", "something else");
    assert_eq!(server.get("/a").text(), "an object");
    assert_eq!(server.get("/none").status, 404);
    assert!(server.quit().success());
}

#[test]
fn reuseport() {
    let text = include_str!("../../examples/reuseport.conf")
        .replace("listen 12345", "listen %%PORT_1%%")
        .replace("127.0.0.1:8000", "127.0.0.1:%%PORT%%");
    let server = example(&text).start();
    let port = server.port_n(1);
    // Enough connections for each worker's sockets to get some.
    for _ in 0..32 {
        assert_eq!(server.get("/").text(), "OK");
        let passed = nowait_testkit::Client::to_port(port).get("/");
        assert_eq!((passed.status, passed.text()), (200, "OK".into()));
        assert_eq!(passed.header("Content-Type"), Some("text/plain"));
    }
    assert!(server.quit().success());
}
