//! The descriptor table of the server process.
//!
//! The kernel makes a process that shares its table between threads wait, sometimes for tens of
//! milliseconds, whenever the table grows. So it must not grow while an event loop accepts.

use std::fs;
use std::net::TcpStream;

use nowait_testkit::{Binary, Server};

/// What `/proc` says of a process: the number in the line of `status` or `limits` that begins so.
fn number_of(pid: u32, file: &str, line: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let rest = text.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap_or(u64::MAX)
}

fn reload(server: &Server) {
    let dir = server.dir().to_str().unwrap();
    let arguments = ["-p", dir, "-c", "nginx.conf", "-s", "reload"];
    let output = server.binary().command().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_table_has_its_final_size_before_connections_come() {
    let connections = |number: u64| format!("worker_connections {number};");
    let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
        .workers(2)
        .events(&connections(1000))
        .http("server { listen 127.0.0.1:%%PORT%%; return 200 x; }")
        .start();
    assert_eq!(server.get("/").text(), "x");
    let pid = server.children()[0];
    let size = || number_of(pid, "status", "FDSize:");
    let limit = number_of(pid, "limits", "Max open files");
    let at_start = size();
    assert!(at_start >= limit.min(2 * 1000), "{at_start}");
    let clients: Vec<_> = (0..400).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
    // Accepted after the others.
    assert_eq!(server.get("/").text(), "x");
    assert_eq!(size(), at_start);
    drop(clients);
    let text = server.read("nginx.conf").replace(&connections(1000), &connections(9000));
    server.write("nginx.conf", text);
    reload(&server);
    assert_eq!(server.children(), [pid]);
    assert!(size() >= limit.min(2 * 9000), "{}", size());
    assert!(server.stop().success());
}
