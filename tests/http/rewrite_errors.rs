//! What `-t` says about mistakes in the directives of these modules.

use nowait_testkit::{Binary, Server};

/// Starts with this content of a server and of `http`, and wants the start to fail with a text.
#[track_caller]
fn refused(http: &str, server: &str, message: &str) {
    let binary = Binary::under_test(env!("CARGO_BIN_EXE_nowait"));
    let text = format!("{http}\nserver {{ listen 127.0.0.1:%%PORT%%; {server} }}");
    match Server::of(binary).http(&text).try_start() {
        Ok(_) => panic!("accepted: {http} {server}"),
        Err(failure) => {
            let text = format!("{failure:?}");
            let escaped = message.replace('"', "\\\"");
            assert!(text.contains(message) || text.contains(&escaped), "{message}\n{text}");
        }
    }
}

#[test]
fn conditions_and_quotes() {
    let hint = "a regular expression with \"{\" or \"}\" has to be quoted";
    for (line, reason) in [
        ("location ~ ^/a{2}$ { return 200; }", hint),
        ("rewrite ^/(a{3})$ /b last; return 200; }", hint),
        ("if ($uri ~ ^/x{2}) { return 200; }", hint),
        ("if ($arg_a = b && $arg_c) { return 200; }", "conditions can't be combined"),
        ("if (!$arg_a) { return 200; }", "if ($arg_a = \"\") tests for an empty value"),
        ("limit_rate 5z;", "\"limit_rate\" directive invalid value"),
        ("limit_rate_after 5z;", "\"limit_rate_after\" directive invalid value"),
        ("proxy_limit_rate 5z;", "\"proxy_limit_rate\" directive invalid value"),
    ] {
        crate::stage::refused(&crate::stage::server(line), reason);
    }
    let map = "map $uri $x { ~a{2} 1; } server { listen 127.0.0.1:%%PORT%%; }";
    crate::stage::refused(&crate::stage::site(map), hint);
}

#[test]
fn rewrite() {
    refused("", "rewrite ^ \"\";", "empty replacement in");
    refused("", "rewrite ^ /x always;", "invalid parameter \"always\" in");
    refused("", "rewrite (a /x;", "pcre2_compile() failed: missing");
    refused("", "rewrite ^;", "invalid number of arguments in \"rewrite\" directive in");
    refused("", "return 1000;", "invalid return code \"1000\" in");
    refused("", "return text;", "invalid return code \"text\" in");
    refused("", "return text more;", "invalid return code \"text\" in");
    refused("", "set x 1;", "invalid variable name \"x\" in");
    refused("", "set $uri 1;", "the duplicate \"uri\" variable in");
    refused("", "set $a $nosuch;", "unknown \"nosuch\" variable");
    refused("", "location ~ (?<uri>a) { }", "the duplicate \"uri\" variable in");
    refused(
        "",
        "location / { location /a { if ($uri) { location /b { } } } }",
        "is not allowed here",
    );
}

#[test]
fn conditions() {
    refused("", "if $uri { }", "invalid condition \"$uri\" in");
    refused("", "if ($uri { }", "invalid condition \"$uri\" in");
    refused("", "if ($uri == a) { }", "unexpected \"==\" in condition in");
    refused("", "if ($uri = a b) { }", "invalid condition \"$uri\" in");
    refused("", "if (-z a) { }", "invalid condition \"-z\" in");
    refused("", "if (-f) { }", "invalid condition \"-f\" in");
    refused("", "if (uri) { }", "invalid condition \"uri\" in");
    refused("", "if ($nosuch) { }", "unknown \"nosuch\" variable");
}

#[test]
fn tables() {
    refused("map $uri x { }", "", "invalid variable name \"x\" in");
    refused("map $uri $host { }", "", "the duplicate \"host\" variable in");
    refused("map $uri $x { a b; A c; }", "", "conflicting parameter \"a\" in");
    refused("map $uri $x { default a; default b; }", "", "duplicate default map parameter in");
    refused("map $uri $x { a b c; }", "", "invalid number of the map parameters in");
    refused("map $uri $x { hostnames; a*b c; }", "", "invalid hostname or wildcard \"a*b\" in");
    refused("split_clients $uri $x { 60% a; 41% b; }", "", "percent total is greater than 100% in");
    refused("split_clients $uri $x { 1.234% a; }", "", "invalid percent value \"1.234%\" in");
    refused("geo $x { 192.0.2.300 a; }", "", "invalid network \"192.0.2.300\" in");
    refused(
        "geo $x { ranges; 10.0.0.9-10.0.0.1 a; }",
        "",
        "invalid range \"10.0.0.9-10.0.0.1\" in",
    );
    refused(
        "geo $x { ranges; 10.0.0.0-10.0.0.5 a; 10.0.0.3-10.0.0.9 b; }",
        "",
        "range \"10.0.0.3-10.0.0.9\" overlaps \"10.0.0.0-10.0.0.5\" in",
    );
}

#[test]
fn access() {
    refused("", "allow 192.0.2.0/33;", "invalid parameter \"192.0.2.0/33\" in");
    refused("", "location / { limit_except BREW { } }", "invalid method \"BREW\" in");
    refused(
        "",
        "location / { limit_except GET { } limit_except GET { } }",
        "\"limit_except\" directive is duplicate in",
    );
}
