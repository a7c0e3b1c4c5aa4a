//! memcached.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use nowait_testkit::ports::free_port;

use super::site;
use crate::stage::{Background, DRIVERS, program};

#[test]
fn memcached() {
    let Some(mut command) = program("memcached") else { return };
    let port = free_port();
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-p", &port.to_string(), "-I", "2m"]);
    let _memcached = Background::serve(&mut command, port);
    let large = "0123456789".repeat(100_000);
    let mut store = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut replies = BufReader::new(store.try_clone().unwrap());
    for (key, flags, value) in
        [("/a%20b", 0, "value"), ("/empty", 0, ""), ("/large", 0, &large[..])]
    {
        write!(store, "set {key} {flags} 0 {}\r\n{value}\r\n", value.len()).unwrap();
        let mut reply = String::new();
        replies.read_line(&mut reply).unwrap();
        assert_eq!(reply, "STORED\r\n");
    }
    for driver in DRIVERS {
        let server = site(&format!(
            "upstream values {{ server 127.0.0.1:{port}; keepalive 4; }}
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 location / {{ set $memcached_key $uri; memcached_pass values; }}
             }}"
        ))
        .driver(driver)
        .start();
        let mut client = server.client();
        for (path, status, text) in [
            ("/a%20b", 200, "value"),
            ("/none", 404, ""),
            ("/empty", 200, ""),
            ("/large", 200, &large),
        ] {
            let response = client.get(path);
            assert_eq!(response.status, status, "{path}");
            assert!(status == 404 || response.text() == text, "{path}");
        }
        assert_eq!(client.get(&format!("/{}", "x".repeat(300))).status, 502);
        server.wait_log("memcached sent invalid response: \"CLIENT_ERROR");
        server.stop();
    }
}
