//! Connections that are passed on.

use std::io::{Read, Write};
use std::net::TcpListener;

use nowait_testkit::server::Signal;
use nowait_testkit::{Client, Driver, Server, ports, wait};

use crate::stage::{PATIENCE, Upstream, hear, on_each, say, stream, wait_file};

/// A server at `%%PORT%%` that passes on to `%%UP%%`.
fn passing(up: &Upstream, more: &str) -> nowait_testkit::ServerBuilder {
    let block = format!(
        "log_format main '$status $bytes_received $bytes_sent $protocol $upstream_addr \
         $upstream_bytes_sent $upstream_bytes_received $remote_addr $server_port';
         access_log %%DIR%%/access.log main;
         server {{ listen 127.0.0.1:%%PORT%%; proxy_pass %%UP%%; {more} }}"
    );
    stream(&block).variable("UP", up.addr())
}

#[test]
fn both_directions_and_a_line_in_the_log() {
    let up = Upstream::echo();
    on_each(&passing(&up, ""), |server| {
        let mut client = server.client();
        say(&mut client, "first", "first");
        say(&mut client, "second", "second");
        drop(client);
        let line = format!("200 11 11 TCP {} 11 11 127.0.0.1 {}\n", up.addr(), server.port());
        wait_file(server, "access.log", &line);
        server.wait_log("client disconnected, bytes from/to client:11/11");
        server.wait_log("connected to 127.0.0.1:");
    });
}

#[test]
fn the_end_of_one_side_is_the_end() {
    let up = Upstream::named("all that I say");
    on_each(&passing(&up, ""), |server| {
        assert_eq!(hear(server.addr()), "all that I say");
        server.wait_log("upstream disconnected, bytes from/to client:0/14");
        // A client that has ended its sending is not answered any more.
        let mut client = server.client();
        client.half_close();
        client.expect_closed_or_rest();
    });
}

trait ExpectEnd {
    fn expect_closed_or_rest(&mut self);
}

impl ExpectEnd for Client {
    /// What comes is of no interest, but that it ends.
    fn expect_closed_or_rest(&mut self) {
        let _ = self.rest();
    }
}

#[test]
fn half_closed_sessions_go_on() {
    let up = Upstream::new(|mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            let _ = stream.write_all(&[b"got ", &all[..]].concat());
        }
    });
    on_each(&passing(&up, "proxy_half_close on;"), |server| {
        let mut client = server.client();
        client.send("everything");
        client.half_close();
        assert_eq!(client.rest(), b"got everything");
        wait_file(server, "access.log", "200 10 14 TCP");
    });
}

#[test]
fn much_data_in_both_directions() {
    const BYTES: usize = 8 * 1024 * 1024;
    let up = Upstream::echo();
    // Through buffers, and through pipes in the kernel.
    for buffers in ["proxy_buffer_size 64k;", ""] {
        on_each(&passing(&up, buffers), much_data_passes);
    }

    fn much_data_passes(server: &mut Server) {
        let mut reader = server.client();
        let mut writer = reader.stream().try_clone().expect("a descriptor");
        let sender = std::thread::spawn(move || {
            let block: Vec<u8> = (0..65_536u32).map(|n| (n % 253) as u8).collect();
            for _ in 0..BYTES / block.len() {
                writer.write_all(&block).expect("it is read");
            }
        });
        let mut block = vec![0; 65_536];
        for _ in 0..BYTES / block.len() {
            reader.read_exact(&mut block).expect("it comes back");
            assert!(block.iter().enumerate().all(|(n, byte)| *byte == (n % 253) as u8));
        }
        sender.join().expect("all was sent");
        drop(reader);
        wait_file(server, "access.log", &format!("200 {BYTES} {BYTES} TCP"));
    }
}

#[test]
fn a_silent_session_ends() {
    let up = Upstream::echo();
    on_each(&passing(&up, "proxy_timeout 200ms;"), |server| {
        let mut client = server.client();
        say(&mut client, "x", "x");
        client.expect_closed();
        server
            .wait_log("connection timed out (110: Connection timed out) while proxying connection");
        wait_file(server, "access.log", "200 1 1 TCP");
    });
}

