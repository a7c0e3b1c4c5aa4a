//! PHP-FPM with a script of our own.

use nowait_testkit::TempDir;

use super::{Pool, UPLOAD_BYTES, adler32, content, large, open_up, site, uploads};
use crate::stage::{DRIVERS, source};

/// The script, and a pool that runs it.
fn php(children: usize, lines: &str) -> Option<(TempDir, Pool)> {
    let dir = TempDir::new("peers-php");
    dir.write("www/index.php", std::fs::read(source("app.php")).unwrap());
    dir.write("protected/report.txt", "the report");
    open_up(dir.path(), false);
    let pool = Pool::start(&dir, children, false, lines)?;
    Some((dir, pool))
}

#[test]
fn php_fpm() {
    let Some((dir, pool)) = php(2, "") else { return };
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
                root = dir.path().display(),
                port = pool.port
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
