//! Large configurations: the time is proportional to their size. What is written here would take hours, or
//! more memory than there is, if each server or location were compared with all others.

use std::fmt::Write as _;
use std::path::Path;

use nowait_conf::{Bundle, Registry, parse};
use nowait_lint::{Finding, Unknown, check};

fn found(text: String) -> Vec<Finding> {
    let mut files = Bundle::default();
    files.add("/a.conf", text);
    let (tree, diagnostics) = parse(&files, Path::new("/a.conf"), None);
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
    check(&tree, &Registry::new(&[]), &Unknown)
}

fn count(found: &[Finding], kind: &str) -> usize {
    found.iter().filter(|finding| finding.rule.name == kind).count()
}

/// Each variable is made of the next one a thousand times, and the last one of nothing that counts.
#[test]
fn variables_of_variables() {
    let mut text = String::from("server { listen 127.0.0.1:80; server_name a.example;\n");
    for n in 0..5 {
        for _ in 0..1000 {
            let _ = writeln!(text, "set $a{n} $a{0}$a{0};", n + 1);
        }
    }
    text += "set $a5 x; location = /x { return 301 /$a0$uri; }\n\
             location = /y { proxy_pass http://127.0.0.1/$a0; } }";
    assert_eq!(count(&found(text), "header-injection"), 1);
}

#[test]
fn many_servers() {
    const SERVERS: usize = 10_000;
    let mut text = String::from("http {\n");
    for n in 0..SERVERS {
        let _ = writeln!(
            text,
            "upstream u{n} {{ server 127.0.0.1; keepalive 1; }}\n\
             map $x $m{n} {{ a 127.0.0.1; }}\n\
             server {{ listen 80; listen 443 ssl http2; server_name a{n}.example; ssl_certificate a;\n\
             location = /a {{ set $b u{n}; proxy_pass http://$b; }}\n\
             location = /b {{ proxy_pass http://$m{n}; }} }}",
        );
    }
    let found = found(text + "}");
    assert_eq!(count(&found, "listen-http2"), SERVERS);
    assert_eq!(count(&found, "resolver-missing"), 0);
}

#[test]
fn many_locations() {
    const LOCATIONS: usize = 10_000;
    let mut text = String::from("server { listen 80; server_name a.example; root /srv/site;\n");
    for n in 0..LOCATIONS {
        let _ = writeln!(
            text,
            "location @n{n} {{ return 204; }}\n\
             location ^~ /p{n}/ {{ error_page 404 @n{n}; }}\n\
             location ~ ^/r{n}/(\\d+)/ {{ rewrite ^/r{n}/(.*) /r{n}/1/$1 last; auth_request /p{n}/; }}\n\
             location /q{n}/ {{ add_header A b; set $v{n} c; return 301 /$v{n}; }}",
        );
    }
    let found = found(text + "location ~ ^/p7/x { } location ~ ^/r7/(\\d+)/ { } }");
    assert_eq!(count(&found, "location-unreachable"), 2);
    assert_eq!(count(&found, "named-location-missing"), 0);
    assert!(count(&found, "rewrite-loop") > 0);
}

#[test]
fn many_remarks() {
    const REMARKS: usize = 100_000;
    let remarks = "# lint: allow merge-slashes-off reason\n".repeat(REMARKS);
    let text = format!("{remarks}merge_slashes off; merge_slashes off;\n");
    assert_eq!(found(text.repeat(2)).len(), 0);
}
