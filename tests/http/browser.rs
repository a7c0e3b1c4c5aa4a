//! `modern_browser`, `ancient_browser` and their variables.

use crate::stage::{ask, on_each_driver, server, site};

#[test]
fn browsers_are_modern_or_ancient() {
    let builder = server(
        "modern_browser msie 5.5; modern_browser gecko 1.0.0; modern_browser safari 3.1;
         ancient_browser_value old;
         location / { return 200 $modern_browser,$ancient_browser,$msie; }
         location /unlisted {
             modern_browser unlisted; modern_browser_value new; ancient_browser Lynx netscape4;
             return 200 $modern_browser,$ancient_browser;
         }",
    );
    on_each_driver(&builder, |server| {
        for (target, agent, expected) in [
            ("/", "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", "1,,1"),
            ("/", "Mozilla/4.0 (compatible; MSIE 5.0; Windows NT 5.1)", ",old,1"),
            ("/", "Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50  [en]", ",old,"),
            ("/", "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.8) Gecko/20020610", "1,,"),
            ("/", "curl/8.0", ",old,"),
            ("/unlisted", "curl/8.0", "new,"),
            ("/unlisted", "Lynx/2.8", ",old"),
            ("/unlisted", "Mozilla/4.72 [en] (X11)", ",old"),
            ("/unlisted", "Mozilla/5.72 [en] (X11)", "new,"),
        ] {
            let response = ask(server, target, &[&format!("User-Agent: {agent}")]);
            assert_eq!(response.text(), expected, "{target} {agent}");
        }
        assert_eq!(ask(server, "/", &[]).text(), ",old,");
        assert_eq!(ask(server, "/unlisted", &[]).text(), "new,");
    });
}

#[test]
fn mistakes_are_named() {
    for (text, message) in [
        ("modern_browser mosaic 1.0;", "unknown browser name \"mosaic\""),
        ("modern_browser msie six;", "invalid browser version \"six\""),
        ("modern_browser msie;", "a version is missing after \"msie\""),
    ] {
        let failure = site(text).try_start().expect_err(text);
        let said = format!("{}{}", failure.stderr, failure.log);
        assert!(said.contains(message), "{text}: {said}");
    }
}

/// nginx: `NGX_HTTP_VAR_CHANGEABLE`.
#[test]
fn some_built_in_variables_may_be_redefined() {
    let builder = site(
        "map $http_x $ssl_protocol { default none; y TLSv9; }
         server {
             listen 127.0.0.1:%%PORT%%;
             location / { return 200 [$msie][$ssl_cipher][$ssl_protocol]; }
             location /set {
                 set $msie mine; set $ssl_cipher null; set $proxy_port 1;
                 return 200 [$msie][$ssl_cipher][$proxy_port];
             }
         }",
    );
    on_each_driver(&builder, |server| {
        let agent = "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)";
        assert_eq!(ask(server, "/", &[agent]).text(), "[1][][none]");
        assert_eq!(ask(server, "/", &["X: y"]).text(), "[][][TLSv9]");
        assert_eq!(ask(server, "/set", &[agent]).text(), "[mine][null][1]");
    });
    let fixed = site("map $uri $request_method { default GET; }").try_start().expect_err("fixed");
    assert!(fixed.stderr.contains("the duplicate \"request_method\" variable"), "{}", fixed.stderr);
}
