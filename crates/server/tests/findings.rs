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
        "server { listen 8080;\nlocation /a { }\nlocation = /a { }\nlocation /a { }\n}",
        false,
        &[
            "duplicate location \"/a\" in ",
            "nginx.conf:5\n",
            "3 | location /a",
            "first defined here",
        ],
    );
    says(
        "server { listen 127.0.0.1:8080; server_name .a.b; }\nserver { listen 127.0.0.1:8080; server_name a.b; }",
        true,
        &[
            "conflicting server name \"a.b\" on 127.0.0.1:8080, ignored in ",
            "nginx.conf:3\n",
            "2 |",
            "first given here",
        ],
    );
    says(
        "upstream a { server 127.0.0.1:1; }\nupstream a { server 127.0.0.1:2; }\nserver { listen 8080; }",
        false,
        &["duplicate upstream \"a\" in ", "nginx.conf:3\n", "2 |", "first defined here"],
    );
}

#[test]
fn a_finding_that_recurs_is_shown_once_with_its_places() {
    let lines = "frobnicate on;\n".repeat(3);
    says(
        &format!("server {{ listen 8080;\n{lines}}}"),
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
            "upstream app {{ server 127.0.0.1:1; }} server {{ listen 8080; location / {{ proxy_pass http://{host}; }} }}"
        )
    };
    says(&http("ap"), true, &["[warn] \"ap\" is not an upstream", "did you mean \"app\"?"]);
    says(&http("app"), true, &["![warn]"]);
    says(&http("ap:80"), true, &["![warn]"]);
}

#[test]
fn a_stray_colon_in_a_field_name_is_explained() {
    says(
        "server { listen 8080; location / { proxy_pass http://127.0.0.1:1; proxy_set_header X-Name: v; } }",
        false,
        &["invalid header name \"X-Name:\"", "write \"X-Name\""],
    );
}

#[test]
fn urls_in_variables_with_another_scheme_are_warned_of() {
    says(
        "map $arg_a $url { default http://127.0.0.1:1; b ws://127.0.0.1:2; }\n\
         server { listen 8080; location / { proxy_pass $url; }\n\
         location /s { set $other ftp://127.0.0.1; proxy_pass ${other}/x; } }",
        true,
        &[
            "\"proxy_pass\" does not support \"ws://127.0.0.1:2\" in ",
            "nginx.conf:2",
            "3 |",
            "500",
            "\"proxy_pass\" does not support \"ftp://127.0.0.1\"",
            "!http://127.0.0.1:1\"",
        ],
    );
    says(
        "server { listen 8080; location / { proxy_pass ws://$host; } }",
        false,
        &["invalid URL prefix", "expected http:// or https://"],
    );
}

