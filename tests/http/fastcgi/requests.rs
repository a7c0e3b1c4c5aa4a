//! What applications learn about a request: parameters and content.

use super::{FastCgiRequest, answer, asked, on_each, whole};
use crate::stage::{ask, asks_nginx};

const OK: &str = "Content-Type: text/plain\r\n\r\nbody";

#[test]
fn parameters_of_a_get() {
    let conf = "include fastcgi.conf; fastcgi_index index.php;
                fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                fastcgi_param PATH_INFO $fastcgi_path_info;";
    on_each(
        || vec![answer(whole(OK))],
        if asks_nginx() { "return 200;" } else { conf },
        |server, origin| {
            if server.binary().is_nginx() {
                return;
            }
            let response = ask(server, "/app/x.php/rest?a=b", &["X-Own: 1"]);
            assert_eq!((response.status, response.text()), (200, "body".to_owned()));
            let asked = asked(origin);
            assert!(!asked.keep && asked.content.is_empty());
            let root = format!("{}/html", server.dir().display());
            let script = format!("{root}/app/x.php");
            for (name, value) in [
                ("SCRIPT_FILENAME", &script[..]),
                ("DOCUMENT_ROOT", &root),
                ("SCRIPT_NAME", "/app/x.php"),
                ("PATH_INFO", "/rest"),
                ("QUERY_STRING", "a=b"),
                ("REQUEST_METHOD", "GET"),
                ("REQUEST_URI", "/app/x.php/rest?a=b"),
                ("CONTENT_LENGTH", ""),
                ("SERVER_PROTOCOL", "HTTP/1.1"),
                ("REDIRECT_STATUS", "200"),
                ("HTTP_HOST", "localhost"),
                ("HTTP_X_OWN", "1"),
            ] {
                assert_eq!(asked.param(name), Some(value), "{name}");
            }
            assert_eq!(asked.param("HTTPS"), None);
        },
    );
}

#[test]
fn an_index_is_appended() {
    let conf = "fastcgi_index index.php; fastcgi_param S $fastcgi_script_name;";
    on_each(
        || vec![answer(whole(OK))],
        conf,
        |server, origin| {
            assert_eq!(server.get("/a/").status, 200);
            assert_eq!(asked(origin).param("S"), Some("/a/index.php"));
        },
    );
}

#[test]
fn header_fields_become_parameters() {
    let conf = "fastcgi_param HTTP_REMOVED ''; fastcgi_param HTTP_REPLACED new;
                fastcgi_param EMPTY '' ; fastcgi_param SKIPPED $arg_none if_not_empty;
                fastcgi_param KEPT $arg_a if_not_empty; fastcgi_param TWICE 1; fastcgi_param TWICE 2;";
    on_each(
        || vec![answer(whole(OK))],
        conf,
        |server, origin| {
            let fields = [
                "X-One: 1",
                "Cookie: a=1",
                "Removed: x",
                "x-one: 2",
                "Replaced: old",
                "X-Two: 3",
                "Cookie: b=2",
                "X-ONE: 4",
            ];
            assert_eq!(ask(server, "/?a=7", &fields).status, 200);
            let asked = asked(origin);
            for (name, value) in [
                ("HTTP_X_ONE", Some("1, 2, 4")),
                ("HTTP_X_TWO", Some("3")),
                ("HTTP_COOKIE", Some("a=1; b=2")),
                ("HTTP_REMOVED", None),
                ("HTTP_REPLACED", Some("new")),
                ("EMPTY", Some("")),
                ("SKIPPED", None),
                ("KEPT", Some("7")),
                ("TWICE", Some("1|2")),
            ] {
                assert_eq!(asked.param(name), value, "{name}");
            }
        },
    );
}

/// Applications would take it for the proxy to use (CVE-2016-5385).
#[test]
fn the_clients_proxy_is_not_passed_on() {
    on_each(
        || vec![answer(whole(OK))],
        "",
        |server, origin| {
            if !server.binary().is_nginx() {
                ask(server, "/", &["Proxy: http://evil/"]);
                assert_eq!(asked(origin).param("HTTP_PROXY"), None);
            } else {
                server.get("/");
            }
        },
    );
}

#[test]
fn without_the_clients_fields() {
    on_each(
        || vec![answer(whole(OK))],
        "fastcgi_pass_request_headers off;",
        |server, origin| {
            ask(server, "/", &["X-Own: 1"]);
            let asked = asked(origin);
            assert_eq!((asked.param("HTTP_X_OWN"), asked.params.len() < 2), (None, true));
        },
    );
}

