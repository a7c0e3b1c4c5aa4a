//! `auth_basic`, `auth_delay` and `satisfy`.

use std::time::{Duration, Instant};

use nowait_testkit::{Server, ServerBuilder};

use crate::stage::{ask, asks_nginx, gets, on_each_driver, server};

/// A user for each form of an encrypted password, which is `password`.
const USERS: &str = "\
# comment:{PLAIN}password
plain:{PLAIN}password:more
sha:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=
ssha:{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0
des:sa3tHJ3/KuYvI
md5:$1$salt$qJH7.N4xYta3aEG/dfqo/0
apr1:$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.
sha256:$5$saltstring$OH4IDuTlsuTYPdED1gsuiRMyTAwNlRWyA6Xr3I4/dQ5
bcrypt:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm
broken:$1$
last:{PLAIN}password";

/// `name:password` as a header line.
fn basic(credentials: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("Authorization: Basic ");
    for group in credentials.as_bytes().chunks(3) {
        let bytes = (0..3).map(|n| u32::from(*group.get(n).unwrap_or(&0)));
        let bits = bytes.fold(0, |bits, byte| bits << 8 | byte);
        for n in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]);
            out.push(if n > group.len() { '=' } else { digit });
        }
    }
    out
}

/// The status of a request with these credentials.
fn status(server: &Server, target: &str, credentials: &str) -> u16 {
    ask(server, target, &[&basic(credentials)]).status
}

/// A site with users that complains about wrong passwords.
fn guarded(content: &str) -> ServerBuilder {
    server(content)
        .file("users", USERS)
        .file("html/a", "hello")
        .allow_log("password mismatch")
        .allow_log("was not found in")
        .allow_log("access forbidden by rule")
}

#[test]
fn passwords() {
    let site = guarded("auth_basic \"the realm\"; auth_basic_user_file %%DIR%%/users;");
    on_each_driver(&site, |server| {
        let answer = ask(server, "/a", &[]);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"the realm\""));
        let kinds = ["plain", "sha", "ssha", "des", "md5", "apr1", "sha256", "bcrypt", "last"];
        for user in kinds {
            assert_eq!(ask(server, "/a", &[&basic(&format!("{user}:password"))]).text(), "hello");
            assert_eq!(status(server, "/a", &format!("{user}:passworD")), 401, "{user}");
            assert_eq!(status(server, "/a", &format!("{user}:")), 401, "{user}");
        }
        assert_eq!(status(server, "/a", "nobody:password"), 401);
        assert_eq!(status(server, "/a", "# comment:password"), 401);
        assert_eq!(status(server, "/a", "broken:password"), 401);
        server.wait_log("user \"plain\": password mismatch");
        server.wait_log("user \"nobody\" was not found in \"");
    });
}

/// Users of the configuration, alone and beside those of a file.
#[test]
fn users_without_a_file() {
    let site = guarded(
        r#"
        auth_basic x;
        auth_basic_user anna "{PLAIN}secret";
        auth_basic_user "a b" "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0";
        location /both {
            auth_basic_user plain "{PLAIN}secret";
            auth_basic_user_file %%DIR%%/users;
        }
        "#,
    )
    .file("html/both", "both");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/a", &[]).status, 401);
        for (credentials, expected) in [
            ("anna:secret", 200),
            ("a b:password", 200),
            ("anna:password", 401),
            ("plain:password", 401),
            ("nobody:secret", 401),
        ] {
            assert_eq!(status(server, "/a", credentials), expected, "{credentials}");
        }
        // The user of the configuration precedes that of the file.
        for (credentials, expected) in [
            ("plain:secret", 200),
            ("plain:password", 401),
            ("last:password", 200),
            ("anna:secret", 401),
        ] {
            assert_eq!(status(server, "/both", credentials), expected, "{credentials}");
        }
        server.wait_log("user \"nobody\" was not found in \"auth_basic_user\"");
    });
}

#[test]
fn what_is_no_password() {
    let site = guarded("auth_basic x; auth_basic_user_file %%DIR%%/users;");
    on_each_driver(&site, |server| {
        for value in ["", "Basic", "Basic ", "Basic ====", "Basic Og==", "Bearer x", "Basic \u{e4}"]
        {
            let line = format!("Authorization: {value}");
            assert_eq!(ask(server, "/a", &[&line]).status, 401, "{value}");
        }
        let long = format!("plain:{}", "password".repeat(400));
        assert_eq!(status(server, "/a", &long), 401);
    });
}

