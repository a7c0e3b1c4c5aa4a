//! Wrong values, unknown parameters and missing definitions, as users write them: the error says where it is
//! and what would be right.

use nowait_testkit::ServerBuilder;

use crate::stage::{asks_nginx, site};

/// What a location of a proxy has, and what the error must say besides the problem.
const LOCATIONS: &[(&str, &str)] = &[
    ("proxy_pass http://127.0.0.1:99999;", "^ expected a port from 1 to 65535"),
    ("proxy_pass https://a; proxy_ssl_verify on;", "= hint: name a file with the certificates"),
    (
        "grpc_pass grp://a:1;",
        "^ expected HOST:PORT or unix:PATH, behind grpc://, grpcs:// or nothing",
    ),
    ("grpc_pass grpc://a:x;", "^ expected a port from 1 to 65535"),
    ("fastcgi_pass http://a:1;", "^ expected HOST:PORT or unix:PATH, without a scheme"),
    ("memcached_pass a:1;", "= hint: nothing defines it: \"set\""),
    ("resolver 127.0.0.1 vaild=5s;", "= hint: the syntax is \"resolver address"),
    ("if (-f) { }", "^ expected one path behind it"),
    ("access_log syslog:server;", "^ expected syslog:server=ADDRESS"),
];

/// The same for the block around servers.
const BLOCKS: &[(&str, &str)] = &[
    (
        "server { listen 1 ssl; ssl_reject_handshake on; ssl_verify_client on; }",
        "= hint: name the file with the certificates of those",
    ),
    (
        "proxy_cache_path %%DIR%%/c keys_zone=a:1m tier=b;",
        "= hint: name the keys_zone of the cache on the slower disk",
    ),
    ("upstream u { server a wieght=2; }", "= hint: the syntax is \"server address [weight=number]"),
    ("upstream u { server http://a; }", "^ expected HOST:PORT or unix:PATH, without a scheme"),
    (
        "upstream u { server a; zone u 64k; }
         server { listen 1; location / { proxy_pass http://u; health_check match=m; } }",
        "= hint: define it in the http block: match m { }",
    ),
    ("num_map $arg_n $v { 9-8 x; }", "= hint: it contains no number"),
    ("num_map $arg_n $v { 8o x; }", "^ expected a number, such as 80; a range: 8080-8090;"),
    ("num_map $arg_n $v { 1-9 x; 1-9 y; }", "= hint: another line has the same numbers"),
    ("num_map $arg_n $v { 1 x y; }", "^ expected a number or a range, and a value"),
    ("num_map 80 $v { 1 x; }", "^ expected a name that begins with \"$\""),
    ("json_set $v $arg_j a..b;", "^ expected names with dots between them"),
    ("json_set $v $arg_j '';", "^ expected a path such as user.name"),
    ("json_set $v $arg_j a; json_set $V $arg_j b;", "= hint: give each path a variable of its own"),
    ("json_set v $arg_j a;", "^ expected a name that begins with \"$\""),
    ("json_set $v arg_j a;", "^ expected a name that begins with \"$\""),
    ("json_set $host $arg_j a;", "the duplicate \"host\" variable"),
    ("json_set $v $jsn a; server { listen 1; return 200 $v; }", "unknown \"jsn\" variable"),
    ("json_max_depth 257;", "value must be between 1 and 256"),
    ("json_max_depth x;", "^ expected a number from 1 to 256"),
    ("server { listen 1; location $a$b { } }", "= hint: a location takes one variable; \"map\""),
    ("server { listen 1; location $ { } }", "^ expected a name that begins with \"$\""),
    ("server { listen 1; location $agr_a { } location = /x { } }", "unknown \"agr_a\" variable"),
    ("server { listen 1; location $a { location @b { } } }", "can be on the server level only"),
    (
        "server { listen 1; location $arg_a { proxy_pass http://127.0.0.1:1/x; } }",
        "inside predicate location",
    ),
    ("match m { status 20; }", "^ expected codes from 100 to 999"),
];

/// The same for a server of `stream`.
const STREAMS: &[(&str, &str)] = &[
    ("proxy_pass http://a:1;", "^ expected HOST:PORT or unix:PATH, without a scheme"),
    ("proxy_pass a:1; proxy_upload_rate x;", "^ expected a size such as 512"),
    ("proxy_pass a:1; proxy_download_rate x;", "^ expected a size such as 512"),
];

#[track_caller]
fn says(http: &str, expected: &str) {
    is_refused(site(http), http, expected);
}

#[track_caller]
fn is_refused(site: ServerBuilder, http: &str, expected: &str) {
    let Err(failure) = site.try_start() else { panic!("{http} is accepted") };
    let said = format!("{}{}", failure.stderr, failure.log);
    assert!(said.contains(expected), "{http}: {said}");
    // Every error points at its place.
    let places = said.lines().filter(|line| line.contains("[emerg]"));
    for line in places.filter(|line| !line.ends_with("test failed")) {
        assert!(line.contains(".conf:"), "{http}: {line}");
    }
}

#[test]
fn errors_say_what_would_be_right() {
    if asks_nginx() {
        return;
    }
    for (location, expected) in LOCATIONS {
        says(&format!("server {{ location / {{ {location} }} }}"), expected);
    }
    for (block, expected) in BLOCKS {
        says(block, expected);
    }
    for (server, expected) in STREAMS {
        let stream = format!("stream {{ server {{ listen 1; {server} }} }}");
        is_refused(site("").main(&stream), server, expected);
    }
}
