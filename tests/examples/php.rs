//! `examples/php.conf`: a front controller by FastCGI, a cache for visitors without a session, protected
//! files.

use nowait_testkit::Origin;
use nowait_testkit::origin::Step;

use super::example;

/// A script of PHP that answers requests on one connection.
pub(super) fn php(responses: &[&str]) -> Vec<Step> {
    let record = |kind: u8, content: &str| {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[1, kind, 0, 1, high, low, 0, 0], content.as_bytes()].concat()
    };
    let steps = responses.iter().flat_map(|text| {
        let response = [record(6, text), record(6, ""), record(3, "\0\0\0\0\0\0\0\0")].concat();
        [Step::expect(b"\x01\x05\0\x01\0\0\0\0"), Step::reply(response)]
    });
    steps.collect()
}

#[test]
fn php_application() {
    let page = "Content-Type: text/html\r\n\r\n<p>page";
    let origin = Origin::start([php(&[
        page,
        "Content-Type: text/html\r\n\r\n<p>yours",
        "X-Accel-Redirect: /protected/report.txt\r\n\r\n",
    ])]);
    let text = include_str!("../../examples/php.conf")
        .replace("127.0.0.1:9000", &origin.addr().to_string())
        // The application takes one connection, which a worker keeps for itself.
        .replace("worker_processes auto;", "worker_processes 1;");
    let server = example(&text)
        .file("srv/app/public/index.php", "<?php")
        .file("srv/app/public/logo.txt", "logo")
        .file("srv/app/public/.env", "secret")
        .file("srv/app/public/.hidden.php", "<?php")
        .file("srv/app/files/report.txt", "report")
        .file("var/cache/php/.keep", "")
        .file("log/app.log", "")
        .start();
    assert_eq!(server.get("/logo.txt").text(), "logo");
    for cache in ["MISS", "HIT"] {
        let response = server.get("/article/1?a=b");
        assert_eq!(
            (response.text(), response.header("x-cache")),
            ("<p>page".to_owned(), Some(cache))
        );
    }
    let mut client = server.client();
    let with_session =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: PHPSESSID=1\r\n\r\n");
    client.send(with_session("/article/1?a=b"));
    assert_eq!(client.response().text(), "<p>yours");
    client.send(with_session("/report"));
    assert_eq!(client.response().text(), "report");
    for (path, status) in
        [("/none.php", 404), ("/protected/report.txt", 404), ("/.env", 403), ("/.hidden.php", 403)]
    {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    let sent = String::from_utf8_lossy(&origin.received()[0]).into_owned();
    let script = format!("SCRIPT_FILENAME{}/srv/app/public/index.php", server.dir().display());
    assert!(sent.contains(&script) && sent.contains("REQUEST_URI/article/1?a=b"), "{sent:?}");
    assert!(server.quit().success());
    origin.finish();
}
