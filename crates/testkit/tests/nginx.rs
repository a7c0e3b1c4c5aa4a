//! The kit proven against an installed nginx: what it says of a known server must be right.

use nowait_testkit::{Binary, Client, Server, check, check_on, skip, wait};

fn nginx() -> Option<Binary> {
    let binary = Binary::nginx();
    if binary.is_none() {
        skip("nginx", "nginx is not installed");
    }
    binary
}

#[test]
fn one_exchange() {
    let Some(nginx) = nginx() else { return };
    check(
        nginx,
        "server { listen 127.0.0.1:%%PORT%%; location / { return 200 hello; } }",
        "
        GET / HTTP/1.1
        Host: localhost
        ---
        HEAD / HTTP/1.1
        Host: localhost
        ---
        GET / HTTP/1.1
        Host: localhost
        Connection: close
        ",
        "
        HTTP/1.1 200 OK
        Server: nginx/*
        Content-Length: 5
        !Location

        hello
        ---
        200
        Content-Length: 5

        ---
        200
        Connection: close
        ---
        closed
        ",
    );
}

#[test]
fn reload_takes_the_new_configuration() {
    let Some(nginx) = nginx() else { return };
    let mut server =
        Server::of(nginx).http("server { listen 127.0.0.1:%%PORT%%; return 200 old; }").start();
    assert_eq!(server.get("/").text(), "old");
    server.set_http("server { listen 127.0.0.1:%%PORT%%; return 200 new; }");
    server.reload();
    // nginx's old workers may still accept for a moment; each new connection asks again.
    wait::until("the new configuration", wait::PATIENCE, || {
        (server.get("/").text() == "new").then_some(())
    });
    assert_eq!(server.quit().code(), Some(0));
}

#[test]
fn a_broken_configuration_is_a_start_failure() {
    let Some(nginx) = nginx() else { return };
    let failure = Server::of(nginx).http("nonsense;").try_start().unwrap_err();
    assert_eq!(failure.status.and_then(|status| status.code()), Some(1));
    assert!(failure.stderr.contains("unknown directive \"nonsense\""), "{failure:?}");
}

#[test]
fn files_and_more_ports() {
    let Some(nginx) = nginx() else { return };
    let server = Server::of(nginx)
        .workers(2)
        .file("www/a.txt", "content")
        .http(
            "server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/www; }
             server { listen 127.0.0.1:%%PORT_1%%; return 204; }",
        )
        .start();
    // The master listens before it has started its workers.
    wait::until("two workers", wait::PATIENCE, || (server.children().len() == 2).then_some(()));
    check_on(&server, "GET /a.txt HTTP/1.1\nHost: a", "200\nETag: *\n\ncontent");
    assert_eq!(Client::to_port(server.port_n(1)).get("/").status, 204);
    assert_eq!(server.stop().code(), Some(0));
}
