//! Serving a directory without a configuration.

use super::*;
use std::io::BufRead;
use std::process::{Child, Stdio};

/// A program that serves, and the lines that it has printed.
struct Serving {
    child: Child,
    greeting: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program in `dir` and waits until it says where it serves.
fn serve(dir: &TempDir, arguments: &[&str]) -> Serving {
    let mut child = binary()
        .command()
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
    assert!(serving.greeting.contains(&format!("http://0.0.0.0:{first}/, ")));
    for port in [first, second] {
        assert_eq!(nowait_testkit::Client::to_port(port).get("/.well-known/x").text(), "hello");
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
