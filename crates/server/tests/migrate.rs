//! `nowait migrate`: trees in the layouts of common packages and products, and hostile ones.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use nowait_testkit::{Binary, TempDir};
use serde_json::Value;

fn migrate(arguments: &[&str]) -> Output {
    let binary = Binary::nowait(env!("CARGO_BIN_EXE_nowait"));
    binary.command().arg("migrate").args(arguments).output().unwrap()
}

/// The report as JSON, and the exit code. Every report has to add up.
fn json(arguments: &[&str]) -> (Value, i32) {
    let output = migrate(&[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap();
    assert!(code < 2, "{said}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    adds_up(&value);
    assert_eq!(value["runs"], code == 0, "{value:#}");
    (value, code)
}

const CLASSES: [&str; 8] =
    ["runs", "differs", "no_effect", "refused", "missing", "third_party", "lua", "unknown"];

/// Every directive is in one class, in the line of its file and in that of its module.
fn adds_up(value: &Value) {
    let sum = |totals: &Value| -> u64 {
        let sum = CLASSES.iter().map(|class| totals[class].as_u64().unwrap()).sum();
        assert_eq!(totals["all"], sum, "{totals}");
        sum
    };
    let all = sum(&value["directives"]);
    for list in ["files", "modules"] {
        let rows = value[list].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| sum(&row["directives"])).sum::<u64>(), all, "{list}");
        for class in CLASSES {
            let of_class = rows.iter().map(|row| row["directives"][class].as_u64().unwrap());
            assert_eq!(value["directives"][class], of_class.sum::<u64>(), "{list}: {class}");
        }
    }
    let listed = value["findings"].as_array().unwrap().len() as u64;
    let runs = value["directives"]["runs"].as_u64().unwrap();
    assert_eq!(listed + value["not_listed"].as_u64().unwrap(), all - runs);
    for site in value["sites"].as_array().unwrap() {
        sum(&site["directives"]);
    }
}

/// The class of a directive, and its note.
fn finding<'v>(value: &'v Value, directive: &str) -> (&'v str, &'v str) {
    let found = value["findings"].as_array().unwrap().iter();
    let mut found = found.filter(|finding| finding["directive"] == directive);
    let finding = found.next().unwrap_or_else(|| panic!("no {directive} in {value:#}"));
    (finding["class"].as_str().unwrap(), finding["note"].as_str().unwrap_or_default())
}

/// Writes a tree; `ROOT` in a text stands for its directory.
fn tree(name: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new(name);
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("ROOT", dir.path().to_str().unwrap())).unwrap();
    }
    dir
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

