//! WordPress, as Debian has it, by PHP-FPM and with MariaDB: with the configuration that WordPress
//! recommends for nginx, and with a cache.

use nowait_testkit::{TempDir, wait};

use super::visitor::{Visitor, field};
use super::{Database, FpmPool, UPLOAD_BYTES, copy, has_mysqli, is_installed, open_up, site};
use crate::stage::DRIVERS;

/// What the site's configuration consists of, besides the cache.
const SITE: &str = "
    listen 127.0.0.1:%%PORT%%;
    server_name localhost;
    root %%ROOT%%;
    index index.php;
    client_max_body_size 200m;

    location = /favicon.ico { log_not_found off; access_log off; }
    location = /robots.txt { allow all; log_not_found off; access_log off; }
    location ~ /\\. { deny all; }
    location ~* /(?:uploads|files)/.*\\.php$ { deny all; }
    location / { try_files $uri $uri/ /index.php?$args; }
    location ~* \\.(js|css|png|jpg|jpeg|gif|ico)$ { expires max; log_not_found off; }
    location /protected/ { internal; }
    rewrite /wp-admin$ $scheme://$host:%%PORT%%$uri/ permanent;
";

/// PHP.
const PHP: &str = "
    location ~ \\.php$ {
        include fastcgi_params;
        fastcgi_intercept_errors on;
        fastcgi_pass php;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        %%CACHE%%
    }
";

/// Which visitors get pages of their own, those who have logged in or have commented: by `if`, as is usual,
/// and by `map`, as our documentation recommends. In `http`, and in the server.
const OWN: [(&str, &str); 2] = [
    (
        "",
        "set $skip_cache 0;
         if ($request_method = POST) { set $skip_cache 1; }
         if ($query_string != \"\") { set $skip_cache 1; }
         if ($request_uri ~* \"/wp-admin/|/wp-json/|/xmlrpc.php|wp-.*.php|/feed/|index.php|sitemap\") {
             set $skip_cache 1;
         }
         if ($http_cookie ~* \"comment_author|wordpress_[a-f0-9]+|wp-postpass|wordpress_logged_in\") {
             set $skip_cache 1;
         }",
    ),
    (
        "map $http_cookie $personal {
             default 0;
             ~(comment_author|wordpress_logged_in|wp-postpass) 1;
         }
         map $request_uri $skip_cache {
             default $personal;
             ~^/(wp-admin/|wp-json/|wp-[^/]*\\.php|xmlrpc\\.php) 1;
         }",
        "",
    ),
];

/// The cache for all others.
const CACHED: &str = "
    fastcgi_cache wordpress;
    fastcgi_cache_key $scheme$host$request_uri;
    fastcgi_cache_valid 200 60m;
    fastcgi_cache_bypass $skip_cache;
    fastcgi_no_cache $skip_cache;
    fastcgi_cache_purge $purge;
    fastcgi_cache_use_stale error timeout updating invalid_header http_500;
    fastcgi_cache_background_update on;
    fastcgi_cache_lock on;
    fastcgi_ignore_headers Cache-Control Expires Set-Cookie;
    add_header X-Cache $upstream_cache_status;
";

/// The database, and its user.
const STATEMENTS: &str = "CREATE DATABASE wordpress;\nCREATE USER app IDENTIFIED BY 'secret';\n\
                          GRANT ALL ON wordpress.* TO app;\n";

