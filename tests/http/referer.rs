//! `valid_referers` and `$invalid_referer`.

use crate::stage::{ask, on_each_driver, refused, server};

#[test]
fn where_requests_come_from() {
    let site = server(
        "server_name site.example *.wild.example ~^r\\d\\.example$;
         location /all {
             valid_referers none blocked server_names a.example *.b.example c.* .d.example
                            path.example/x ~\\.regex\\. ~^E\\.example/deep;
             return 200 [$invalid_referer];
         }
         location /all/inner { return 200 [$invalid_referer]; }
         location /strict { valid_referers a.example; return 200 [$invalid_referer]; }
         location /nothing { return 200 [$invalid_referer]; }
         location /set {
             valid_referers a.example; set $invalid_referer changed; return 200 [$invalid_referer];
         }",
    );
    on_each_driver(&site, |server| {
        let invalid = |target: &str, referer: &str| {
            let header = format!("Referer: {referer}");
            let headers: &[&str] = if referer.is_empty() { &[] } else { &[&header] };
            let answer = ask(server, target, headers);
            match answer.text().as_str() {
                "[1]" => true,
                "[]" => false,
                other => panic!("{other}"),
            }
        };
        for valid in [
            "",
            "blocked",
            "http://a.example",
            "https://A.EXAMPLE/x",
            "http://a.example:8080/x",
            "http://x.b.example",
            "http://x.y.b.example/",
            "http://c.anything",
            "http://d.example",
            "http://x.d.example",
            "http://site.example/",
            "http://x.wild.example/",
            "http://r1.example/",
            "http://path.example/x",
            "http://path.example:80/xyz",
            "http://x.regex.y/",
            "http://e.example/deeper",
            "ftp://a.example",
        ] {
            assert!(!invalid("/all", valid), "{valid}");
            assert!(!invalid("/all/inner", valid), "{valid}");
        }
        for wrong in [
            "http://other.example",
            "http://xa.example",
            "http://path.example/",
            "http://path.example",
            "http://path.example/a/x",
            "http://rr.example/",
            "http://e.example/",
            "http://a.example.evil/",
        ] {
            assert!(invalid("/all", wrong), "{wrong}");
        }
        let long = format!("http://{}/", "a".repeat(300));
        assert!(invalid("/all", &long));
        for wrong in ["", "blocked", "http://b.example", "http://a.b"] {
            assert!(invalid("/strict", wrong), "{wrong}");
        }
        assert!(!invalid("/strict", "http://a.example"));
        assert!(!invalid("/nothing", "http://b.example"));
        assert_eq!(ask(server, "/set", &[]).text(), "[changed]");
    });
}

#[test]
fn mistakes_are_told() {
    refused(&server("valid_referers '';"), "invalid referer \"\"");
    refused(&server("valid_referers ~;"), "empty regex in \"~\"");
    refused(&server("valid_referers ~(;"), "in \"(\"");
    refused(&server("valid_referers a a/b;"), "conflicting parameter \"a\"");
    refused(&server("valid_referers a.*.b;"), "invalid hostname or wildcard \"a.*.b\"");
    refused(&server("valid_referers none blocked;"), "without any valid referer");
}
