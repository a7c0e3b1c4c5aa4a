//! `location`: which one answers, and what it inherits.

use crate::stage::{exchanges, gets, on_each_driver, server, site};

#[test]
fn the_best_location_answers() {
    let site = server(
        r#"
        location / { return 200 root; }
        location = / { return 200 exact-root; }
        location /a { return 200 a; }
        location /a/b/ { return 200 ab; }
        location = /a/exact { return 200 exact; }
        location ^~ /a/images/ { return 200 images; }
        location ~ \.php$ { return 200 php; }
        location ~* \.(gif|jpe?g)$ { return 200 "image $1"; }
        location ~ ^/re/(?<first>[^/]+)/(.*)$ { return 200 "$first $2"; }
        location /outer/ {
            location /outer/inner { return 200 inner; }
            location ~ \.php$ { return 200 outer-php; }
            return 200 outer;
        }
        "#,
    );
    gets(
        &site,
        &[
            ("/", "200\n\nexact-root"),
            ("/x", "200\n\nroot"),
            ("/a", "200\n\na"),
            ("/abc", "200\n\na"),
            ("/a/b/c", "200\n\nab"),
            ("/a/exact", "200\n\nexact"),
            ("/a/exact/", "200\n\na"),
            ("/a/x.php", "200\n\nphp"),
            ("/a/images/x.php", "200\n\nimages"),
            ("/a/X.PHP", "200\n\na"),
            ("/x.GIF", "200\n\nimage GIF"),
            ("/x.jpeg", "200\n\nimage jpeg"),
            ("/re/one/two/three", "200\n\none two/three"),
            ("/outer/x", "200\n\nouter"),
            ("/outer/inner/x", "200\n\ninner"),
            ("/outer/x.php", "200\n\nouter-php"),
            ("/%61/%62/", "200\n\nab"),
            ("/x/../a/b/", "200\n\nab"),
            ("/a//b/", "200\n\nab"),
        ],
    );
}

#[test]
fn slashes_are_merged_unless_they_matter() {
    let site =
        server("merge_slashes off; location /a/b { return 200 $uri; } location / { return 404; }");
    gets(&site, &[("/a/b//c", "200\n\n/a/b//c"), ("/a//b", "404")]);
    let site = server("location / { return 200 $uri|$request_uri; }");
    gets(&site, &[("//a///b//", "200\n\n/a/b/|//a///b//")]);
}

#[test]
fn settings_are_inherited_and_replaced_as_a_whole() {
    let site = server(
        r#"
        add_header X-Level server;
        add_header X-Two two;
        default_type text/outer;
        location / { return 200 a; }
        location /own/ { add_header X-Level own; return 200 b; }
        location /own/deep/ { default_type text/deep; return 200 c; }
        location /n/ {
            add_header X-Level n; default_type text/n;
            location /n/deep/ { return 200 d; }
        }
        "#,
    );
    gets(
        &site,
        &[
            ("/", "200\nX-Level: server\nX-Two: two\nContent-Type: text/outer"),
            ("/own/", "200\nX-Level: own\n!X-Two\nContent-Type: text/outer"),
            ("/own/deep/", "200\nX-Level: server\nContent-Type: text/deep"),
            ("/n/deep/", "200\nX-Level: n\n!X-Two\nContent-Type: text/n"),
        ],
    );
}

#[test]
fn internal_locations_are_hidden() {
    let site = server(
        "location /hidden/ { internal; }
         location = /show { error_page 404 /hidden/a; return 404; }",
    )
    .file("html/hidden/a", "A");
    gets(&site, &[("/hidden/a", "404"), ("/hidden/", "404"), ("/show", "404\n\nA")]);
}

