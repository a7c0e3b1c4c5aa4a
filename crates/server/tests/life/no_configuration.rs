//! Serving a directory without a configuration.

use super::*;
use std::io::BufRead;
use std::process::{Child, Stdio};

/// A program that serves, and the lines that it has printed.
pub(super) struct Serving {
    pub(super) child: Child,
    pub(super) greeting: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program in `dir` and waits until it says where it serves.
pub(super) fn serve(dir: &TempDir, arguments: &[&str]) -> Serving {
    serve_by(binary().command(), dir, arguments)
}

fn serve_by(mut command: Command, dir: &TempDir, arguments: &[&str]) -> Serving {
    let mut child = command
        .args(arguments)
        .current_dir(dir.path())
        .env("XDG_RUNTIME_DIR", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut greeting = String::new();
    while !greeting.contains("Ctrl-C") {
        let Some(line) = lines.next() else {
            let output = child.wait_with_output().unwrap();
            panic!("{greeting}{}", stderr(&output));
        };
        greeting.push_str(&format!("{}\n", line.unwrap()));
    }
    Serving { child, greeting }
}

/// Addresses on which a process, or one of its children, listens at `port`.
fn listening(port: u16) -> Vec<String> {
    let mut found = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == "0A" && fields[1].ends_with(&format!(":{port:04X}")) {
                found.push(fields[1].to_owned());
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_directory_is_served_to_this_machine_without_dot_files() {
    let dir = TempDir::new("here");
    dir.write("page.html", "hello");
    dir.write(".git/config", "secret");
    dir.write("a/.env", "secret");
    let port = nowait_testkit::ports::free_port();
    // Ctrl-C, and the end of the terminal.
    for end in [Signal::INT, Signal::HUP] {
        let mut serving = serve(&dir, &["serve", "--port", &port.to_string()]);
        assert!(serving.greeting.contains(&format!("http://localhost:{port}/")));
        for address in listening(port) {
            let is_loopback = address.starts_with("0100007F:")
                || address.starts_with("00000000000000000000000001");
            assert!(is_loopback, "{address}");
        }
        let get = |path: &str| nowait_testkit::Client::to_port(port).get(path);
        assert_eq!(get("/page.html").text(), "hello");
        for path in ["/.git/config", "/.git/", "/%2egit/config", "/a/.env", "/x/../.git/config"] {
            assert_eq!(get(path).status, 404, "{path}");
        }
        assert!(!get("/").text().contains(".git"));
        signal(serving.child.id(), end);
        assert!(serving.child.wait().unwrap().success());
    }
}

#[test]
fn dot_files_and_other_addresses_are_served_on_demand() {
    let dir = TempDir::new("here");
    dir.write("sub/.well-known/x", "hello");
    let [first, second] = [(); 2].map(|()| nowait_testkit::ports::free_port());
    let arguments =
        ["serve", "sub", "--hidden", "-l", &format!("0.0.0.0:{first}")].map(String::from);
    let more = ["--listen".to_owned(), format!("127.0.0.1:{second}")];
    let arguments: Vec<&str> = arguments.iter().chain(&more).map(String::as_str).collect();
    let serving = serve(&dir, &arguments);
    // The first address stands for all of this machine, and the second for itself.
    let here = format!(" at http://localhost:{first}/, http://localhost:{second}/\n");
    assert!(serving.greeting.contains(&here), "{}", serving.greeting);
    let others = serving.greeting.lines().find(|line| line.starts_with("Other devices: "));
    let others = others.unwrap_or_default().trim_start_matches("Other devices: ");
    for url in others.split(", ").filter(|url| !url.is_empty()) {
        let authority = url.trim_start_matches("http://").trim_end_matches('/');
        assert!(TcpStream::connect(authority).is_ok(), "{url}");
    }
    for port in [first, second] {
        assert_eq!(nowait_testkit::Client::to_port(port).get("/.well-known/x").text(), "hello");
    }
}

/// A site whose name leads to a loopback address would otherwise read the files in the visitor's browser.
#[test]
fn only_names_of_this_machine_are_answered() {
    let dir = TempDir::new("here");
    dir.write("x", "hello");
    let port = nowait_testkit::ports::free_port();
    let status = |host: &str| {
        let mut client = nowait_testkit::Client::to_port(port);
        client.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.text().contains("--host"), response.status == 421, "{host}");
        response.status
    };
    let here = ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "[::1]", "192.0.2.7"];
    let others = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "1.2.3.4.5"];
    let serving = serve(&dir, &["serve", "--port", &port.to_string()]);
    for host in here {
        assert_eq!((status(host), status(&format!("{host}:{port}"))), (200, 200), "{host}");
    }
    for host in others.iter().chain(&["box.example"]) {
        assert_eq!((status(host), status(&format!("{host}:{port}"))), (421, 421), "{host}");
    }
    let mut client = nowait_testkit::Client::to_port(port);
    client.send("GET http://evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.response().status, 421);
    client = nowait_testkit::Client::to_port(port);
    client.send("GET /x HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    drop(serving);
    let arguments = ["serve", "--port", &port.to_string(), "--host", "Box.example"];
    let serving = serve(&dir, &arguments);
    assert_eq!(["box.example", "localhost", "evil.example"].map(status), [200, 200, 421]);
    drop(serving);
    let _serving = serve(&dir, &["serve", "-l", &format!("0.0.0.0:{port}")]);
    assert_eq!(status("box.example"), 200, "everybody may come in anyway");
}

/// What lies outside the directory is not served because a link leads there.
#[test]
fn links_are_followed_inside_the_directory_only() {
    use std::os::unix::fs::symlink;
    let dir = TempDir::new("here");
    dir.write("served/real/page", "hello");
    dir.write("served/.git/config", "secret");
    dir.write("outside/secret", "secret");
    let served = dir.path().join("served");
    let link = |to: &str, name: &str| symlink(to, served.join(name)).unwrap();
    link("real/page", "page");
    link("real", "real-dir");
    link(served.join("real/page").to_str().unwrap(), "absolute");
    link("../outside/secret", "secret");
    link("../outside", "out-dir");
    link(".git/config", "config");
    link(".git", "repository");
    let port = nowait_testkit::ports::free_port();
    let get = |path: &str| nowait_testkit::Client::to_port(port).get(path);
    let inside = ["/page", "/real-dir/page", "/absolute"];
    let listed = ["\"real-dir/\"", "\"absolute\"", "\"page\""];
    let refused = ["/secret", "/out-dir/secret", "/out-dir/", "/config", "/repository/config"];
    let unlisted = ["\"secret\"", "out-dir", "config", "repository"];
    // (options, how many of those are served)
    let hidden: &[&str] = &["--hidden"];
    for (options, served) in [(&[][..], 0), (hidden, 2), (&["--follow-links"], 5)] {
        let port = port.to_string();
        let arguments = [&["serve", "served", "--port", &port], options].concat();
        let mut serving = serve(&dir, &arguments);
        for path in inside {
            assert_eq!(get(path).text(), "hello", "{options:?} {path}");
        }
        let answered = refused.map(|path| get(path).status);
        let found = answered.iter().filter(|status| **status == 200).count();
        assert_eq!(found, served, "{options:?} {answered:?}");
        assert_eq!(answered.iter().filter(|status| **status == 403).count(), 5 - served);
        let list = get("/").text();
        assert!(listed.iter().all(|name| list.contains(name)), "{options:?} {list}");
        let shown = unlisted.iter().filter(|name| list.contains(**name)).count();
        assert_eq!(
            shown,
            [0, 2, 4][[0, 2, 5].iter().position(|n| *n == served).unwrap()],
            "{list}"
        );
        signal(serving.child.id(), Signal::TERM);
        serving.child.wait().unwrap();
    }
}

/// Root's files are not for everybody who can reach the port, if only from this machine.
#[test]
fn root_serves_as_nobody() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return nowait_testkit::skip("root", "not root");
    }
    let dir = TempDir::new("here");
    let secret = dir.write("secret", "for root");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let port = nowait_testkit::ports::free_port();
    let mut serving = serve(&dir, &["serve", ".", "--port", &port.to_string()]);
    assert_eq!(nowait_testkit::Client::to_port(port).get("/secret").status, 403);
    signal(serving.child.id(), Signal::TERM);
    assert!(serving.child.wait().unwrap().success());
    let mut text = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("started as root: files are read as user \"nobody\""), "{text}");
}

