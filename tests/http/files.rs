//! `root`, `alias`, `index`, content types, `ETag`, and what static answers look like.

use crate::stage::{ask, gets, on_each_driver, server};

#[test]
fn a_file_is_sent_with_its_description() {
    let site = server("types { text/html html; text/x-own own; }").file("html/a.html", "hello");
    gets(
        &site,
        &[(
            "/a.html",
            "HTTP/1.1 200 OK\nServer: *\nDate: * GMT\nContent-Type: text/html\nContent-Length: 5\n\
             Last-Modified: * GMT\nConnection: keep-alive\nETag: \"*-5\"\nAccept-Ranges: bytes\n\n\
             hello",
        )],
    );
}

#[test]
fn the_extension_decides_the_type() {
    let site = server(
        "types { text/html html htm; image/x-own OWN; }
         default_type application/x-else;
         location /none/ { default_type ''; }
         location /t/ { types { } default_type text/t; }",
    )
    .file("html/a.html", "")
    .file("html/a.HTM", "")
    .file("html/a.own", "")
    .file("html/a.b.own", "")
    .file("html/none/x", "")
    .file("html/t/a.html", "")
    .file("html/plain", "")
    .file("html/.html", "");
    gets(
        &site,
        &[
            ("/a.html", "200\nContent-Type: text/html"),
            ("/a.HTM", "200\nContent-Type: text/html"),
            ("/a.own", "200\nContent-Type: image/x-own"),
            ("/a.b.own", "200\nContent-Type: image/x-own"),
            ("/plain", "200\nContent-Type: application/x-else"),
            ("/none/x", "200\n!Content-Type"),
            ("/t/a.html", "200\nContent-Type: text/t"),
        ],
    );
}

#[test]
fn root_and_alias_lead_to_files() {
    let site = server(
        r#"
        location /r/ { root %%DIR%%/other; }
        location /alias/ { alias %%DIR%%/other/; }
        location /noslash { alias %%DIR%%/other/f; }
        location = /one { alias %%DIR%%/other/file; }
        location ~ ^/user/(\w+)/(.*)$ { alias %%DIR%%/home/$1/www/$2; }
        location /var/ { root %%DIR%%/$arg_dir; }
        "#,
    )
    .file("html/a", "html")
    .file("other/r/a", "root")
    .file("other/file", "alias")
    .file("home/bob/www/x/y", "user")
    .file("v1/var/a", "var");
    gets(
        &site,
        &[
            ("/a", "200\n\nhtml"),
            ("/r/a", "200\n\nroot"),
            ("/alias/file", "200\n\nalias"),
            ("/noslashile", "200\n\nalias"),
            ("/one", "200\n\nalias"),
            ("/user/bob/x/y", "200\n\nuser"),
            ("/user/eve/x/y", "404"),
            ("/var/a?dir=v1", "200\n\nvar"),
            ("/alias/../a", "200\n\nhtml"),
        ],
    );
}

#[test]
fn a_directory_is_answered_by_its_index() {
    let site = server(
        "index none.html index.$arg_e index.html;
         location /abs/ { index none /a; }
         location /off/ { index nothing; }",
    )
    .file("html/index.html", "index")
    .file("html/index.txt", "text")
    .file("html/d/index.html", "deep")
    .file("html/empty/file", "")
    .file("html/abs/x", "")
    .file("html/off/index.html", "")
    .file("html/a", "A");
    gets(
        &site,
        &[
            ("/", "200\n\nindex"),
            ("/?e=txt", "200\n\ntext"),
            ("/d/", "200\n\ndeep"),
            ("/d", "301\nLocation: http://localhost:*/d/"),
            ("/d?x=y", "301\nLocation: http://localhost:*/d/?x=y"),
            ("/empty/", "403"),
            ("/abs/", "200\n\nA"),
            ("/off/", "403"),
            ("/missing/", "404"),
            ("/a/", "404"),
        ],
    );
}

#[test]
fn etag_can_be_off() {
    let site = server("etag off;").file("html/a", "A");
    gets(&site, &[("/a", "200\n!ETag\nLast-Modified: *")]);
}

#[test]
fn the_etag_is_that_of_time_and_size() {
    let site = server("").file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        let file = std::fs::File::open(server.dir().join("html/a")).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(0x5000_0000);
        file.set_modified(time).unwrap();
        let response = ask(server, "/a", &[]);
        assert_eq!(response.header("etag"), Some("\"50000000-a\""));
        assert_eq!(response.header("last-modified"), Some("Fri, 13 Jul 2012 11:01:20 GMT"));
    });
}

#[test]
fn an_empty_file_has_an_empty_body() {
    let site = server("").file("html/empty", "");
    gets(&site, &[("/empty", "200\nContent-Length: 0\n\n")]);
}

#[test]
fn empty_gif() {
    let site = server("location = /x.gif { empty_gif; }");
    on_each_driver(&site, |server| {
        let response = ask(server, "/x.gif", &[]);
        assert_eq!(response.header("content-type"), Some("image/gif"));
        assert_eq!(response.header("last-modified"), Some("Mon, 28 Sep 1970 06:00:00 GMT"));
        assert_eq!(response.body.len(), 43);
        assert!(response.body.starts_with(b"GIF89a") && response.body.ends_with(b";"));
    });
}

#[test]
fn expires_and_added_headers() {
    let site = server(
        r#"
        location /max { expires max; }
        location /epoch { expires epoch; }
        location /off { expires off; }
        location /hour { expires 1h; }
        location /past { expires -1; }
        location /modified { expires modified $arg_e; }
        location /add { add_header X-A "a b"; add_header X-Uri $uri; add_header X-None $arg_none; }
        location /always { add_header X-A a always; add_header X-B b; }
        "#,
    )
    .file("html/max", "")
    .file("html/epoch", "")
    .file("html/off", "")
    .file("html/hour", "")
    .file("html/past", "")
    .file("html/modified", "")
    .file("html/add", "");
    gets(
        &site,
        &[
            (
                "/max",
                "200\nExpires: Thu, 31 Dec 2037 23:55:55 GMT\nCache-Control: max-age=315360000",
            ),
            ("/epoch", "200\nExpires: Thu, 01 Jan 1970 00:00:01 GMT\nCache-Control: no-cache"),
            ("/off", "200\n!Expires\n!Cache-Control"),
            ("/hour", "200\nCache-Control: max-age=3600"),
            ("/past", "200\nCache-Control: no-cache"),
            ("/modified?e=1h", "200\nCache-Control: max-age=*"),
            ("/modified?e=epoch", "200\n!Expires"),
            ("/add", "200\nX-A: a b\nX-Uri: /add\n!X-None"),
            ("/always", "404\nX-A: a\n!X-B"),
        ],
    );
}