/// The site's files, and the pool that runs it. Each port has a site of its own.
fn wordpress(database: &Database) -> Option<(TempDir, FpmPool)> {
    let dir = TempDir::new("peers-wordpress");
    copy("/usr/share/wordpress", &dir.path().join("www"));
    let config = format!(
        "<?php
        define('DB_NAME', 'wordpress'); define('DB_USER', 'app'); define('DB_PASSWORD', 'secret');
        define('DB_HOST', 'localhost:{}'); define('DB_CHARSET', 'utf8mb4');
        define('WP_HOME', 'http://' . $_SERVER['HTTP_HOST']); define('WP_SITEURL', WP_HOME);
        define('WP_HTTP_BLOCK_EXTERNAL', true); define('DISABLE_WP_CRON', true);
        define('WP_DEFAULT_THEME', 'plain');
        foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {{
            define($name . '_KEY', $name . ' key'); define($name . '_SALT', $name . ' salt');
        }}
        $table_prefix = 'wp_' . $_SERVER['SERVER_PORT'] . '_';
        if (!defined('ABSPATH')) {{ define('ABSPATH', __DIR__ . '/'); }}
        require_once ABSPATH . 'wp-settings.php';",
        database.socket.display()
    );
    dir.write("www/wp-config.php", config);
    let theme = "www/wp-content/themes/plain";
    dir.write(&format!("{theme}/style.css"), "/*\nTheme Name: Plain\n*/");
    dir.write(
        &format!("{theme}/index.php"),
        "<!doctype html><title><?php bloginfo('name'); wp_title(); ?></title><?php
         if (is_user_logged_in()) { echo '<p>Hello, ', wp_get_current_user()->user_login; }
         while (have_posts()) { the_post(); the_title('<h1>', '</h1>'); the_content(); }
         if (is_404()) { echo '<p>There is no such page.'; }",
    );
    dir.write("www/wp-content/uploads/attack.php", "<?php echo 'run';");
    dir.write("www/.htaccess", "secret");
    dir.write("www/protected/report.txt", "the report");
    dir.write("www/download.php", "<?php header('X-Accel-Redirect: /protected/report.txt');");
    open_up(dir.path(), false);
    open_up(&dir.path().join("www/wp-content"), true);
    let pool = FpmPool::start(&dir, 4, true, "php_admin_value[memory_limit] = 256M")?;
    Some((dir, pool))
}

/// Whether everything is there; says what is missing.
fn is_complete() -> bool {
    is_installed("/usr/share/wordpress/wp-settings.php", "wordpress") && has_mysqli()
}

/// Installs the site and logs in.
fn install(visitor: &mut Visitor) {
    let page = visitor.visit("/");
    assert!(page.status == 200 && page.text().contains("weblog_title"), "{page}");
    let form = [
        ("weblog_title", "The site of the test"),
        ("user_name", "editor"),
        ("admin_password", "a secret of 1 test"),
        ("admin_password2", "a secret of 1 test"),
        ("admin_email", "editor@example.org"),
        ("language", ""),
        ("Submit", "Install WordPress"),
    ];
    let page = visitor.post("/wp-admin/install.php?step=2", &form);
    assert!(page.status == 200 && page.text().contains("Success!"), "{page}");
}

fn log_in(visitor: &mut Visitor) {
    assert_eq!(visitor.get("/wp-login.php").status, 200);
    let admin = format!("{}/wp-admin/", visitor.address());
    let form =
        [("log", "editor"), ("pwd", "wrong"), ("redirect_to", &admin[..]), ("testcookie", "1")];
    let page = visitor.post("/wp-login.php", &form);
    assert!(page.status == 200 && page.text().contains("is incorrect"), "{page}");
    let form = [form[0], ("pwd", "a secret of 1 test"), form[2], form[3]];
    let response = visitor.post("/wp-login.php", &form);
    assert_eq!((response.status, response.header("location")), (302, Some(&admin[..])));
    let page = visitor.follow(response);
    assert!(page.status == 200 && page.text().contains("Dashboard"), "{page}");
}

