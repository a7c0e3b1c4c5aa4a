//! The directives of OpenResty's set-misc module, among those of the rewrite module.

use crate::stage::{ask, asks_nginx, gets, on_each_driver, refused, server, site};

#[test]
fn variables_are_set_to_results() {
    if asks_nginx() {
        return;
    }
    let site = server(
        r#"
        location /empty { set_if_empty $a "the default"; return 200 "$a"; }
        location /full { set $a $arg_a; set_if_empty $a 56; return 200 "$a"; }
        location /sql { set_unescape_uri $a $arg_a; set_quote_sql_str $b $a; set_quote_pgsql_str $c $a; return 200 "$b $c"; }
        location /json { set_unescape_uri $a $arg_a; set_quote_json_str $a; return 200 "$a"; }
        location /uri { set_unescape_uri $a $arg_a; set_escape_uri $b $a; return 200 "$a|$b"; }
        location /target { set_escape_uri $target $scheme://$http_host$request_uri; return 302 /login?rd=$target; }
        location /base32 { set $a abcde; set_encode_base32 $a; set_decode_base32 $b $a; return 200 "$a $b"; }
        location /other32 {
            set_base32_alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZ234567;
            set_base32_padding off;
            set_encode_base32 $a ab;
            return 200 "$a";
        }
        location /base64 { set_encode_base64 $a "hi?>"; set_encode_base64url $b "hi?>"; set_decode_base64 $c $a; set_decode_base64url $d $b; return 200 "$a $b $c $d"; }
        location /hex { set_encode_hex $a abc; set_decode_hex $b $a; return 200 "$a $b"; }
        location /digests { set_sha1 $a hello; set $b hello; set_md5 $b; return 200 "$a $b"; }
        location /signature { set_hmac_sha1 $a secret-key some-string-to-sign; set_encode_base64 $a; set_hmac_sha256 $b Jefe x; set_encode_hex $b; return 200 "$a $b"; }
        location /random { set_random $a 7 7; set_secure_random_alphanum $b 1; set_secure_random_lcalpha $c 1; return 200 "$a"; }
        location /today { set_local_today $a; set_formatted_gmt_time $b "%Y"; set_formatted_local_time $c "%%"; return 200 "$c"; }
        location /if { if ($arg_a) { set_md5 $a $arg_a; return 200 "md5 $a"; } return 200 none; }
        "#,
    );
    gets(
        &site,
        &[
            ("/empty", "200\n\nthe default"),
            ("/full", "200\n\n56"),
            ("/full?a=", "200\n\n56"),
            ("/full?a=32", "200\n\n32"),
            ("/sql?a=it%27s+%5C", "200\n\n'it\\'s \\\\' E'it\\'s \\\\'"),
            ("/json?a=%22%0A%01", "200\n\n\"\\\"\\n\\u0001\""),
            ("/uri?a=hello+world%21%26", "200\n\nhello world!&|hello%20world!%26"),
            (
                "/target?x=1",
                "302\nLocation: http://localhost:*/login?rd=http%3A%2F%2Flocalhost%2Ftarget%3Fx%3D1",
            ),
            ("/base32", "200\n\nc5h66p35 abcde"),
            ("/other32", "200\n\nMFRA"),
            ("/base64", "200\n\naGk/Pg== aGk_Pg hi?> hi?>"),
            ("/hex", "200\n\n616263 abc"),
            (
                "/digests",
                "200\n\naaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d 5d41402abc4b2a76b9719d911017c592",
            ),
            (
                "/signature",
                "200\n\nHkADYytcoQQzqbjQX33k/ZBB/DQ= 30c1a252726d9f629121f7efb69852b3d25b3accb5410de2dfdd3b069eb51745",
            ),
            ("/random", "200\n\n7"),
            ("/today", "200\n\n%"),
            ("/if", "200\n\nnone"),
            ("/if?a=hello", "200\n\nmd5 5d41402abc4b2a76b9719d911017c592"),
        ],
    );
}

#[test]
fn wrong_values_end_the_request() {
    if asks_nginx() {
        return;
    }
    let site = server(
        "location /hex { set_decode_hex $a $arg_a; return 200 [$a]; }
         location /random { set_random $a 1 $arg_a; return 200 [$a]; }
         location /list { set_hashed_upstream $a $arg_a x; return 200 [$a]; }",
    );
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/hex?a=6a", &[]).text(), "[j]");
        assert_eq!(ask(server, "/hex?a=6", &[]).status, 500);
        assert_eq!(ask(server, "/random?a=x", &[]).status, 500);
        assert_eq!(ask(server, "/list?a=sky", &[]).status, 500);
        let log = server.wait_file("error.log", "no upstream list \"sky\"");
        assert!(log.contains("set_decode_hex: invalid value"), "{log}");
        assert!(log.contains("set_random: bad \"to\" argument: \"x\""), "{log}");
    });
}

#[test]
fn names_of_upstream_servers_by_hash() {
    if asks_nginx() {
        return;
    }
    let site = site(
        "upstream_list universe moon sun earth;
         server { listen 127.0.0.1:%%PORT%%;
             location /one { set_hashed_upstream $a universe $arg_a; return 200 $a; }
             location /any { set_hashed_upstream $a $arg_list $arg_a; return 200 $a; } }",
    );
    gets(
        &site,
        &[
            ("/one?a=blah", "200\n\nearth"),
            ("/one?a=BLAH", "200\n\nearth"),
            ("/any?a=blah&list=universe", "200\n\nearth"),
        ],
    );
}

#[test]
fn numbers_go_round_over_all_requests() {
    if asks_nginx() {
        return;
    }
    let site = server("location / { set_rotate $a 1 3; return 200 $a; }");
    on_each_driver(&site, |server| {
        let turns = [(); 4].map(|()| ask(server, "/", &[]).text().to_owned());
        assert_eq!(turns, ["1", "2", "3", "1"]);
    });
}

#[test]
fn mistakes_are_refused() {
    if asks_nginx() {
        return;
    }
    for (content, reason) in [
        ("set_md5 a b;", "invalid variable name \"a\""),
        ("set_md5 $host b;", "\"host\""),
        ("set_hashed_upstream $a sky $uri;", "upstream list \"sky\" not defined yet"),
        ("set_base32_alphabet abc;", "expected 32 different characters of ASCII, without \"=\""),
        ("set_random $a 1;", "invalid number of arguments in \"set_random\" directive"),
    ] {
        refused(&server(content), reason);
    }
}
