//! Server-side includes.

use nowait_testkit::{ServerBuilder, check_on};

use crate::stage::{ask, asks_nginx, exchanges, gets, on_each_driver, pattern, server, site};

/// A site whose pages have commands.
fn pages(content: &str) -> ServerBuilder {
    server(&format!("default_type text/html; ssi on; {content}"))
}

/// Pages and what they become. Names are made from their numbers.
#[track_caller]
fn become_(builder: ServerBuilder, cases: &[(&str, &str)]) {
    let mut builder = builder;
    for (n, (page, _)) in cases.iter().enumerate() {
        builder = builder.file(&format!("html/dir/p{n}"), page);
    }
    on_each_driver(&builder, |server| {
        for (n, (page, expected)) in cases.iter().enumerate() {
            let answer = ask(server, &format!("/dir/p{n}?arg=value"), &["X-Mark: <m&\"ü>"]);
            assert_eq!(answer.text(), *expected, "{page}");
        }
    });
}

#[test]
fn echo() {
    let site = pages("set $mine here; location /dir/ { set $unused ''; }")
        .allow_log("unknown encoding")
        .allow_log("SSI command");
    become_(
        site,
        &[
            ("<!--#echo var=\"uri\" -->", "/dir/p0"),
            ("<!--#echo var='Request_URI'-->.", "/dir/p1?arg=value."),
            ("<!--#echo var='arg_arg' --><!--#echo var='mine' -->", "valuehere"),
            ("<!--#echo var='nosuch' -->", "(none)"),
            ("<!--#echo var='nosuch' default='-' -->", "-"),
            ("<!--#echo var='nosuch' default='' -->.", "."),
            ("<!--#echo var='unused' default='-' -->.", "."),
            ("<!--#echo var='http_x_mark' -->", "&lt;m&amp;&quot;ü&gt;"),
            ("<!--#echo var='http_x_mark' encoding='none' -->", "<m&\"ü>"),
            ("<!--#echo var='http_x_mark' encoding='url' -->", "%3Cm&%22%C3%BC%3E"),
            // It stays for those that follow.
            (
                "<!--#echo var='uri' encoding='none' --> <!--#echo var='http_x_mark' -->",
                "/dir/p10 <m&\"ü>",
            ),
            ("<!--#echo var='uri' encoding='odd' -->", "/dir/p11"),
            ("<!--#echo -->", ERROR),
            ("<!--#echo var='uri' var='uri' -->", ERROR),
            ("<!--#echo var='uri' x='y' -->", ERROR),
        ],
    );
}

/// What stands for a command that fails.
const ERROR: &str = "[an error occurred while processing the directive]";

#[test]
fn broken_commands() {
    let site = pages("ssi_value_length 10;").allow_log("SSI command");
    become_(
        site,
        &[
            ("a<!--#nosuch -->b", "a[an error occurred while processing the directive]b"),
            ("a<!--#echo var=uri -->b", "a[an error occurred while processing the directive]b"),
            (
                "a<!--#echo var='12345678901' -->b",
                "a[an error occurred while processing the directive]b",
            ),
            ("a<!--#echo var='1234567890' -->b", "a(none)b"),
            ("a<!--#config errmsg='oops' --><!--#nosuch -->b", "aoopsb"),
            (
                "a<!-- #echo var='uri' --><!--comment-->b",
                "a<!-- #echo var='uri' --><!--comment-->b",
            ),
            ("a<!--#echo var='uri' b", "a"),
            ("<", if asks_nginx() { "" } else { "<" }),
            ("a<!-", if asks_nginx() { "a" } else { "a<!-" }),
            ("<!--#include virtual='/x' file='y' -->", ERROR),
            ("<!--#include -->", ERROR),
            ("<!--#include file='x' wait='yes' -->", ERROR),
            ("<!--#include virtual='/x' wait='maybe' -->", ERROR),
            ("<!--#include virtual='/../x' -->", ERROR),
            ("<!--#include virtual='${x' -->", ERROR),
            ("<!--#include virtual='$' -->", ERROR),
            ("<!--#include virtual='/x' stub='none' -->", ERROR),
        ],
    );
    let silent = pages("ssi_silent_errors on;").allow_log("SSI command");
    become_(silent, &[("a<!--#nosuch -->b", "ab"), ("a<!--#echo var -->b", "ab")]);
}

