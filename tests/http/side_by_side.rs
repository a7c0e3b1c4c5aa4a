//! The same configuration and requests for Nowait and for the nginx that is installed: every answer
//! is compared. What is known to differ (the name in pages and the `Server` header, dates, the
//! connection after 412 and 416, fragments) is taken out, or not asked.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use nowait_testkit::{Binary, Client, Response, Server, ServerBuilder, skip};

use crate::stage::{asks_nginx, pattern, site};

const SITE: &str = r#"
    server_tokens off;
    root %%DIR%%/html;
    index index.html;
    types { text/html html; text/plain txt; application/octet-stream bin; }
    map $arg_m $mapped { default d; a A; ~^b(?<mm>.*) B$mm; }
    server {
        listen 127.0.0.1:%%PORT%% default_server;
        server_name main.test;
        merge_slashes off;
        add_header X-S s always;
        error_page 404 /e404;
        recursive_error_pages on;
        location = /e404 { internal; return 404 "custom $uri $request_uri $status $request_method"; }
        location /a1/ {
            alias %%DIR%%/other/;
            location /a1/sub/ { alias %%DIR%%/other/sub/; autoindex on; }
            location ~ \.txt$ { add_header X-T t; }
        }
        location ~ ^/ra/(.+)$ { alias %%DIR%%/other/$1; }
        location ~ ^/rb/(?<rest>.*)$ { root %%DIR%%/other; try_files /$rest /sub/$rest =403; }
        location ~ ^/rc/(.*)$ { alias %%DIR%%/other/$1; index index.html; autoindex on; }
        location /tf/ { try_files $uri $uri.html $uri.txt /a.html; }
        location /tfn/ { try_files $uri @f; }
        location /idx1/ { alias %%DIR%%/html/; index nofile.html /a.txt; }
        location /idx2/ { alias %%DIR%%/html/idx/; index $arg_i index.html; }
        location /al/ { autoindex on; rewrite ^/al/(.*)$ /$1 break; }
        location /alx/ { alias %%DIR%%/html/; autoindex on; autoindex_format xml; }
        location /alj/ { alias %%DIR%%/html/; autoindex on; autoindex_format jsonp; }
        location /als/ { alias %%DIR%%/html/; autoindex on; autoindex_exact_size off; }
        location /n1 { error_page 403 @f; deny all; }
        location @f { return 200 "f $uri $request_uri $args"; }
        location /n2 { error_page 418 = @g; return 418; }
        location @g { rewrite ^/n2(.*)$ /file$1 last; }
        location /file { return 200 "file $uri $args"; }
        location /loop { rewrite ^ /loop2 last; }
        location /loop2 { rewrite ^ /loop last; }
        location /s1 { set $v "a$arg_x"; set $w "$v-$v"; return 200 "$w $mapped"; }
        location /s3 { if ($arg_x != b) { return 200 neq; } if ($uri ~* "S3/(.)") { return 200 "m$1"; } break; return 500; }
        location /s4 { if (!-e $document_root/$arg_f) { return 200 ne; } if (-d $document_root/$arg_f) { return 200 dir; } return 200 ex; }
        location /s5 { if ($arg_x) { add_header X-I i; } if ($arg_z) { add_header X-Z z; return 200 z; } alias %%DIR%%/html/a.txt; }
        location /s7 { rewrite ^/s7/(.*) /file/$1?n=$arg_n&m=1; }
        location /s8 { rewrite ^/s8/(.*) /file/$1? last; }
        location /s9 { rewrite ^/s9/(.*) "https://x.test/$1?a=b" permanent; }
        location /s10 { rewrite ^/s10/(.*) /$1 redirect; }
        location /dt { default_type a/b; return 200 x; }
        location /dt2 { default_type ""; return 200 x; }
        location /ah1 { add_header X-1 1; return 404; }
        location /ah3 { add_header Last-Modified ""; add_header Cache-Control a; expires 0; alias %%DIR%%/html/a.txt; }
        location /et { etag off; alias %%DIR%%/html/a.txt; }
        location /ims { if_modified_since before; alias %%DIR%%/html/a.txt; }
        location /sa { satisfy any; allow 127.0.0.1; deny all; return 200 x; }
        location /sa2 { allow 10.0.0.0/8; deny all; }
        location /le { limit_except POST { deny all; } return 200 r; }
        location /abs { absolute_redirect off; return 301 /x; }
        location /abs2 { port_in_redirect off; return 301 /x; }
        location /abs3 { server_name_in_redirect on; return 301 /x; }
        location /kt { keepalive_timeout 5 7; return 200 k; }
        location /mr { max_ranges 2; alias %%DIR%%/html/a.txt; }
        location /cmb { client_max_body_size 1; alias %%DIR%%/html/a.txt; }
        location = /eq { return 200 eq; }
        location /eq { return 200 pre; }
        location ^~ /rx/ { return 200 pre; }
        location ~ ^/rx { return 200 re; }
        location ~* ^/CI { return 200 ci; }
        location ~ ^/code/(?<code>30[1238]|400|40[2-9]|41[0-6]|42[19]|500|50[1-57])$ {
            error_page 599 = @never;
            if ($code = 301) { return 301 /to?$args; }
            if ($code = 308) { return 308 /to; }
            if ($code = 400) { return 400; }
            if ($code = 402) { return 402; }
            if ($code = 405) { return 405; }
            if ($code = 410) { return 410; }
            if ($code = 413) { return 413; }
            if ($code = 416) { return 416; }
            if ($code = 429) { return 429; }
            if ($code = 503) { return 503; }
            return 204;
        }
    }
    server { listen 127.0.0.1:%%PORT%%; server_name b.test *.b.test; return 301 https://$host$request_uri; }
    server { listen 127.0.0.1:%%PORT%%; server_name ~^(?<sub>\w+)\.re\.test$; return 200 "re $sub"; }
    server { listen 127.0.0.1:%%PORT%%; server_name c.test; location / { try_files /none /d =404; } error_page 404 403 =200 /a.txt; }
"#;

/// Paths below the site; every one is asked for in several ways.
const TARGETS: &[&str] = &[
    "/",
    "/a.txt",
    "/a.txt?x=1",
    "/a.html",
    "/noext",
    "/d",
    "/d/",
    "/d?x=1",
    "/d/f.txt",
    "/d/f.txt/",
    "/d/f.txt/x",
    "/empty.txt",
    "/none",
    "/e404",
    "/idx",
    "/idx/",
    "/sp%20ace.txt",
    "/q%3fm.txt",
    "/pl+us.txt",
    "/link.txt",
    "/big.bin",
    "/a1/",
    "/a1",
    "/a1/x.txt",
    "/a1/sub/",
    "/a1/sub/y.txt",
    "/a1/sub",
    "/a1/nope.txt",
    "/ra/x.txt",
    "/ra/sub",
    "/ra/sub/",
    "/ra/",
    "/rb/x.txt",
    "/rb/y.txt",
    "/rb/z",
    "/rb/",
    "/rc/",
    "/rc/sub/",
    "/rc/x.txt",
    "/tf/a",
    "/tf/d",
    "/tf/a.txt",
    "/tfn/q?z=1",
    "/idx1/",
    "/idx2/",
    "/idx2/?i=a",
    "/idx2/?i=/a.txt",
    "/al/",
    "/al/d/",
    "/alx/",
    "/alj/",
    "/alj/?callback=cb",
    "/alj/?callback=c(b",
    "/als/",
    "/n1",
    "/n1/x?a",
    "/n2",
    "/n2/z?q=1",
    "/loop",
    "/s1?x=1",
    "/s1?m=a",
    "/s1?m=bcd",
    "/s3",
    "/s3?x=b",
    "/s3/k?x=b",
    "/s4?f=a.txt",
    "/s4?f=d",
    "/s4?f=zz",
    "/s5",
    "/s5?x=1",
    "/s5?x=1&z=1",
    "/s7/a?n=3",
    "/s7/a?n=3&k=2",
    "/s8/a?n=3",
    "/s9/a?z=1",
    "/s9/a%20b",
    "/s10/a%20b?x",
    "/s10/%C3%A9",
    "/dt",
    "/dt2",
    "/ah1",
    "/ah3",
    "/et",
    "/ims",
    "/sa",
    "/sa2",
    "/le",
    "/abs",
    "/abs2",
    "/abs3",
    "/kt",
    "/mr",
    "/cmb",
    "/eq",
    "/eq/",
    "/rx/a",
    "/rx",
    "/ci",
    "/code/204",
    "/code/301?q",
    "/code/308",
    "/code/400",
    "/code/402",
    "/code/405",
    "/code/410",
    "/code/413",
    "/code/429",
    "/code/503",
    "/%61.txt",
    "/a%2etxt",
    "/./a.txt",
    "/d/../a.txt",
    "/d/..",
    "/d/.",
    "/..",
    "/../a.txt",
    "/%2e%2e/a.txt",
    "//a.txt",
    "/d//f.txt",
    "/a.txt?",
    "/a.txt%00",
    "/%",
    "/%4",
    "/%zz",
    "/a%0a",
    "/A.TXT",
    "/...",
    "http://main.test/a.txt",
    "http://b.test/x",
    "http://x.b.test/",
    "HTTP://MAIN.test/a.txt",
    "a.txt",
    "*",
    "/d\\f.txt",
];

/// Method, version and further header lines of the ways to ask.
const WAYS: &[(&str, &str, &str)] = &[
    ("GET", "HTTP/1.1", ""),
    ("HEAD", "HTTP/1.1", ""),
    ("GET", "HTTP/1.0", ""),
    ("POST", "HTTP/1.1", "Content-Length: 0\r\n"),
    ("PUT", "HTTP/1.1", ""),
    ("GET", "HTTP/1.1", "If-Modified-Since: Fri, 13 Jul 2012 11:01:20 GMT\r\n"),
    ("GET", "HTTP/1.1", "If-None-Match: \"x\", \"50000000-64\"\r\n"),
    ("GET", "HTTP/1.1", "Range: bytes=1-1\r\n"),
    ("GET", "HTTP/1.1", "Range: bytes=1-2,4-\r\n"),
    ("GET", "HTTP/1.1", "Range: bytes=0-0\r\nIf-Range: Fri, 13 Jul 2012 11:01:20 GMT\r\n"),
];

/// Values of `Host`.
const HOSTS: &[&str] = &[
    "main.test",
    "MAIN.TEST:80",
    "main.test.",
    "b.test",
    "x.b.test:8",
    "abc.re.test",
    "a-b.re.test",
    "c.test",
    "nobody",
    "127.0.0.1",
    "[::1]:80",
];

fn describe(binary: Binary) -> ServerBuilder {
    let mut site = site(SITE);
    for (name, content) in [
        ("html/a.txt", "0123456789".repeat(10).into_bytes()),
        ("html/a.html", b"<html>x</html>".to_vec()),
        ("html/idx/index.html", b"index".to_vec()),
        ("html/noext", b"NE".to_vec()),
        ("html/d/f.txt", b"F".to_vec()),
        ("html/empty.txt", Vec::new()),
        ("html/big.bin", pattern(300_000)),
        ("html/sp ace.txt", b"space".to_vec()),
        ("html/q?m.txt", b"mark".to_vec()),
        ("html/pl+us.txt", b"plus".to_vec()),
        ("other/x.txt", b"OX".to_vec()),
        ("other/sub/y.txt", b"OY".to_vec()),
        ("other/index.html", b"OI".to_vec()),
    ] {
        site = site.file(name, content);
    }
    site.binary(binary).allow_log("rewrite or internal redirection cycle")
}

fn start(binary: Binary) -> Server {
    let server = describe(binary).start();
    let html = server.dir().join("html");
    std::os::unix::fs::symlink("a.txt", html.join("link.txt")).unwrap();
    for dir in [html, server.dir().join("other")] {
        make_as_old(&dir);
    }
    server
}

/// The files of both servers were written at different times.
fn make_as_old(dir: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(0x5000_0000);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            make_as_old(&path);
        }
        std::fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
}