#[test]
fn settings() {
    let site = guarded(
        r#"
        auth_basic x;
        auth_basic_user_file %%DIR%%/users;
        location /off { auth_basic off; }
        location /realm { auth_basic "$arg_r"; return 200; }
        location /name { auth_basic off; return 200 [$remote_user]; }
        location /file { auth_basic_user_file $arg_f; }
        location /none { auth_basic_user_file %%DIR%%/none; }
        location /dir { auth_basic_user_file %%DIR%%; }
        location /page { error_page 401 /off; }
        location /only { limit_except GET { auth_basic x; } auth_basic off; }
        "#,
    )
    .file("html/off", "off")
    .file("html/file", "file")
    .file("html/none", "none")
    .file("html/dir", "dir")
    .file("html/only", "only")
    .allow_log("failed (2: No such file or directory)")
    .allow_log("failed (21: Is a directory)");
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/off", &[]).text(), "off");
        assert_eq!(ask(server, "/name", &[]).text(), "[]");
        assert_eq!(ask(server, "/name", &[&basic("joe:x")]).text(), "[joe]");
        assert_eq!(status(server, "/none", "plain:password"), 403);
        assert_eq!(status(server, "/dir", "plain:password"), 500);
        let users = format!("/file?f={}/users", server.dir().display());
        assert_eq!(status(server, &users, "plain:password"), 200);
        assert_eq!(status(server, "/file?f=none", "plain:password"), 403);
        let page = ask(server, "/page", &[]);
        assert_eq!((page.status, page.text()), (401, "off".into()));
        assert_eq!(page.header("www-authenticate"), Some("Basic realm=\"x\""));
        assert_eq!(ask(server, "/only", &[]).text(), "only");
        server.wait_log("open() \"");
    });
}

#[test]
fn a_changed_file_counts_at_once() {
    let site = guarded("auth_basic x; auth_basic_user_file %%DIR%%/users;");
    on_each_driver(&site, |server| {
        for round in 0..5 {
            let new = format!("joe:{{PLAIN}}secret{round}\n");
            server.write("users", new);
            assert_eq!(status(server, "/a", &format!("joe:secret{round}")), 200, "{round}");
            assert_eq!(status(server, "/a", "joe:secret9"), 401, "{round}");
            assert_eq!(status(server, "/a", "plain:password"), 401, "{round}");
        }
    });
}

#[test]
fn one_or_all() {
    let site = guarded(
        r#"
        auth_basic x;
        auth_basic_user_file %%DIR%%/users;
        location /any { satisfy any; deny all; }
        location /in { satisfy any; allow 127.0.0.1; deny all; }
        location /none { satisfy any; auth_basic_user_file %%DIR%%/none; deny all; }
        location /off { satisfy any; auth_basic off; deny all; }
        location /all { allow all; }
        location /out { deny all; }
        "#,
    )
    .file("html/any", "any")
    .file("html/in", "in")
    .file("html/all", "all")
    .allow_log("failed (2: No such file or directory)");
    gets(
        &site,
        &[
            ("/any", "401\nWWW-Authenticate: Basic realm=\"x\""),
            ("/in", "200\n\nin"),
            ("/off", "403"),
            ("/all", "401"),
            ("/out", "403"),
        ],
    );
    on_each_driver(&site, |server| {
        assert_eq!(status(server, "/any", "plain:password"), 200);
        assert_eq!(status(server, "/any", "plain:wrong"), 401);
        assert_eq!(status(server, "/in", "plain:wrong"), 200);
        assert_eq!(status(server, "/none", "plain:password"), 403);
        assert_eq!(status(server, "/all", "plain:password"), 200);
        assert_eq!(status(server, "/out", "plain:password"), 403);
    });
}

#[test]
fn refusals_are_delayed() {
    const DELAY: Duration = Duration::from_millis(300);
    let site = guarded("auth_delay 300ms; auth_basic x; auth_basic_user_file %%DIR%%/users;");
    on_each_driver(&site, |server| {
        for headers in [vec![], vec![basic("plain:wrong")], vec![basic("md5:wrong")]] {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let begin = Instant::now();
            assert_eq!(ask(server, "/a", &headers).status, 401);
            assert!(begin.elapsed() >= DELAY, "{headers:?}");
        }
        assert_eq!(status(server, "/a", "plain:password"), 200);
        if !asks_nginx() {
            server.wait_log("delaying unauthorized request");
        }
    });
}
