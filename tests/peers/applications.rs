//! Applications by FastCGI and uwsgi, and memcached: PHP-FPM, uWSGI with Python, memcached itself.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Client, Server, ServerBuilder, TempDir};

use crate::stage::{Background, DRIVERS, program, source};

/// Bytes of the uploads.
const UPLOAD_BYTES: usize = 100 << 20;

fn site(http: &str) -> ServerBuilder {
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(http)
}

/// Content that differs from place to place.
fn content() -> Vec<u8> {
    (0..UPLOAD_BYTES).map(|n| (n / 7 * 31 % 251) as u8).collect()
}

/// RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

/// What both applications respond with when asked for something large.
fn large() -> String {
    (0..1000u32).fold(String::new(), |mut text, n| {
        let letter = char::from(b'a' + (n % 26) as u8);
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", String::from(letter).repeat(10_000));
        text
    })
}

/// Uploads the content, with its length or in chunks.
#[track_caller]
fn uploads(client: &mut Client, path: &str, content: &[u8], expected: &str, ways: &[bool]) {
    for &chunked in ways {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n");
        let kind = "Content-Type: application/octet-stream\r\n";
        if chunked {
            client.send(format!("{head}{kind}Transfer-Encoding: chunked\r\n\r\n"));
            for piece in content.chunks(1 << 20) {
                client.send(format!("{:x}\r\n", piece.len()));
                client.send(piece);
                client.send("\r\n");
            }
            client.send("0\r\n\r\n");
        } else {
            client.send(format!("{head}{kind}Content-Length: {}\r\n\r\n", content.len()));
            client.send(content);
        }
        assert_eq!(client.response().text(), expected, "chunked: {chunked}");
    }
}

/// PHP-FPM with a document root, and its port.
fn php(dir: &TempDir) -> Option<(Background, u16)> {
    let versions = ["php-fpm", "php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let mut command = program(versions.into_iter().find(installed).unwrap_or("php-fpm"))?;
    let port = free_port();
    let fpm = format!(
        "[global]\nerror_log = {0}/fpm.log\n[www]\nlisten = 127.0.0.1:{port}\nuser = nobody\n\
         group = nogroup\npm = static\npm.max_children = 2\n\
         php_admin_value[post_max_size] = 200M\nphp_admin_value[display_errors] = 0\n\
         php_admin_value[log_errors] = 1\n",
        dir.path().display()
    );
    dir.write("fpm.conf", fpm);
    dir.write("www/index.php", std::fs::read(source("app.php")).unwrap());
    dir.write("protected/report.txt", "the report");
    for path in ["", "www", "protected"] {
        let path = dir.path().join(path);
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    command.args(["-n", "-F", "-y"]).arg(dir.path().join("fpm.conf"));
    Some((Background::serve(&mut command, port), port))
}

#[test]
fn php_fpm() {
    let dir = TempDir::new("peers-php");
    let Some((_php, port)) = php(&dir) else { return };
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x}", adler32(&content));
    for driver in DRIVERS {
        for buffering in ["on", "off"] {
            eprintln!("driver: {driver:?}, buffering: {buffering}");
            let mut server = site(&format!(
                "upstream php {{ server 127.0.0.1:{port}; keepalive 2; }}
                 server {{
                     listen 127.0.0.1:%%PORT%%; root {root}/www; client_max_body_size 0;
                     fastcgi_request_buffering {buffering}; fastcgi_buffering {buffering};
                     location /protected/ {{ internal; root {root}; }}
                     location ~ \\.php(/|$) {{
                         fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                         include fastcgi.conf;
                         fastcgi_param PATH_INFO $fastcgi_path_info;
                         fastcgi_pass php; fastcgi_keep_conn on;
                     }}
                 }}",
                root = dir.path().display()
            ))
            .driver(driver)
            .start();
            server.allow_log("FastCGI sent in stderr");
            let mut client = server.client();
            let response = client.get("/index.php/more?do=facts");
            assert_eq!((response.status, response.text()), (201, "GET localhost /more".to_owned()));
            assert_eq!(response.header("x-script"), Some("/index.php"));
            assert_eq!(response.header("set-cookie"), Some("a=b"));
            assert!(client.get("/index.php?do=large").text() == large());
            assert_eq!(client.get("/index.php?do=protected").text(), "the report");
            let response = client.get("/index.php?do=redirect");
            assert_eq!((response.status, response.header("location")), (302, Some("/elsewhere")));
            assert_eq!(client.get("/index.php?do=warning").text(), "warned");
            server.wait_log("FastCGI sent in stderr: \"PHP message: PHP Warning:  a complaint in");
            assert_eq!(client.get("/none.php").status, 404);
            server.wait_log("Primary script unknown");
            // PHP takes content without a length for none.
            let ways = if buffering == "on" { &[false, true][..] } else { &[false] };
            uploads(&mut client, "/index.php?do=upload", &content, &expected, ways);
            server.stop();
        }
    }
}

#[test]
fn uwsgi_with_python() {
    let Some(mut command) = program("uwsgi") else { return };
    let port = free_port();
    command.args(["--plugin", "python3", "--need-app", "--processes", "2", "--die-on-term"]);
    command.args(["--socket", &format!("127.0.0.1:{port}")]);
    command.arg("--wsgi-file").arg(source("app.wsgi.py"));
    let _uwsgi = Background::serve(&mut command, port);
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x}", adler32(&content));
    for driver in DRIVERS {
        for buffering in ["on", "off"] {
            eprintln!("driver: {driver:?}, buffering: {buffering}");
            let server = site(&format!(
                "server {{
                     listen 127.0.0.1:%%PORT%%; client_max_body_size 0;
                     uwsgi_request_buffering {buffering}; uwsgi_buffering {buffering};
                     location / {{ include uwsgi_params; uwsgi_pass 127.0.0.1:{port}; }}
                 }}"
            ))
            .driver(driver)
            .start();
            let mut client = server.client();
            let response = client.get("/a%20b");
            assert_eq!((response.status, &response.reason[..]), (202, "Taken"));
            assert_eq!(response.text(), "GET localhost /a b");
            assert_eq!(response.header("x-own"), Some("1"));
            assert!(client.get("/large").text() == large());
            uploads(&mut client, "/upload", &content, &expected, &[false, true]);
            server.stop();
        }
    }
}

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
