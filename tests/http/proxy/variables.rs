//! `$proxy_*` and `$upstream_*`.

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, check_on};

use super::answered;
use crate::stage::{gets, server, site, wait_file};

#[test]
fn of_the_response() {
    answered(
        r#"
        location / {
            proxy_pass http://%%ORIGIN%%;
            add_header X-A "$upstream_addr";
            add_header X-S "$upstream_status";
            add_header X-C "$upstream_cookie_id|$upstream_cookie_none|$upstream_cookie_two";
            add_header X-H "$upstream_http_x_one|$upstream_http_none";
            add_header X-P "$proxy_host $proxy_internal_body_length";
        }
        "#,
        &[(
            "HTTP/1.1 200 OK\nX-One: 1\nX-one: 2\nSet-Cookie: id=abc; path=/\n\
             Set-Cookie: TWO = 2 \nContent-Length: 0\n\n",
            "200\nX-A: ORIGIN\nX-S: 200\nX-C: abc||2\nX-H: 1, 2|\nX-P: ORIGIN",
        )],
    );
}

#[test]
fn of_tries_before_and_after_a_redirect() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let first = "HTTP/1.1 200 OK\nX-Accel-Redirect: /again\nContent-Length: 0\n\n";
        let second = "HTTP/1.1 201 Made\nContent-Length: 5\n\nhello";
        let script = |reply: &str| vec![Step::expect("\r\n\r\n"), Step::reply(super::wire(reply))];
        let origin = Origin::start([script(first), script(second)]);
        let address = origin.addr();
        let site = site(&format!(
            "log_format up '$upstream_status|$upstream_addr|$upstream_response_length\
             |$upstream_bytes_received|$upstream_connect_time|$upstream_header_time\
             |$upstream_response_time';\n\
             access_log %%DIR%%/a.log up;\n\
             server {{ listen 127.0.0.1:%%PORT%%;\n\
             location / {{ proxy_pass http://{address}; }} }}"
        ));
        let server = site.driver(driver).start();
        check_on(&server, "GET / HTTP/1.1\nHost: a", "201\n\nhello");
        let line = wait_file(&server, "a.log", "\n");
        let values: Vec<&str> = line.trim_end().split('|').collect();
        assert_eq!(values[0], "200 : 201", "{line}");
        assert_eq!(values[1], format!("{address} : {address}"), "{line}");
        assert_eq!(values[2], "0 : 5", "{line}");
        let (got, got_then) = (super::wire(first).len(), super::wire(second).len());
        assert_eq!(values[3], format!("{got} : {got_then}"), "{line}");
        for times in &values[4..] {
            let each: Vec<&str> = times.split(" : ").collect();
            assert_eq!(each.len(), 2, "{line}");
            assert!(each.iter().all(|time| time.parse::<f64>().is_ok()), "{line}");
        }
        server.stop();
        origin.finish();
    }
}

#[test]
fn without_a_server_there_are_none() {
    let locations = "location / { return 200 \"[$upstream_addr$proxy_host$upstream_http_x]\"; }
        location /before { proxy_pass http://127.0.0.1:1; return 200 \"[$proxy_host]\"; }";
    gets(&server(locations), &[("/", "200\n\n[]"), ("/before", "200\n\n[]")]);
}