#[test]
fn wordpress_site() {
    if !is_complete() {
        return;
    }
    let Some(database) = Database::start(STATEMENTS) else { return };
    let Some((dir, pool)) = wordpress(&database) else { return };
    // Lines of text: WordPress looks into files.
    let upload: Vec<u8> = (0..UPLOAD_BYTES)
        .map(|n| if n % 64 == 63 { b'\n' } else { b'a' + (n / 7 * 31 % 26) as u8 })
        .collect();
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = site(&format!(
            "include mime.types;
             upstream php {{ server 127.0.0.1:{port}; }}\nserver {{ {SITE} {PHP} }}",
            port = pool.port
        ))
        .variable("ROOT", dir.path().join("www").display())
        .variable("CACHE", "")
        .driver(driver)
        .workers(2)
        .allow_log("access forbidden by rule")
        .allow_log("FastCGI sent in stderr")
        .start();
        let mut visitor = Visitor::of(&server);
        install(&mut visitor);
        log_in(&mut visitor);
        // The address without its last slash.
        let response = visitor.get("/wp-admin");
        let expected = format!("{}/wp-admin/", visitor.address());
        assert_eq!((response.status, response.header("location")), (301, Some(&expected[..])));
        // Permalinks.
        let page = visitor.get("/wp-admin/options-permalink.php");
        let nonce = field(&page.text(), "_wpnonce");
        let form = [
            ("_wpnonce", &nonce[..]),
            ("selection", "/%postname%/"),
            ("permalink_structure", "/%postname%/"),
            ("category_base", ""),
            ("tag_base", ""),
            ("submit", "Save Changes"),
        ];
        let response = visitor.post("/wp-admin/options-permalink.php", &form);
        let page = visitor.follow(response);
        assert!(page.text().contains("Permalink structure updated."), "{page}");
        let page = visitor.get("/hello-world/");
        assert!(page.status == 200 && page.text().contains("<h1>Hello world!</h1>"), "{page}");
        let response = visitor.get("/hello-world");
        assert_eq!(response.status, 301, "{response}");
        let page = visitor.get("/none/at/all/");
        assert!(page.status == 404 && page.text().contains("There is no such page."), "{page}");
        let found = visitor.get("/?s=hello").text();
        assert!(found.contains("<h1>Hello world!</h1>"), "{found}");
        let posts = visitor.get("/wp-json/wp/v2/posts?per_page=1");
        let posts: serde_json::Value = serde_json::from_slice(&posts.body).unwrap();
        assert_eq!(posts[0]["slug"], "hello-world");
        let call = "<?xml version=\"1.0\"?><methodCall><methodName>demo.sayHello</methodName></methodCall>";
        let said =
            visitor.request("POST", "/xmlrpc.php", "Content-Type: text/xml\r\n", call.as_bytes());
        assert!(said.text().contains("Hello!"), "{said}");
        // An upload, and what the site then has.
        let page = visitor.get("/wp-admin/media-new.php");
        let nonce = field(&page.text(), "_wpnonce");
        let fields = [("_wpnonce", &nonce[..]), ("action", "upload-attachment")];
        let file = ("async-upload", "lines.txt", &upload[..]);
        let response = visitor.upload("/wp-admin/async-upload.php", &fields, file);
        let media: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(media["success"], true, "{media}");
        let url = media["data"]["url"].as_str().unwrap().to_owned();
        let response = visitor.visit(url.strip_prefix(&visitor.address()).unwrap());
        assert_eq!(response.header("content-type"), Some("text/plain"));
        assert!(response.body == upload);
        // Files, and paths that do not exist.
        let script = visitor.get("/wp-includes/js/wp-embed.min.js");
        assert_eq!(
            (script.status, script.header("cache-control")),
            (200, Some("max-age=315360000"))
        );
        for (target, status, text) in [
            ("/favicon.ico", 404, "404 Not Found"),
            ("/.htaccess", 403, "403 Forbidden"),
            ("/wp-content/uploads/attack.php", 403, "403 Forbidden"),
            ("/wp-config.php", 200, ""),
            ("/download.php", 200, "the report"),
            ("/protected/report.txt", 404, "404 Not Found"),
        ] {
            let response = visitor.get(target);
            assert_eq!(response.status, status, "{target}: {response}");
            assert!(response.text().contains(text), "{target}: {response}");
        }
        server.stop();
    }
}