/// The bare command serves the current directory; a global directive replaces what is built in.
#[test]
fn without_a_configuration_the_directory_is_served() {
    if std::path::Path::new("/etc/nowait/nowait.conf").exists() {
        return nowait_testkit::skip("no installed configuration", "there is one");
    }
    let dir = TempDir::new("here");
    dir.write("x", "hello");
    // Another server may have the port. Then the attempt to take it is as good a proof.
    if std::net::TcpListener::bind(("127.0.0.1", 8080)).is_err() {
        let arguments = ["-g", "daemon off; worker_processes 1;"];
        let output = binary().command().args(arguments).current_dir(dir.path()).output().unwrap();
        let message = "[emerg] bind() to 127.0.0.1:8080 failed (98: Address already in use)";
        return assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    let serving = serve(&dir, &["-g", "daemon off; worker_processes 1;"]);
    assert!(serving.greeting.contains("http://localhost:8080/"), "{}", serving.greeting);
    assert_eq!(nowait_testkit::Client::to_port(8080).get("/x").text(), "hello");
}

/// What a terminal shows: requests in colours, and nothing that a client could use to control it.
#[test]
fn requests_are_shown_on_a_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        return nowait_testkit::skip("script", "not installed");
    }
    for no_colour in [false, true] {
        let dir = TempDir::new("terminal");
        dir.write("page.html", "hello");
        let port = nowait_testkit::ports::free_port();
        let program = env!("CARGO_BIN_EXE_nowait");
        let typescript = dir.path().join("typescript");
        let mut child = Command::new("script")
            .args(["-q", "-f", "-c", &format!("exec {program} serve --port {port}")])
            .arg(&typescript)
            .current_dir(dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .env("TERM", "xterm")
            .envs(no_colour.then_some(("NO_COLOR", "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let shown = || {
            let bytes = fs::read(&typescript).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        until("the greeting", PATIENCE, || shown().contains("Ctrl-C").then_some(()));
        let get = |path: &str| nowait_testkit::Client::to_port(port).get(path);
        assert_eq!(get("/page.html").status, 200);
        assert_eq!(get("/none?a=%1b").status, 404);
        for hostile in ["GET /\x1b]0;title\x07\u{9b}31m HTTP/1.0\r\n\r\n", "\x1b[2J\r\n\r\n"] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(hostile.as_bytes()).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
        }
        until("all lines", PATIENCE, || (shown().matches(" B ").count() == 4).then_some(()));
        let text = shown();
        let (green, yellow) = if no_colour {
            (" 127.0.0.1 200 GET /page.html 5 B ", " 404 GET /none?a=%1b ")
        } else {
            (
                " 127.0.0.1\u{1b}[0m \u{1b}[32m200\u{1b}[0m GET /page.html \u{1b}[2m5 B ",
                "\u{1b}[33m404\u{1b}[0m GET /none",
            )
        };
        assert!(text.contains(green) && text.contains(yellow), "{text:?}");
        assert!(!text.contains("open() "), "{text:?}");
        // Escapes are those of colours, and no other control characters arrive.
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" B ")).collect();
        for line in lines {
            for part in line.split('\u{1b}').skip(1) {
                let (code, _) = part.strip_prefix('[').unwrap().split_once('m').unwrap();
                assert!(code.bytes().all(|b| b.is_ascii_digit() || b == b';'), "{line:?}");
                assert!(!no_colour, "{line:?}");
            }
            assert!(!line.contains(['\x07', '\u{9b}', '\u{fffd}']), "{line:?}");
        }
        drop(child.stdin.take());
        let server = children(child.id());
        signal(server[0], Signal::TERM);
        child.wait().unwrap();
    }
}

