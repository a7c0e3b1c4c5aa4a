//! `userid` and its variables.

use nowait_testkit::Server;

use crate::stage::{ask, on_each_driver, refused, server, site};

/// The cookie that is set, without what follows its value.
fn given(server: &Server, target: &str, headers: &[&str]) -> Option<String> {
    let answer = ask(server, target, headers);
    answer.header("set-cookie").map(str::to_owned)
}

#[test]
fn cookies_are_set_and_known_again() {
    let site = server(
        "add_header X-Got $uid_got; add_header X-Set $uid_set; add_header X-Reset [$uid_reset];
         userid_path /;
         location / { userid on; }
         location /v1 { userid v1; alias %%DIR%%/html/a; }
         location /log { userid log; alias %%DIR%%/html/a; }
         location /off { userid off; alias %%DIR%%/html/a; }
         location /service { userid on; userid_service 4294967295; alias %%DIR%%/html/a; }
         location /v1-service { userid v1; userid_service 1; alias %%DIR%%/html/a; }
         location /reset { userid on; set $uid_reset $arg_r; alias %%DIR%%/html/a; }",
    )
    .file("html/a", "x")
    .allow_log("client sent too short userid cookie")
    .allow_log("client sent invalid userid cookie");
    on_each_driver(&site, |server| {
        assert_eq!(given(server, "/off", &[]), None);
        assert_eq!(given(server, "/log", &[]), None);
        let answer = ask(server, "/a", &[]);
        let cookie = answer.header("set-cookie").unwrap();
        let value = cookie.strip_prefix("uid=").unwrap().strip_suffix("==; path=/").unwrap();
        assert_eq!(value.len(), 22, "{cookie}");
        let set = answer.header("x-set").unwrap().to_owned();
        // 127.0.0.1, as its bytes are in memory.
        assert!(set.starts_with("uid=0100007F") && set.len() == 36, "{set}");
        assert_eq!(answer.header("x-got"), None);

        // It comes back.
        let header = format!("Cookie: a=b; uid={value}==; c=d");
        let answer = ask(server, "/a", &[&header]);
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(answer.header("x-got"), Some(&*set));
        assert_eq!(answer.header("x-set"), None);
        assert_eq!(ask(server, "/log", &[&header]).header("x-got"), Some(&*set));
        assert_eq!(ask(server, "/off", &[&header]).header("x-got"), None);

        // Another one for everyone.
        assert_ne!(given(server, "/a", &[]), given(server, "/a", &[]));
        let start =
            |target: &str| ask(server, target, &[]).header("x-set").unwrap()[..12].to_owned();
        assert_eq!(start("/v1"), "uid=00000000");
        assert_eq!(start("/v1-service"), "uid=00000001");
        assert_eq!(start("/service"), "uid=FFFFFFFF");

        // Reset.
        assert_eq!(given(server, "/reset?r=0", &[&header]), None);
        assert_eq!(given(server, "/reset", &[&header]), None);
        let answer = ask(server, "/reset?r=1", &[&header]);
        assert_eq!(answer.header("x-got"), Some(&*set));
        assert!(answer.header("x-set").is_some_and(|new| new != set));
        assert!(!answer.header("set-cookie").unwrap().contains(value));

        // Nonsense.
        for cookie in ["uid=short", "uid=!!!!!!!!!!!!!!!!!!!!!!=="] {
            let answer = ask(server, "/a", &[&format!("Cookie: {cookie}")]);
            assert_eq!(answer.header("x-got"), None);
            assert!(answer.header("set-cookie").is_some());
        }
    });
}

#[test]
fn a_map_may_say_who_is_reset() {
    let builder = site(
        "map $arg_x $uid_reset { default 0; y log; }
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; userid on;
             add_header X-Reset [$uid_reset];
         }",
    )
    .file("html/a", "x");
    on_each_driver(&builder, |server| {
        let cookie = given(server, "/a", &[]).unwrap();
        let header = format!("Cookie: {}", cookie.split(';').next().unwrap());
        let kept = ask(server, "/a", &[&header]);
        assert_eq!((kept.header("set-cookie"), kept.header("x-reset")), (None, Some("[0]")));
        let reset = ask(server, "/a?x=y", &[&header]);
        assert!(reset.header("set-cookie").is_some());
        assert_eq!(reset.header("x-reset"), Some("[log]"));
        server.wait_log("userid cookie \"uid=");
    });
}

#[test]
fn attributes_and_marks() {
    let site = server(
        "userid on;
         location /name { userid_name test; userid_path /p; userid_domain a.example; }
         location /max { userid_expires max; }
         location /time { userid_expires 1d; }
         location /flags { userid_flags secure httponly samesite=lax; }
         location /strict { userid_flags samesite=strict samesite=none; }
         location /p3p { userid_p3p 'policyref=\"/p3p.xml\"'; }
         location /mark { userid_mark t; add_header X-Got $uid_got; }
         location /none { userid_domain none; userid_p3p none; userid_flags off; userid_mark off; }",
    );
    let names = ["name", "max", "time", "flags", "strict", "p3p", "mark", "none"];
    let site = names.iter().fold(site, |site, name| site.file(&format!("html/{name}"), "x"));
    on_each_driver(&site, |server| {
        let behind = |target: &str| {
            let cookie = given(server, target, &[]).unwrap();
            let at = cookie.find("==").unwrap_or_else(|| panic!("{cookie}"));
            cookie[at + 2..].to_owned()
        };
        let name = given(server, "/name", &[]).unwrap();
        assert!(name.starts_with("test=") && name.ends_with("==; domain=a.example; path=/p"));
        assert_eq!(behind("/max"), "; expires=Thu, 31-Dec-37 23:55:55 GMT; path=/");
        let time = behind("/time");
        assert!(time.starts_with("; expires=") && time.ends_with(" GMT; path=/"), "{time}");
        assert_eq!(behind("/flags"), "; path=/; secure; httponly; samesite=lax");
        assert_eq!(behind("/strict"), "; path=/; samesite=strict");
        assert_eq!(behind("/none"), "; path=/");
        let answer = ask(server, "/p3p", &[]);
        assert_eq!(answer.header("p3p"), Some("policyref=\"/p3p.xml\""));

        let marked = given(server, "/mark", &[]).unwrap();
        let value = marked.strip_prefix("uid=").unwrap().strip_suffix("t=; path=/").unwrap();
        let has = format!("Cookie: uid={value}t=");
        assert_eq!(given(server, "/mark", &[&has]), None);
        // Without the mark it is sent again, and stays what it is.
        let lacks = format!("Cookie: uid={value}==");
        let again = ask(server, "/mark", &[&lacks]);
        assert_eq!(again.header("set-cookie"), Some(&*format!("uid={value}t=; path=/")));
        assert!(again.header("x-got").is_some());
    });
}

#[test]
fn mistakes_are_told() {
    refused(&server("userid maybe;"), "invalid value \"maybe\"");
    refused(&server("userid_mark ab;"), "value must be \"off\" or a single letter, digit or \"=\"");
    refused(&server("userid_service x;"), "invalid number");
    refused(&server("userid_expires x;"), "\"userid_expires\" directive invalid value");
    refused(&server("userid_flags sweet;"), "invalid value \"sweet\"");
}
