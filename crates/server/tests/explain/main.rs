//! `nowait explain`: what a request would meet.

mod agreement;
mod settings;

use nowait_testkit::{Binary, TempDir};
use serde_json::Value;

const CONFIGURATION: &str = r"events {}
http {
    access_log DIR/access.log;
    error_log syslog:server=127.0.0.1:1;
    limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;
    add_header X-Http h;
    upstream app { server 127.0.0.1:1; server 127.0.0.1:2 backup; }
    server { listen 18080 default_server; return 444; }
    server {
        listen 18080;
        server_name example.org *.example.net ~^api\d+\.test$;
        root DIR/www;
        set $who nobody;
        rewrite ^/old/(.*)$ /docs/$1 permanent;
        location / {
            try_files $uri $uri/ @app;
        }
        location /docs/ {
            expires 1h;
            error_page 404 /index.html;
        }
        location ~ \.html$ { add_header X-Regex yes; limit_req zone=one; }
        location ~ \.ht { }
        location ^~ /img/ { location /img/a/ { location ~ x { } } }
        location = /exact { return 200 ok; }
        location /api/ {
            if ($arg_x) { set $who $arg_x; add_header X-If 1; }
            if (!-f $document_root/index.html) { return 503; }
            deny 10.0.0.0/8;
            proxy_set_header Host $host;
            proxy_set_header X-Who $who;
            proxy_pass http://app/v1/;
        }
        location ~ \.php$ {
            fastcgi_pass 127.0.0.1:1;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }
        location @app { proxy_pass http://app; }
        location /sec/ { satisfy any; deny all; auth_basic x; auth_basic_user_file DIR/pw; }
        location /go/ { rewrite ^/go/(.*)$ /api/$1?y=1 last; }
        location /loop/ { rewrite ^ /loop/x last; }
        location /in/ { internal; }
        location /put/ { dav_methods PUT; limit_except GET { deny all; } }
        location /dirs/ { try_files $uri/ =404; }
    }
}
";

struct Site(TempDir);

impl Site {
    fn new() -> Site {
        let dir = TempDir::new("explain");
        let path = dir.path().to_str().unwrap().to_owned();
        dir.write("n.conf", CONFIGURATION.replace("DIR", &path));
        std::fs::create_dir_all(dir.path().join("www/docs")).unwrap();
        std::fs::create_dir_all(dir.path().join("www/dirs")).unwrap();
        dir.write("www/index.html", "index");
        dir.write("www/dirs/f", "f");
        dir.write("www/docs/a.txt", "a");
        dir.write("pw", "u:{PLAIN}p\n");
        Site(dir)
    }

    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let binary = Binary::nowait(env!("CARGO_BIN_EXE_nowait"));
        let file = self.0.path().join("n.conf");
        let mut command = binary.command();
        command.args(["explain", "-c"]).arg(file).args(arguments);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (success, out, said) = self.run(&[arguments, &["--json"]].concat());
        assert!(success, "{said}");
        serde_json::from_str(&out).unwrap()
    }

    /// The text, with the directory left out.
    fn text(&self, arguments: &[&str]) -> String {
        let (success, out, said) = self.run(arguments);
        assert!(success, "{said}");
        out.replace(self.0.path().to_str().unwrap(), "")
    }
}

/// The status of the response; `None`: an upstream server decides.
fn status(value: &Value) -> Option<u64> {
    value["end"]["status"].as_u64()
}

/// The last location.
fn location(value: &Value) -> (String, u64) {
    let steps = value["steps"].as_array().unwrap().iter();
    let last = steps.rev().find(|step| step["about"] == "location").unwrap();
    (last["text"].as_str().unwrap().to_owned(), last["line"].as_u64().unwrap())
}