/// Browsers get pages for people; an empty directory says what to do.
#[test]
fn pages_for_browsers() {
    let dir = TempDir::new("pages");
    let port = nowait_testkit::ports::free_port();
    let mut serving = serve(&dir, &["serve", "--port", &port.to_string()]);
    let get = |path: &str| {
        let mut client = nowait_testkit::Client::to_port(port);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n"));
        client.response()
    };
    assert!(get("/").text().contains("this directory is empty"));
    let missing = get("/none");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("There is nothing at this address."));
    signal(serving.child.id(), Signal::TERM);
    assert!(serving.child.wait().unwrap().success());
}

/// What a browser can show, it shows: each file has its type, texts are UTF-8, and large ones are compressed.
#[test]
fn files_have_types_and_texts_a_charset() {
    let dir = TempDir::new("types");
    let port = nowait_testkit::ports::free_port();
    let files = [
        ("film.mkv", "video/x-matroska"),
        ("film.mov", "video/quicktime"),
        ("film.vtt", "text/vtt; charset=utf-8"),
        ("film.srt", "text/plain; charset=utf-8"),
        ("song.opus", "audio/ogg"),
        ("notes.txt", "text/plain; charset=utf-8"),
        ("page.HTML", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("main.rs", "text/plain; charset=utf-8"),
        ("ci.yaml", "text/plain; charset=utf-8"),
        ("data.json", "application/json"),
        ("program", "application/octet-stream"),
    ];
    let large = "gr\u{fc}n ".repeat(1000);
    for (name, _) in files {
        dir.write(name, &large);
    }
    dir.write("small.txt", "small");
    let _serving = serve(&dir, &["serve", "--port", &port.to_string()]);
    let get = |path: &str| {
        let mut client = nowait_testkit::Client::to_port(port);
        client.send(format!(
            "GET /{path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
        ));
        client.response()
    };
    for (name, expected) in files {
        let response = get(name);
        assert_eq!(response.header("Content-Type"), Some(expected), "{name}");
        let is_text = expected.contains("charset") || expected == "application/json";
        let coding = response.header("Content-Encoding");
        assert_eq!(coding, is_text.then_some("gzip"), "{name}");
    }
    assert_eq!(get("small.txt").header("Content-Encoding"), None);
}

#[test]
fn passwords_are_given_generated_or_from_the_environment() {
    let dir = TempDir::new("auth");
    dir.write("x", "hello");
    let port = nowait_testkit::ports::free_port();
    let port_text = port.to_string();
    let status = |credentials: &str| {
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode(credentials);
        let mut client = nowait_testkit::Client::to_port(port);
        client.send(format!(
            "GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {encoded}\r\n\r\n"
        ));
        client.response().status
    };
    let arguments = ["serve", "-p", &port_text, "--auth", "anna:se:cret", "--auth", "bob"];
    let serving = serve(&dir, &arguments);
    assert_eq!(nowait_testkit::Client::to_port(port).get("/x").status, 401);
    assert_eq!(nowait_testkit::Client::to_port(port).get("/").status, 401);
    assert_eq!(
        ["anna:se:cret", "anna:se", "bob:", "bob:se:cret"].map(status),
        [200, 401, 401, 401]
    );
    let (_, rest) = serving.greeting.split_once("User \"bob\", password \"").unwrap();
    let (password, _) = rest.split_once('"').unwrap();
    assert_eq!(status(&format!("bob:{password}")), 200);
    assert!(!serving.greeting.contains("se:cret"));
    drop(serving);
    let mut command = binary().command();
    command.env("NOWAIT_PASSWORD", "from outside");
    let serving = serve_by(command, &dir, &["serve", "-p", &port_text, "--auth", "bob"]);
    assert_eq!(["bob:from outside", "bob:other"].map(status), [200, 401]);
    assert!(!serving.greeting.contains("password"), "{}", serving.greeting);
}

/// Routes of an application in the browser are its page; files are files.
#[test]
fn a_single_page_answers_for_what_does_not_exist() {
    let dir = TempDir::new("spa");
    dir.write("index.html", "page");
    dir.write("app.js", "script");
    dir.write("docs/index.html", "docs");
    dir.write("empty/file", "file");
    dir.write(".env", "secret");
    let port = nowait_testkit::ports::free_port();
    let _serving = serve(&dir, &["serve", "-p", &port.to_string(), "--spa"]);
    for (path, expected) in [
        ("/", "page"),
        ("/users/7", "page"),
        ("/users/7/", "page"),
        ("/empty/", "page"),
        ("/docs/", "docs"),
        ("/app.js", "script"),
        ("/empty/file", "file"),
    ] {
        let response = nowait_testkit::Client::to_port(port).get(path);
        assert_eq!((response.status, response.text().as_str()), (200, expected), "{path}");
        assert_eq!(response.header("Cache-Control"), Some("no-cache"), "{path}");
        let is_page = expected == "page";
        let is_html = response.header("Content-Type") == Some("text/html; charset=utf-8");
        assert!(!is_page || is_html, "{path}");
    }
    assert_eq!(nowait_testkit::Client::to_port(port).get("/.env").status, 404);
}

#[test]
fn uploads_add_files_and_replace_them_on_demand() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new("upload");
    dir.write("old.txt", "old");
    for name in [".", "old.txt"] {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let port = nowait_testkit::ports::free_port();
    let port_text = port.to_string();
    let put = |path: &str, text: &str| {
        let mut client = nowait_testkit::Client::to_port(port);
        let length = text.len();
        client.send(format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{text}"
        ));
        client.response().status
    };
    let page = || {
        let mut client = nowait_testkit::Client::to_port(port);
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
        client.response()
    };
    {
        let _serving = serve(&dir, &["serve", "-p", &port_text]);
        assert_eq!(put("/x", "new"), 405);
        assert!(!page().text().contains("data-upload"));
    }
    {
        let _serving = serve(&dir, &["serve", "-p", &port_text, "--upload"]);
        // More than fits into memory goes to a file on the same file system.
        let large = "x".repeat(1 << 20);
        assert_eq!(put("/new/dir/a%20b.bin", &large), 201);
        assert_eq!(fs::read_to_string(dir.path().join("new/dir/a b.bin")).unwrap(), large);
        assert_eq!(nowait_testkit::Client::to_port(port).get("/new/dir/a%20b.bin").status, 200);
        assert_eq!(put("/old.txt", "new"), 412);
        for hidden in ["/.env", "/.git/config", "/.nowait-uploads/x"] {
            assert_eq!(put(hidden, "x"), 404, "{hidden}");
        }
        let page = page();
        assert!(page.text().contains("<main data-upload=\"new\">"));
        let policy = page.header("Content-Security-Policy").unwrap();
        assert!(policy.contains("; connect-src 'self'"), "{policy}");
        assert!(!page.text().contains("nowait-uploads"));
    }
    let arguments = ["serve", "-p", &port_text, "--upload", "--overwrite", "--hidden"];
    let _serving = serve(&dir, &arguments);
    assert_eq!(put("/old.txt", "new"), 204);
    assert_eq!(fs::read_to_string(dir.path().join("old.txt")).unwrap(), "new");
    assert_eq!([put("/.env", "x"), put("/.nowait-uploads/x", "x")], [201, 404]);
    assert!(page().text().contains("<main data-upload=\"replace\">"));
}

/// A file system that is unmounted at the end.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A disk that is full is the client's to know, and nothing is left.
#[test]
fn an_upload_without_room_leaves_nothing() {
    let dir = TempDir::new("full");
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k,mode=777", "none"]).arg(&disk);
    if !mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return nowait_testkit::skip("mount", "not allowed");
    }
    let _mounted = Mounted(disk.clone());
    let port = nowait_testkit::ports::free_port();
    let _serving = serve(&dir, &["serve", "disk", "-p", &port.to_string(), "--upload"]);
    let mut client = nowait_testkit::Client::to_port(port);
    let length = 1 << 20;
    client.send(format!(
        "PUT /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    ));
    // What the server does not want any more, it reads and discards.
    client.send(vec![b'x'; length]);
    assert_eq!(client.response().status, 507);
    until("an empty disk", PATIENCE, || {
        let mut left = vec![disk.clone()];
        let mut files = 0;
        while let Some(path) = left.pop() {
            for entry in fs::read_dir(path).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => left.push(entry.path()),
                    false => files += 1,
                }
            }
        }
        (files == 0).then_some(())
    });
}
