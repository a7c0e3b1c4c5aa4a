//! An SCGI server of Python.

use super::{UPLOAD_BYTES, adler32, content, large, site, uploads};
use crate::stage::{Application, DRIVERS};

#[test]
fn scgi_with_python() {
    let Some(scgi) = Application::run("scgi_server.py") else { return };
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x}", adler32(&content));
    for driver in DRIVERS {
        for buffering in ["on", "off"] {
            eprintln!("driver: {driver:?}, buffering: {buffering}");
            let server = site(&format!(
                "server {{
                     listen 127.0.0.1:%%PORT%%; client_max_body_size 0;
                     scgi_request_buffering {buffering}; scgi_buffering {buffering};
                     location / {{ include scgi_params; scgi_pass {}; }}
                 }}",
                scgi.addr
            ))
            .driver(driver)
            .allow_log("upstream prematurely closed connection")
            .start();
            let mut client = server.client();
            let response = client.get("/a%20b?c=d");
            assert_eq!((response.status, &response.reason[..]), (202, "Taken"));
            assert_eq!(response.text(), "GET localhost /a b c=d ");
            assert_eq!(response.header("x-own"), Some("1"));
            client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nb=c");
            assert_eq!(client.response().text(), "POST a /a  b=c");
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response_to_head().status, 202);
            assert!(client.get("/large").text() == large());
            uploads(&mut client, "/upload", &content, &expected, &[false, true]);
            client.send_get("/dies");
            assert!(client.try_response(false).is_err());
            server.wait_log("upstream prematurely closed connection while reading upstream");
            server.stop();
        }
    }
}
