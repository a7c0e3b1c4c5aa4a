//! `examples/static-site.conf`: addresses, lifetimes, codings and what must not be seen.

use std::io::Write;

use nowait_testkit::Server;

use super::curl::{curl, is_installed};
use super::example;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn site() -> Server {
    example(include_str!("../../examples/static-site.conf"))
        .file("srv/site/index.html", "<h1>front")
        .file("srv/site/about/index.html", "<h1>about")
        .file("srv/site/contact.html", "<h1>contact")
        .file("srv/site/404.html", "<h1>nothing here")
        .file("srv/site/app.3f9c2a11.js", "let x = 1;")
        .file("srv/site/app.3f9c2a11.js.gz", gzip("let x = 1;"))
        .file("srv/site/long.css", "p { color: black } ".repeat(100))
        .file("srv/site/photo.webp", "RIFF")
        .file("srv/site/.git/config", "secret")
        .file("srv/site/.well-known/security.txt", "Contact: mailto:a@example.org")
        .start()
}

#[test]
fn static_site() {
    let server = site();
    for (target, content) in [
        ("/", "<h1>front"),
        ("/about", "<h1>about"),
        ("/about/", "<h1>about"),
        ("/contact", "<h1>contact"),
        ("/.well-known/security.txt", "Contact: mailto:a@example.org"),
    ] {
        let page = server.get(target);
        assert_eq!((page.status, page.text()), (200, content.into()), "{target}");
        assert_eq!(page.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(page.header("Cache-Control"), Some("no-cache"), "{target}");
    }
    for (target, lifetime) in
        [("/app.3f9c2a11.js", "max-age=315360000"), ("/photo.webp", "max-age=604800")]
    {
        assert_eq!(server.get(target).header("Cache-Control"), Some(lifetime), "{target}");
    }
    for (target, location) in
        [("/about.php", "/about/"), ("/blog/2019", "/archive/2019/"), ("/index.html", "/")]
    {
        let moved = server.get(target);
        assert_eq!(moved.status, 301, "{target}");
        assert!(moved.header("Location").unwrap().ends_with(location), "{target}");
    }
    for target in ["/.git/config", "/none", "/404.html", "/about/.hidden"] {
        let page = server.get(target);
        assert_eq!(page.status, 404, "{target}");
        assert!(!page.text().contains("secret"));
        assert_eq!(page.header("X-Content-Type-Options"), Some("nosniff"));
    }
    assert_eq!(server.get("/none").text(), "<h1>nothing here");
    assert!(server.quit().success());
}

#[test]
fn static_site_with_curl() {
    if !is_installed() {
        return;
    }
    let server = site();
    let port = server.port();
    let page = curl(port, "http://www.example.org/contact", &["--location"]);
    assert_eq!((page.status, page.text()), (200, "<h1>contact".into()));
    assert!(page.heads.contains("301 Moved"), "{}", page.heads);
    // The file that was compressed beforehand, and one that is compressed now.
    let script = curl(port, "http://example.org/app.3f9c2a11.js", &["-H", "Accept-Encoding: gzip"]);
    assert_eq!(script.header("Content-Encoding"), Some("gzip"));
    assert_eq!(script.content, gzip("let x = 1;"));
    let style = curl(port, "http://example.org/long.css", &["--compressed"]);
    assert!(style.header("Content-Encoding").is_some(), "{}", style.heads);
    assert_eq!(style.header("Vary"), Some("Accept-Encoding"));
    assert_eq!(style.text(), "p { color: black } ".repeat(100));
    // What has not changed is not sent again.
    let etag = curl(port, "http://example.org/", &[]);
    let tag = format!("If-None-Match: {}", etag.header("ETag").unwrap());
    assert_eq!(curl(port, "http://example.org/", &["-H", &tag]).status, 304);
    assert!(server.quit().success());
}
