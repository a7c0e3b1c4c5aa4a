//! A configuration that nothing uses any more is freed beside the event loops, no matter which thread used it last. A loop
//! that frees one says so in the log, and every alert there fails the test.

use super::*;
use nowait_testkit::http2::Http2;

/// The main text of a server with a `stream` server in front of it.
const STREAM: &str =
    "stream { server { listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:%%PORT%%; } }";

/// A response that takes longer than the test.
fn slow() -> String {
    let text = "0123456789".repeat(400);
    "server { listen 127.0.0.1:%%PORT%%; http2 on; location / { return 200 x; }
     location /slow { limit_rate 100; return 200 TEXT; } }"
        .replace("TEXT", &text)
}

/// Waits until the old generations are gone: one line for each of their workers.
fn drained(server: &Server, workers: usize) {
    until("the old generations", PATIENCE, || {
        (server.log().matches("exited with code 0").count() >= workers).then_some(())
    });
}

fn start(driver: Driver) -> Server {
    server("").http(&slow()).main(STREAM).workers(1).driver(driver).start()
}

fn freed_by_the_last(driver: Driver) {
    // Nothing is in flight: the loop itself is the last user. Idle connections keep no configuration.
    let server = start(driver);
    let mut idle = server.client();
    assert_eq!(idle.get("/").text(), "x");
    for workers in 1..=3 {
        server.reload();
        drained(&server, workers);
    }
    assert_eq!(idle.get("/").text(), "x");

    // A request, whose client leaves.
    let mut client = server.client();
    client.send_get("/slow");
    assert!(!client.read_some(1).is_empty());
    server.reload();
    drop(client);
    drained(&server, 4);

    // The same over HTTP/2.
    let mut client = Http2::to_port(server.port());
    let stream = client.send_get("/slow");
    client.until("some of the body", |client| !client.so_far(stream).body.is_empty());
    server.reload();
    drop(client);
    drained(&server, 5);

    // A session of `stream`.
    let mut client = nowait_testkit::Client::to_port(server.port_n(1));
    assert_eq!(client.get("/").text(), "x");
    server.reload();
    drop(client);
    drained(&server, 6);

    // Workers that end.
    let mut server = server;
    let mut client = server.client();
    client.send_get("/slow");
    assert!(!client.read_some(1).is_empty());
    server.set_workers(2);
    let output = control(&server, &["-s", "reload"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(idle.get("/").text(), "x");
    drop(client);
    drained(&server, 7);
    assert!(server.quit().success());
}

#[test]
fn the_last_user_of_a_configuration_does_not_free_it_on_epoll() {
    freed_by_the_last(Driver::Epoll);
}

#[test]
fn the_last_user_of_a_configuration_does_not_free_it_on_io_uring() {
    freed_by_the_last(Driver::IoUring);
}
