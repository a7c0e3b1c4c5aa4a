//! `autoindex` in all its formats.

use std::time::{Duration, UNIX_EPOCH};

use nowait_testkit::check_on;

use crate::stage::{gets, on_each_driver, send, server};

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

/// Names are any bytes; lists for programs stay valid.
#[test]
fn names_that_are_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let site = server(
        "autoindex on;
         location /json/ { alias %%DIR%%/html/; autoindex_format json; }
         location /jsonp/ { alias %%DIR%%/html/; autoindex_format jsonp; }
         location /xml/ { alias %%DIR%%/html/; autoindex_format xml; }",
    )
    .file("html/gr\u{fc}n", "");
    on_each_driver(&site, |server| {
        for name in [&b"a\xff<b"[..], b"c\x01\n", b"d\xc3", "e\u{ffff}".as_bytes()] {
            std::fs::write(server.dir().join("html").join(OsStr::from_bytes(name)), "").unwrap();
        }
        let body = |path: &str| String::from_utf8(server.get(path).body).expect("a list of UTF-8");
        for path in ["/json/", "/jsonp/?callback=f"] {
            let json = body(path);
            for part in [
                "{ \"name\":\"a\u{fffd}<b\", \"uri\":\"a%FF%3Cb\", \"type\":\"file\"",
                "{ \"name\":\"c\\u0001\\n\", \"type\"",
                "{ \"name\":\"d\u{fffd}\", \"uri\":\"d%C3\", \"type\"",
                "{ \"name\":\"gr\u{fc}n\", \"type\"",
            ] {
                assert!(json.contains(part), "{part}: {json}");
            }
        }
        let xml = body("/xml/");
        for part in [
            " size=\"0\" uri=\"a%FF%3Cb\">a\u{fffd}&lt;b</file>",
            " size=\"0\" uri=\"c%01%0A\">c\u{fffd}\u{fffd}</file>",
            " size=\"0\" uri=\"d%C3\">d\u{fffd}</file>",
            " size=\"0\" uri=\"e%EF%BF%BF\">e\u{fffd}</file>",
            " size=\"0\">gr\u{fc}n</file>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
        // What is listed can be asked for.
        assert_eq!(server.get("/a%FF%3Cb").status, 200);
    });
}

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";

/// The names of a page's rows, from top to bottom.
fn rows(page: &str) -> Vec<String> {
    let body = page.split_once("<tbody>").expect("a table").1;
    let cells = body.split("<tr").skip(1).filter_map(|row| row.split_once("</svg>"));
    cells.map(|(_, rest)| rest.split_once("</a>").unwrap().0.to_owned()).collect()
}

