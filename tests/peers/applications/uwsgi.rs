//! uWSGI with an application of WSGI.

use nowait_testkit::ports::free_port;

use super::{UPLOAD_BYTES, adler32, content, large, site, uploads};
use crate::stage::{Background, DRIVERS, program, source};

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