#[test]
fn servers_are_chosen_with_a_reason() {
    let site = Site::new();
    for (host, line, reason) in [
        ("example.org", 9, "because of the exact name \"example.org\""),
        ("a.example.net", 9, "because of the name with a wildcard \"*.example.net\""),
        ("api7.test", 9, "because of the regular expression \"~^api\\d+\\.test$\""),
        ("api.test", 8, "as the default server: no server has the name \"api.test\""),
    ] {
        let value = site.json(&[&format!("http://{host}:18080/exact")]);
        let server = &value["server"];
        assert_eq!((&server["line"], &server["reason"]), (&line.into(), &reason.into()));
        assert_eq!(value["end"]["kind"], if line == 8 { "closed" } else { "response" });
    }
    // A field of the request decides, as for the server.
    let value = site.json(&["-H", "Host: example.org", "http://127.0.0.1:18080/"]);
    assert_eq!(value["server"]["line"], 9);
    let (success, _, said) = site.run(&["http://example.org/"]);
    assert!(!success);
    assert!(said.contains("no socket accepts connections to port 80"), "{said}");
    let (success, _, said) = site.run(&["example.org"]);
    assert!(!success && said.contains("expected http://, https:// or a path"), "{said}");
}

#[test]
fn locations_are_chosen_and_others_are_named() {
    let site = Site::new();
    for (path, name, line, others) in [
        ("/docs/x", "location \"/docs/\"", 18, &["location / its prefix is shorter"][..]),
        (
            "/docs/x.ht",
            "location \"\\.ht\"",
            23,
            &[
                "location / a regular expression matches, which precedes prefixes without ^~",
                "location /docs/ a regular expression matches, which precedes prefixes without ^~",
            ],
        ),
        (
            "/img/x.html",
            "location \"/img/\"",
            24,
            &[
                "location / its prefix is shorter",
                "location ~ \\.html$ the chosen prefix has ^~: regular expressions are not tried",
                "location ~ \\.ht the chosen prefix has ^~: regular expressions are not tried",
            ],
        ),
        ("/exact", "location \"/exact\"", 25, &["location / an exact match ends the search"]),
        (
            "/img/a/x",
            "location \"x\"",
            24,
            &["location / a regular expression matches, which precedes prefixes without ^~"],
        ),
    ] {
        let value = site.json(&[&format!("http://example.org:18080{path}")]);
        let steps = value["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["about"] == "location").unwrap();
        assert_eq!((&step["text"], &step["line"]), (&name.into(), &line.into()), "{path}");
        let found = step["others"].as_array().unwrap().iter().map(|other| {
            format!("{} {}", other["location"].as_str().unwrap(), other["reason"].as_str().unwrap())
        });
        assert_eq!(found.collect::<Vec<_>>(), others, "{path}");
    }
}

#[test]
fn rewriting_runs_to_its_end() {
    let site = Site::new();
    let text = site.text(&["http://example.org:18080/go/a%20b?x=1"]);
    for expected in [
        "set: the value is \"nobody\"  n.conf:13",
        "rewrite: \"^/go/(.*)$\" matches: /go/a b?x=1 becomes /api/a b?y=1&x=1  n.conf:40",
        "location   location \"/api/\"  n.conf:26",
        "if: the condition holds  n.conf:27",
        "set: the value is \"1\"  n.conf:27",
        "if: the condition does not hold for \"/www/index.html\"  n.conf:28",
        "passes the request to http://app (servers 127.0.0.1:1, 127.0.0.1:2)  n.conf:32",
        "URI /v1/a%20b?y=1&x=1  n.conf:32",
        "Host: example.org  n.conf:32",
        "X-Who: 1  n.conf:32",
        "X-If: 1\n",
        "access       deny 10.0.0.0/8;  n.conf:29",
        "proxy_pass http://app/v1/;  n.conf:32",
        "Not judged: ",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let value = site.json(&["http://example.org:18080/old/x"]);
    let moved = value["end"]["fields"].as_array().unwrap().iter();
    let moved = moved.filter(|field| field["name"] == "Location").map(|field| &field["value"]);
    assert_eq!(moved.collect::<Vec<_>>(), ["/docs/x"]);
    let value = site.json(&["http://example.org:18080/loop/x"]);
    assert_eq!(status(&value), Some(500));
}

#[test]
fn files_are_looked_up_in_order() {
    let site = Site::new();
    let value = site.json(&["http://example.org:18080/"]);
    let files: Vec<_> = value["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| step["about"] == "file")
        .map(|step| {
            let text = step["text"].as_str().unwrap();
            let text = text.replace(site.0.path().to_str().unwrap(), "");
            (text, step["line"].as_u64())
        })
        .collect();
    assert_eq!(
        files,
        [
            ("\"/www/\" is a directory, not a file".to_owned(), Some(16)),
            ("\"/www/\" exists".to_owned(), Some(16)),
            ("\"/www/index.html\" exists".to_owned(), None),
            ("\"/www/index.html\" exists".to_owned(), Some(12)),
        ]
    );
    assert_eq!((status(&value), location(&value).1), (Some(200), 22));
    let text = site.text(&["http://example.org:18080/dirs/f"]);
    let expected = "\"/www/dirs/f\" is a file, not a directory  n.conf:44";
    assert!(text.contains(expected), "{text}");
    let value = site.json(&["http://example.org:18080/missing"]);
    assert_eq!((status(&value), value["end"]["kind"].as_str()), (None, Some("upstream")));
    assert_eq!(location(&value), ("location \"@app\"".to_owned(), 38));
    // An error page keeps the status.
    let value = site.json(&["http://example.org:18080/docs/none"]);
    assert_eq!((status(&value), location(&value).1), (Some(404), 22));
    let text = site.text(&["http://example.org:18080/a.php"]);
    assert!(text.contains("SCRIPT_FILENAME: /www/a.php  n.conf:35"), "{text}");
}

#[test]
fn access_rules_decide() {
    let site = Site::new();
    let url = "http://example.org:18080/api/";
    assert_eq!(status(&site.json(&["--from", "10.1.1.1", url])), Some(403));
    assert_eq!(status(&site.json(&["--from", "192.0.2.1", url])), None);
    let url = "http://example.org:18080/sec/";
    assert_eq!(status(&site.json(&[url])), Some(401));
    // u:p; the directory has no index.
    let authorized = site.json(&["-H", "Authorization: Basic dTpw", url]);
    assert_eq!(status(&authorized), Some(404));
    assert_eq!(status(&site.json(&["http://example.org:18080/in/x"])), Some(404));
    let value = site.json(&["-X", "PUT", "http://example.org:18080/put/x"]);
    assert_eq!(status(&value), Some(403));
    assert_eq!(status(&site.json(&["-X", "TRACE", "http://example.org:18080/"])), Some(405));
}

#[test]
fn nothing_is_sent_and_nothing_written() {
    let site = Site::new();
    let before = |dir: &TempDir| {
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let names = before(&site.0);
    // A server that would notice.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let path = site.0.path().to_str().unwrap();
    site.0.write(
        "n.conf",
        CONFIGURATION.replace("DIR", path).replace("127.0.0.1:1;", &format!("127.0.0.1:{port};")),
    );
    for arguments in [
        &["http://example.org:18080/api/"][..],
        &["-X", "PUT", "http://example.org:18080/a.php"],
        &["http://example.org:18080/missing"],
        // Control characters do not reach the terminal.
        &["http://example.org:18080/docs/%1b%5b31m"],
    ] {
        let text = site.text(arguments);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let accepted = listener.accept().unwrap_err();
    assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(before(&site.0), names);
}

#[test]
fn a_broken_configuration_is_shown() {
    let site = Site::new();
    site.0.write("n.conf", "http { server { lisen 80; } }");
    let (success, out, said) = site.run(&["http://a/"]);
    assert!(!success && out.is_empty());
    assert!(said.starts_with("nowait: [emerg] unknown directive \"lisen\""), "{said}");
    assert!(!said.ends_with("\n\n"), "{said}");
}

const MODULES: &str = r"events {}
http {
    limit_req_zone $binary_remote_addr zone=one:1m rate=30r/m;
    limit_conn_zone $arg_key zone=key:1m;
    proxy_cache_path DIR/cache keys_zone=c:1m;
    upstream app { server 127.0.0.1:1; }
    server {
        listen 18080;
        root DIR/www;
        types { text/html html; }
        location / {
            limit_req zone=one burst=10 delay=5;
            limit_conn key 2;
            limit_rate 10k; limit_rate_after 1m;
            add_before_body /head;
            add_after_body /foot;
            ssi on;
        }
        location = /head { return 200 h; }
        location = /foot { proxy_pass http://app; }
        location /rules/ {
            satisfy any;
            allow 10.0.0.0/8;
            deny all;
            auth_basic x; auth_basic_user_file DIR/pw;
            limit_except GET { deny 10.0.0.1; }
        }
        location /yes/ { auth_request /auth/200; auth_request_set $who $sent_http_content_type; proxy_pass http://app; proxy_set_header X-Who $who; }
        location /no/ { auth_request /auth/403; }
        location /odd/ { auth_request /auth/302; }
        location /asked/ { auth_request /auth/app; mirror /copy; return 200; }
        location = /auth/200 { default_type text/who; return 200 x; }
        location = /auth/403 { return 403; }
        location = /auth/302 { return 302 /; }
        location = /auth/app { internal; proxy_pass http://app/check; }
        location = /copy { internal; proxy_pass http://127.0.0.1:2; }
        location /mirrored/ { mirror /copy; post_action @after; proxy_pass http://app; }
        location @after { proxy_pass http://127.0.0.1:3; }
        location /cached/ {
            proxy_cache c;
            proxy_cache_key $host$uri;
            proxy_cache_bypass $cookie_a $http_x_now;
            proxy_no_cache $http_x_now;
            proxy_cache_valid 200 301 10m;
            proxy_cache_valid any 1m;
            proxy_cache_purge PURGE from 10.0.0.0/8;
            limit_req zone=one fetches;
            proxy_pass http://app;
        }
    }
}
";

fn of_modules() -> Site {
    let site = Site::new();
    let path = site.0.path().to_str().unwrap();
    site.0.write("n.conf", MODULES.replace("DIR", path));
    site
}

impl Site {
    /// The text contains these lines, in this order.
    fn says(&self, arguments: &[&str], expected: &[&str]) {
        let text = self.text(arguments);
        let mut rest = &text[..];
        for line in expected {
            let at = rest.find(line).unwrap_or_else(|| panic!("{line} in {text}"));
            rest = &rest[at + line.len()..];
        }
    }
}

#[test]
fn limits_show_their_zones_and_keys() {
    let site = of_modules();
    site.says(
        &["/index.html?key=a%20b"],
        &[
            "limit      limit_req: up to 10 requests above the rate are delayed from 5 on; more get 503  n.conf:12\n",
            "zone \"one\": 30r/m for each value of \"$binary_remote_addr\", here \"\\x7f\\x00\\x00\\x01\"  n.conf:3\n",
            "limit      limit_conn: requests beyond 2 at a time get 503  n.conf:13\n",
            "zone \"key\": for each value of \"$arg_key\", here \"a%20b\"  n.conf:4\n",
            "limit_rate: 10k per second after the first 1m  n.conf:14\n",
        ],
    );
    site.says(&["/"], &["\"$arg_key\", which is empty or too long: the request is not limited"]);
    // An internal redirect does not count again.
    let text = site.text(&["/"]);
    assert_eq!(text.matches("limit_req: counts each request once, and did already").count(), 1);
}

#[test]
fn the_deciding_rule_is_shown() {
    let site = of_modules();
    let allowed = ["--from", "10.1.1.1", "/rules/x"];
    let passed = "the check is passed (satisfy any: no other check is needed)  n.conf:23\n";
    let rule = "allow: this rule is the first that matches 10.1.1.1  n.conf:23\n";
    site.says(&allowed, &[rule, passed]);
    assert!(!site.text(&allowed).contains("auth_basic: realm"));
    site.says(
        &["/rules/x", "-H", "Authorization: Basic dTp4"],
        &[
            "deny: this rule is the first that matches 127.0.0.1  n.conf:24\n",
            "responds with 403, unless another check is passed (satisfy any)  n.conf:24\n",
            "auth_basic: realm \"x\", user \"u\"  n.conf:25\n",
            "responds with 401, unless another check is passed (satisfy any)  n.conf:25\n",
            "no check is passed: responds with 401  n.conf:22\n",
        ],
    );
    site.says(
        &["-X", "PUT", "--from", "10.0.0.1", "/rules/x"],
        &[
            "limit_except: its settings apply to PUT  n.conf:26\n",
            "deny: this rule is the first that matches 10.0.0.1  n.conf:26\n",
        ],
    );
    site.says(
        &["-X", "PUT", "--from", "10.0.0.2", "/rules/x"],
        &["no rule matches 10.0.0.2: it is not refused  n.conf:26\n"],
    );
}

#[test]
fn subrequests_are_followed() {
    let site = of_modules();
    site.says(
        &["/yes/x"],
        &[
            "subrequest auth_request: asks \"/auth/200\"  n.conf:28\n",
            "location     location \"/auth/200\"  n.conf:32\n",
            "rewrite      return: responds with 200  n.conf:32\n",
            "subrequest   responds with 200\n",
            "access     the check is passed  n.conf:28\n",
            "upstream   X-Who: text/who  n.conf:28\n",
        ],
    );
    assert_eq!(status(&site.json(&["/no/x"])), Some(403));
    assert_eq!(status(&site.json(&["/odd/x"])), Some(500));
    let asked = site.json(&["/asked/x"]);
    assert_eq!(status(&asked), Some(200), "return precedes access checks");
    site.says(
        &["/mirrored/x?y"],
        &[
            "subrequest mirror: a copy goes to \"/copy\" in the background  n.conf:37\n",
            "upstream     passes the request to http://127.0.0.1:2  n.conf:36\n",
            "upstream   passes the request to http://app (servers 127.0.0.1:1)  n.conf:37\n",
            "subrequest post_action: after the response, in the background  n.conf:37\n",
            "location     location \"@after\"  n.conf:38\n",
        ],
    );
    site.says(
        &["/index.html"],
        &[
            "subrequest add_before_body: \"/head\" precedes the body  n.conf:15\n",
            "subrequest   responds with 200\n",
            "subrequest add_after_body: \"/foot\" follows the body  n.conf:16\n",
            "subrequest   the response is the upstream server's\n",
            "filter     ssi: commands in the body are executed, each include by a subrequest  n.conf:17\n",
        ],
    );
    // Nothing is added to other types.
    assert!(!site.text(&["/dirs/f"]).contains("add_before_body: "));
    let depths = site.json(&["/index.html"]);
    let depths = depths["steps"].as_array().unwrap().iter().map(|step| step["depth"].as_u64());
    assert!(depths.clone().any(|depth| depth == Some(1)) && depths.max() == Some(Some(1)));
}

#[test]
fn caches_show_key_and_conditions() {
    let site = of_modules();
    site.says(
        &["/cached/x", "-H", "X-Now: yes"],
        &[
            "cache      proxy_cache: zone \"c\" in \"/cache\"  n.conf:40\n",
            "cache      key \"localhost/cached/x\"  n.conf:41\n",
            "proxy_cache_bypass: \"yes\" is neither empty nor \"0\", so the cache is not searched  n.conf:42\n",
            "proxy_no_cache: \"yes\" is neither empty nor \"0\", so the response is not stored  n.conf:43\n",
            "proxy_cache_valid: 200, 301 for 10m; any for 1m, unless the response says otherwise  n.conf:44\n",
            "limit      limit_req: requests to upstream servers above the rate get 503  n.conf:47\n",
        ],
    );
    site.says(&["/cached/x"], &["proxy_cache_bypass: does not hold, as far as the request tells"]);
    let text = site.text(&["-X", "POST", "/cached/x"]);
    assert!(text.contains("POST is neither answered from the cache nor stored"), "{text}");
    assert!(!text.contains("proxy_cache_bypass: "), "{text}");
    site.says(
        &["-X", "PURGE", "/cached/x"],
        &["proxy_cache_purge: the request may not purge: 403  n.conf:46\n"],
    );
    let purge = ["-X", "PURGE", "--from", "10.0.0.1", "/cached/x"];
    site.says(&purge, &["proxy_cache_purge: the request purges this key  n.conf:46\n"]);
}
