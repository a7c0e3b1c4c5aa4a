//! `examples/http3.conf`: one site in all versions of HTTP, and other names that get nothing.

use nowait_testkit::http3::{Http3, Http3Options};

use super::example;

#[test]
fn http3() {
    let key = rcgen::generate_simple_self_signed(vec!["www.example.org".to_owned()]).unwrap();
    let text = include_str!("../../examples/http3.conf")
        .replace("listen 8443", "listen %%PORT%%")
        .replace("127.0.0.1:8001", "127.0.0.1:%%PORT_1%%");
    let server = example(&text)
        .file("etc/site.pem", key.cert.pem())
        .file("etc/site.key", key.signing_key.serialize_pem())
        .file("srv/site/index.html", "the site")
        .file("log/x", "")
        .start();
    let mut options = Http3Options::default();
    options.quic.name = "www.example.org".to_owned();
    let mut client = Http3::connect(server.port(), &options).unwrap();
    assert_eq!(client.get("/index.html").text(), "the site");
    assert_eq!(client.get("/api/x").text(), "application: www.example.org");
    options.quic.name = "other.example".to_owned();
    assert!(Http3::connect(server.port(), &options).is_err());
    server.wait_file("log/access.log", "\"GET /api/x HTTP/3.0\" 200 28 h3");
    server.stop();
}