#[test]
fn return_ends_a_request() {
    let site = server(
        r#"
        location = /text { return 200 "a $arg_x b"; }
        location = /code { return 418; }
        location = /none { return 204; }
        location = /url { return https://x.test$request_uri; }
        location = /moved { return 301 /there?$args; }
        location = /other { return 308 http://x.test/; }
        location = /temp { return 302 $scheme://$host/; }
        location = /close { return 444; }
        location = /page { return 403; }
        location = /late { return 408; }
        location = /empty { return 200 ""; }
        location = /typed { default_type application/json; return 200 '{"a": 1}'; }
        location = /created { return 201 made; }
        location = /error { return 500 "own text"; }
        "#,
    );
    gets(
        &site,
        &[
            ("/text?x=1", "200\nContent-Type: text/plain\nContent-Length: 5\n\na 1 b"),
            ("/code", "418\nContent-Length: 0"),
            ("/none", "204\n!Content-Length\n!Content-Type"),
            ("/url", "302 Moved Temporarily\nLocation: https://x.test/url"),
            ("/moved?q", "301 Moved Permanently\nLocation: http://localhost:*/there?q"),
            ("/other", "308 Permanent Redirect\nLocation: http://x.test/"),
            ("/temp", "302\nLocation: http://localhost/"),
            ("/close", "closed"),
            ("/late", "closed"),
            ("/page", "403 Forbidden\nContent-Type: text/html\n\n<html>*403 Forbidden*</html>*"),
            ("/empty", "200\nContent-Length: 0"),
            ("/typed", "200\nContent-Type: application/json\n\n{\"a\": 1}"),
            ("/created", "201 Created\n\nmade"),
            ("/error", "500 Internal Server Error\n\nown text"),
        ],
    );
}

#[test]
fn return_in_server_comes_before_locations() {
    let site = server("return 200 server; location / { return 200 location; }");
    exchanges(&site, &[("GET /x HTTP/1.1\nHost: x", "200\n\nserver")]);
}

#[test]
fn methods_that_files_do_not_know() {
    let site = server("").file("html/a", "A");
    exchanges(
        &site,
        &[
            ("POST /a HTTP/1.1\nHost: x", "405 Not Allowed"),
            ("PUT /a HTTP/1.1\nHost: x\nContent-Length: 1\n\nx", "405"),
            ("DELETE /a HTTP/1.1\nHost: x", "405"),
            ("OPTIONS /a HTTP/1.1\nHost: x", "405"),
            ("FROBNICATE /a HTTP/1.1\nHost: x", "405"),
            ("POST /none HTTP/1.1\nHost: x", "404"),
        ],
    );
}

#[test]
fn the_wrong_location_is_refused_with_its_line() {
    for (text, message) in [
        ("location /a { } location /a { }", "duplicate location \"/a\""),
        ("location /a { location /b { } }", "location \"/b\" is outside location \"/a\""),
        ("location = /a { location /a/b { } }", "cannot be inside the exact location \"/a\""),
        ("location @a { location /b { } }", "cannot be inside the named location \"@a\""),
        ("location /a { location @b { } }", "can be on the server level only"),
        ("location ~ ( { }", "pcre2_compile() failed"),
        ("location / { root /a; alias /b; }", "directive is duplicate"),
    ] {
        let failure = server(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message) && said.contains("nginx.conf:"), "{message}: {said}");
    }
}

#[test]
fn the_size_of_a_regular_expression_match_is_bounded() {
    // Catastrophic backtracking must end with an answer, and the worker must live on.
    let site = server(
        "location ~ ^/(a+)+$ { return 200 no; } location = /ok { return 200 OK; } location / { return 200 other; }",
    )
    .allow_log("pcre2_match");
    on_each_driver(&site, |server| {
        let response = server.get(&format!("/{}!", "a".repeat(40)));
        assert!(matches!(response.status, 200 | 500), "{response}");
        assert_eq!(server.get("/ok").text(), "OK");
    });
}

/// nginx 1.31.5: predicate locations.
#[test]
fn by_variables() {
    let site = site(
        r#"
        map $arg_a $special { default 0; yes 1; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location $special {
                return 200 special;
                location /inside/ { return 200 inside; }
                location = /file { return 200 file; }
            }
            location $http_x { return 200 header; }
            location / { return 200 prefix; location $arg_b { return 200 nested; } }
            location = /exact { return 200 exact; }
            location ^~ /final { return 200 final; }
            location ~ regex { return 200 regex; }
            location /change { rewrite ^ /new?a=yes; }
            location $arg_file { alias %%DIR%%/one.txt; }
        }
        "#,
    );
    exchanges(
        &site.file("one.txt", "one"),
        &[
            ("GET / HTTP/1.1\nHost: a", "200\n\nprefix"),
            ("GET /?a=yes HTTP/1.1\nHost: a", "200\n\nspecial"),
            ("GET /?a=no HTTP/1.1\nHost: a", "200\n\nprefix"),
            ("GET /x HTTP/1.1\nHost: a\nX: 0", "200\n\nprefix"),
            ("GET /x HTTP/1.1\nHost: a\nX: 00", "200\n\nheader"),
            ("GET /x?a=yes HTTP/1.1\nHost: a\nX: 1", "200\n\nspecial"),
            // The level below the prefix is searched first.
            ("GET /x?a=yes&b=1 HTTP/1.1\nHost: a", "200\n\nnested"),
            ("GET /inside/x?a=yes HTTP/1.1\nHost: a", "200\n\ninside"),
            ("GET /inside/x HTTP/1.1\nHost: a", "200\n\nprefix"),
            ("GET /file?a=yes HTTP/1.1\nHost: a", "200\n\nfile"),
            ("GET /exact?a=yes HTTP/1.1\nHost: a", "200\n\nexact"),
            ("GET /final?a=yes HTTP/1.1\nHost: a", "200\n\nfinal"),
            ("GET /regex?a=yes HTTP/1.1\nHost: a", "200\n\nregex"),
            // As in nginx, `map` computes its variable once for a request.
            ("GET /change HTTP/1.1\nHost: a", "200\n\nprefix"),
            // `alias` names the file.
            ("GET /any?file=1 HTTP/1.1\nHost: a", "200\n\none"),
        ],
    );
}