#[test]
fn conditions() {
    become_(
        pages("").allow_log("SSI command").allow_log("invalid expression"),
        &[
            ("<!--#if expr='$arg_arg' -->yes<!--#endif -->.", "yes."),
            ("<!--#if expr='$arg_none' -->yes<!--#endif -->.", "."),
            ("<!--#if expr='$arg_arg = value' -->yes<!--#else -->no<!--#endif -->", "yes"),
            ("<!--#if expr='$arg_arg=value' -->yes<!--#else -->no<!--#endif -->", "yes"),
            ("<!--#if expr='$arg_arg != value' -->yes<!--#else -->no<!--#endif -->", "no"),
            ("<!--#if expr='$arg_arg = valu' -->yes<!--#else -->no<!--#endif -->", "no"),
            ("<!--#if expr='$ARG_arg = /^V/' -->yes<!--#else -->no<!--#endif -->", "no"),
            ("<!--#if expr='$arg_arg = /^v(.)/' --><!--#echo var='1' --><!--#endif -->", "a"),
            ("<!--#if expr='$arg_arg != /x/' -->yes<!--#endif -->", "yes"),
            (
                "<!--#if expr='$arg_arg = /(?P<Name>l.)/' --><!--#echo var='name' --><!--#endif -->",
                "lu",
            ),
            (
                "<!--#if expr='$x' -->1<!--#elif expr='$uri = /p10/' -->2<!--#else -->3<!--#endif -->",
                "2",
            ),
            (
                "<!--#if expr='$x' -->1<!--#elif expr='$y' -->2<!--#elif expr='$uri' -->3\
                 <!--#else -->4<!--#endif -->",
                "3",
            ),
            ("<!--#if expr='$uri = \\/dir/p12' -->yes<!--#endif -->", "yes"),
            ("<!--#if expr='$uri = /' -->yes<!--#else -->no<!--#endif -->", "no"),
            (
                "<!--#if expr='$uri = /dir' -->yes<!--#endif -->",
                "[an error occurred while processing the directive]yes[an error occurred while processing the directive]",
            ),
            ("<!--#if expr='$uri ~ x' -->", ERROR),
            ("<!--#if expr='$uri = /(/' -->", ERROR),
            ("<!--#else -->", ERROR),
            ("<!--#endif -->", ERROR),
            (
                "<!--#if expr='$uri' -->a<!--#else -->b<!--#elif expr='$uri' -->c<!--#endif -->",
                "a[an error occurred while processing the directive]",
            ),
            (
                "<!--#if expr='$uri' -->a<!--#if expr='$uri' -->b<!--#endif -->c",
                "a[an error occurred while processing the directive]bc",
            ),
            // Nothing is carried out where nothing is written.
            (
                "<!--#if expr='$x' --><!--#set var='y' value='1' --><!--#nosuch --><!--#endif -->\
                 <!--#echo var='y' -->",
                "(none)",
            ),
        ],
    );
}

#[test]
fn variables_of_pages() {
    become_(
        pages("location /inner { }")
            .file("html/inner", "[<!--#echo var='a' --><!--#set var='b' value='inner' -->]")
            .allow_log("invalid variable name"),
        &[
            ("<!--#set var='a' value='x' --><!--#echo var='a' -->", "x"),
            ("<!--#set var='A' value='x' --><!--#echo var='a' -->", "x"),
            (
                "<!--#set var='a' value='x' --><!--#set var='a' value='$a$a${arg_arg}!' -->\
                 <!--#echo var='a' -->",
                "xxvalue!",
            ),
            ("<!--#set var='a' value='\\$b \\\\ \\q' --><!--#echo var='a' -->", "$b \\ \\q"),
            ("<!--#set var='uri' value='mine' --><!--#echo var='uri' -->", "mine"),
            ("<!--#set var='a' value='$' -->", ERROR),
            (
                "<!--#set var='a' value='1' --><!--#include virtual='/inner' wait='yes' -->\
                 <!--#echo var='b' -->",
                "[1]inner",
            ),
        ],
    );
}

