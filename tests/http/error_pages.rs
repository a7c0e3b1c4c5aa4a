//! `error_page` in all its forms, and the built-in pages.

use crate::stage::{exchanges, gets, server};

#[test]
fn a_page_answers_for_a_status() {
    let site = server(
        r#"
        error_page 404 /404.html;
        error_page 403 405 =200 /ok.html;
        error_page 500 = /own;
        error_page 502 http://other.test/x;
        error_page 503 =301 http://other.test/y;
        error_page 410 @gone;
        error_page 411 =203 @gone;
        error_page 418 /none.html;
        error_page 421 /q?a=b$arg_x;
        location = /own { return 207 own; }
        location = /q { return 200 "$uri $args"; }
        location @gone { return 200 "gone $uri"; }
        location = /500 { return 500; }
        location = /502 { return 502; }
        location = /503 { return 503; }
        location = /410 { return 410; }
        location = /411 { return 411; }
        location = /403 { return 403; }
        location = /418 { return 418; }
        location = /421 { return 421; }
        "#,
    )
    .file("html/404.html", "page")
    .file("html/ok.html", "fine");
    gets(
        &site,
        &[
            ("/none", "404 Not Found\nContent-Length: 4\n!Last-Modified\n!Accept-Ranges\n\npage"),
            ("/403", "200 OK\nLast-Modified: *\nAccept-Ranges: bytes\n\nfine"),
            ("/403", "200 OK\n\nfine"),
            ("/500", "207\n\nown"),
            ("/502", "302\nLocation: http://other.test/x"),
            ("/503", "301\nLocation: http://other.test/y"),
            ("/410", "410\n\ngone /410"),
            ("/411", "203\n\ngone /411"),
            ("/418", "404"),
            ("/421?x=1", "421\n\n/q a=b1"),
            ("/404.html", "200\n\npage"),
        ],
    );
    exchanges(
        &site,
        &[
            // A page is got, no matter what the method was; HEAD stays HEAD.
            ("POST /404.html HTTP/1.1\nHost: x", "200 OK\n\nfine"),
            ("HEAD /none HTTP/1.1\nHost: x", "404\nContent-Length: 4"),
        ],
    );
}

#[test]
fn an_error_of_a_page_is_final_unless_pages_may_recurse() {
    let locations = r#"
        error_page 404 /missing;
        error_page 403 /403;
        location = /403 { return 403; }
        location = /start { return 403; }
        location = /a { error_page 404 /b; return 404; }
        location = /b { error_page 404 =200 /c; return 404; }
        location = /c { return 200 c; }
        location /missing { }
    "#;
    let site = server(locations);
    gets(&site, &[("/x", "404\n\n*404 Not Found*"), ("/start", "403"), ("/a", "404")]);
    let site = server(&format!("recursive_error_pages on; {locations}"))
        .allow_log("rewrite or internal redirection cycle");
    gets(
        &site,
        &[("/a", "200\n\nc"), ("/start", "*"), ("/x", "*")].map(|(t, e)| {
            // A cycle ends in an answer of the server's own.
            (t, if e == "*" { "" } else { e })
        }),
    );
}

#[test]
fn pages_are_inherited_as_a_whole() {
    let site = server(
        r#"
        error_page 404 =200 /outer; error_page 403 =200 /outer;
        location = /outer { return 200 outer; }
        location = /inner { return 200 inner; }
        location /a/ { error_page 404 =200 /inner; location = /a/403 { return 403; } }
        "#,
    );
    gets(&site, &[("/x", "200\n\nouter"), ("/a/x", "200\n\ninner"), ("/a/403", "403")]);
}

#[test]
fn built_in_pages_look_as_expected() {
    let site = server("location = /404 { return 404; } location = /503 { return 503; } location = /301 { return 301 /x; }
        location = /off/ { server_tokens off; return 404; }");
    gets(
        &site,
        &[
            (
                "/404",
                "404 Not Found\nContent-Type: text/html\n\n\
                 <html>*<head><title>404 Not Found</title></head>*<body>*\
                 <center><h1>404 Not Found</h1></center>*<hr><center>*/*</center>*</body>*</html>*",
            ),
            (
                "/503",
                "503 Service Temporarily Unavailable\n\n*503 Service Temporarily Unavailable*",
            ),
            ("/301", "301 Moved Permanently\n\n*301 Moved Permanently*"),
        ],
    );
}

#[test]
fn old_msie_gets_padded_pages() {
    let site = server(
        "location /off/ { msie_padding off; } location /r { msie_refresh on; return 301 http://x.test/; }",
    );
    exchanges(
        &site,
        &[
            (
                "GET /x HTTP/1.1\nHost: x\nUser-Agent: Mozilla/4.0 (compatible; MSIE 6.0)",
                "404\n\n*padding to disable MSIE*",
            ),
            (
                "GET /r HTTP/1.1\nHost: x\nUser-Agent: Mozilla/4.0 (compatible; MSIE 6.0)",
                "200\n!Location\n\n*URL=http://x.test/*",
            ),
        ],
    );
}

#[test]
fn wrong_pages_are_refused() {
    for (text, message) in [
        ("error_page 200 /x;", "value \"200\" must be between 300 and 599"),
        ("error_page abc /x;", "invalid value \"abc\""),
        ("error_page 499 /x;", "invalid value \"499\""),
        ("error_page 404;", "invalid number of arguments in \"error_page\" directive"),
    ] {
        let failure = server(text).try_start().expect_err(text);
        let said = failure.stderr + &failure.log;
        assert!(said.contains(message), "{message}: {said}");
    }
}

#[test]
fn browsers_can_get_readable_pages() {
    let site = server(
        "error_page_format page; server_tokens off;
         location /plain/ { error_page_format html; }
         location /named/ { error_page 404 /404.html; }
         location = /401 { return 401; }
         location = /502 { add_header X-Id $request_id always; return 502; }
         location = / { return 403; }
         location = /moved { return 301 /x; }",
    )
    .file("html/404.html", "own");
    let browser = "Host: x\nAccept: text/html";
    let get = |target: &str| format!("GET {target} HTTP/1.1\n{browser}");
    exchanges(
        &site,
        &[
            (
                &get("/none<script>"),
                "404 Not Found\nContent-Type: text/html; charset=utf-8\nVary: Accept\n\
                 Content-Security-Policy: default-src 'none'; *\n\n\
                 <!DOCTYPE html>*<h1><span>404</span> Not Found</h1>*\
                 <p>There is nothing at this address.</p>*<footer>nowait</footer>*</html>*",
            ),
            (&get("/401"), "401\n\n*requires a user name and a password*"),
            (
                &get("/502"),
                "502\n\n*Try again in a minute.*<p><small>Reference: <code>*</code>*</main>*",
            ),
            (&get("/"), "403\n\n*You do not have access to this page.</p>\n</main>*"),
            (&get("/moved"), "301\n!Vary\n\n<html>*<h1>301 Moved Permanently</h1>*"),
            (&get("/named/x"), "404\n\nown"),
            (&get("/plain/x"), "404\n!Vary\n!Content-Security-Policy\n\n<html>*<hr>*"),
            (
                "GET /none HTTP/1.1\nHost: x\nAccept: */*",
                "404\nContent-Type: text/html\nVary: Accept\n!Content-Security-Policy\n\n<html>*<hr>*",
            ),
            (&format!("HEAD /none HTTP/1.1\n{browser}"), "404\nVary: Accept"),
        ],
    );
}
