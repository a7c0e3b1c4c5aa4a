//! `rewrite`, `return`, `break` and `set`.

use crate::stage::{exchanges, gets, on_each_driver, server, wait_file};

#[test]
fn flags() {
    let site = server(
        r#"
        location /last { rewrite ^/last/(.*) /to/$1 last; return 200 never; }
        location /break { rewrite ^/break/(.*) /to/$1 break; return 200 never; }
        location /on { rewrite ^/on/(.*) /mid/$1; rewrite ^/mid/(.*) /to/$1; set $x $uri; }
        location /found { rewrite ^/found/(.*) /to/$1 redirect; }
        location /moved { rewrite ^/moved/(.*) /to/$1 permanent; }
        location /not { rewrite ^/nothing /to; return 200 "stays at $uri"; }
        location /to { return 200 "to $uri?$args"; }
        location /html { root %%DIR%%; }
        "#,
    )
    .file("html/to/file", "content of the file");
    gets(
        &site,
        &[
            ("/last/a?b=c", "200\n\nto /to/a?b=c"),
            ("/break/file", "200\n\ncontent of the file"),
            ("/on/a", "200\n\nto /to/a?"),
            ("/found/a?b", "302\nLocation: http://localhost:*/to/a?b"),
            ("/moved/a", "301\nLocation: http://localhost:*/to/a"),
            ("/not/a", "200\n\nstays at /not/a"),
        ],
    );
}

