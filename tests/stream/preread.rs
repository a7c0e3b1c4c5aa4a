//! What a TLS client says first: `ssl_preread`, `server_name`.

use nowait_testkit::{Client, client_hello};

use crate::stage::{Upstream, hear, on_each, say, stream, wait_file};

fn answer(port: u16, bytes: &[u8]) -> String {
    let mut client = Client::to_port(port);
    client.send(bytes);
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn variables_of_a_hello() {
    let server = stream(
        "server { listen 127.0.0.1:%%PORT%%; ssl_preread on;
         return '$ssl_preread_server_name|$ssl_preread_alpn_protocols|$ssl_preread_protocol'; }",
    );
    on_each(&server, |server| {
        let whole = answer(server.port(), &client_hello("a.example", &["h2", "http/1.1"], 16000));
        assert_eq!(whole, "a.example|h2,http/1.1|TLSv1.2");
        let pieces = answer(server.port(), &client_hello("b.example", &["h2"], 7));
        assert_eq!(pieces, "b.example|h2|TLSv1.2");
        assert_eq!(answer(server.port(), &client_hello("", &[], 16000)), "||TLSv1.2");
        // Something else is served, too.
        assert_eq!(answer(server.port(), b"SSH-2.0-x\r\n"), "||");
    });
}

#[test]
fn it_comes_byte_by_byte() {
    let server = stream(
        "server { listen 127.0.0.1:%%PORT%%; ssl_preread on; return $ssl_preread_server_name; }",
    );
    on_each(&server, |server| {
        let mut client = server.client();
        for byte in client_hello("a.example", &[], 16000) {
            client.send([byte]);
        }
        assert_eq!(String::from_utf8_lossy(&client.rest()), "a.example");
    });
}

#[test]
fn what_was_read_is_passed_on() {
    let up = Upstream::echo();
    let block = "server { listen 127.0.0.1:%%PORT%%; ssl_preread on; proxy_pass $to; }
        map $ssl_preread_server_name $to { a.example %%UP%%; default unix:/nowhere; }";
    on_each(&stream(block).variable("UP", up.addr()), |server| {
        let hello = client_hello("a.example", &[], 16000);
        let mut client = server.client();
        client.send(&hello);
        let mut heard = Vec::new();
        while heard.len() < hello.len() {
            heard.extend(client.read_some(hello.len() - heard.len()));
        }
        assert_eq!(heard, hello);
        say(&mut client, "more", "more");
    });
}

#[test]
fn the_name_chooses_the_server() {
    let server = stream(
        "ssl_preread on;
         server { listen 127.0.0.1:%%PORT%% default_server; return default; }
         server { listen 127.0.0.1:%%PORT%%; server_name a.example *.a.example; return a; }
         server { listen 127.0.0.1:%%PORT%%; server_name ~^(?<first>.+)\\.b\\.example$; return $first; }",
    );
    on_each(&server, |server| {
        let name = |host: &str| answer(server.port(), &client_hello(host, &[], 16000));
        assert_eq!(name("a.example"), "a");
        assert_eq!(name("X.A.Example."), "a");
        assert_eq!(name("x.b.example"), "x");
        assert_eq!(name("c.example"), "default");
        assert_eq!(name(""), "default");
    });
}

#[test]
fn no_more_than_the_buffer_is_read() {
    let server = stream(
        "log_format main '$status'; access_log %%DIR%%/access.log main;
         server { listen 127.0.0.1:%%PORT%%; ssl_preread on; preread_buffer_size 42; return x; }",
    );
    on_each(&server, |server| {
        assert_eq!(answer(server.port(), &client_hello("a.example", &[], 16000)), "");
        wait_file(server, "access.log", "400\n");
        server.wait_log("preread buffer full while prereading client data, client: 127.0.0.1");
    });
}

#[test]
fn a_silent_client_is_not_waited_for_forever() {
    let server = stream(
        "log_format main '$status'; access_log %%DIR%%/access.log main;
         server { listen 127.0.0.1:%%PORT%%; ssl_preread on; preread_timeout 100ms; return x; }",
    );
    on_each(&server, |server| {
        assert_eq!(hear(server.addr()), "");
        wait_file(server, "access.log", "200\n");
    });
}