/// What `-t` says of a copy, if it refuses it.
fn refused(copy: &str) -> Option<String> {
    let binary = Binary::nowait(env!("CARGO_BIN_EXE_nowait"));
    let main = format!("{copy}/nginx.conf");
    let output = binary.command().args(["-t", "-q", "-p", copy, "-c", &main]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

/// The main file of the official container image, without the user and the paths of a system.
const DOCKER: &str = "
worker_processes auto;
error_log ROOT/error.log notice;
pid ROOT/nginx.pid;
events {
    worker_connections 1024;
}
http {
    include ROOT/etc/mime.types;
    default_type application/octet-stream;
    log_format main '$remote_addr - $remote_user [$time_local] \"$request\" '
                    '$status $body_bytes_sent \"$http_referer\" '
                    '\"$http_user_agent\" \"$http_x_forwarded_for\"';
    access_log ROOT/access.log main;
    sendfile on;
    #tcp_nopush on;
    keepalive_timeout 65;
    #gzip on;
    include ROOT/etc/conf.d/*.conf;
}
";

const DEFAULT: &str = "
server {
    listen 18080;
    server_name localhost;
    location / {
        root /usr/share/nginx/html;
        index index.html index.htm;
    }
    error_page 500 502 503 504 /50x.html;
    location = /50x.html {
        root /usr/share/nginx/html;
    }
}
";

#[test]
fn debian_as_it_is_installed() {
    if !Path::new("/etc/nginx/nginx.conf").exists() {
        return;
    }
    let dir = TempDir::new("debian");
    let copy = path(&dir, "copy");
    let (value, _) = json(&["-o", &copy]);
    assert!(value["directives"]["all"].as_u64().unwrap() > 10);
    assert_eq!(value["directives"]["unknown"], 0);
    // What the tree of this machine needs besides, such as certificates, is not known here.
    assert!(Path::new(&copy).join("nginx.conf").exists());
}

#[test]
fn the_official_image() {
    let dir = tree(
        "docker",
        &[
            ("etc/nginx.conf", DOCKER),
            ("etc/conf.d/default.conf", DEFAULT),
            ("etc/mime.types", "types { text/html html htm; text/css css; }"),
            ("etc/fastcgi_params", "fastcgi_param QUERY_STRING $query_string;"),
        ],
    );
    let copy = path(&dir, "copy");
    let (value, code) = json(&[&path(&dir, "etc"), "-o", &copy]);
    assert_eq!(code, 0, "{value:#}");
    let site = &value["sites"][0];
    assert_eq!((&site["names"][0], &site["listens"][0]), (&"localhost".into(), &"18080".into()));
    // The entries of "types" are no directives.
    assert_eq!(value["files"][1]["entries"], 2);
    // Full paths of the original lead into the copy.
    let main = text_of(&dir.path().join("copy/nginx.conf"));
    assert!(main.contains("include mime.types;\n") && main.contains("include conf.d/*.conf;\n"));
    assert!(main.contains("#tcp_nopush on;\n"));
    assert_eq!(refused(&copy), None);
    // What is not in use is copied, too.
    assert!(dir.path().join("copy/fastcgi_params").exists());
    let report = migrate(&[&path(&dir, "etc")]);
    let report = String::from_utf8(report.stdout).unwrap();
    for expected in ["23 directives", "localhost on 18080 (conf.d/default.conf:2)", "all run"] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
}

#[test]
fn a_copy_overwrites_nothing() {
    let dir = tree("full", &[("etc/nginx.conf", "events {}"), ("copy/mine", "x")]);
    let output = migrate(&[&path(&dir, "etc"), "-o", &path(&dir, "copy")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is not empty: nothing is overwritten"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path().join("copy")).unwrap().count(), 1);
    // A copy inside of the original does not contain itself.
    let inside = path(&dir, "etc/nowait");
    let (_, code) = json(&[&path(&dir, "etc"), "-o", &inside]);
    assert_eq!(code, 0);
    assert!(dir.path().join("etc/nowait/nginx.conf").exists());
    assert!(!dir.path().join("etc/nowait/nowait").exists());
}

#[test]
fn wordpress_with_modules_that_are_built_in() {
    let dir = tree(
        "wordpress",
        &[
            (
                "etc/nginx.conf",
                "load_module modules/ngx_http_brotli_filter_module.so;
load_module modules/ngx_http_headers_more_filter_module.so;
load_module modules/ngx_http_cache_purge_module.so;
events {}
http {
    fastcgi_cache_path ROOT/cache levels=1:2 keys_zone=WORDPRESS:100m inactive=60m;
    fastcgi_cache_key \"$scheme$request_method$host$request_uri\";
    limit_req_zone $binary_remote_addr zone=login:10m rate=1r/s;
    brotli on;
    more_clear_headers X-Powered-By;
    access_log off;
    include sites-enabled/*;
}",
            ),
            (
                "etc/sites-available/blog",
                "server {
    listen 18080;
    server_name blog.example www.blog.example;
    root /var/www/blog;
    index index.php;
    set $skip_cache 0;
    if ($request_method = POST) { set $skip_cache 1; }
    if ($http_cookie ~* \"wordpress_logged_in\") { set $skip_cache 1; }
    location / { try_files $uri $uri/ /index.php?$args; }
    location = /wp-login.php { limit_req zone=login burst=5; include snippets/php.conf; }
    location ~ /\\.ht { deny all; }
    location ~ \\.php$ { include snippets/php.conf; }
    location ~ /purge(/.*) { fastcgi_cache_purge WORDPRESS \"$scheme$request_method$host$1\"; }
    location ~* \\.(css|js|png)$ { expires max; log_not_found off; }
}",
            ),
            (
                "etc/snippets/php.conf",
                "include fastcgi_params;
fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
fastcgi_pass unix:/run/php/php-fpm.sock;
fastcgi_cache WORDPRESS;
fastcgi_cache_bypass $skip_cache;
fastcgi_no_cache $skip_cache;
fastcgi_cache_valid 200 60m;",
            ),
        ],
    );
    std::fs::create_dir(dir.path().join("etc/sites-enabled")).unwrap();
    // As "ln -s" is often written.
    symlink(path(&dir, "etc/sites-available/blog"), dir.path().join("etc/sites-enabled/blog"))
        .unwrap();
    let copy = path(&dir, "copy");
    let (value, code) = json(&[&path(&dir, "etc"), "-o", &copy]);
    assert_eq!(code, 0, "{value:#}");
    assert_eq!(finding(&value, "load_module"), ("no_effect", "ngx_brotli is built in"));
    assert_eq!(finding(&value, "fastcgi_cache_path").0, "differs");
    // There is no such file in this tree; nowait has one.
    assert_eq!(finding(&value, "include").0, "differs");
    let module = |name: &str| {
        let modules = value["modules"].as_array().unwrap();
        modules.iter().any(|module| module["module"] == name)
    };
    assert!(module("headers-more-nginx-module") && module("ngx_http_fastcgi_module"));
    let site = &value["sites"][0];
    assert_eq!(site["names"].as_array().unwrap().len(), 2);
    let main = text_of(&dir.path().join("copy/nginx.conf"));
    let expected = "# nowait: headers-more-nginx-module is built in\n\
                    # load_module modules/ngx_http_headers_more_filter_module.so;\n";
    assert!(main.contains(expected), "{main}");
    let link = std::fs::read_link(dir.path().join("copy/sites-enabled/blog")).unwrap();
    assert_eq!(link, Path::new("../sites-available/blog"));
    std::fs::create_dir(dir.path().join("cache")).unwrap();
    assert_eq!(refused(&copy), None);
}

#[test]
fn gitlab_with_http3_and_missing_certificates() {
    let dir = tree("gitlab", &[(
        "etc/nginx.conf",
        "events {}
http {
    access_log off;
    upstream gitlab-workhorse { server unix:/var/opt/gitlab/workhorse.socket fail_timeout=0; }
    map $http_upgrade $connection_upgrade_gitlab { default upgrade; '' close; }
    map $request_uri $temp_request_uri_1 {
        default $request_uri;
        ~(?i)^(?<start>.*)(?<temp>[\\?&]private[\\-_]token)=[^&]*(?<rest>.*)$ \"$start$temp=[FILTERED]$rest\";
    }
    server {
        listen 18443 ssl;
        listen 18443 quic reuseport;
        http3 on;
        add_header Alt-Svc 'h3=\":18443\"; ma=86400';
        server_name gitlab.example;
        server_tokens off;
        ssl_certificate ROOT/missing.crt;
        ssl_certificate_key ROOT/missing.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        real_ip_header X-Real-IP;
        location / {
            client_max_body_size 0;
            gzip off;
            proxy_read_timeout 300;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade_gitlab;
            proxy_pass http://gitlab-workhorse;
        }
        error_page 502 /502.html;
    }
}",
    )]);
    let copy = path(&dir, "copy");
    let (value, code) = json(&[&path(&dir, "etc"), "-o", &copy]);
    assert_eq!(code, 1);
    let (class, note) = finding(&value, "ssl_certificate");
    assert!(class == "refused" && note.contains("missing.crt"), "{note}");
    let main = text_of(&dir.path().join("copy/nginx.conf"));
    assert!(!main.contains("# listen") && !main.contains("# add_header Alt-Svc"), "{main}");
    // Only the certificate is left to complain about.
    let said = refused(&copy).unwrap();
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("[emerg]")).collect();
    assert!(!errors.is_empty() && errors.iter().all(|line| line.contains("missing.")), "{said}");
}

#[test]
fn lua_is_taken_out_and_nothing_is_opened_by_that() {
    let dir = tree(
        "lua",
        &[(
            "etc/nginx.conf",
            "load_module modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
events {}
http {
    access_log off;
    lua_shared_dict sessions 10m;
    init_by_lua_block {
        -- a brace } in a comment; and \"; in a string\"
        require \"resty.core\"
    }
    modsecurity on;
    auth_jwt off;
    server {
        listen 18080;
        root /srv/www;
        location /admin/ {
            access_by_lua_block { if not ngx.var.cookie_user then return ngx.exit(403) end } # who
            proxy_pass http://127.0.0.1:1;
        }
        location /hello { content_by_lua_block { ngx.say(\"hello\") } }
        location /old { content_by_lua 'ngx.say(1)'; }
        location /app { passenger_enabled on; }
        location /ldap { auth_ldap \"Restricted\"; auth_ldap_servers one; }
        location /list/ { fancyindex on; }
        location /block/ { fancyindex on { a; } }
        location /x { if ($arg_a) { auth_pam \"x\"; } log_by_lua_file conf/log.lua; }
    }
}",
        )],
    );
    let copy = path(&dir, "copy");
    let (value, code) = json(&[&path(&dir, "etc"), "-o", &copy]);
    assert_eq!(code, 1);
    assert_eq!(finding(&value, "content_by_lua_block").0, "lua");
    assert_eq!(finding(&value, "content_by_lua").0, "third_party");
    assert_eq!(finding(&value, "modsecurity").0, "third_party");
    let (class, note) = finding(&value, "load_module");
    assert!(class == "third_party" && note.starts_with("ndk_http_module (Lua module) is missing"));
    let protected: Vec<&str> = value["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["protects"] == true)
        .map(|finding| finding["directive"].as_str().unwrap())
        .collect();
    assert_eq!(protected, ["modsecurity", "access_by_lua_block", "auth_ldap", "auth_pam"]);
    let main = text_of(&dir.path().join("copy/nginx.conf"));
    for expected in [
        "            # access_by_lua_block { if not ngx.var.cookie_user then return ngx.exit(403) end }\n            return 403; # who\n",
        "# content_by_lua_block { ngx.say(\"hello\") }\n        return 501;\n",
        "# content_by_lua 'ngx.say(1)';\n        return 501;\n",
        "# passenger_enabled on;\n        return 501;\n",
        "# auth_ldap \"Restricted\";\n        return 403;\n",
        "# fancyindex on;\n        autoindex on;\n",
        "# fancyindex on { a; }\n         }",
        "# auth_pam \"x\";\n        return 403;\n",
        "    # init_by_lua_block {\n    #     -- a brace } in a comment; and \"; in a string\"\n",
        "    # nowait: ModSecurity module is missing: requests reach applications unfiltered\n    # modsecurity on;\n",
    ] {
        assert!(main.contains(expected), "{expected} in {main}");
    }
    // "off" admits everybody with the module, too.
    assert!(main.contains("# auth_jwt off;\n    server {"), "{main}");
    assert_eq!(refused(&copy), None);
}

/// What cannot be refused where it stands is left, and named by the check.
#[test]
fn nothing_that_was_closed_is_open() {
    let dir = tree(
        "closed",
        &[(
            "etc/nginx.conf",
            "events {}
http {
    access_log off;
    access_by_lua_file guard.lua;
    passenger_enabled on;
    server {
        listen 18080;
        location /a { allow 127.0.0.1; deny all; auth_ldap \"x\"; }
        location /b { limit_except GET { js_content main.answer; auth_pam \"x\"; } }
    }
    server { listen 18080; auth_ldap \"x\"; location / { allow all; } }
}
stream {
    server {
        listen 18081;
        js_preread main.check;
        preread_by_lua_block { ngx.exit(403) }
        pass 127.0.0.1:1;
    }
}",
        )],
    );
    let copy = path(&dir, "copy");
    let (value, _) = json(&[&path(&dir, "etc"), "-o", &copy]);
    let left: Vec<&str> =
        value["copy"]["left"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    let mut lines: Vec<&str> = left.iter().filter_map(|place| place.split(':').nth(1)).collect();
    lines.sort_unstable_by_key(|line| line.parse::<u32>().unwrap());
    assert_eq!(lines, ["4", "5", "9", "9", "16", "17"]);
    let main = text_of(&dir.path().join("copy/nginx.conf"));
    assert_eq!(main.matches("# auth_ldap \"x\";\n").count(), 2, "{main}");
    assert_eq!(main.matches("return 403;\n").count(), 2, "{main}");
    assert!(!main.contains("deny all;\n"), "{main}");
    let said = refused(&copy).unwrap();
    for name in [
        "access_by_lua_file",
        "passenger_enabled",
        "js_content",
        "auth_pam",
        "js_preread",
        "preread",
    ] {
        assert!(said.contains(&format!("unknown directive \"{name}")), "{name}: {said}");
    }
}

/// A copy has nothing outside of its directory, no matter what the original names.
#[test]
fn a_copy_stays_in_its_directory() {
    let dir = tree(
        "inside",
        &[
            ("a/b/etc/nginx.conf", "events {}\nhttp { access_log off; include parts/*.conf; }\n"),
            ("a/b/etc/parts/1.conf", "include ROOT/one.conf;\ninclude ../../../two.conf;\n"),
            ("a/b/etc/parts/2.conf", "include ROOT/a/b/etc/../../../two.conf;\n"),
            ("one.conf", "lua_one on;\n"),
            ("two.conf", "lua_two on;\n"),
            ("trap/x", ""),
        ],
    );
    let etc = dir.path().join("a/b/etc");
    symlink(dir.path().join("trap"), etc.join("outside")).unwrap();
    symlink(etc.join("../../../one.conf"), etc.join("up")).unwrap();
    symlink(etc.join("parts"), etc.join("down")).unwrap();
    let copy = path(&dir, "copy/of/it");
    let (value, _) = json(&[etc.to_str().unwrap(), "-o", &copy]);
    let copy = dir.path().join("copy/of/it");
    let root = dir.path().to_str().unwrap();
    let one = text_of(&copy.join("parts/1.conf"));
    assert_eq!(one, format!("include outside-1{root}/one.conf;\ninclude ../../../two.conf;\n"));
    assert_eq!(value["copy"]["left"], serde_json::json!(["parts/1.conf:2", "parts/2.conf:1"]));
    assert!(copy.join(format!("outside-1{root}/one.conf")).exists());
    let names = |path: &Path| std::fs::read_dir(path).unwrap().count();
    assert_eq!((names(&dir.path().join("trap")), names(&dir.path().join("copy"))), (1, 1));
    assert_eq!(names(dir.path()), 5);
    // Links lead where they led.
    assert_eq!(std::fs::read_link(copy.join("up")).unwrap(), etc.join("../../../one.conf"));
    assert_eq!(std::fs::read_link(copy.join("down")).unwrap(), Path::new("parts"));
}

#[test]
fn an_empty_directory_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tree("private", &[("etc/nginx.conf", "events {}")]);
    let mode = |name: &str| {
        let metadata = std::fs::metadata(dir.path().join(name)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    let set = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join(name), mode).unwrap();
    };
    set("etc", 0o755);
    std::fs::create_dir(dir.path().join("private")).unwrap();
    set("private", 0o700);
    json(&[&path(&dir, "etc"), "-o", &path(&dir, "private")]);
    json(&[&path(&dir, "etc"), "-o", &path(&dir, "new/copy")]);
    assert_eq!((mode("private"), mode("new/copy")), (0o700, 0o755));
}

#[test]
fn plesk_with_files_elsewhere() {
    let dir = tree(
        "plesk",
        &[
            (
                "etc/nginx.conf",
                "events {}\nhttp { access_log off; include ROOT/etc/conf.d/*.conf; }\n",
            ),
            (
                "etc/conf.d/zz010_psa_nginx.conf",
                "server_names_hash_bucket_size 128;\ninclude \"ROOT/etc/plesk.conf.d/vhosts/*.conf\";\n\
             include ROOT/vhosts/system/*/conf/vhost_nginx.conf;\ninclude ROOT/shared/fine.conf;\n",
            ),
            (
                "vhosts/system/one.example/conf/vhost_nginx.conf",
                "server { listen 18080; server_name one.example; pagespeed on; }\n",
            ),
            (
                "vhosts/system/two.example/conf/vhost_nginx.conf",
                "server { listen 18080; server_name two.example; }\n",
            ),
            ("shared/fine.conf", "gzip on;\n"),
            ("elsewhere.conf", "server { listen 18080; server_name three.example; vod hls; }\n"),
        ],
    );
    std::fs::create_dir_all(dir.path().join("etc/plesk.conf.d/vhosts")).unwrap();
    let link = dir.path().join("etc/plesk.conf.d/vhosts/three.conf");
    symlink("../../../elsewhere.conf", &link).unwrap();
    symlink(path(&dir, "modules"), dir.path().join("etc/modules")).unwrap();
    let copy = path(&dir, "copy");
    let (value, code) = json(&[&path(&dir, "etc/nginx.conf"), "-o", &copy]);
    assert_eq!(code, 1);
    assert_eq!(value["sites"].as_array().unwrap().len(), 3);
    let psa = text_of(&dir.path().join("copy/conf.d/zz010_psa_nginx.conf"));
    let root = dir.path().to_str().unwrap();
    let expected = format!(
        "include \"plesk.conf.d/vhosts/*.conf\";\n\
         include outside{root}/vhosts/system/*/conf/vhost_nginx.conf;\n\
         include {root}/shared/fine.conf;\n"
    );
    assert!(psa.ends_with(&expected), "{psa}");
    // A link to a file that changes is replaced by the changed file; the file itself stays.
    let copied = dir.path().join("copy/plesk.conf.d/vhosts/three.conf");
    assert!(!copied.is_symlink());
    assert!(text_of(&copied).contains("# vod hls;\nreturn 501;\n"));
    assert!(text_of(&dir.path().join("elsewhere.conf")).contains(" vod hls;"));
    let kept = std::fs::read_link(dir.path().join("copy/modules")).unwrap();
    assert_eq!(kept, dir.path().join("modules"));
    assert_eq!(refused(&copy), None);
}

