//! Django by uWSGI, with the configuration that its documentation recommends for nginx.

use nowait_testkit::ports::free_port;
use nowait_testkit::{Server, TempDir};

use super::visitor::{Visitor, field};
use super::{UPLOAD_BYTES, adler32, content, is_installed, is_root, open_up, site};
use crate::stage::{Background, DRIVERS, program, source};

/// The site in a directory, and its port.
fn django(dir: &TempDir) -> Option<(Background, u16)> {
    let mut command = program("uwsgi")?;
    let port = free_port();
    open_up(dir.path(), true);
    command.args(["--plugin", "python3", "--need-app", "--master", "--processes", "3"]);
    command.args(["--die-on-term", "--socket", &format!("127.0.0.1:{port}")]);
    command.arg("--pythonpath").arg(source("")).args(["--module", "django_site:application"]);
    command.env("SITE_DIR", dir.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    if is_root() {
        command.args(["--uid", "nobody", "--gid", "nogroup"]);
    }
    Some((Background::serve(&mut command, port), port))
}

/// A response whose first part arrives before its second exists.
#[track_caller]
fn is_streamed(server: &Server) {
    let mut client = server.client();
    client.send_get("/stream/");
    let mut read = String::new();
    while !read.contains("first ") {
        read += &String::from_utf8(client.read_some(4096)).unwrap();
    }
    assert!(!read.contains("second"), "{read}");
    assert_eq!(server.get("/release/").status, 204);
    while !read.ends_with("0\r\n\r\n") {
        read += &String::from_utf8(client.read_some(4096)).unwrap();
    }
    assert!(read.contains("second"), "{read}");
}

#[test]
fn django_site() {
    if !is_installed("/usr/lib/python3/dist-packages/django", "python3-django") {
        return;
    }
    let dir = TempDir::new("peers-django");
    let Some((_uwsgi, port)) = django(&dir) else { return };
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x} a label", adler32(&content));
    for (driver, user) in DRIVERS.into_iter().zip(["anna", "berta"]) {
        eprintln!("driver: {driver:?}");
        let server = site(&format!(
            "include mime.types;
             upstream django {{ server 127.0.0.1:{port}; }}
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 server_name localhost;
                 charset utf-8;
                 client_max_body_size 200M;
                 location /media {{ alias {dir}/media; }}
                 location /static {{ alias {dir}/static; }}
                 location / {{ uwsgi_pass django; include uwsgi_params; }}
             }}",
            dir = dir.path().display()
        ))
        .driver(driver)
        .start();
        let mut visitor = Visitor::of(&server);
        // The administration: files, a log-in, a form.
        let style = visitor.get("/static/admin/css/base.css");
        assert_eq!((style.status, style.header("content-type")), (200, Some("text/css")));
        let response = visitor.get("/admin");
        assert_eq!((response.status, response.header("location")), (301, Some("/admin/")));
        let page = visitor.visit("/admin/");
        assert!(page.status == 200 && page.text().contains("Django administration"), "{page}");
        let token = field(&page.text(), "csrfmiddlewaretoken");
        let form = [
            ("csrfmiddlewaretoken", &token[..]),
            ("username", "editor"),
            ("password", "a secret of a test"),
            ("next", "/admin/"),
        ];
        let response = visitor.post("/admin/login/?next=/admin/", &form);
        assert_eq!((response.status, response.header("location")), (302, Some("/admin/")));
        let page = visitor.get("/admin/auth/user/add/");
        let token = field(&page.text(), "csrfmiddlewaretoken");
        let form = [
            ("csrfmiddlewaretoken", &token[..]),
            ("username", user),
            ("password1", "another secret of a test"),
            ("password2", "another secret of a test"),
        ];
        let response = visitor.post("/admin/auth/user/add/", &form);
        let page = visitor.follow(response);
        assert!(page.text().contains("was added successfully"), "{page}");
        assert!(visitor.get("/admin/auth/user/").text().contains(user));
        // Pages of its own.
        assert_eq!(visitor.post("/form/", &[("name", "Anna")]).status, 403);
        let token = field(&visitor.get("/form/").text(), "csrfmiddlewaretoken");
        let form = [("csrfmiddlewaretoken", &token[..]), ("name", "<Änna & Co>")];
        assert_eq!(visitor.post("/form/", &form).text(), "Hello, &lt;Änna &amp; Co&gt;");
        let form = [("csrfmiddlewaretoken", &token[..]), ("label", "a label")];
        let response = visitor.upload("/upload/", &form, ("file", "file", &content));
        assert_eq!(response.text(), expected);
        is_streamed(&server);
        assert_eq!(visitor.get("/none").status, 404);
        server.stop();
    }
}
