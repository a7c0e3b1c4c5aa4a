//! What `-t` says of configurations that work badly or not at all, and that it touches nothing.

use std::process::Output;

use nowait_testkit::{Binary, TempDir};

/// Checks `text` as `nginx.conf` in `dir`.
fn test(dir: &TempDir, text: &str) -> Output {
    dir.write("nginx.conf", text);
    let path = dir.path().to_str().expect("temporary directories have names in UTF-8");
    let binary = Binary::nowait(env!("CARGO_BIN_EXE_nowait"));
    binary.command().args(["-p", path, "-c", "nginx.conf", "-t"]).output().unwrap()
}

/// Checks the inside of an `http` block, and that everything in `expected` is said, in this order;
/// `!` before a text: it is not said.
fn says(http: &str, success: bool, expected: &[&str]) {
    let dir = TempDir::new("findings");
    let output = test(&dir, &format!("events {{}} http {{ access_log off;\n{http}\n}}\n"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), success, "{http}: {said}");
    let mut rest = &said[..];
    for text in expected {
        if let Some(absent) = text.strip_prefix('!') {
            assert!(!said.contains(absent), "{absent} for {http}: {said}");
            continue;
        }
        let at = rest.find(text).unwrap_or_else(|| panic!("no {text} for {http}: {said}"));
        rest = &rest[at + text.len()..];
    }
}

#[test]
fn duplicates_show_what_came_first() {
    says(
        "server { listen 1;\nlocation /a { }\nlocation = /a { }\nlocation /a { }\n}",
        false,
        &[
            "duplicate location \"/a\" in ",
            "nginx.conf:5\n",
            "3 | location /a",
            "first defined here",
        ],
    );
    says(
        "server { listen 127.0.0.1:1; server_name .a.b; }\nserver { listen 127.0.0.1:1; server_name a.b; }",
        true,
        &[
            "conflicting server name \"a.b\" on 127.0.0.1:1, ignored in ",
            "nginx.conf:3\n",
            "2 |",
            "first given here",
        ],
    );
    says(
        "upstream a { server 127.0.0.1:1; }\nupstream a { server 127.0.0.1:2; }\nserver { listen 1; }",
        false,
        &["duplicate upstream \"a\" in ", "nginx.conf:3\n", "2 |", "first defined here"],
    );
}

#[test]
fn a_finding_that_recurs_is_shown_once_with_its_places() {
    let lines = "frobnicate on;\n".repeat(3);
    says(
        &format!("server {{ listen 1;\n{lines}}}"),
        false,
        &[
            "unknown directive \"frobnicate\" in ",
            "nginx.conf:3\n",
            "= also in ",
            "nginx.conf:4, 5\n",
        ],
    );
}

#[test]
fn a_name_that_is_almost_an_upstream_gets_a_hint() {
    let http = |host: &str| {
        format!(
            "upstream app {{ server 127.0.0.1:1; }} server {{ listen 1; location / {{ proxy_pass http://{host}; }} }}"
        )
    };
    says(&http("ap"), true, &["[warn] \"ap\" is not an upstream", "did you mean \"app\"?"]);
    says(&http("app"), true, &["![warn]"]);
    says(&http("ap:80"), true, &["![warn]"]);
}

#[test]
fn a_stray_colon_in_a_field_name_is_explained() {
    says(
        "server { listen 1; location / { proxy_pass http://127.0.0.1:1; proxy_set_header X-Name: v; } }",
        false,
        &["invalid header name \"X-Name:\"", "write \"X-Name\""],
    );
}

#[test]
fn urls_in_variables_with_another_scheme_are_warned_of() {
    says(
        "map $arg_a $url { default http://127.0.0.1:1; b https://127.0.0.1:2; }\n\
         server { listen 1; location / { proxy_pass $url; }\n\
         location /s { set $other ftp://127.0.0.1; proxy_pass ${other}/x; } }",
        true,
        &[
            "\"proxy_pass\" does not support \"https://127.0.0.1:2\" in ",
            "nginx.conf:2",
            "3 |",
            "500",
            "\"proxy_pass\" does not support \"ftp://127.0.0.1\"",
            "!http://127.0.0.1:1\"",
        ],
    );
    says(
        "server { listen 1; location / { proxy_pass https://$host; } }",
        false,
        &["https protocol requires SSL support", "TLS"],
    );
}

#[test]
fn what_a_start_would_refuse_is_found_without_touching_it() {
    let dir = TempDir::new("preflight");
    let output = test(
        &dir,
        "pid none/nowait.pid; error_log gone/error.log; events {}\n\
         http { access_log away/access.log; proxy_cache_path lost/cache keys_zone=a:1m;\n\
         client_body_temp_path body; server { listen 1; } }\n",
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let path = dir.path().display();
    for (call, name) in [
        ("open()", "none/nowait.pid"),
        ("open()", "gone/error.log"),
        ("open()", "away/access.log"),
        ("mkdir()", "lost/cache"),
    ] {
        let line = format!(
            "nowait: [emerg] {call} \"{path}/{name}\" failed (2: No such file or directory)\n"
        );
        assert!(said.contains(&line), "{line}: {said}");
        let directory = name.split('/').next().expect("there is a slash");
        let hint = format!("= hint: create the directory \"{path}/{directory}\"");
        assert!(said.contains(&hint), "{hint}: {said}");
    }
    assert!(said.ends_with("test failed\n"), "{said}");
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["nginx.conf"]);
}
