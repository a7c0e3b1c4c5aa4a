//! Caches whose settings depend on the content of requests.

use nowait_testkit::{Client, Server, ServerBuilder};

use crate::stage::{on_each_driver, site};

/// The origin tells what it was sent. The cached responses are those of the first request of each entry.
fn posting(settings: &str, at: &str) -> ServerBuilder {
    site(&format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         map $request_body $mapped {{ default $request_body; }}
         map $mapped $twice {{ ~^(?<matched>.*)$ $matched; }}
         split_clients $request_body $split {{ 50% a; * b; }}
         server {{
             listen 127.0.0.1:%%PORT%%;
             http2 on;
             client_body_buffer_size 1k;
             add_header X-Cache $upstream_cache_status;
             proxy_cache one;
             proxy_cache_methods POST;
             proxy_cache_valid 1h;
             {settings}
             location / {{ proxy_pass http://127.0.0.1:%%PORT_1%%; {at} }}
         }}
         server {{
             listen 127.0.0.1:%%PORT_1%%;
             client_body_buffer_size 1m;
             client_body_early_read 1;
             location / {{ return 200 $request_body; }}
         }}"
    ))
}

fn post(server: &Server, method: &str, body: &str, chunked: bool) -> (Option<String>, String) {
    let mut client: Client = server.client();
    let head = format!("{method} /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    let (framing, content) = match chunked {
        false => (format!("Content-Length: {}", body.len()), body.to_owned()),
        true => (
            "Transfer-Encoding: chunked".to_owned(),
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        ),
    };
    // The head is on its way first, so that a look-up can't have seen the body by chance.
    client.send(format!("{head}{framing}\r\n\r\n"));
    client.send(&content);
    let response = client.response();
    (response.header("X-Cache").map(str::to_owned), response.text())
}

/// Each body gets its own response, and only it.
fn each_gets_its_own(site: &ServerBuilder, hits: bool) {
    let big = |with: &str| with.repeat(3000);
    on_each_driver(site, |server| {
        for method in ["POST", "GET"] {
            for chunked in [false, true] {
                for (one, other, fits) in
                    [("one".to_owned(), "two".to_owned(), true), (big("x"), big("y"), false)]
                {
                    let one = format!("{method}{chunked}{one}");
                    let other = format!("{method}{chunked}{other}");
                    for body in [&one, &other, &one] {
                        let (_, text) = post(server, method, body, chunked);
                        assert!(text == *body, "{method} {chunked} {}", &body[..16]);
                    }
                    if hits && fits {
                        let (cache, text) = post(server, method, &other, chunked);
                        assert_eq!((cache.as_deref(), text), (Some("HIT"), other));
                    }
                }
            }
        }
    });
}

#[test]
fn a_key_with_the_body() {
    for buffering in ["on", "off"] {
        for key in [
            "proxy_cache_key $uri$request_body;",
            "proxy_cache_key $uri$twice;",
            "set $copy $request_body; proxy_cache_key $uri$copy;",
            // Evaluated before the body is there.
            "if ($mapped = x) { set $x y; } proxy_cache_key $uri$mapped;",
        ] {
            let settings = format!("proxy_request_buffering {buffering};");
            each_gets_its_own(&posting(&settings, key), true);
        }
    }
}

#[test]
fn conditions_with_the_body() {
    for buffering in ["on", "off"] {
        for condition in ["proxy_cache_bypass $request_body;", "proxy_no_cache $twice;"] {
            let settings = format!("proxy_request_buffering {buffering}; proxy_cache_key $uri;");
            let no_cache = "proxy_no_cache $request_body;";
            each_gets_its_own(&posting(&settings, &format!("{condition} {no_cache}")), false);
        }
    }
}

/// The length of the content is a part of it in what is sent to the origin, too.
#[test]
fn the_length_of_a_request() {
    for buffering in ["on", "off"] {
        let site = site(&format!(
            "server {{
                 listen 127.0.0.1:%%PORT%%;
                 proxy_request_buffering {buffering};
                 location / {{
                     proxy_pass http://127.0.0.1:%%PORT_1%%;
                     proxy_set_header X-Length $request_length;
                 }}
             }}
             server {{
                 listen 127.0.0.1:%%PORT_1%%;
                 location / {{ return 200 $http_x_length; }}
             }}"
        ));
        on_each_driver(&site, |server| {
            let mut client = server.client();
            let head =
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
            client.send(format!("{head}12345"));
            assert_eq!(client.response().text(), (head.len() + 5).to_string());
        });
    }
}