#[test]
fn mail_geoip_and_what_nobody_knows() {
    let dir = tree(
        "absent",
        &[(
            "nginx.conf",
            "load_module modules/ngx_mail_module.so;
load_module modules/ngx_http_mine_module.so;
events {}
mail { server { listen 143; protocol imap; } auth_http localhost; }
http {
    access_log off;
    geoip_country /usr/share/GeoIP/GeoIP.dat;
    map $geoip_country_code $allowed { default yes; XX no; }
    server { listen 18080; frobnicate on; gzpi on; gzip maybe; location / { worker_processes 2; } }
}
stream { server { listen 18081; pass 127.0.0.1:1; } }",
        )],
    );
    let (value, code) = json(&[&path(&dir, "nginx.conf")]);
    assert_eq!(code, 1);
    for (directive, class, note) in [
        ("mail", "missing", "there is no mail proxy; keep nginx for it"),
        ("protocol", "missing", "stands in a block that is missing"),
        ("geoip_country", "missing", "the database format is discontinued"),
        ("map", "refused", "unknown \"geoip_country_code\" variable"),
        ("frobnicate", "unknown", "no module known to nowait"),
        ("gzpi", "unknown", "unknown directive \"gzpi\" (did you mean \"gzip\"?)"),
        ("gzip", "refused", "invalid value \"maybe\""),
        ("worker_processes", "refused", "is not allowed in \"location\""),
    ] {
        let (found, said) = finding(&value, directive);
        assert!(found == class && said.starts_with(note), "{directive}: {found}: {said}");
    }
    assert_eq!(value["sites"][1]["kind"], "stream");
    assert_eq!(value["directives"]["unknown"], 3);
    // An unknown directive may be an access rule: it is left for the operator.
    let copy = path(&dir, "copy");
    json(&[&path(&dir, "nginx.conf"), "-o", &copy]);
    let said = refused(&copy).unwrap();
    assert!(said.contains("unknown directive \"frobnicate\""), "{said}");
    assert!(!said.contains("mail") && !said.contains("load_module"), "{said}");
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_is_judged() {
    let dir = tree(
        "unreadable",
        &[
            (
                "nginx.conf",
                "events {}\nhttp {\naccess_log off;\ninclude missing.conf;\ninclude loop.conf;\n\
             include parts/*;\nserver { listen 18080; gzip on; }\n}\n",
            ),
            ("loop.conf", "gzip off;\ninclude loop.conf;\n"),
            ("parts/b.conf", "etag off;\n"),
            ("parts/c.conf", "etag off;\u{1b}[31m\u{0}\u{1} {;;} \" }"),
        ],
    );
    let parts = dir.path().join("parts");
    symlink("a.conf", parts.join("a.conf")).unwrap();
    std::fs::File::create(parts.join("large.conf")).unwrap().set_len(100 << 20).unwrap();
    std::os::unix::net::UnixListener::bind(parts.join("socket")).unwrap();
    let (value, code) = json(&[&path(&dir, "nginx.conf")]);
    assert_eq!(code, 1);
    let unread = value["unread"].to_string();
    for expected in [
        "missing.conf\\\": No such file",
        "loop.conf\\\" includes itself",
        "parts/a.conf\\\": Too many levels of symbolic links",
        "parts/large.conf\\\": is larger than 16 MB",
        "parts/socket\\\": it is not a regular file but a socket",
    ] {
        assert!(unread.contains(expected), "{expected}: {unread}");
    }
    // The glob was not given up at its first file.
    let file = |name: &str| {
        let files = value["files"].as_array().unwrap();
        files.iter().find(|file| file["path"].as_str().unwrap().ends_with(name)).cloned()
    };
    assert_eq!(file("parts/b.conf").unwrap()["directives"]["runs"], 1);
    assert_ne!(file("parts/c.conf").unwrap()["syntax_errors"], 0);
    let report = migrate(&[&path(&dir, "nginx.conf")]);
    assert!(!report.stdout.contains(&0x1b) && !report.stdout.contains(&0), "control characters");
    // A copy is possible nevertheless.
    let copy = path(&dir, "copy");
    let (value, _) = json(&[&path(&dir, "nginx.conf"), "-o", &copy]);
    assert!(value["copy"]["not_copied"].to_string().contains("socket"), "{value:#}");
    assert!(dir.path().join("copy/parts/a.conf").is_symlink());
}

#[test]
fn nothing_to_read_is_an_error() {
    let dir = tree("nothing", &[("empty/x", "")]);
    for (given, message) in [
        ("missing", "cannot read"),
        ("empty", "there is no nginx.conf in"),
        ("empty/x/y", "cannot read"),
    ] {
        let output = migrate(&[&path(&dir, given)]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(message), "{said}");
    }
}

#[test]
fn ten_thousand_files() {
    let dir = tree(
        "many",
        &[(
            "nginx.conf",
            "events {} http { access_log off; include d/*.conf; server { listen 18080; } }",
        )],
    );
    std::fs::create_dir(dir.path().join("d")).unwrap();
    for n in 0..9_999 {
        std::fs::write(
            dir.path().join(format!("d/{n}.conf")),
            format!("allow 10.0.{}.1;\n", n % 256),
        )
        .unwrap();
    }
    let (value, _) = json(&[&path(&dir, "nginx.conf")]);
    assert_eq!(value["files"].as_array().unwrap().len(), 10_000);
    std::fs::write(dir.path().join("d/x.conf"), "gzip on;").unwrap();
    std::fs::write(dir.path().join("d/y.conf"), "etag on;").unwrap();
    let (value, code) = json(&[&path(&dir, "nginx.conf")]);
    assert_eq!(code, 1);
    assert!(value["unread"].to_string().contains("more than 10000 files match"), "{value:#}");
}

/// Each file includes the next one twice: the names at the end would be there a million million times.
#[test]
fn inclusions_do_not_multiply() {
    const FILES: usize = 40;
    let mut files = vec![(
        "nginx.conf".to_owned(),
        "events {} http { server { listen 18080; include 1; } }".to_owned(),
    )];
    for n in 1..FILES {
        files.push((n.to_string(), format!("include {0};\ninclude {0};\n", n + 1)));
    }
    files.push((FILES.to_string(), "server_name a.example b.example;".to_owned()));
    let files: Vec<_> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
    let dir = tree("double", &files);
    let (value, _) = json(&[&path(&dir, "nginx.conf")]);
    assert_eq!(value["sites"][0]["names"].as_array().unwrap().len(), 1000);
}

/// Every file includes all files of a directory.
#[test]
fn too_many_inclusions_are_refused() {
    let include = "include ROOT/d/*;".repeat(1000);
    let dir = tree("square", &[("nginx.conf", &format!("events {{}} http {{ {include} }}"))]);
    std::fs::create_dir(dir.path().join("d")).unwrap();
    for n in 0..5000 {
        std::fs::write(dir.path().join(format!("d/{n}")), "").unwrap();
    }
    let output = migrate(&[&path(&dir, "nginx.conf")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("its files include others more than 4000000 times"), "{said}");
}

#[test]
fn every_directive_of_any_text_is_counted_once() {
    let names = [
        "gzip",
        "include missing.conf",
        "server",
        "location /",
        "events",
        "http",
        "map $a $b",
        "types",
        "lua_x",
        "content_by_lua_x",
        "mail",
        "frobnicate",
        "worker_processes",
        "stream",
        "upstream u",
        "if ($a)",
        "load_module x",
        "auth_ldap",
        "proxy_pass http://x",
        "limit_except GET",
    ];
    let mut seed = 7_u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..40 {
        let mut text = String::new();
        let mut depth = 0;
        for _ in 0..next(60) {
            text.push_str(names[next(names.len())]);
            match next(3) {
                0 => {
                    text.push_str(" {\n");
                    depth += 1;
                }
                _ => text.push_str(" on;\n"),
            }
            while depth > 0 && next(3) == 0 {
                text.push_str("}\n");
                depth -= 1;
            }
        }
        text.push_str(&"}\n".repeat(depth));
        let written = text.matches([';', '{']).count() as u64;
        // The parser drops an "include" with a block; its contents as well.
        if text.contains("missing.conf {") {
            continue;
        }
        let dir = tree("random", &[("nginx.conf", &text)]);
        let (value, _) = json(&[&path(&dir, "nginx.conf")]);
        let entries = value["files"][0]["entries"].as_u64().unwrap();
        let all = value["directives"]["all"].as_u64().unwrap();
        assert_eq!(all + entries, written, "{round}: {text}");
    }
}
