//! Every core variable has the value that its description promises.

use crate::stage::{ask, on_each_driver, site};

/// Evaluates text with variables in a request with a bit of everything.
fn values(text: &str) -> Vec<String> {
    let site = site(&format!(
        "server {{ listen 127.0.0.1:%%PORT%%; server_name main.test ~^(?<cap>re)\\.; root %%DIR%%/html;
           location / {{ default_type text/x; return 200 \"{text}\"; }} }}"
    ))
    .file("html/x", "");
    let found = std::cell::RefCell::new(Vec::new());
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send(
            "GET /a%20b/c.d?x=1&Y=%20&z HTTP/1.1\r\nHost: Re.Test:8080\r\nUser-Agent: me\r\n\
             Cookie: a=1; b=2\r\nCookie: c=3\r\nX-Two: p\r\nX-Two: q\r\nContent-Type: t/u\r\n\
             Content-Length: 3\r\nReferer: r\r\n\r\nabc",
        );
        let response = client.response();
        let shown = response
            .text()
            .replace(&server.dir().display().to_string(), "DIR")
            .replace(&server.port().to_string(), "PORT");
        found.borrow_mut().push(shown);
    });
    found.into_inner()
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let text: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    for shown in values(&text.join("\n")) {
        for ((name, expected), value) in cases.iter().zip(shown.split('\n')) {
            assert_eq!(value, *expected, "{name}");
        }
    }
}

#[test]
fn of_the_request() {
    check(&[
        ("$request", "GET /a%20b/c.d?x=1&Y=%20&z HTTP/1.1"),
        ("$request_method", "GET"),
        ("$request_uri", "/a%20b/c.d?x=1&Y=%20&z"),
        ("$uri", "/a b/c.d"),
        ("$document_uri", "/a b/c.d"),
        ("$args", "x=1&Y=%20&z"),
        ("$query_string", "x=1&Y=%20&z"),
        ("$is_args", "?"),
        ("$arg_x", "1"),
        ("$arg_y", "%20"),
        ("$arg_z", ""),
        ("$arg_none", ""),
        ("$arg_", ""),
        ("$cookie_", ""),
        ("$http_", ""),
        ("$server_protocol", "HTTP/1.1"),
        ("$scheme", "http"),
        ("$https", ""),
        ("$host", "re.test"),
        ("$http_host", "Re.Test:8080"),
        ("$http_user_agent", "me"),
        ("$http_referer", "r"),
        ("$http_x_two", if crate::stage::asks_nginx() { "p" } else { "p, q" }),
        ("$http_none", ""),
        ("$http_cookie", "a=1; b=2; c=3"),
        ("$cookie_a", "1"),
        ("$cookie_b", "2"),
        ("$cookie_c", "3"),
        ("$cookie_none", ""),
        ("$content_type", "t/u"),
        ("$content_length", "3"),
        ("$remote_user", ""),
        ("$request_completion", ""),
        ("$request_body", ""),
        ("$request_body_file", ""),
        ("${uri}x", "/a b/c.dx"),
        ("$cap", "re"),
    ]);
}

#[test]
fn of_the_connection_and_the_server() {
    check(&[
        ("$remote_addr", "127.0.0.1"),
        ("$server_addr", "127.0.0.1"),
        ("$server_port", "PORT"),
        ("$server_name", "main.test"),
        ("$document_root", "DIR/html"),
        ("$realpath_root", "DIR/html"),
        ("$request_filename", "DIR/html/a b/c.d"),
        ("$connection_requests", "1"),
        ("$pipe", "."),
        ("$limit_rate", "0"),
        ("$status", "200"),
        ("$bytes_sent", "0"),
        ("$body_bytes_sent", "0"),
    ]);
}

#[test]
fn that_are_different_each_time() {
    let names = "$remote_port $connection $request_id $msec $time_iso8601 $time_local $hostname \
                 $pid $nginx_version $request_time $request_length $binary_remote_addr";
    for shown in values(names) {
        let words: Vec<&str> = shown.split(' ').collect();
        let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{text}: {shown}"));
        assert!(number(words[0]) > 0.0 && number(words[1]) > 0.0);
        assert_eq!(words[2].len(), 32);
        assert!(words[2].bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(number(words[3]) > 1e9);
        assert_eq!(words[4].len(), "2000-01-01T00:00:00+00:00".len(), "{shown}");
        assert_eq!(words[5].len(), "01/Jan/2000:00:00:00".len(), "{shown}");
        assert_eq!(words[6].len(), "+0000".len());
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(words[7], hostname.trim().to_lowercase());
        assert!(number(words[8]) > 1.0);
        assert!(words[9].starts_with("1."));
        assert!(number(words[10]) < 30.0);
        assert!(number(words[11]) > 100.0);
        assert_eq!(words[12].as_bytes(), [127, 0, 0, 1]);
    }
}

#[test]
fn the_network_of_a_client() {
    let http = "server { listen 127.0.0.1:%%PORT%%; set_real_ip_from 127.0.0.1; return 200 $remote_network; }";
    on_each_driver(&site(http), |server| {
        for (client, network) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2ff::5", "2001:db8:1:200::/56"),
            ("", "127.0.0.0/24"),
        ] {
            let mut connection = server.client();
            connection.send(format!("GET / HTTP/1.1\r\nHost: x\r\nX-Real-IP: {client}\r\n\r\n"));
            assert_eq!(connection.response().text(), network, "{client}");
        }
    });
}

#[test]
fn of_the_answer_in_a_log() {
    let site = site(
        "log_format answer \"$status|$sent_http_content_type|$sent_http_content_length|\
         $sent_http_x_own|$sent_http_etag|$sent_http_location|\
         $sent_http_last_modified|$sent_http_transfer_encoding|$body_bytes_sent|\
         $request_completion|$connection_requests|$pipe|$uri\";
         server {
            listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
            access_log %%DIR%%/answer.log answer;
            add_header X-Own $uri;
            location /r { default_type text/x; return 200 12345; }
            location /m { return 301 /x; }
            location /e { error_page 404 =404 /r; }
         }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.get("/r");
        client.send("GET /m HTTP/1.1\r\nHost: h\r\n\r\nGET /e HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        client.response();
        client.response();
        client.expect_closed();
        let log = crate::stage::wait_file(server, "answer.log", "|3|")
            .replace(&server.port().to_string(), "PORT");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[0], "200|text/x|5|/r|-|-|-|-|5|OK|1|.|/r");
        let (start, end) = lines[1].split_once("|/m|").unwrap();
        assert!(start.starts_with("301|text/html|"), "{log}");
        assert!(end.starts_with("-|http://h:PORT/x|-|-|") && end.contains("|OK|2|"), "{log}");
        let third = lines[2].replace("|p|", "|.|");
        assert_eq!(third, "404|text/x|5|-|-|-|-|-|5|OK|3|.|/r");
    });
}

#[test]
fn an_unknown_variable_is_refused_with_its_line() {
    let failure = crate::stage::server("location / { return 200 $no_such_thing; }")
        .try_start()
        .expect_err("no such variable");
    let said = failure.stderr + &failure.log;
    assert!(said.contains("unknown \"no_such_thing\" variable"), "{said}");
}

#[test]
fn request_ids_differ() {
    let site = crate::stage::server("location / { return 200 \"$request_id $request_id\"; }");
    on_each_driver(&site, |server| {
        let one = ask(server, "/", &[]).text();
        let two = ask(server, "/", &[]).text();
        let (a, b) = one.split_once(' ').unwrap();
        assert_eq!(a, b);
        assert_ne!(one, two);
    });
}