#[test]
fn include() {
    let site = pages(
        "location /plain { default_type text/plain; }
         location /sub { return 200 \"[$uri $args $request_uri $request_method $http_x_mark]\"; }
         location /444 { return 444; }
         location /moved { rewrite ^ /plain; }
         location /page { error_page 404 /plain; }",
    )
    .file("html/plain", "plain<!--#echo var='uri' -->")
    .file("html/inner", "<!--#echo var='uri' -->")
    .file("html/dir/near", "near")
    .file("html/loop", "x<!--#include virtual='/loop' -->")
    .file("html/empty", "")
    .allow_log("subrequests cycle")
    .allow_log("unsafe URI");
    become_(
        site,
        &[
            ("a<!--#include virtual='/plain' -->b", "aplain<!--#echo var='uri' -->b"),
            ("<!--#include virtual='/inner?x' -->", "/inner"),
            ("<!--#include virtual='near' -->", "near"),
            ("<!--#include file='near' -->", "near"),
            ("<!--#include file='n%65ar' -->", "near"),
            ("<!--#include virtual='/sub?x=1&y' -->", "[/sub x=1&y /dir/p5?arg=value GET <m&\"ü>]"),
            (
                "<!--#set var='v' value='near' --><!--#include virtual='$v' -->\
                 <!--#include virtual='/dir/$v?$arg_arg' -->",
                "nearnear",
            ),
            ("<!--#include virtual='/moved' -->", "plain<!--#echo var='uri' -->"),
            ("<!--#include virtual='/page' -->", "plain<!--#echo var='uri' -->"),
            (
                "1<!--#include virtual='/inner' -->2<!--#include virtual='/plain' -->3\
                 <!--#include virtual='near' wait='yes' -->4<!--#include virtual='/empty' -->5",
                "1/inner2plain<!--#echo var='uri' -->3near45",
            ),
            ("<!--#include file='../inner' -->", ERROR),
        ],
    );
}

#[test]
fn an_include_that_fails_shows_its_page() {
    let site = pages("").file("html/a", "[<!--#include virtual='/none' -->]");
    gets(&site, &[("/a", "200\n\n[<html>*404 Not Found*]")]);
}

#[test]
fn pages_that_include_themselves_end() {
    let site = pages("")
        .file("html/loop", "x<!--#include virtual='/loop' -->")
        .allow_log("subrequests cycle while processing \"/loop\"");
    let expected = format!("{}{ERROR}", "x".repeat(52));
    gets(&site, &[("/loop", &format!("200\n\n{expected}"))]);
}

#[test]
fn blocks_stand_in_for_nothing() {
    let site = pages(
        "location /500 { return 500; }
         location /200 { return 200 ''; }
         location /404 { error_page 404 /inner; }
         location /off/ { ssi off; }",
    )
    .file("html/inner", "inner");
    let block = "<!--#block name='one' -->s<!--#echo var='uri' -->t<!--#endblock -->";
    let page = |command: &str| format!("{block}[{command}]");
    let stub = |uri: &str| page(&format!("<!--#include virtual='{uri}' stub='one' -->"));
    // There the commands of a block are not carried out if the answer has a head and no body.
    let for_empty = if asks_nginx() { "[s<!--#echo var=\"uri\" -->t]" } else { "[s/200t]" };
    let (inner, missing, error, empty) = (stub("/inner"), stub("/404"), stub("/500"), stub("/200"));
    let twice = page(
        "<!--#include virtual='/none' stub='one' --><!--#include virtual='/none' stub='one' -->",
    );
    become_(
        site,
        &[
            (block, ""),
            (&inner, "[inner]"),
            (&missing, "[s/404t]"),
            (&error, "[s/500t]"),
            (&empty, for_empty),
            (&twice, "[s/nonets/nonet]"),
            ("<!--#block name='a' -->a<!--#endblock -->b", "b"),
        ],
    );
}

#[test]
fn answers_are_kept_in_variables() {
    let site = pages(
        "location /sub { return 200 '<$args>'; }
         location /error { return 404; }
         location /big { }
         location /more { subrequest_output_buffer_size 8k; alias %%DIR%%/html/big; }",
    )
    .file("html/file", "from a file")
    .file("html/big", pattern(5000))
    .allow_log("too big subrequest response");
    let mut cases = vec![
        ("<!--#include virtual='/sub?q' set='v' -->[<!--#echo var='v' -->]", "[&lt;q&gt;]"),
        (
            "<!--#include virtual='/file' set='v' -->[<!--#echo var='v' -->\
             <!--#set var='v' value='2' --><!--#echo var='V' -->]",
            "[from a file2]",
        ),
        ("<!--#include virtual='/error' set='v' -->[<!--#echo var='v' default='none' -->]", "[]"),
        (
            "<!--#include virtual='/file' set='v' stub='s' -->",
            "[an error occurred while processing the directive]",
        ),
    ];
    if !asks_nginx() {
        // There the response is cut.
        cases.push(("<!--#include virtual='/big' set='v' -->[<!--#echo var='v' -->]", "[]"));
    }
    become_(site.clone().allow_log("cannot be used together"), &cases);
    let site = site.file("html/a", "<!--#include virtual='/more' set='v' --><!--#echo var='v' -->");
    on_each_driver(&site, |server| assert!(ask(server, "/a", &[]).body == pattern(5000)));
}

#[test]
fn times() {
    become_(
        pages(""),
        &[
            ("<!--#config timefmt='<%%>' --><!--#echo var='date_gmt' -->", "&lt;%&gt;"),
            ("<!--#config timefmt='%Z %z' --><!--#echo var='date_gmt' -->", "GMT +0000"),
            (
                "<!--#echo var='date_local' set='' -->",
                "[an error occurred while processing the directive]",
            ),
            (
                "<!--#config timefmt='%Y' --><!--#if expr='$date_local = /^20..\\$/' -->y<!--#endif -->",
                "y",
            ),
            (
                "<!--#if expr='$date_gmt = /^[A-Z].*day, ..-...-20.. ..:..:.. GMT\\$/' -->y<!--#endif -->",
                "y",
            ),
        ],
    );
}

#[test]
fn which_responses_have_commands() {
    let site = server(
        "location / { ssi on; }
         location /html { ssi on; default_type text/html; }
         location /kept { ssi on; ssi_last_modified on; default_type text/html; alias %%DIR%%/html/html; }
         location /types { ssi on; ssi_types text/plain; alias %%DIR%%/html/html; }
         location /all { ssi on; ssi_types *; default_type x/y; alias %%DIR%%/html/html; }
         location /empty { ssi on; default_type text/html; }
         location /off { default_type text/html; alias %%DIR%%/html/html; }
         location /if { if ($arg_x) { ssi on; } default_type text/html; alias %%DIR%%/html/html; }",
    )
    .file("html/a", "<!--#echo var='uri' -->")
    .file("html/html", "<!--#echo var='uri' -->")
    .file("html/empty", "");
    gets(
        &site,
        &[
            ("/a", "200\nContent-Length: 23\n\n<!--#echo var='uri' -->"),
            ("/html", "200\n!Content-Length\n!Last-Modified\n!ETag\n!Accept-Ranges\n\n/html"),
            ("/kept", "200\nLast-Modified: *\nETag: W/*\n\n/kept"),
            ("/types", "200\n\n/types"),
            ("/all", "200\n\n/all"),
            ("/off", "200\nETag: \"*\n\n<!--#echo var='uri' -->"),
            ("/empty", "200\nContent-Length: 0\nETag: \"*\n\n"),
            ("/if?x=1", "200\n\n/if"),
            ("/if", "200\n\n<!--#echo var='uri' -->"),
        ],
    );
    exchanges(
        &site,
        &[
            ("HEAD /html HTTP/1.1\nHost: a", "200\n!Content-Length\n!ETag"),
            ("GET /html HTTP/1.1\nHost: a\nRange: bytes=0-1", "200\n\n/html"),
        ],
    );
}

#[test]
fn long_pages() {
    let mut page = Vec::new();
    let mut expected = Vec::new();
    let text = pattern(3000);
    for n in 0..100 {
        page.extend_from_slice(&text[..n * 30]);
        page.extend_from_slice(b"<!--#include virtual=\"/inner\" -->");
        expected.extend_from_slice(&text[..n * 30]);
        expected.extend_from_slice(&text);
    }
    let site = pages("").file("html/page", page).file("html/inner", &text);
    on_each_driver(&site, |server| {
        let answer = ask(server, "/page", &[]);
        assert!(answer.body == expected, "{} bytes", answer.body.len());
    });
}

#[test]
fn pages_of_which_nothing_is_written() {
    let includes = "<!--#include virtual='/empty' -->".repeat(2000);
    let hidden = String::from_utf8(pattern(2_000_000)).unwrap();
    let site = pages("location /empty { return 200 ''; }")
        .file("html/many", format!("a{includes}b"))
        .file("html/hidden", format!("a<!--#if expr='$none' -->{hidden}<!--#endif -->b"));
    gets(&site, &[("/many", "200\n\nab"), ("/hidden", "200\n\nab")]);
}

#[test]
fn charsets_and_compression_see_the_whole() {
    let builder = site(
        "charset_map latin1 utf-8 { E4 C3A4; FC C3BC; }
         server {
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; default_type text/html;
             ssi on; gzip on; gzip_min_length 1; charset utf-8;
             location = /latin { source_charset latin1; charset off; }
         }",
    )
    .file("html/page", "ü<!--#include virtual='/latin' -->ü")
    .file("html/latin", b"\xe4<!--#echo var='uri' -->");
    on_each_driver(&builder, |server| {
        assert_eq!(ask(server, "/page", &[]).text(), "üä/latinü");
        let answer = ask(server, "/page", &["Accept-Encoding: gzip"]);
        let mut whole = String::new();
        let mut reader = flate2::read::GzDecoder::new(&answer.body[..]);
        std::io::Read::read_to_string(&mut reader, &mut whole).unwrap();
        assert_eq!(whole, "üä/latinü");
        check_on(
            server,
            "GET /page HTTP/1.1
             Host: a",
            "200
             Content-Type: text/html; charset=utf-8",
        );
    });
}
