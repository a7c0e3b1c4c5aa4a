//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags`.

use super::answered;

#[test]
fn attributes_and_flags_are_changed() {
    let reply =
        |cookie: &str| format!("HTTP/1.1 200 OK\nSet-Cookie: {cookie}\nContent-Length: 0\n\n");
    let cases = [
        ("a=1; Domain=.Old.example; Path=/app/x", "a=1; Domain=.new.example; Path=/x"),
        ("a=1;domain=sub.old.example", "a=1;domain=sub.old.example"),
        ("a=1; domain=x.re.example", "a=1; domain=re-x"),
        ("b=1; path=/APP2/y", "b=1; path=/two/y"),
        ("c=1; path=/z", "c=1; path=/z; Secure; HttpOnly; SameSite=Lax"),
        ("session_1=1; secure; samesite=none", "session_1=1; samesite=none"),
        ("no cookie", "no cookie"),
    ];
    let texts: Vec<(String, String)> =
        cases.iter().map(|(from, to)| (reply(from), format!("200\nSet-Cookie: {to}"))).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    answered(
        r#"
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cookie_domain .old.example new.example;
            proxy_cookie_domain ~^(.*)\.RE\.example$ re-$1;
            proxy_cookie_path /app/ /;
            proxy_cookie_path ~*^/app2/(.*) /two/$1;
            proxy_cookie_flags c secure httponly samesite=lax;
            proxy_cookie_flags ~^session_ nosecure $arg_none;
        }
        "#,
        &texts,
    );
}

#[test]
fn off_ends_what_is_inherited() {
    answered(
        r#"
        proxy_cookie_path / /x/;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cookie_path off; }
        "#,
        &[(
            "HTTP/1.1 200 OK\nSet-Cookie: a=b; path=/\nContent-Length: 0\n\n",
            "200\nSet-Cookie: a=b; path=/",
        )],
    );
}