/// What is compared of an answer.
fn comparable(server: &Server, answer: Result<Response, String>) -> String {
    let response = match answer {
        Ok(response) => response,
        Err(_) => return "no answer".to_owned(),
    };
    let mut lines: Vec<String> = response
        .headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "Server" | "Date" | "Expires"))
        .map(|(name, value)| format!("{name}: {value}"))
        // The name of the server makes pages longer, and listings may be sent chunked.
        .filter(|line| !line.starts_with("Content-Length") && !line.starts_with("Transfer-Enc"))
        .collect();
    lines.sort();
    // nginx adds the headers of `add_header ... always` to a 416 twice.
    lines.dedup();
    let text = format!("{}\n{}\n\n{}", response.status, lines.join("\n"), response.text());
    let text = text
        .replace(&format!(":{}", server.port()), ":PORT")
        .replace("<center>nginx</center>", "NAME")
        .replace("<center>nowait</center>", "NAME");
    // Boundaries are numbers that were never used before.
    match response.header("content-type").and_then(|kind| kind.split_once("boundary=")) {
        Some((_, boundary)) => text.replace(boundary, "BOUNDARY"),
        None => text,
    }
}

fn ask(server: &Server, request: &str) -> String {
    let mut client = Client::to(server.addr());
    client.send(request);
    comparable(server, client.try_response(request.starts_with("HEAD")))
}

#[test]
fn answers_are_those_of_nginx() {
    let Some(nginx) = Binary::nginx().filter(|_| !asks_nginx()) else {
        skip("nginx", "no nginx to compare with");
        return;
    };
    let theirs = start(nginx);
    let ours = start(Binary::nowait(env!("CARGO_BIN_EXE_nowait")));
    let mut requests = Vec::new();
    for target in TARGETS {
        for (method, version, lines) in WAYS {
            requests.push(format!(
                "{method} {target} {version}\r\nHost: main.test\r\nConnection: close\r\n{lines}\r\n"
            ));
        }
    }
    for host in HOSTS {
        requests.push(format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    }
    let mut differences = Vec::new();
    for request in &requests {
        let (theirs, ours) = (ask(&theirs, request), ask(&ours, request));
        if theirs != ours {
            differences.push(format!("{request}--- nginx\n{theirs}\n--- nowait\n{ours}"));
        }
    }
    let shown = differences.iter().take(5).cloned().collect::<Vec<_>>().join("\n=====\n");
    assert!(differences.is_empty(), "{} answers differ:\n{shown}", differences.len());
}
