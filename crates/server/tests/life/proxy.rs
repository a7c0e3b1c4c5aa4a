//! `nowait proxy`: a reverse proxy without a configuration.

use super::no_configuration::{Serving, serve};
use super::*;
use std::io::BufRead;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use nowait_testkit::Client;

/// A server that answers each request with its head, and echoes what follows an upgrade.
struct Echo {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(port: u16) -> Echo {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let acceptor = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                std::thread::spawn(move || answer(stream));
            }
        });
        Echo { address, stop, acceptor: Some(acceptor) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        let _ = self.acceptor.take().unwrap().join();
    }
}

/// One request; health checks send none.
fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    if String::from_utf8_lossy(&head).contains("Upgrade: websocket\r\n") {
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        stream.write_all(switched.as_bytes()).unwrap();
        while let Ok(1) = stream.read(&mut byte) {
            stream.write_all(&byte).unwrap();
        }
        return;
    }
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", head.len());
    let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(&head));
}

/// Starts a proxy; `more` arguments precede the address of the server.
fn proxy(dir: &TempDir, port: u16, more: &[&str], origin: SocketAddr) -> Serving {
    let (port, url) = (port.to_string(), format!("http://{origin}"));
    serve(dir, &[&["proxy", "--port", &port], more, &[&url]].concat())
}

#[test]
fn requests_reach_the_server_with_their_name_and_client() {
    let dir = TempDir::new("proxy");
    let echo = Echo::start(0);
    let port = nowait_testkit::ports::free_port();
    let proxy = proxy(&dir, port, &[], echo.address);
    let expected =
        format!("Passing requests to http://{} at http://localhost:{port}/\n", echo.address);
    assert!(proxy.greeting.contains(&expected), "{}", proxy.greeting);
    let mut client = Client::to_port(port);
    client.send(format!(
        "POST /a?b=%20 HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 0\r\nX-Forwarded-For: 192.0.2.9\r\n\
         X-Forwarded-Proto: https\r\nForwarded: for=192.0.2.9\r\nAuthorization: Bearer x\r\n\r\n"
    ));
    let seen = client.response().text();
    assert!(seen.starts_with("POST /a?b=%20 HTTP/1.1\r\n"), "{seen}");
    for line in [
        &format!("Host: localhost:{port}"),
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: http",
        &format!("X-Forwarded-Host: localhost:{port}"),
        "Authorization: Bearer x",
    ] {
        assert!(seen.contains(&format!("\r\n{line}\r\n")), "no {line} in {seen}");
    }
    assert!(!seen.contains("192.0.2.9") && !seen.contains("Upgrade"), "{seen}");
    // Another site could otherwise reach the server by a name that leads to this machine.
    let mut client = Client::to_port(port);
    client.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(client.response().status, 421);
}

#[test]
fn websockets_pass_and_passwords_do_not() {
    let dir = TempDir::new("proxy");
    let echo = Echo::start(0);
    let port = nowait_testkit::ports::free_port();
    let _proxy = proxy(&dir, port, &["--auth", "anna:secret"], echo.address);
    let request = |more: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let mut client = Client::to_port(port);
    client.send(request(""));
    assert_eq!(client.response().status, 401);
    // anna:secret
    let right = "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";
    let mut client = Client::to_port(port);
    client.send(request(right));
    let seen = client.response();
    assert_eq!(seen.status, 200);
    assert!(!seen.text().contains("Authorization"), "{}", seen.text());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let upgrade = format!("{right}Upgrade: websocket\r\nConnection: Upgrade\r\n");
    stream.write_all(request(&upgrade).as_bytes()).unwrap();
    let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    for text in ["ping\n", "pong\n"] {
        stream.write_all(text.as_bytes()).unwrap();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
}

/// The terminal says when the server is down, and when it is up again.
#[test]
fn the_health_of_the_server_is_shown() {
    let dir = TempDir::new("proxy");
    let echo = Echo::start(0);
    let (origin, port) = (echo.address, nowait_testkit::ports::free_port());
    let mut proxy = proxy(&dir, port, &[], origin);
    let mut lines = std::io::BufReader::new(proxy.child.stderr.take().unwrap()).lines();
    let mut wait = |text: &str| {
        let found = lines.by_ref().map_while(Result::ok).find(|line| line.contains(text));
        assert!(found.is_some_and(|line| line.contains(&origin.to_string())), "{text}");
    };
    assert_eq!(Client::to_port(port).get("/").status, 200);
    drop(echo);
    wait("peer is unhealthy while connecting to upstream");
    assert_eq!(Client::to_port(port).get("/").status, 502);
    let _echo = Echo::start(origin.port());
    wait("peer is healthy");
    assert_eq!(Client::to_port(port).get("/").status, 200);
}

#[test]
fn what_is_wrong_is_said() {
    for (arguments, expected) in [
        (&["proxy"][..], "<URL>"),
        (&["proxy", "http://a/b"], "the URL has no path"),
        (&["proxy", "ftp://a"], "expected a URL such as http://127.0.0.1:3000"),
        (&["proxy", "8080"], "--port chooses another port"),
        (&["proxy", "3000", "--domian", "a"], "--domain"),
        (&["http://127.0.0.1:3000"], "\"nowait proxy http://127.0.0.1:3000\" passes requests"),
    ] {
        let output = nowait(arguments);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}
