//! Keys and conditions with the content of requests, for each module with a cache, over each transport.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use nowait_testkit::ServerBuilder;
use nowait_testkit::response::parse_chunked;

use crate::fastcgi;
use crate::transport::{TestRequest, Transport, on_each, site};

const MODULES: [&str; 4] = ["proxy", "fastcgi", "uwsgi", "scgi"];

/// Settings that decide by the content, and whether its responses are stored.
const SETTINGS: [(&str, bool); 6] = [
    ("proxy_cache_key $uri$request_body;", true),
    ("proxy_cache_key $uri$twice;", true),
    ("set $copy $request_body; proxy_cache_key $uri$copy;", true),
    ("if ($mapped = x) { set $x y; } proxy_cache_key $uri$mapped;", true),
    ("proxy_cache_key $uri; proxy_cache_bypass $request_body; proxy_no_cache $twice;", false),
    ("proxy_cache_key $uri; proxy_cache_bypass $twice; proxy_no_cache $request_body;", false),
];

/// Answers each connection's request of this module with its content. Ends with the test program.
fn echo(module: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || answer(module, stream));
        }
    });
    address
}

fn answer(module: &str, mut stream: TcpStream) {
    let mut received = Vec::new();
    let content = loop {
        if let Some(content) = content(module, &received) {
            break content;
        }
        let mut buffer = [0; 16384];
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => received.extend_from_slice(&buffer[..count]),
            // The server waits for something that it has not sent.
            _ => return,
        }
    };
    let length = content.len();
    let reply = match module {
        "proxy" => {
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            [head.as_bytes(), &content].concat()
        }
        "fastcgi" => {
            let whole = [b"Status: 200\r\n\r\n", &content[..]].concat();
            [fastcgi::record(6, whole), fastcgi::end()].concat()
        }
        _ => [b"Status: 200\r\n\r\n", &content[..]].concat(),
    };
    // The server may have gone.
    let _ = stream.write_all(&reply);
}

/// The content of a request, once it is complete.
fn content(module: &str, received: &[u8]) -> Option<Vec<u8>> {
    match module {
        "proxy" => {
            let end = received.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
            let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
            let rest = &received[end..];
            if head.contains("transfer-encoding: chunked") {
                return parse_chunked(rest).unwrap().map(|chunked| chunked.body);
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            rest.get(..length.map_or(0, |length| length.parse().unwrap())).map(<[u8]>::to_vec)
        }
        "fastcgi" => {
            received.ends_with(fastcgi::ASKED).then(|| fastcgi::FastCgiRequest::content(received))
        }
        "uwsgi" => {
            let [_, low, high, _, rest @ ..] = received else { return None };
            let (variables, rest) =
                rest.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
            const NAME: &[u8] = b"\x0e\0CONTENT_LENGTH";
            let at = variables.windows(NAME.len()).position(|part| part == NAME)? + NAME.len();
            let value = &variables[at + 2..][..variables[at].into()];
            let length: usize = std::str::from_utf8(value).unwrap().parse().unwrap_or(0);
            rest.get(..length).map(<[u8]>::to_vec)
        }
        _ => {
            let colon = received.iter().position(|byte| *byte == b':')?;
            let length: usize = std::str::from_utf8(&received[..colon]).unwrap().parse().unwrap();
            let (head, rest) = received[colon + 1..].split_at_checked(length)?;
            let value = head.split(|byte| *byte == 0).nth(1).unwrap();
            let length: usize = std::str::from_utf8(value).unwrap().parse().unwrap();
            rest.get(1..1 + length).map(<[u8]>::to_vec)
        }
    }
}

/// A location for each of the settings, with and without buffering of requests.
fn caching(module: &str, origin: SocketAddr) -> ServerBuilder {
    let mut locations = String::new();
    for buffering in ["on", "off"] {
        for (number, (settings, _)) in SETTINGS.iter().enumerate() {
            locations.push_str(&format!(
                "location /{buffering}/{number}/ {{
                     proxy_request_buffering {buffering};
                     {settings}
                     proxy_pass http://{origin};
                 }}\n"
            ));
        }
    }
    let text = format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
         map $request_body $mapped {{ default $request_body; }}
         map $mapped $twice {{ ~^(?<matched>.*)$ $matched; }}
         server {{
             %%LISTEN%%
             client_body_buffer_size 1k;
             add_header X-Cache $upstream_cache_status;
             proxy_cache one;
             proxy_cache_methods POST;
             proxy_cache_valid 1h;
             {locations}
         }}"
    );
    let text = match module {
        "proxy" => text,
        _ => text
            .replace("proxy_pass http://", &format!("{module}_pass "))
            .replace("proxy_", &format!("{module}_"))
            .replace(
                "%%LISTEN%%",
                &format!("%%LISTEN%% {module}_param CONTENT_LENGTH $content_length;"),
            ),
    };
    site(&text)
}

/// Each content gets its own response, and only it.
#[track_caller]
fn each_gets_its_own(module: &'static str) {
    let builder = caching(module, echo(module));
    on_each(&Transport::ALL, &builder, |server, transport| {
        for buffering in ["on", "off"] {
            for (number, (settings, stores)) in SETTINGS.iter().enumerate() {
                for (chunked, size) in [(false, 1), (true, 1), (false, 3000), (true, 3000)] {
                    let [one, other] =
                        ["x", "y"].map(|fill| format!("{chunked}{}", fill.repeat(size)));
                    let target = format!("/{buffering}/{number}/{chunked}{size}");
                    let ask = |content: &str| {
                        let request = TestRequest {
                            method: "POST",
                            target: &target,
                            content: content.as_bytes(),
                            chunked,
                            ..TestRequest::default()
                        };
                        let response = transport.ask(server, &request);
                        (response.header("X-Cache").map(str::to_owned), response.text())
                    };
                    for content in [&one, &other, &one] {
                        let text = ask(content).1;
                        assert!(text == **content, "{target} {settings} {text:.20}");
                    }
                    if *stores && size == 1 {
                        assert_eq!(ask(&other), (Some("HIT".to_owned()), other), "{target}");
                    }
                }
            }
        }
    });
}

#[test]
fn contents_in_the_cache_of_each_module() {
    for module in MODULES {
        eprintln!("module: {module}");
        each_gets_its_own(module);
    }
}
