//! `Alt-Svc`: on responses over TCP of servers with HTTP/3 at the same port.

use crate::client::{Authority, TlsClient};
use crate::stage::{http3, on_each_driver, site};

#[test]
fn responses_over_tcp_advertise_http3() {
    let authority = Authority::new("authority");
    let own = authority.issue("localhost");
    let tls = "server_name localhost; ssl_certificate %%DIR%%/own.pem; ssl_certificate_key %%DIR%%/own.key;";
    let http = format!(
        "server {{ {tls} listen 127.0.0.1:%%PORT%% ssl; listen 127.0.0.1:%%PORT_1%% ssl; listen 127.0.0.1:%%PORT_2%%;\
         listen 127.0.0.1:%%PORT%% quic; location / {{ return 200 ok; }}\
         location /own {{ add_header Alt-Svc clear; return 200 ok; }} location /404 {{ return 404; }} }}\
         server {{ {tls} listen 127.0.0.1:%%PORT_3%% ssl; listen 127.0.0.1:%%PORT_3%% quic; http3_advertise off; return 200 ok; }}\
         server {{ {tls} listen 127.0.0.1:%%PORT_4%% ssl; listen 127.0.0.1:%%PORT_4%% quic; http3 off; return 200 ok; }}"
    );
    let builder = site(&http).file("own.pem", own.chain).file("own.key", own.key);
    on_each_driver(&builder, |server| {
        let config = authority.client(None);
        let ask = |port: usize, path: &str| {
            let socket = std::net::TcpStream::connect(("127.0.0.1", server.port_n(port))).unwrap();
            let mut client = TlsClient::over(socket, &config, "localhost");
            client.send(format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            ));
            let mut text = String::new();
            std::io::Read::read_to_string(&mut client.reader(), &mut text).unwrap();
            text
        };
        let field = format!("\r\nAlt-Svc: h3=\":{}\"; ma=86400\r\n", server.port());
        assert!(ask(0, "/").contains(&field), "{}", ask(0, "/"));
        assert!(ask(0, "/404").contains(&field));
        let own = ask(0, "/own");
        assert!(
            own.contains("\r\nAlt-Svc: clear\r\n") && own.matches("Alt-Svc").count() == 1,
            "{own}"
        );
        assert!(!ask(1, "/").contains("Alt-Svc"), "another port");
        assert!(!ask(3, "/").contains("Alt-Svc"), "http3_advertise off");
        assert!(!ask(4, "/").contains("Alt-Svc"), "http3 off");
        let socket = nowait_testkit::Client::to(([127, 0, 0, 1], server.port_n(2)).into()).get("/");
        assert_eq!(socket.header("Alt-Svc"), None, "without TLS");
        assert_eq!(http3(server).get("/").header("alt-svc"), None, "over HTTP/3");
    });
}