#[test]
fn another_server_is_tried() {
    let up = Upstream::named("alive");
    let closed = ports::free_port();
    let block = "log_format main '$status $upstream_addr $upstream_connect_time \
                 $upstream_session_time';
                 access_log %%DIR%%/access.log main;
                 upstream u { server 127.0.0.1:%%DEAD%% max_fails=0; server %%UP%% backup; }
                 upstream dead { server 127.0.0.1:%%DEAD%%; server 127.0.0.2:%%DEAD%%; }
                 server { listen 127.0.0.1:%%PORT%%; proxy_pass u; }
                 server { listen 127.0.0.1:%%PORT_1%%; proxy_pass u; proxy_next_upstream off; }
                 server { listen 127.0.0.1:%%PORT_2%%; proxy_pass dead; }";
    let builder = stream(block).variable("UP", up.addr()).variable("DEAD", closed);
    on_each(&builder, |server| {
        assert_eq!(hear(server.addr()), "alive");
        let line = format!("200 127.0.0.1:{closed}, {} -, 0.0", up.addr());
        wait_file(server, "access.log", &line);
        server.wait_log(
            "connect() failed (111: Connection refused) while connecting to upstream, \
                         client: 127.0.0.1, server: 127.0.0.1:",
        );
        Client::to_port(server.port_n(1)).expect_closed();
        wait_file(server, "access.log", &format!("502 127.0.0.1:{closed} - 0.0"));
        Client::to_port(server.port_n(2)).expect_closed();
        Client::to_port(server.port_n(2)).expect_closed();
        server.wait_log("no live upstreams while connecting to upstream");
        wait_file(server, "access.log", "502 dead - 0.000");
    });
}

#[test]
fn the_proxy_protocol_comes_and_goes() {
    let up = Upstream::echo();
    let block = "log_format main '$status $remote_addr $proxy_protocol_addr:$proxy_protocol_port \
                 $proxy_protocol_server_addr';
                 access_log %%DIR%%/access.log main;
                 server { listen 127.0.0.1:%%PORT%%; proxy_pass %%UP%%; proxy_protocol on; }
                 server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; proxy_pass %%UP%%; \
                          proxy_protocol_timeout 200ms; }
                 server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_1%%; \
                          proxy_protocol v2; }";
    on_each(&stream(block).variable("UP", up.addr()), |server| {
        let mut client = server.client();
        let mine = client.stream().local_addr().expect("an address").port();
        let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {mine} {}\r\n", server.port());
        say(&mut client, "x", &format!("{header}x"));
        let mut client = Client::to_port(server.port_n(1));
        say(&mut client, "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\nrest", "rest");
        drop(client);
        wait_file(server, "access.log", "200 127.0.0.1 192.0.2.1:123 192.0.2.2");
        let mut client = Client::to_port(server.port_n(1));
        client.send("GET / HTTP/1.0\r\n\r\n");
        client.expect_closed();
        wait_file(server, "access.log", "400 127.0.0.1 -:- -");
        server.wait_log("broken header: \"GET / HTTP/1.0");
        Client::to_port(server.port_n(1)).expect_closed();
        server
            .wait_log("client timed out (110: Connection timed out) while reading PROXY protocol");
        let mut client = Client::to_port(server.port_n(2));
        let mine = client.stream().local_addr().expect("an address").port();
        say(&mut client, "y", "y");
        drop(client);
        wait_file(server, "access.log", &format!("200 127.0.0.1 127.0.0.1:{mine} 127.0.0.1"));
    });
}