#[test]
fn query_strings() {
    let site = server(
        r#"
        location /add { rewrite ^ /show?n=1 last; }
        location /drop { rewrite ^ /show? last; }
        location /only { rewrite ^ /show?n=1? last; }
        location /second { rewrite ^ /show?a?b last; }
        location /r { rewrite ^ http://example.com/x redirect; }
        location /radd { rewrite ^ http://example.com/x?n=1 redirect; }
        location /ronly { rewrite ^ http://example.com/x?n=1? redirect; }
        location /set { set $args n=2; return 200 "$args|$query_string|$is_args|$arg_n"; }
        location /clear { set $args ""; rewrite ^ /show last; }
        location /show { return 200 "$uri?$args|$is_args"; }
        "#,
    );
    gets(
        &site,
        &[
            ("/add", "200\n\n/show?n=1|?"),
            ("/add?a=b", "200\n\n/show?n=1&a=b|?"),
            ("/drop?a=b", "200\n\n/show?|"),
            ("/only?a=b", "200\n\n/show?n=1|?"),
            ("/second?x", "200\n\n/show?a?b&x|?"),
            ("/r", "302\nLocation: http://example.com/x"),
            ("/r?a=b", "302\nLocation: http://example.com/x?a=b"),
            ("/radd?a=b", "302\nLocation: http://example.com/x?n=1&a=b"),
            ("/ronly?a=b", "302\nLocation: http://example.com/x?n=1"),
            ("/set?n=1", "200\n\nn=2|n=2|?|2"),
            ("/clear?a", "200\n\n/show?|"),
        ],
    );
}

#[test]
fn absolute_replacements_redirect() {
    let site = server(
        r#"
        location /http { rewrite ^/http(.*) http://a.example$1; return 200 never; }
        location /https { rewrite ^/https(.*) https://a.example$1 permanent; }
        location /scheme { rewrite ^/scheme(.*) $scheme://a.example$1 last; }
        location /return { return https://a.example$request_uri; }
        location /returns { return $scheme://a.example/; }
        "#,
    );
    gets(
        &site,
        &[
            ("/http/a", "302\nLocation: http://a.example/a"),
            ("/https/a", "301\nLocation: https://a.example/a"),
            ("/scheme/a", "302\nLocation: http://a.example/a"),
            ("/return/a%20b", "302\nLocation: https://a.example/return/a%20b"),
            ("/returns", "302\nLocation: http://a.example/"),
        ],
    );
}

/// Captures are escaped where they become part of a query string or of a redirect, and at first in
/// `set` as well, if the request's path was escaped.
#[test]
fn escaping() {
    let site = server(
        r#"
        location /path { rewrite ^/path/(.*) /show/$1 last; }
        location /args { rewrite ^/args/(.*) /show?x=$1 last; }
        location /redirect { rewrite (?s)^/redirect/(.*) http://example.com/$1 redirect; }
        location ~ ^/set/(.*) { set $x $1; return 200 $x|$1; }
        location /after { rewrite ^/after/(.*)$ /after/$1; set $x $1; break; return 200 never; }
        location /equal { if ($uri ~ ^/equal/(.*)) { set $x $1; } return 200 $x; }
        location /show { return 200 "$uri?$args"; }
        "#,
    );
    gets(
        &site,
        &[
            ("/path/a%20b", "200\n\n/show/a b?"),
            ("/args/a%20b%26c", "200\n\n/show?x=a%20b%26c"),
            ("/args/a&b", "200\n\n/show?x=a&b"),
            ("/args/a+b", "200\n\n/show?x=a%2Bb"),
            ("/redirect/a%20b", "302\nLocation: http://example.com/a%20b"),
            ("/redirect/a%0Ab", "302\nLocation: http://example.com/a%0Ab"),
            ("/set/a%20b", "200\n\na%20b|a b"),
            ("/set/a&b", "200\n\na&b|a&b"),
            ("/equal/a%20b", "200\n\na%20b"),
        ],
    );
}

#[test]
fn server_code_runs_before_the_location_is_chosen() {
    let site = server(
        r#"
        set $where server;
        rewrite ^/old/(.*)$ /new/$1;
        if ($arg_stop) { return 403; }
        if ($arg_gone) { rewrite ^ /gone?; }
        location /new { return 200 "new $uri $where"; }
        location /gone { return 410; }
        location / { set $where location; return 200 "$uri $where"; }
        "#,
    );
    gets(
        &site,
        &[
            ("/old/a", "200\n\nnew /new/a server"),
            ("/a", "200\n\n/a location"),
            ("/old/a?stop=1", "403"),
            ("/old/a?gone=1", "410"),
        ],
    );
}

#[test]
fn cycles_end() {
    let site = server(
        r#"
        location /round { rewrite ^ /round/x last; }
        location /a { rewrite ^ /b last; }
        location /b { rewrite ^ /a last; }
        location /empty { rewrite ^ ? last; }
        "#,
    )
    .allow_log("rewrite or internal redirection cycle while processing")
    .allow_log("the rewritten URI has a zero length");
    on_each_driver(&site, |server| {
        for target in ["/round", "/a", "/empty"] {
            assert_eq!(server.get(target).status, 500, "{target}");
        }
        server.wait_log("cycle while processing \"/round/x\"");
        server.wait_log("the rewritten URI has a zero length");
    });
}

#[test]
fn an_alias_needs_its_part_of_the_uri() {
    let site = server(
        r#"
        location /alias/ { alias %%DIR%%/html/; rewrite ^/alias/x /alias/file break; }
        location /again/ { alias %%DIR%%/html/; rewrite ^/again/x /again/file last; }
        "#,
    )
    .file("html/file", "content\n")
    .allow_log("where URI was rewritten");
    on_each_driver(&site, |server| {
        assert_eq!(server.get("/alias/file").text(), "content\n");
        assert_eq!(server.get("/again/x").text(), "content\n");
        assert_eq!(server.get("/alias/x").status, 500);
        server.wait_log("\"alias\" cannot be used in location \"/alias/\" where URI was rewritten");
    });
}

#[test]
fn variables() {
    let site = server(
        r#"
        location /twice { set $a 1; set $b "$a$a"; set $a "${b}x"; return 200 $a|$b; }
        location /unset { return 200 "<$later>"; }
        location /later { set $later x; return 200 $later; }
        location /header { set $http_x mine; return 200 $http_x; }
        location /headers { return 200 "<$http_x>"; }
        location /named { if ($uri ~ "^/named/(?<tail>.*)") { } return 200 "<$tail>"; }
        location /carried { set $c carried; rewrite ^ /shows last; }
        location /shows { return 200 "<$c>"; }
        location /case { set $MiXed 1; return 200 $mixed$MIXED; }
        "#,
    )
    .allow_log("using uninitialized");
    exchanges(
        &site,
        &[
            ("GET /twice HTTP/1.1\nHost: a", "200\n\n11x|11"),
            ("GET /later HTTP/1.1\nHost: a", "200\n\nx"),
            ("GET /header HTTP/1.1\nHost: a\nX: theirs", "200\n\nmine"),
            ("GET /headers HTTP/1.1\nHost: a\nX: theirs", "200\n\n<theirs>"),
            ("GET /named/a/b HTTP/1.1\nHost: a", "200\n\n<a/b>"),
            ("GET /carried HTTP/1.1\nHost: a", "200\n\n<carried>"),
            ("GET /case HTTP/1.1\nHost: a", "200\n\n11"),
            // Nothing is left of one request for the next one of the connection.
            (
                "GET /later HTTP/1.1\nHost: a\n\n---\nGET /unset HTTP/1.1\nHost: a",
                "200\n\nx\n---\n200\n\n<>",
            ),
        ],
    );
    on_each_driver(&site, |server| {
        server.get("/unset");
        server.wait_log("using uninitialized \"later\" variable");
    });
}

#[test]
fn what_is_done_can_be_logged() {
    let site = server(
        r#"
        error_log %%DIR%%/rewrite.log notice;
        rewrite_log on;
        location /a { rewrite ^/b /c; rewrite ^/a /d last; }
        location /r { rewrite ^/r /to? redirect; }
        location /d { if ($arg_x ~ y) { return 204; } return 200; }
        "#,
    );
    on_each_driver(&site, |server| {
        server.get("/a?x=y");
        server.get("/r?x");
        let log = wait_file(server, "rewrite.log", "rewritten redirect");
        for line in [
            "\"^/b\" does not match \"/a\"",
            "\"^/a\" matches \"/a\"",
            "rewritten data: \"/d\", args: \"x=y\"",
            "\"y\" matches \"y\"",
            "rewritten redirect: \"/to\"",
        ] {
            assert!(log.contains(line), "{line} in {log}");
        }
    });
}

#[test]
fn answers() {
    let site = server(
        r#"
        location /204 { return 204; }
        location /text { return 200 "text $uri"; }
        location /404 { return 404 no; }
        location /306 { return 306; }
        location /302 { return 302 /else; }
        location /444 { return 444; }
        location /418 { return 418; }
        location /page { error_page 302 /text; return 302 /there; }
        "#,
    );
    exchanges(
        &site,
        &[
            ("GET /204 HTTP/1.1\nHost: a", "204\n!Content-Length\n!Content-Type"),
            ("GET /text HTTP/1.1\nHost: a", "200\nContent-Type: text/plain\n\ntext /text"),
            ("GET /404 HTTP/1.1\nHost: a", "404 Not Found\n\nno"),
            ("GET /302 HTTP/1.1\nHost: a", "302\nLocation: http://a:*/else"),
            ("GET /page HTTP/1.1\nHost: a", "302\nLocation: http://a:*/there\n\ntext /text"),
            ("GET /444 HTTP/1.1\nHost: a", "closed"),
        ],
    );
}
