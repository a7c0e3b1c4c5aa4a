//! Configurations that are refused, and why.

use crate::stage::{refused, server};

#[test]
fn mistakes() {
    for (content, reason) in [
        ("location / { proxy_pass backend; }", "invalid URL prefix"),
        ("location / { proxy_pass http://; }", "no host in upstream \"\""),
        ("location / { proxy_pass http://a:99999/; }", "invalid port in upstream \"a:99999/\""),
        (
            "location / { proxy_pass http://127.0.0.1; proxy_pass http://127.0.0.1; }",
            "\"proxy_pass\" directive is duplicate",
        ),
        (
            "location ~ /a { proxy_pass http://127.0.0.1/; }",
            "\"proxy_pass\" cannot have URI part in location given by regular expression",
        ),
        (
            "location / { if ($arg_a) { proxy_pass http://127.0.0.1/; } }",
            "\"proxy_pass\" cannot have URI part",
        ),
        ("location @a { proxy_pass http://127.0.0.1/; }", "\"proxy_pass\" cannot have URI part"),
        (
            "location / { proxy_redirect default; proxy_pass http://127.0.0.1; }",
            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
        ),
        (
            "location / { proxy_pass http://$host; proxy_redirect default; }",
            "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
        ),
        (
            "location / { proxy_redirect off; proxy_redirect /a /b; }",
            "\"proxy_redirect\" directive is duplicate",
        ),
        ("proxy_redirect on;", "invalid parameter \"on\""),
        ("proxy_cookie_path on;", "invalid parameter \"on\""),
        (
            "proxy_cookie_domain off; proxy_cookie_domain a b;",
            "\"proxy_cookie_domain\" directive is duplicate",
        ),
        ("proxy_buffers 1 4k;", "there must be at least 2 \"proxy_buffers\""),
        (
            "location / { proxy_pass http://127.0.0.1; proxy_busy_buffers_size 1k; }",
            "\"proxy_busy_buffers_size\" must be equal to or greater than the maximum",
        ),
        (
            "location / { proxy_pass http://127.0.0.1; proxy_max_temp_file_size 1k; }",
            "\"proxy_max_temp_file_size\" must be equal to zero",
        ),
        ("proxy_next_upstream sometimes;", "invalid value \"sometimes\""),
        ("proxy_ignore_headers X-Nothing;", "invalid value \"X-Nothing\""),
        ("proxy_http_version 3;", "invalid value \"3\""),
        ("proxy_bind localhost;", "invalid address \"localhost\""),
        ("proxy_bind 127.0.0.1 x;", "invalid parameter \"x\""),
        ("proxy_store_access me:rw;", "invalid value \"me:rw\""),
        ("proxy_store \"\";", "empty path"),
        (
            "location / { proxy_cache $arg_zone; proxy_store on; }",
            "\"proxy_store\" directive is incompatible with \"proxy_cache\"",
        ),
        ("proxy_set_header \"a b\" c;", "invalid header name \"a b\""),
    ] {
        refused(&server(content), reason);
    }
}