#[test]
fn servers_by_variables() {
    let up = Upstream::named("found");
    let block = "upstream u { server %%UP%%; }
                 log_format main '$status $upstream_addr';
                 access_log %%DIR%%/access.log main;
                 server { listen 127.0.0.1:%%PORT%%; proxy_pass $server_addr:%%UPPORT%%; }
                 server { listen 127.0.0.1:%%PORT_1%%; server_name u; proxy_pass $server_name; }
                 server { listen 127.0.0.1:%%PORT_2%%; server_name x; proxy_pass $server_name; }
                 server { listen 127.0.0.1:%%PORT_3%%; proxy_pass $upstream_addr; }";
    let builder = stream(block).variable("UP", up.addr()).variable("UPPORT", up.addr().port());
    on_each(&builder, |server| {
        assert_eq!(hear(server.addr()), "found");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(1)).into()), "found");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(2)).into()), "");
        server.wait_log("no port in upstream \"x\"");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(3)).into()), "");
        server.wait_log("no host in upstream \"\"");
        wait_file(server, "access.log", "500 -\n");
    });
}

#[test]
fn rates_are_kept() {
    let up = Upstream::named("12345678901234567890");
    on_each(&passing(&up, "proxy_download_rate 10;"), |server| {
        let began = std::time::Instant::now();
        assert_eq!(hear(server.addr()), "12345678901234567890");
        // Ten bytes come at once, and the others not before the next second.
        assert!(began.elapsed().as_millis() >= 900, "{:?}", began.elapsed());
    });
}

#[test]
fn unix_sockets_on_both_sides() {
    let block = "server { listen 127.0.0.1:%%PORT%%; proxy_pass unix:%%DIR%%/a.sock; }
                 server { listen unix:%%DIR%%/a.sock; proxy_pass %%UP%%; }";
    let up = Upstream::named("through a socket");
    on_each(&stream(block).variable("UP", up.addr()), |server| {
        assert_eq!(hear(server.addr()), "through a socket");
    });
}

#[test]
fn sessions_live_on_after_a_reload_and_a_quit() {
    let up = Upstream::echo();
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = passing(&up, "").driver(driver).start();
        let mut client = server.client();
        say(&mut client, "before", "before");
        server.reload();
        say(&mut client, "after", "after");
        server.signal(Signal::QUIT);
        wait::until("the listener to close", PATIENCE, || {
            Client::try_to(server.addr()).is_err().then_some(())
        });
        say(&mut client, "still", "still");
        drop(client);
        assert!(server.wait_exit(PATIENCE).success());
        assert!(server.read("access.log").contains("200 16 16 TCP"));
    }
}

#[test]
fn old_sessions_end_when_their_time_is_over() {
    let up = Upstream::echo();
    let builder = passing(&up, "").main("worker_shutdown_timeout 200ms;");
    on_each(&builder, |server| {
        let mut client = server.client();
        say(&mut client, "before", "before");
        server.reload();
        client.expect_closed();
        server.wait_log("shutdown timeout while proxying connection");
        wait_file(server, "access.log", "200 6 6 TCP");
    });
}

#[test]
fn sessions_end_with_the_server_when_their_time_is_over() {
    let up = Upstream::echo();
    let builder = passing(&up, "").main("worker_shutdown_timeout 200ms;");
    for driver in [Driver::Epoll, Driver::IoUring] {
        let mut server = builder.clone().driver(driver).start();
        let mut client = server.client();
        say(&mut client, "before", "before");
        server.signal(Signal::QUIT);
        client.expect_closed();
        assert!(server.wait_exit(PATIENCE).success());
        assert!(server.read("access.log").contains("200 6 6 TCP"));
    }
}

