//! `try_files` with all its endings.

use crate::stage::{gets, server};

#[test]
fn the_first_that_exists_answers() {
    let site = server(
        r#"
        location / { try_files $uri $uri.html $uri/ /fallback?from=$uri; }
        location = /fallback { return 200 "fallback $args"; }
        location /code/ { try_files $uri =404; }
        location /code2/ { try_files $uri =418; }
        location /named/ { try_files $uri @named; }
        location @named { return 200 "named $uri"; }
        location /fixed/ { try_files /a.html /x; }
        "#,
    )
    .file("html/file", "file")
    .file("html/a.html", "page")
    .file("html/dir/index.html", "index")
    .file("html/code/a", "A");
    gets(
        &site,
        &[
            ("/file", "200\n\nfile"),
            ("/a", "200\n\npage"),
            ("/dir", "301\nLocation: http://localhost:*/dir/"),
            ("/dir/", "200\n\nindex"),
            ("/none?q=1", "200\n\nfallback from=/none"),
            ("/code/a", "200\n\nA"),
            ("/code/b", "404"),
            ("/code2/b", "418"),
            ("/named/b", "200\n\nnamed /named/b"),
            ("/fixed/x", "200\n\npage"),
        ],
    );
}

#[test]
fn alias_is_respected() {
    let site = server(
        r#"
        location /alias/ { alias %%DIR%%/other/; try_files $uri $uri.html =404; }
        location ~ ^/re/(.*)$ { alias %%DIR%%/other/$1; try_files "" .html =404; }
        location /alias2 { alias %%DIR%%/other; try_files $uri /alias2/file =404; }
        "#,
    )
    .file("other/file", "F")
    .file("other/page.html", "P");
    gets(
        &site,
        &[
            ("/alias/file", "200\n\nF"),
            ("/alias/page", "200\n\nP"),
            ("/alias/none", "404"),
            ("/re/file", "200\n\nF"),
            ("/re/page", "200\n\nP"),
            ("/re/none", "404"),
        ],
    );
}

#[test]
fn a_server_may_have_it() {
    let site =
        server("try_files $uri /index.txt =404;").file("html/a", "A").file("html/index.txt", "I");
    gets(&site, &[("/a", "200\n\nA"), ("/none", "200\n\nI")]);
}

#[test]
fn a_cycle_ends() {
    let site = server("location / { try_files $uri /again$uri; }")
        .allow_log("rewrite or internal redirection cycle");
    gets(&site, &[("/x", "500")]);
}

#[test]
fn no_escape_through_variables() {
    let site = server("location / { try_files /$arg_f =404; }").file("html/a", "A");
    gets(&site, &[("/?f=a", "200\n\nA"), ("/?f=none", "404")]);
}

/// nginx's argument `/` is a directory without a name: the root.
#[test]
fn the_root_itself_may_be_tried() {
    let site = server(
        r#"
        location /alias/ { alias %%DIR%%/app/; try_files $uri / =404; }
        location /bare { alias %%DIR%%/app; try_files $uri / =404; }
        location /none/ { alias %%DIR%%/none/; try_files $uri / =404; }
        location /file/ { alias %%DIR%%/app/index.html; try_files / =404; }
        location /slash/ { alias %%DIR%%/app/; try_files $uri $uri/ =404; }
        location ~ ^/re/(.*)$ { alias %%DIR%%/app/$1; try_files "" / =404; }
        location ~ ^/sub/ { root %%DIR%%/html; try_files $uri / =404; }
        "#,
    )
    .file("app/index.html", "app")
    .file("app/file", "F")
    .file("app/dir/index.html", "dir")
    .file("html/index.html", "html");
    gets(
        &site,
        &[
            ("/alias/none", "200\n\napp"),
            ("/alias/", "200\n\napp"),
            ("/alias/file", "200\n\nF"),
            ("/bare", "200\n\napp"),
            ("/bare/none", "200\n\napp"),
            ("/none/x", "404"),
            ("/file/x", "404"),
            ("/slash/dir/", "200\n\ndir"),
            ("/slash/dir", "301"),
            ("/slash/none", "404"),
            ("/re/file", "200\n\nF"),
            ("/re/dir/", "200\n\ndir"),
            ("/sub/none", "200\n\nhtml"),
        ],
    );
}