#[test]
fn browsers_get_a_page_in_the_order_that_they_ask_for() {
    let site = server("autoindex on; autoindex_format page; server_tokens off;")
        .file("html/a10.txt", "1")
        .file("html/a9.txt", "333")
        .file("html/B", "22")
        .file("html/dir/x", "")
        .file("html/dir/sub/y", "")
        .file("html/.hidden", "");
    on_each_driver(&site, |server| {
        for (name, time) in [("a10.txt", 3), ("a9.txt", 1), ("B", 2)] {
            let file = std::fs::File::open(server.dir().join("html").join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(0x5000_0000 + time)).unwrap();
        }
        let get = |target: &str| {
            let mut client = server.client();
            send(&mut client, target, &[BROWSER]);
            client.response()
        };
        let response = get("/");
        assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(response.header("Vary"), Some("Accept"));
        let policy = response.header("Content-Security-Policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        let page = response.text();
        assert!(page.contains("1 directory, 3 files, <data value=\"6\""), "{page}");
        assert!(page.contains("<footer>nowait</footer>") && !page.contains("hidden<"), "{page}");
        for (query, names) in [
            ("", "dir/ a9.txt a10.txt B"),
            ("?sort=name&order=desc", "dir/ B a10.txt a9.txt"),
            ("?sort=size", "dir/ a9.txt B a10.txt"),
            ("?sort=size&order=asc", "dir/ a10.txt B a9.txt"),
            ("?order=desc&sort=date", "dir/ a10.txt B a9.txt"),
            ("?sort=%22%3E&order=<script>", "dir/ a9.txt a10.txt B"),
        ] {
            let page = get(&format!("/{query}")).text();
            assert_eq!(rows(&page).join(" "), names, "{query}");
            assert!(!page.contains("<script>&") && !page.contains("%3E"), "{query}");
        }
        let below = get("/dir/sub/").text();
        assert_eq!(rows(&below), ["Parent directory", "y"]);
        assert!(below.contains("<a href=\"../../\">Home</a>"), "{below}");
        // Programs get nginx's page.
        check_on(
            server,
            "GET /?sort=size HTTP/1.1\nHost: x\nAccept: */*",
            "200\nContent-Type: text/html\nVary: Accept\n!Content-Security-Policy\n\n\
             <html>*<h1>Index of /</h1><hr><pre>*a10.txt*a9.txt*",
        );
        check_on(server, &format!("HEAD / HTTP/1.1\nHost: x\n{BROWSER}"), "200\nVary: Accept");
    });
}

/// More entries than are sorted on the event loop, and than fit into one piece.
#[test]
fn a_large_directory_is_complete_in_every_format() {
    let mut site = server(
        "autoindex on; autoindex_format page;
         location /json/ { alias html/; autoindex_format json; }
         location /plain/ { alias html/; autoindex_format html; }",
    );
    for n in 0..1000 {
        site = site.file(&format!("html/file-{n}"), "x");
    }
    on_each_driver(&site, |server| {
        let mut client = server.client();
        send(&mut client, "/", &[BROWSER]);
        let names = rows(&client.response().text());
        let expected: Vec<String> = (0..1000).map(|n| format!("file-{n}")).collect();
        assert_eq!(names, expected);
        for (target, per_file) in [("/json/", 1), ("/plain/", 2)] {
            let text = server.get(target).text();
            assert_eq!(text.matches("file-").count(), 1000 * per_file, "{target}");
        }
        check_on(server, "HEAD /json/ HTTP/1.1\nHost: x", "200");
    });
}

/// `autoindex_readme`: the best README of a directory, under the rules for its files.
#[test]
fn a_page_ends_with_the_readme_of_the_directory() {
    let site = server(
        "autoindex on; autoindex_format page; autoindex_readme on; disable_symlinks outside;
         location /off/ { autoindex_readme off; }",
    )
    .file("html/README", "other")
    .file("html/Readme.md", "# Title\n\nA <script>x</script> [bad](javascript:x)\n")
    .file("html/text/readme.txt", "one <b>\ntwo\n")
    .file("html/large/README.md", "x".repeat((64 << 10) + 1))
    .file("html/most/README.md", "y".repeat(64 << 10))
    .file("html/off/README.md", "off")
    .file("html/link/x", "")
    .file("html/dir/README.md/x", "")
    .file("secret", "secret");
    on_each_driver(&site, |server| {
        let link = server.dir().join("html/link/README.md");
        std::os::unix::fs::symlink("../../secret", link).unwrap();
        let article = |target: &str| {
            let mut client = server.client();
            send(&mut client, target, &[BROWSER]);
            let response = client.response();
            assert_eq!(response.status, 200, "{target}");
            let text = response.text();
            let (_, rest) = text.split_once("<article aria-label=\"README\">\n")?;
            Some(rest.split_once("</article>").unwrap().0.to_owned())
        };
        assert_eq!(
            article("/").as_deref(),
            Some("<h2>Title</h2>\n<p>A &lt;script&gt;x&lt;/script&gt; <a href=\"#\">bad</a></p>\n")
        );
        assert_eq!(article("/text/").as_deref(), Some("<pre>one &lt;b&gt;\ntwo\n</pre>\n"));
        assert_eq!(article("/most/").map(|text| text.matches('y').count()), Some(64 << 10));
        for without in ["/large/", "/off/", "/link/", "/dir/"] {
            assert_eq!(article(without), None, "{without}");
        }
        assert!(!server.get("/").text().contains("Title"), "programs get the plain page");
    });
}

/// The members of a `tar`: names and contents.
fn tar_members(mut archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut members = Vec::new();
    let mut long = None;
    loop {
        let (head, rest) = archive.split_at(512);
        if head.iter().all(|byte| *byte == 0) {
            assert_eq!(rest, [0; 512]);
            return members;
        }
        let text = |from, to| {
            let field: &[u8] = &head[from..to];
            String::from_utf8_lossy(field.split(|b| *b == 0).next().unwrap()).into_owned()
        };
        let size = usize::from_str_radix(&text(124, 136), 8).unwrap();
        let content = rest[..size].to_vec();
        archive = &rest[size.next_multiple_of(512)..];
        match head[156] {
            b'L' => long = Some(String::from_utf8_lossy(&content[..size - 1]).into_owned()),
            _ => members.push((long.take().unwrap_or_else(|| text(0, 100)), content)),
        }
    }
}

/// The same of a `zip`, by the directory at its end; checksums are verified.
fn zip_members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let number = |at: usize, len: usize| {
        archive[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let end = archive.len() - 22;
    assert_eq!(&archive[end..end + 4], b"PK\x05\x06");
    let mut at = number(end + 16, 4);
    assert_eq!(at + number(end + 12, 4), end);
    let mut members = Vec::new();
    for _ in 0..number(end + 10, 2) {
        assert_eq!(&archive[at..at + 4], b"PK\x01\x02");
        let (size, name, extra) = (number(at + 24, 4), number(at + 28, 2), number(at + 30, 2));
        let text = String::from_utf8(archive[at + 46..at + 46 + name].to_vec()).unwrap();
        let head = number(at + 42, 4);
        assert_eq!(&archive[head..head + 4], b"PK\x03\x04");
        let from = head + 30 + number(head + 26, 2) + number(head + 28, 2);
        let content = archive[from..from + size].to_vec();
        let mut crc = flate2::Crc::new();
        crc.update(&content);
        assert_eq!(number(at + 16, 4), crc.sum() as usize, "{text}");
        if !text.ends_with('/') {
            assert_eq!(&archive[from + size..from + size + 4], b"PK\x07\x08");
            assert_eq!(number(from + size + 4, 4), crc.sum() as usize, "{text}");
        }
        members.push((text, content));
        at += 46 + name + extra;
    }
    assert_eq!(at, end);
    members
}

/// `autoindex_archive`: everything below a directory, with the length known, and nothing from elsewhere.
#[test]
fn a_directory_can_be_an_archive() {
    use std::os::unix::fs::symlink;
    let long = format!("{}.txt", "x".repeat(120));
    let large: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let site = server(
        "autoindex on; autoindex_format page; autoindex_archive tar zip; gzip on; gzip_types *;
         location /off/ { autoindex_archive off; }
         location /tar/ { autoindex_archive tar; }",
    )
    .file("html/a \u{e4}/b/large", large.clone())
    .file("html/a \u{e4}/b/empty", "")
    .file("html/a \u{e4}/.hidden", "secret")
    .file(&format!("html/a \u{e4}/{long}"), "long")
    .file("html/off/x", "x")
    .file("html/tar/x", "x")
    .file("html/many/x", "x")
    .file("outside/secret", "secret");
    on_each_driver(&site, |server| {
        let dir = server.dir().join("html/a \u{e4}");
        std::fs::create_dir_all(dir.join("nothing")).unwrap();
        symlink("../../outside", dir.join("out")).unwrap();
        symlink("b/large", dir.join("link")).unwrap();
        let expected = [
            ("a \u{e4}/b/", &b""[..]),
            ("a \u{e4}/nothing/", b""),
            (&format!("a \u{e4}/{long}"), b"long"),
            ("a \u{e4}/b/empty", b""),
            ("a \u{e4}/b/large", &large),
        ];
        for (format, kind) in [("tar", "application/x-tar"), ("zip", "application/zip")] {
            let mut client = server.client();
            send(&mut client, &format!("/a%20%C3%A4/?archive={format}"), &[]);
            let response = client.response();
            assert_eq!(response.status, 200);
            assert_eq!(response.header("Content-Type"), Some(kind));
            let name = format!("attachment; filename*=UTF-8''a%20%C3%A4.{format}");
            assert_eq!(response.header("Content-Disposition"), Some(&name[..]));
            let length = response.body.len().to_string();
            assert_eq!(response.header("Content-Length"), Some(&length[..]));
            let mut members = match format {
                "tar" => tar_members(&response.body),
                _ => zip_members(&response.body),
            };
            members.sort();
            let mut expected = expected.map(|(name, text)| (name.to_owned(), text.to_vec()));
            expected.sort();
            assert_eq!(members.len(), expected.len(), "{format}: {members:?}");
            for (found, expected) in members.iter().zip(&expected) {
                assert!(found == expected, "{format}: {} instead of {}", found.0, expected.0);
            }
            // The connection goes on after it.
            send(&mut client, "/tar/x", &[]);
            assert_eq!(client.response().text(), "x");
        }
        // More than is sorted and measured on the event loop.
        for n in 0..600 {
            server.write(&format!("html/many/file-{n}"), "x");
        }
        let many = server.get("/many/?archive=zip");
        assert_eq!(many.header("Content-Length"), Some(&many.body.len().to_string()[..]));
        let members = zip_members(&many.body);
        assert_eq!((members.len(), members[2].0.as_str()), (601, "many/file-2"));
        for target in ["/off/?archive=tar", "/tar/?archive=zip", "/tar/?archive=x"] {
            let response = server.get(target);
            assert_eq!(response.header("Content-Type"), Some("text/html"), "{target}");
        }
        assert_eq!(server.get("/none/?archive=tar").status, 404);
        check_on(
            server,
            "HEAD /tar/?archive=tar HTTP/1.1\nHost: x",
            "200\nContent-Length: 2048\nContent-Type: application/x-tar",
        );
        let mut client = server.client();
        send(&mut client, "/tar/", &[BROWSER]);
        let page = client.response().text();
        assert!(page.contains("?archive=tar\"") && !page.contains("archive=zip"), "{page}");
    });
}
