//! phpMyAdmin, as Debian has it, below a path of a site: by PHP-FPM and with MariaDB.

use std::fmt::Write as _;

use nowait_testkit::TempDir;

use super::visitor::{Visitor, field};
use super::{Database, FpmPool, copy, has_mysqli, is_installed, open_up, site};
use crate::stage::DRIVERS;

/// The site's configuration.
const SITE: &str = "
    listen 127.0.0.1:%%PORT%%;
    server_name localhost;
    client_max_body_size 200m;

    location /phpmyadmin {
        root %%ROOT%%;
        index index.php;
        location ~ ^/phpmyadmin/(?:libraries|templates|sql)/ { deny all; }
        location ~ ^/phpmyadmin/(.+\\.php)$ {
            try_files $uri =404;
            fastcgi_pass 127.0.0.1:%%PHP%%;
            fastcgi_index index.php;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            include fastcgi_params;
        }
        location ~* ^/phpmyadmin/(.+\\.(jpg|jpeg|gif|css|png|js|ico|html|xml|txt))$ { expires 1h; }
    }
    location /phpMyAdmin { rewrite ^/* /phpmyadmin last; }
";

/// The files, and the pool that runs them.
fn phpmyadmin(database: &Database) -> Option<(TempDir, FpmPool)> {
    let dir = TempDir::new("peers-phpmyadmin");
    let (root, own) = (dir.path().join("share/phpmyadmin"), dir.path().display());
    std::fs::create_dir(dir.path().join("share")).unwrap();
    copy("/usr/share/phpmyadmin", &root);
    // Where the package looks for its configuration.
    let vendor = root.join("libraries/vendor_config.php");
    let text = std::fs::read_to_string(&vendor).unwrap();
    let text = text
        .replace("/etc/phpmyadmin/config.inc.php", &format!("{own}/config.inc.php"))
        .replace("/var/lib/phpmyadmin/tmp/", &format!("{own}/tmp/"));
    std::fs::write(&vendor, text).unwrap();
    let config = format!(
        "<?php
        $cfg['blowfish_secret'] = '{}';
        $cfg['Servers'][1] = ['auth_type' => 'cookie', 'host' => 'localhost', 'socket' => '{}'];
        $cfg['SendErrorReports'] = 'never'; $cfg['TempDir'] = '{own}/tmp';",
        "0123456789abcdef".repeat(2),
        database.socket.display()
    );
    dir.write("config.inc.php", config);
    open_up(dir.path(), false);
    let lines = format!("php_admin_value[session.save_path] = {own}/tmp");
    let pool = FpmPool::start(&dir, 2, true, &lines)?;
    Some((dir, pool))
}

#[test]
fn phpmyadmin_below_a_path() {
    if !is_installed("/usr/share/phpmyadmin/index.php", "phpmyadmin") || !has_mysqli() {
        return;
    }
    let statements = "CREATE USER admin IDENTIFIED BY 'secret';\nGRANT ALL ON *.* TO admin;\n";
    let Some(mariadb) = Database::start(statements) else { return };
    let Some((dir, pool)) = phpmyadmin(&mariadb) else { return };
    for (driver, database) in DRIVERS.into_iter().zip(["first", "second"]) {
        eprintln!("driver: {driver:?}");
        let server = site(&format!("include mime.types;\nserver {{ {SITE} }}"))
            .variable("ROOT", dir.path().join("share").display())
            .variable("PHP", pool.port)
            .driver(driver)
            .allow_log("access forbidden by rule")
            .start();
        let mut visitor = Visitor::of(&server);
        let response = visitor.get("/phpmyadmin");
        let expected = format!("{}/phpmyadmin/", visitor.address());
        assert_eq!((response.status, response.header("location")), (301, Some(&expected[..])));
        // The form, a wrong password, the right one.
        for (password, text) in [("wrong", "Access denied for user"), ("secret", "Database server")]
        {
            let page = visitor.get("/phpmyadmin/").text();
            let (token, session) = (field(&page, "token"), field(&page, "set_session"));
            let form = [
                ("set_session", &session[..]),
                ("pma_username", "admin"),
                ("pma_password", password),
                ("server", "1"),
                ("route", "/"),
                ("token", &token),
            ];
            let response = visitor.post("/phpmyadmin/index.php?route=/", &form);
            let page = visitor.follow(response);
            assert!(page.status == 200 && page.text().contains(text), "{password}: {page}");
        }
        let page = visitor.get("/phpmyadmin/index.php?route=/server/import").text();
        let token = field(&page, "token");
        // An import, and what the database then has.
        let mut dump = format!("CREATE DATABASE {database};\nUSE {database};\n");
        dump += "CREATE TABLE numbers (n INT PRIMARY KEY, text VARCHAR(100));\n";
        dump += &format!("-- {}\n", "a comment ".repeat(20)).repeat(5000);
        for n in 0..200 {
            // Writing to a string cannot fail.
            let _ = writeln!(dump, "INSERT INTO numbers VALUES ({n}, 'the number {n}');");
        }
        let form = [
            ("token", &token[..]),
            ("server", "1"),
            ("import_type", "server"),
            ("format", "sql"),
            ("charset_of_file", "utf-8"),
            ("noplugin", "6b04bab843f98"),
            ("ajax_request", "true"),
        ];
        let file = ("import_file", "dump.sql", dump.as_bytes());
        let response = visitor.upload("/phpmyadmin/index.php?route=/import", &form, file);
        let answer: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(answer["success"], true, "{answer}");
        let query = "SELECT CONCAT('sum: ', SUM(n)) FROM numbers";
        let form = [
            ("token", &token[..]),
            ("server", "1"),
            ("db", database),
            ("sql_query", query),
            ("ajax_request", "true"),
        ];
        let response = visitor.post("/phpmyadmin/index.php?route=/sql", &form);
        let answer: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        let message = answer["message"].to_string();
        assert!(message.contains("sum: 19900"), "{answer}");
        for (target, status, kind) in [
            ("/phpmyadmin/themes/pmahomme/css/theme.css", 200, "text/css"),
            ("/phpmyadmin/js/dist/functions.js", 200, "text/javascript"),
            ("/phpmyadmin/libraries/config.default.php", 403, "text/html"),
            ("/phpmyadmin/none.php", 404, "text/html"),
        ] {
            let response = visitor.get(target);
            assert_eq!((response.status, response.header("content-type")), (status, Some(kind)));
        }
        server.stop();
    }
}