#[test]
fn mistakes_are_named() {
    for (text, message) in [
        (
            "server { listen 127.0.0.1; proxy_pass 127.0.0.1:1; }",
            "no port in \"127.0.0.1\" of the \"listen\" directive",
        ),
        ("server { proxy_pass 127.0.0.1:1; }", "no \"listen\" is defined for server"),
        ("server { listen 127.0.0.1:%%PORT%%; proxy_pass u; }", "no port in upstream \"u\""),
        (
            "server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:x; }",
            "invalid port in upstream \"127.0.0.1:x\"",
        ),
        (
            "server { listen 127.0.0.1:%%PORT%%; proxy_pass a:1; proxy_pass b:1; }",
            "\"proxy_pass\" directive is duplicate",
        ),
        (
            "server { listen 127.0.0.1:%%PORT%%; proxy_pass $nosuch:1; }",
            "unknown \"nosuch\" variable",
        ),
        ("server { listen 127.0.0.1:%%PORT%%; proxy_protocol v3; }", "invalid value \"v3\""),
        ("server { listen 127.0.0.1:%%PORT%%; access_log a; }", "log format is not specified"),
        (
            "server { listen 127.0.0.1:%%PORT%% ssl; }",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
        ),
        ("upstream u { server a; }", "no port in upstream \"a\""),
        ("upstream u { }", "no servers are inside upstream"),
        ("upstream u { server a:1; least_time header; }", "invalid value \"header\""),
        ("upstream u { server a:1; ip_hash; }", "\"ip_hash\" directive is not allowed here"),
    ] {
        let failure = stream(text).try_start().expect_err(text);
        let said = format!("{}{}", failure.stderr, failure.log);
        assert!(said.contains(message), "{text}: {said}");
    }
}

#[test]
fn http_and_stream_do_not_share_an_address() {
    let text = "%%MAIN%% events { %%EVENTS%% }
                http { %%HTTP%% server { listen 127.0.0.1:%%PORT%%; } }
                stream { server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:1; } }";
    let failure = stream("").config(text).try_start().expect_err("it is refused");
    assert!(failure.stderr.contains("is listened on in \"http\" and in \"stream\""), "{failure:?}");
}

#[test]
fn http_and_stream_side_by_side() {
    let text = "%%MAIN%% events { %%EVENTS%% }
                http { %%HTTP%% server { listen 127.0.0.1:%%PORT_1%%; return 200 from-http; } }
                stream { server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:%%PORT_1%%; } }";
    on_each(&stream("").config(text), |server: &mut Server| {
        assert_eq!(server.get("/").text(), "from-http");
    });
}

#[test]
fn a_listener_that_nobody_answers_on() {
    // The server accepts before it knows whether the upstream does.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = silent.local_addr().expect("its address");
    let block = "server { listen 127.0.0.1:%%PORT%%; proxy_pass %%UP%%; }";
    on_each(&stream(block).variable("UP", addr), |server| {
        let mut client = server.client();
        client.send("is anybody there?");
        // The first one is the probe whether the server listens.
        let accepted = silent.incoming().flatten().find_map(|mut stream| {
            let mut heard = [0; 17];
            stream.read_exact(&mut heard).is_ok().then_some(stream)
        });
        drop(accepted);
        client.expect_closed();
    });
}

#[test]
fn status_pages_tell_of_sessions() {
    let up = Upstream::echo();
    let text = "%%MAIN%% events { %%EVENTS%% }
                http { %%HTTP%% server { listen 127.0.0.1:%%PORT%%;
                       location /status/ { status_api; } location /metrics { metrics; } } }
                stream { upstream u { server %%UP%%; }
                         server { listen 127.0.0.1:%%PORT_1%%; proxy_pass u; } }";
    on_each(&stream("").config(text).variable("UP", up.addr()), |server| {
        let mut client = Client::to_port(server.port_n(1));
        say(&mut client, "hello", "hello");
        let status = server.get("/status/stream").text();
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!(status["sessions"]["total"], 1);
        assert_eq!(status["sessions"]["active"], 1);
        assert_eq!(status["udp"]["active"], 0);
        assert_eq!(status["upstreams"][0]["name"], "u");
        assert_eq!(status["upstreams"][0]["peers"][0]["active"], 1);
        let metrics = server.get("/metrics").text();
        for line in [
            "nowait_stream_sessions_total 1\n",
            "nowait_stream_sessions_active{protocol=\"tcp\"} 1\n",
            "nowait_stream_upstream_sessions_total{upstream=\"u\",peer=",
        ] {
            assert!(metrics.contains(line), "{line} is missing in {metrics}");
        }
    });
}