#[test]
fn parameters_of_any_size() {
    let long = "x".repeat(7000);
    // More than one record holds.
    let conf =
        "large_client_header_buffers 4 8k; fastcgi_param A $http_l$http_l$http_l$http_l$http_l;
                fastcgi_param B $http_l$http_l$http_l$http_l$http_l;";
    on_each(
        || vec![answer(whole(OK))],
        conf,
        |server, origin| {
            if server.binary().is_nginx() {
                return;
            }
            assert_eq!(ask(server, "/", &[&format!("L: {long}")]).status, 200);
            let asked = asked(origin);
            assert_eq!(asked.param("A").map(str::len), Some(35_000));
            assert_eq!(asked.param("B").map(str::len), Some(35_000));
        },
    );
}

/// A request with this content, in chunks or with its length.
fn post(content: &[u8], chunked: bool) -> Vec<u8> {
    let length = content.len();
    let head =
        |field: String| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n").into_bytes();
    match chunked {
        false => [head(format!("Content-Length: {length}")), content.to_vec()].concat(),
        true => {
            let mut all = head("Transfer-Encoding: chunked".to_owned());
            for piece in content.chunks(10_000) {
                all.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                all.extend_from_slice(piece);
                all.extend_from_slice(b"\r\n");
            }
            all.extend_from_slice(b"0\r\n\r\n");
            all
        }
    }
}

#[test]
fn content_of_any_size_buffered_or_not() {
    for buffering in ["on", "off"] {
        let conf = format!(
            "client_max_body_size 0; fastcgi_request_buffering {buffering};
             fastcgi_param CONTENT_LENGTH $content_length;"
        );
        for (size, chunked) in [(0, false), (5, false), (5, true), (70_001, false), (300_000, true)]
        {
            eprintln!("buffering {buffering}, {size} bytes, chunked {chunked}");
            let content: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            on_each(
                || vec![answer(whole(OK))],
                &conf,
                |server, origin| {
                    let mut client = server.client();
                    client.send(post(&content, chunked));
                    assert_eq!(client.response().status, 200);
                    let asked = asked(origin);
                    assert!(asked.content == content, "{} bytes", asked.content.len());
                    if !chunked || buffering == "on" {
                        assert_eq!(asked.param("CONTENT_LENGTH"), Some(&size.to_string()[..]));
                    }
                },
            );
        }
    }
}

#[test]
fn content_is_not_passed_on_if_told_so() {
    on_each(
        || vec![answer(whole(OK))],
        "fastcgi_pass_request_body off;",
        |server, origin| {
            let mut client = server.client();
            client.send(post(b"content", false));
            assert_eq!(client.response().status, 200);
            assert_eq!(asked(origin).content, b"");
        },
    );
}

#[test]
fn two_requests_are_told_apart() {
    let two = [answer(whole(OK)), answer(whole(OK))];
    on_each(
        || two.iter().map(|_| answer(whole(OK))).collect(),
        "",
        |server, origin| {
            let mut client = server.client();
            for path in ["/a", "/b"] {
                assert_eq!(client.get(path).text(), "body");
            }
            let received = origin.received();
            assert_eq!(
                received.iter().map(|bytes| FastCgiRequest::all(bytes).len()).sum::<usize>(),
                2
            );
        },
    );
}

#[test]
fn mistakes_in_the_configuration() {
    for (line, text) in [
        ("fastcgi_split_path_info ^(.+)$;", "must have 2 captures"),
        ("fastcgi_param A b if_empty;", "invalid parameter \"if_empty\""),
        ("location /x { fastcgi_pass u; fastcgi_pass u; }", "is duplicate"),
        ("location /x { fastcgi_pass 127.0.0.1:9000/uri; }", "in upstream"),
        ("fastcgi_store on; fastcgi_cache z;", "is incompatible with"),
        ("fastcgi_buffers 1 4k;", "at least 2"),
    ] {
        let origin = nowait_testkit::Origin::start(Vec::<Vec<_>>::new());
        let failure = crate::stage::site(&format!(
            "fastcgi_cache_path %%DIR%%/cache keys_zone=z:1m; fastcgi_cache_key $uri;
             upstream u {{ server {}; }} server {{ listen 127.0.0.1:%%PORT%%; {line} }}",
            origin.addr()
        ))
        .try_start()
        .expect_err("it is wrong");
        assert!(failure.stderr.contains(text), "{line}: {}", failure.stderr);
    }
}
