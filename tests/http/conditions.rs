//! `if`: what it asks and what its block changes.

use crate::stage::{gets, on_each_driver, server};

#[test]
fn comparisons() {
    let site = server(
        r#"
        location /true { if ($arg_x) { return 200 yes; } return 200 no; }
        location /blanks { if ( $arg_x ) { return 200 yes; } return 200 no; }
        location /equal { if ($arg_x = "a b") { return 200 yes; } return 200 no; }
        location /same { if ($arg_x = $arg_y) { return 200 yes; } return 200 no; }
        location /differs { if ($arg_x != a) { return 200 yes; } return 200 no; }
        location /re { if ($arg_x ~ ^(a)(b)?$) { return 200 "yes $1 <$2>"; } return 200 "no <$1>"; }
        location /any { if ($arg_x ~* ^a) { return 200 yes; } return 200 no; }
        location /nore { if ($arg_x !~ ^a) { return 200 yes; } return 200 no; }
        location /noany { if ($arg_x !~* ^a) { return 200 yes; } return 200 no; }
        location /quoted { if ($arg_x ~ "^a{2}$") { return 200 yes; } return 200 no; }
        "#,
    );
    gets(
        &site,
        &[
            ("/true?x=1", "200\n\nyes"),
            ("/true?x=00", "200\n\nyes"),
            ("/true?x=0", "200\n\nno"),
            ("/true?x=", "200\n\nno"),
            ("/true", "200\n\nno"),
            ("/blanks?x=1", "200\n\nyes"),
            ("/equal?x=a", "200\n\nno"),
            ("/same?x=a&y=a", "200\n\nyes"),
            ("/same?x=a&y=b", "200\n\nno"),
            ("/same", "200\n\nyes"),
            ("/differs?x=b", "200\n\nyes"),
            ("/differs?x=a", "200\n\nno"),
            ("/re?x=ab", "200\n\nyes a <b>"),
            ("/re?x=a", "200\n\nyes a <>"),
            ("/re?x=b", "200\n\nno <>"),
            ("/any?x=A", "200\n\nyes"),
            ("/nore?x=A", "200\n\nyes"),
            ("/nore?x=a", "200\n\nno"),
            ("/noany?x=A", "200\n\nno"),
            ("/noany?x=b", "200\n\nyes"),
            ("/quoted?x=aa", "200\n\nyes"),
        ],
    );
}

#[test]
fn files() {
    let mut code = String::new();
    for test in ["f", "d", "e", "x"] {
        code.push_str(&format!(
            "location /{test}/ {{ if (-{test} %%DIR%%/html/$arg_n) {{ return 200 yes; }} return 200 no; }}
             location /not-{test}/ {{ if (!-{test} %%DIR%%/html/$arg_n) {{ return 200 yes; }} return 200 no; }}\n"
        ));
    }
    let site = server(&code).file("html/file", "x").file("html/dir/inner", "x");
    let yes = |answer: bool| if answer { "200\n\nyes" } else { "200\n\nno" };
    let mut cases = Vec::new();
    for (name, f, d, e, x) in [
        ("file", true, false, true, false),
        ("dir", false, true, true, true),
        ("missing", false, false, false, false),
        ("file/below", false, false, false, false),
    ] {
        for (test, holds) in [("f", f), ("d", d), ("e", e), ("x", x)] {
            cases.push((format!("/{test}/?n={name}"), yes(holds)));
            cases.push((format!("/not-{test}/?n={name}"), yes(!holds)));
        }
    }
    let cases: Vec<_> = cases.iter().map(|(target, answer)| (target.as_str(), *answer)).collect();
    gets(&site, &cases);
}

/// A test of a file may have to wait for a disk; everything around it goes on as if it did not.
#[test]
fn files_among_other_code() {
    let site = server(
        r#"
        set $in server;
        if (-f %%DIR%%/html/maintenance) { return 503; }
        if (!-f $request_filename) { rewrite ^/(.*)$ /missing?was=$1 last; }
        location / {
            set $seen "";
            if (-f $request_filename) { set $seen file; }
            if (-d %%DIR%%/html/dir) { set $seen "$seen-dir"; }
            if ($arg_to) { rewrite ^ /other last; }
            add_header X-Seen $seen;
        }
        location /missing { return 404 "$arg_was $in"; }
        location /other { if (-e %%DIR%%/html/a) { set $seen "$seen-other"; } return 200 $seen; }
        "#,
    )
    .file("html/a", "A")
    .file("html/dir/x", "x");
    gets(
        &site,
        &[
            ("/a", "200\nX-Seen: file-dir\n\nA"),
            ("/none", "404\n\nnone server"),
            ("/a?to=1", "200\n\nfile-dir-other"),
        ],
    );
    on_each_driver(&site, |server| {
        server.write("html/maintenance", "");
        assert_eq!(server.get("/a").status, 503);
    });
}

/// The block of an `if` is a location that inherits from the one around it and takes its place.
#[test]
fn settings_of_the_block() {
    let site = server(
        r#"
        add_header X-From server;
        location /a {
            add_header X-From location;
            if ($arg_one) { add_header X-From one; }
            if ($arg_two) { add_header X-From two; add_header X-Two 2; }
            if ($arg_root) { root %%DIR%%/other; }
            if ($arg_error) { error_page 404 /error; }
        }
        location /set { set $x 0; if ($arg_x) { set $x 1; } add_header X-From $x; }
        location /error { return 200 error; }
        location /try { try_files /a =404; if ($arg_x) { set $y 1; } }
        location /break { if ($arg_x) { break; } return 200 after; }
        "#,
    )
    .file("html/a", "html")
    .file("other/a", "other")
    .file("html/break", "file");
    gets(
        &site,
        &[
            ("/a", "200\nX-From: location\n\nhtml"),
            ("/a?one=1", "200\nX-From: one\n\nhtml"),
            ("/a?two=1", "200\nX-From: two\nX-Two: 2\n\nhtml"),
            // The last one that holds counts.
            ("/a?one=1&two=1", "200\nX-From: two\n\nhtml"),
            ("/a?root=1", "200\nX-From: location\n\nother"),
            ("/ab?error=1", "404\n\nerror"),
            ("/try", "200\n\nhtml"),
            // nginx's trap: try_files is no setting that the block inherits.
            ("/try?x=1", "404"),
            ("/break", "200\n\nafter"),
            ("/break?x=1", "200\n\nfile"),
        ],
    );
}
