//! `autoindex` in all its formats.

use std::time::{Duration, UNIX_EPOCH};

use nowait_testkit::check_on;

use crate::stage::{gets, on_each_driver, server};

#[test]
fn a_directory_is_listed() {
    let site = server(
        "autoindex on;
         location /rough/ { autoindex_exact_size off; }
         location /off/ { autoindex off; }",
    )
    .file("html/b<i>.txt", "12345")
    .file("html/d/x", "")
    .file("html/.hidden", "")
    .file("html/%?#:", "")
    .file("html/rough/big", vec![b'x'; 1_500_000])
    .file("html/rough/small", "1")
    .file("html/off/x", "");
    on_each_driver(&site, |server| {
        let file = std::fs::File::open(server.dir().join("html/b<i>.txt")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(0x5000_0000)).unwrap();
        check_on(
            server,
            "GET / HTTP/1.1\nHost: x",
            "200\nContent-Type: text/html\n\n<html>*<title>Index of /</title>*\
             <h1>Index of /</h1><hr><pre><a href=\"../\">../</a>*\
             <a href=\"d/\">d/</a>*   -*\
             <a href=\"%25%3F%23%3A\">%?#:</a>*\
             <a href=\"b%3Ci%3E.txt\">b&lt;i&gt;.txt</a>                                           \
             13-Jul-2012 11:01                   5*</pre><hr></body>*</html>*",
        );
        assert!(!server.get("/").text().contains("hidden"));
        check_on(server, "GET /off/ HTTP/1.1\nHost: x", "403");
        check_on(server, "GET /rough/ HTTP/1.1\nHost: x", "200\n\n*    1M*    1*");
        check_on(server, "HEAD / HTTP/1.1\nHost: x", "200");
        check_on(server, "GET /none/ HTTP/1.1\nHost: x", "404");
    });
}

#[test]
fn json_xml_and_jsonp() {
    let site = server(
        "autoindex on;
         location /json/ { autoindex_format json; }
         location /xml/ { autoindex_format xml; }
         location /jsonp/ { autoindex_format jsonp; }",
    )
    .file("html/json/a\"b", "123")
    .file("html/json/d/x", "")
    .file("html/xml/a<b", "123")
    .file("html/xml/d/x", "")
    .file("html/jsonp/a", "123");
    gets(
        &site,
        &[
            (
                "/json/",
                "200\nContent-Type: application/json\n\n[*\
                 { \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"* GMT\" },*\
                 { \"name\":\"a\\\"b\", \"type\":\"file\", \"mtime\":\"* GMT\", \"size\":3 }*]*",
            ),
            (
                "/xml/",
                "200\nContent-Type: text/xml; charset=utf-8\n\n<?xml version=\"1.0\"?>*<list>*\
                 <directory mtime=\"*Z\">d</directory>*\
                 <file mtime=\"*Z\" size=\"3\">a&lt;b</file>*</list>*",
            ),
            (
                "/jsonp/?callback=my_f",
                "200\nContent-Type: application/javascript\n\n*my_f([*{ \"name\":\"a\"*]);",
            ),
            ("/jsonp/", "200\nContent-Type: application/json\n\n[*]*"),
            ("/jsonp/?callback=a(b", "400"),
        ],
    );
}

#[test]
fn an_index_comes_first() {
    let site = server("autoindex on;").file("html/index.html", "I").file("html/d/x", "");
    gets(&site, &[("/", "200\n\nI"), ("/d/", "200\n\n*Index of /d/*"), ("/d", "301")]);
}
