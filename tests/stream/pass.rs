//! Connections that are passed on to another listening socket.

use nowait_testkit::Client;

use crate::stage::{hear, on_each, stream, wait_file};

const BOTH: &str = "%%MAIN%% events { %%EVENTS%% }
    http { %%HTTP%% server {
        listen 127.0.0.1:%%PORT_1%%; return 200 '$remote_addr $server_port $connection'; } }
    stream {
        log_format main '$server_port $status'; access_log %%DIR%%/stream.log main;
        server { listen 127.0.0.1:%%PORT%%; pass 127.0.0.1:%%PORT_1%%; }
        server { listen 127.0.0.1:%%PORT_2%%; ssl_preread on; pass $to; }
        server { listen 127.0.0.1:%%PORT_3%%; return $remote_addr:$server_port; }
        server { listen 127.0.0.1:%%PORT_4%%; pass 127.0.0.1:%%PORT_3%%; }
        server { listen 127.0.0.1:%%PORT_5%%; pass 127.0.0.1:%%PORT_5%%; }
        server { listen 127.0.0.1:%%PORT_6%%; pass 127.0.0.1:1; }
        map $protocol $to { default 127.0.0.1:%%PORT_1%%; }
    }";

#[test]
fn http_takes_connections_over() {
    on_each(&stream("").config(BOTH), |server| {
        let port = server.port_n(1);
        for from in [server.port(), server.port_n(2)] {
            let mut client = Client::to_port(from);
            // What was read beforehand goes with it.
            let first = client.get("/").text();
            assert!(first.starts_with(&format!("127.0.0.1 {port} ")), "{first}");
            assert_eq!(client.get("/").text(), first, "it is the same connection");
        }
    });
}

#[test]
fn stream_takes_connections_over() {
    on_each(&stream("").config(BOTH), |server| {
        let (port, from) = (server.port_n(3), server.port_n(4));
        assert_eq!(hear(([127, 0, 0, 1], from).into()), format!("127.0.0.1:{port}"));
        let line = format!("{port} 200\n");
        wait_file(server, "stream.log", &line);
        assert_eq!(server.read("stream.log"), line);
    });
}

#[test]
fn there_is_an_end_to_it() {
    on_each(&stream("").config(BOTH), |server| {
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(5)).into()), "");
        server.wait_log("stream pass cycle while passing connection to port, client: 127.0.0.1");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(6)).into()), "");
        server.wait_log("port not found for \"127.0.0.1:1\"");
    });
}

#[test]
fn mistakes_are_named() {
    for (to, message) in [
        ("127.0.0.1", "no port in \"127.0.0.1\" of the \"pass\" directive"),
        ("localhost:1", "no addresses in \"localhost:1\" of the \"pass\" directive"),
        ("[::1", "invalid host in \"[::1\" of the \"pass\" directive"),
    ] {
        let block = format!("server {{ listen 127.0.0.1:%%PORT%%; pass {to}; }}");
        let Err(failure) = stream(&block).try_start() else { panic!("it has started") };
        assert!(failure.stderr.contains(message), "{}", failure.stderr);
    }
}
