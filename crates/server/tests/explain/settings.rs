//! The settings that apply, what the result depends on, and ports of `stream`.

use super::Site;

/// Settings in all blocks, and a port of `stream`.
const SETTINGS: &str = r#"error_log DIR/error.log;
events {}
stream {
    upstream db { server 127.0.0.1:1; server 127.0.0.1:2 backup; }
    server { listen 18081; listen [::1]:18081; proxy_pass db; }
    server { listen 18082 udp; proxy_pass 127.0.0.1:1; }
    server { listen 18083; return "$remote_addr"; }
    server { listen 18083; server_name b.test; pass 127.0.0.1:18080; }
}
http {
    sendfile on;
    aio threads;
    default_type text/plain;
    gzip on;
    keepalive_timeout 65;
    server_tokens off;
    ssl_protocols TLSv1.3;
    proxy_read_timeout 5s;
    fastcgi_read_timeout 6s;
    add_header X-Outer o;
    server {
        listen 18080;
        root DIR/www;
        client_max_body_size 8m;
        open_file_cache max=100;
        access_log off;
        charset utf-8;
        location / {
            add_header X-Inner i;
            resident_files off;
            directio 4m;
            expires 1h;
            error_page 404 /index.html;
            limit_rate 10k;
        }
        location /merged/ {
            add_header_inherit merge;
            add_header X-Inner i;
            sendfile off;
            alias DIR/www/;
            proxy_pass http://127.0.0.1:1;
        }
        location /page/ { ssi on; types { text/html txt; } alias DIR/www/docs/; }
        location /asked/ { auth_request /auth; alias DIR/www/docs/; }
        location = /auth { internal; proxy_pass http://127.0.0.1:1; }
    }
}
"#;

fn of_settings() -> Site {
    let site = Site::new();
    let path = site.0.path().to_str().unwrap();
    site.0.write("n.conf", SETTINGS.replace("DIR", path));
    site
}

#[test]
fn settings_are_those_that_are_written() {
    let site = of_settings();
    let settings = |url: &str| {
        let value = site.json(&[url]);
        let list = value["settings"].as_array().unwrap().iter().map(|setting| {
            let directive = setting["directive"].as_str().unwrap();
            let directive = directive.replace(site.0.path().to_str().unwrap(), "");
            format!("{} {directive} {}", setting["module"].as_str().unwrap(), setting["line"])
        });
        list.collect::<Vec<_>>()
    };
    let mut expected = vec![
        "core root /www; 23",
        "core aio threads; 12",
        "core sendfile on; 11",
        "core default_type text/plain; 13",
        "core keepalive_timeout 65; 15",
        "core server_tokens off; 16",
        "core client_max_body_size 8m; 24",
        "core open_file_cache max=100; 25",
        "core resident_files off; 30",
        "core directio 4m; 31",
        "core error_page 404 /index.html; 33",
        "core limit_rate 10k; 34",
        "log error_log /error.log; 1",
        "log access_log off; 26",
        "headers add_header X-Inner i; 29",
        "headers expires 1h; 32",
        "charset charset utf-8; 27",
        "gzip gzip on; 14",
    ];
    let mut found = settings("http://a:18080/x");
    found.sort();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let merged = settings("http://a:18080/merged/x");
    let has = |line: &str| merged.iter().any(|found| found == line);
    assert!(has("headers add_header X-Inner i; 38") && has("headers add_header X-Outer o; 20"));
    assert!(has("core sendfile off; 39") && !has("core sendfile on; 11"), "{merged:?}");
    assert!(has("core alias /www/; 40") && !has("core root /www; 23"), "{merged:?}");
    // Only where requests are passed by it.
    assert!(has("proxy proxy_read_timeout 5s; 18"), "{merged:?}");
    assert!(!merged.iter().any(|line| line.contains("fastcgi_")), "{merged:?}");
    let value = site.json(&["http://a:18080/x"]);
    let main = site.0.path().join("n.conf");
    assert_eq!(value["configuration"], main.to_str().unwrap());
    assert_eq!(value["settings"][0]["file"], main.to_str().unwrap());
    site.says(
        &["http://a:18080/page/a.txt"],
        &[
            "config     /n.conf; places are relative to its directory\n",
            "types { ... }  n.conf:43\n",
        ],
    );
}

#[test]
fn ports_of_stream_are_named() {
    let site = of_settings();
    for (url, expected) in [
        (
            "http://a:18081/",
            "port 18081 belongs to a server of \"stream\" in /n.conf:5, which passes connections to \
             \"db\" (servers 127.0.0.1:1, 127.0.0.1:2); only requests to servers of \"http\"",
        ),
        ("http://[::1]:18081/", "a server of \"stream\" in /n.conf:5"),
        (
            "https://192.0.2.1:18083/",
            "the default of 2 servers of \"stream\" in /n.conf:7, which sends \"$remote_addr\";",
        ),
        // TCP is meant.
        ("http://a:18082/", "no socket accepts connections to port 18082"),
    ] {
        let (success, out, said) = site.run(&[url]);
        let said = said.replace(site.0.path().to_str().unwrap(), "");
        assert!(!success && out.is_empty() && said.contains(expected), "{url}: {said}");
    }
}

#[test]
fn what_the_result_depends_on_is_said() {
    let site = of_settings();
    site.says(
        &["http://a:18080/asked/a.txt"],
        &[
            "auth_request: the response is not known; 2xx grants access",
            "response   200\n           only if auth_request \"/auth\" gets 2xx, which is not known\n",
        ],
    );
    site.says(
        &["http://a:18080/page/a.txt"],
        &["response   200\n           the body depends on its SSI commands, which are neither read"],
    );
    let conditions = |url: &str| site.json(&[url])["conditions"].as_array().unwrap().len();
    assert_eq!(conditions("http://a:18080/asked/a.txt"), 1);
    assert_eq!(conditions("http://a:18080/x"), 0);
}