#[test]
fn wordpress_behind_a_cache() {
    if !is_complete() {
        return;
    }
    let Some(database) = Database::start(STATEMENTS) else { return };
    let Some((dir, mut pool)) = wordpress(&database) else { return };
    for (driver, (http, own)) in DRIVERS.into_iter().zip(OWN) {
        eprintln!("driver: {driver:?}");
        let server = site(&format!(
            "include mime.types;
             fastcgi_cache_path %%DIR%%/cache levels=1:2 keys_zone=wordpress:1m inactive=60m;
             map $request_method $purge {{ PURGE 1; default 0; }}
             {http}
             upstream php {{ server 127.0.0.1:{port}; }}
             server {{ {SITE} {own} {PHP}
                 # \"index\" is for GET, HEAD and POST, not for PURGE.
                 location = / {{ rewrite ^ /index.php last; }}
             }}",
            port = pool.port
        ))
        .variable("ROOT", dir.path().join("www").display())
        .variable("CACHE", CACHED)
        .driver(driver)
        .workers(2)
        .allow_log("FastCGI sent in stderr")
        .allow_log("upstream")
        .start();
        let mut editor = Visitor::of(&server);
        install(&mut editor);
        log_in(&mut editor);
        let posts = editor.get("/wp-json/wp/v2/posts");
        assert_eq!(posts.header("x-cache"), Some("BYPASS"));
        let posts: serde_json::Value = serde_json::from_slice(&posts.body).unwrap();
        let link = posts[0]["link"].as_str().unwrap().strip_prefix(&editor.address()).unwrap();
        let mut visitor = Visitor::of(&server);
        let stored = |visitor: &mut Visitor, target: &str| {
            let page = visitor.get(target);
            assert_eq!((page.status, page.header("x-cache")), (200, Some("MISS")), "{target}");
            // The page has arrived before it is stored.
            wait::until("a hit", wait::PATIENCE, || {
                (visitor.get(target).header("x-cache") == Some("HIT")).then_some(())
            });
        };
        // WordPress has asked for the page itself, to see whether such addresses work.
        assert_eq!(visitor.request("PURGE", link, "", b"").status, 204);
        for target in ["/", link] {
            stored(&mut visitor, target);
            let own = editor.get(target);
            assert_eq!((own.status, own.header("x-cache")), (200, Some("BYPASS")), "{target}");
            assert!(own.text().contains("Hello, editor"), "{own}");
            let page = visitor.get(target);
            assert_eq!(page.header("x-cache"), Some("HIT"));
            assert!(!page.text().contains("Hello, editor"), "{page}");
        }
        // The author of a comment sees it at once, although it is not yet public.
        let post = posts[0]["id"].to_string();
        let form = [
            ("comment_post_ID", &post[..]),
            ("author", "Anna"),
            ("email", "anna@example.org"),
            ("comment", "A comment."),
            ("wp-comment-cookies-consent", "yes"),
        ];
        let mut author = Visitor::of(&server);
        assert_eq!(author.post("/wp-comments-post.php", &form).status, 302);
        assert_eq!(author.get(link).header("x-cache"), Some("BYPASS"));
        // What was changed is purged.
        let purged = visitor.request("PURGE", link, "", b"");
        assert_eq!((purged.status, purged.header("x-purged")), (204, Some("1")));
        assert_eq!(visitor.request("PURGE", link, "", b"").status, 404);
        stored(&mut visitor, link);
        let purged = visitor.request("PURGE", "/*", "", b"");
        assert_eq!((purged.status, purged.header("x-purged")), (204, Some("2")));
        for target in ["/", link] {
            stored(&mut visitor, target);
        }
        assert_eq!(visitor.request("PURGE", "/", "", b"").status, 204);
        // What is stored is served without PHP.
        pool.fpm.end();
        assert_eq!(visitor.get(link).header("x-cache"), Some("HIT"));
        assert_eq!(editor.get(link).status, 502);
        server.stop();
        pool.restart();
    }
}
