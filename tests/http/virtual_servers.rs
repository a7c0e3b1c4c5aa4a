//! `listen` and `server_name`: which server answers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;

use nowait_testkit::{Client, check_on};

use crate::stage::{on_each_driver, site};

fn ask(addr: SocketAddr, host: &str) -> String {
    let mut client = Client::to(addr);
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    client.response().text()
}

#[test]
fn the_name_chooses_the_server() {
    let names = site(
        r#"
        server { listen 127.0.0.1:%%PORT%%; server_name first; return 200 first; }
        server { listen 127.0.0.1:%%PORT%%; server_name exact.test other.test; return 200 exact; }
        server { listen 127.0.0.1:%%PORT%%; server_name *.wild.test; return 200 front; }
        server { listen 127.0.0.1:%%PORT%%; server_name *.deep.wild.test; return 200 deep; }
        server { listen 127.0.0.1:%%PORT%%; server_name .both.test; return 200 both; }
        server { listen 127.0.0.1:%%PORT%%; server_name mail.*; return 200 end; }
        server { listen 127.0.0.1:%%PORT%%; server_name ~^(?<who>\w+)\.re\.(test)$; return 200 re:$who:$2; }
        server { listen 127.0.0.1:%%PORT%%; server_name ~^\w+\.re; return 200 second; }
        server { listen 127.0.0.1:%%PORT%%; server_name ""; return 200 none; }
        server { listen 127.0.0.1:%%PORT%% default_server; server_name default; return 200 default:$server_name:$host; }
        "#,
    );
    on_each_driver(&names, |server| {
        for (host, answer) in [
            ("first", "first"),
            ("exact.test", "exact"),
            ("EXACT.Test", "exact"),
            ("other.test:8080", "exact"),
            ("exact.test.", "exact"),
            ("a.wild.test", "front"),
            ("a.b.wild.test", "front"),
            ("a.deep.wild.test", "deep"),
            ("wild.test", "default:default:wild.test"),
            ("both.test", "both"),
            ("a.both.test", "both"),
            ("mail.any.where", "end"),
            ("bob.re.test", "re:bob:test"),
            ("bob.re.other", "second"),
            ("nobody", "default:default:nobody"),
            ("127.0.0.1", "default:default:127.0.0.1"),
            ("[::1]:80", "default:default:[::1]"),
        ] {
            assert_eq!(ask(server.addr(), host), answer, "{host}");
        }
        // Without a Host header at all: the server named "".
        check_on(server, "GET / HTTP/1.0", "200\n\nnone");
    });
}

#[test]
fn an_address_chooses_before_the_name() {
    let addresses = site(
        "server { listen %%PORT%%; server_name a; return 200 any:$server_addr; }
         server { listen 127.0.0.1:%%PORT%%; server_name a; return 200 one; }
         server { listen 127.0.0.1:%%PORT%%; server_name b; return 200 two; }
         server { listen 127.0.0.2:%%PORT%%; listen 127.0.0.1:%%PORT_1%%; server_name a;
                  return 200 three:$server_port; }",
    );
    on_each_driver(&addresses, |server| {
        let at = |last: u8, port: u16| SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port));
        let (port, second) = (server.port(), server.port_n(1));
        assert_eq!(ask(at(1, port), "a"), "one");
        assert_eq!(ask(at(1, port), "b"), "two");
        assert_eq!(ask(at(1, port), "nobody"), "one");
        assert_eq!(ask(at(2, port), "b"), format!("three:{port}"));
        assert_eq!(ask(at(3, port), "b"), "any:127.0.0.3");
        assert_eq!(ask(at(1, second), "b"), format!("three:{second}"));
    });
}

#[test]
fn a_unix_socket_is_an_address_too() {
    let unix = site(
        "server { listen 127.0.0.1:%%PORT%%; return 200 tcp; }
         server { listen unix:%%DIR%%/socket;
                  return 200 \"$remote_addr|$remote_port|$server_addr|$server_port|$host\"; }",
    );
    on_each_driver(&unix, |server| {
        let path = server.dir().join("socket");
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let shown = format!("\r\n\r\nunix:||unix:{}||h", path.display());
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with(&shown), "{text}");
    });
}

#[test]
fn ipv6_is_listened_on() {
    let six = site(
        "server { listen 127.0.0.1:%%PORT%%; return 200 four; }
         server { listen [::1]:%%PORT_1%%; return 200 $server_addr|$remote_addr; }",
    );
    on_each_driver(&six, |server| {
        let addr = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, server.port_n(1)));
        match Client::try_to(addr) {
            Ok(_) => assert_eq!(ask(addr, "x"), "::1|::1"),
            Err(_) => nowait_testkit::skip("ipv6", "no IPv6 loopback"),
        }
    });
}

#[test]
fn a_range_of_ports_is_as_many_addresses() {
    // Two neighbours that are free; others may take them first, then the next are tried.
    let first = (0..50u16).map(|n| 20_000 + 2 * n).find_map(|first| {
        let text = format!(
            "server {{ listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:{first}-{};
             return 200 $server_port; }}",
            first + 1
        );
        site(&text).try_start().ok().map(|server| (first, server))
    });
    let (first, server) = first.expect("two free ports");
    for port in [first, first + 1] {
        assert_eq!(ask(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "x"), port.to_string());
    }
    server.stop();
}

#[test]
fn servers_share_a_connection() {
    let names = site(
        "server { listen 127.0.0.1:%%PORT%%; server_name a; return 200 a; }
         server { listen 127.0.0.1:%%PORT%%; server_name b; return 200 b; }",
    );
    on_each_driver(&names, |server| {
        check_on(
            server,
            "GET / HTTP/1.1\nHost: a\n---\nGET / HTTP/1.1\nHost: b\n---\nGET / HTTP/1.1\nHost: a",
            "200\n\na\n---\n200\n\nb\n---\n200\n\na",
        );
    });
}

#[test]
fn what_cannot_be_listened_on_is_refused_with_its_line() {
    for (text, message) in [
        ("server { listen 127.0.0.1:99999; }", "invalid port"),
        ("server { listen 127.0.0.1:82-80; }", "invalid port"),
        ("server { listen 127.0.0.1:80 nonsense; }", "invalid parameter \"nonsense\""),
        (
            "server { listen 127.0.0.1:81 default_server; }
             server { listen 127.0.0.1:81 default_server; }",
            "a duplicate default server for 127.0.0.1:81",
        ),
        (
            "server { listen 127.0.0.1:81 backlog=5; } server { listen 127.0.0.1:81 backlog=6; }",
            "duplicate listen options for 127.0.0.1:81",
        ),
        ("server { listen 127.0.0.1:81; listen 127.0.0.1:81; }", "a duplicate listen 127.0.0.1:81"),
        ("server { server_name ~(; }", "pcre2_compile() failed"),
    ] {
        let failure = site(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message) && said.contains("nginx.conf:"), "{message}: {said}");
    }
}