#[test]
fn what_a_start_would_refuse_is_found_without_touching_it() {
    let dir = TempDir::new("preflight");
    let output = test(
        &dir,
        "pid none/nowait.pid; error_log gone/error.log; events {}\n\
         http { access_log away/access.log; proxy_cache_path lost/cache keys_zone=a:1m;\n\
         client_body_temp_path body; server { listen 8080; } }\n",
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
    assert_eq!(listing(&dir), ["nginx.conf"]);
}

/// Servers at addresses, one per listener.
fn listening(listeners: &str) -> String {
    let servers = listeners.split_terminator(';').map(|at| format!("server {{ listen {at}; }}\n"));
    format!(
        "events {{}} error_log stderr; pid x.pid;\n\
         http {{ access_log off; {} }}\n",
        servers.collect::<String>()
    )
}

#[test]
fn addresses_that_cannot_be_bound_are_found() {
    let dir = TempDir::new("addresses");
    let path = dir.path().to_str().unwrap();
    let text = listening(&format!("192.0.2.1:8080;[2001:db8::1]:8080;unix:{path}/none/x.sock"))
        + "stream { server { listen 192.0.2.1:8081 udp; return x; } }";
    let output = test(&dir, &text);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for (address, reason, hint) in [
        ("192.0.2.1:8080", "99: Cannot assign requested address", "this machine does not have"),
        ("192.0.2.1:8081", "99: Cannot assign requested address", "this machine does not have"),
        (
            &format!("unix:{path}/none/x.sock"),
            "2: No such file or directory",
            &format!("create the directory \"{path}/none\", or name another one\n"),
        ),
    ] {
        let lines =
            format!("nowait: [emerg] bind() to {address} failed ({reason})\n  = hint: {hint}");
        assert!(said.contains(&lines), "{lines}: {said}");
    }
    // Where there is no IPv6, it has other reasons.
    assert!(said.contains(" [2001:db8::1]:8080 failed ("), "{said}");
    assert!(said.ends_with("test failed\n"), "{said}");
    assert_eq!(listing(&dir), ["nginx.conf"]);
}

#[test]
fn addresses_in_use_are_no_problem_and_remain_in_use() {
    let dir = TempDir::new("addresses");
    let path = dir.path().to_str().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let unix = std::os::unix::net::UnixListener::bind(dir.path().join("old.sock")).unwrap();
    let text = listening(&format!(
        "{};unix:{path}/old.sock;unix:{path}/new.sock",
        tcp.local_addr().unwrap()
    )) + &format!(
        "stream {{ server {{ listen {} udp; return x; }} }}",
        udp.local_addr().unwrap()
    );
    let output = test(&dir, &text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(listing(&dir), ["nginx.conf", "old.sock"]);
    std::os::unix::net::UnixStream::connect(dir.path().join("old.sock")).unwrap();
    std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    drop(unix);
}

/// Ports below 1024 are for root in most places. Only root can play another user.
#[test]
fn a_port_that_needs_root_is_found_without_root() {
    use std::os::unix::process::CommandExt;
    let first_free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first_free.is_ok_and(|port| port.trim() == "0") {
        return nowait_testkit::skip("root", "every user may listen on any port here");
    }
    if !rustix::process::geteuid().is_root() {
        return nowait_testkit::skip("root", "another user cannot be played");
    }
    let dir = TempDir::new("port");
    // Others may not enter the directory that the program was built in, perhaps.
    let program = dir.path().join("nowait");
    std::fs::copy(env!("CARGO_BIN_EXE_nowait"), &program).unwrap();
    dir.write("nginx.conf", listening("127.0.0.1:1"));
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let output = std::process::Command::new(&program)
        .args(["-p", dir.path().to_str().unwrap(), "-c", "nginx.conf", "-t"])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines = "nowait: [emerg] bind() to 127.0.0.1:1 failed (13: Permission denied)\n  \
                 = hint: run the check as the user that starts the server, often root\n";
    assert!(said.contains(lines), "{said}");
}

fn listing(dir: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn misspelt_variables_get_a_hint() {
    let http = |variable: &str| {
        format!(
            "map $uri $own_name {{ default a; }}\n\
             server {{ listen 8080; add_header X {variable}; add_header Y $own_name; }}"
        )
    };
    says(
        &http("$htpp_host"),
        false,
        &["unknown \"htpp_host\" variable", "did you mean \"$http_host\"?"],
    );
    says(&http("$upstream_http_x"), true, &["!unknown"]);
    says(&http("$own_nmae"), false, &["did you mean \"$own_name\"?"]);
    says(&http("$nothing_like_it"), false, &["nothing defines it"]);
}

#[test]
fn an_included_file_that_is_missing_names_the_directory() {
    says("include gone.conf;", false, &["/gone.conf\" failed (2: ", "relative names begin at /"]);
    says("include gone/*.conf; server { listen 8080; }", true, &["!gone"]);
}

#[test]
fn errors_of_expressions_point_at_their_place() {
    for text in ["\"a(b[c\"", "'a(b[c'", "^a(b[c"] {
        says(
            &format!("server {{ listen 8080; location ~ {text} {{ }} }}"),
            false,
            &["missing terminating ] for character class in \"", "nginx.conf:2"],
        );
    }
    let dir = TempDir::new("place");
    let line = "location ~ \"a(b*)+*{c\" { }";
    let output = test(&dir, &format!("events {{}} http {{ server {{ listen 8080;\n{line} }} }}\n"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let caret = said.lines().find(|line| line.contains('^')).unwrap_or_else(|| panic!("{said}"));
    let column = caret.find('^').unwrap() - "2 | ".len();
    assert!(column > line.find('"').unwrap(), "{said}");
}

#[test]
fn a_uri_that_replaces_nothing_is_explained() {
    says(
        "server { listen 8080; location ~ ^/a { proxy_pass http://127.0.0.1:1/b; } }",
        false,
        &["cannot have URI part in location given by regular expression", "remove \"/b\""],
    );
}

#[test]
fn configurations_of_other_servers_are_recognised() {
    for (text, server) in [
        ("<VirtualHost *:80>\n DocumentRoot /a\n</VirtualHost>\n", "Apache"),
        ("LoadModule a b;\n", "Apache"),
        ("file_server;\n", "Caddy"),
        ("frontend web;\n", "HAProxy"),
    ] {
        let output = test(&TempDir::new("foreign"), text);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("this is {server}'s configuration language; nowait reads nginx's");
        assert!(!output.status.success() && said.contains(&expected), "{text}: {said}");
    }
    let output = test(&TempDir::new("site"), "example.com {\n root /a;\n}\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("a site is a \"server\" block within \"http\""), "{said}");
}

#[test]
fn a_user_that_does_not_exist_is_explained() {
    let dir = TempDir::new("user");
    let text = "user no-such-user; events {} http { server { listen 8080; } }\n";
    let said = String::from_utf8_lossy(&test(&dir, text).stderr).into_owned();
    if rustix::process::geteuid().is_root() {
        assert!(said.contains("getpwnam(\"no-such-user\") failed"), "{said}");
        assert!(said.contains("useradd --system no-such-user"), "{said}");
    } else {
        assert!(said.contains("makes sense only if the master process runs with"), "{said}");
    }
}
