//! `map` and `split_clients`.

use crate::stage::{gets, on_each_driver, site};

fn show(maps: &str, text: &str) -> nowait_testkit::ServerBuilder {
    site(&format!(
        "{maps}\nserver {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 \"{text}\"; }} }}"
    ))
}

#[test]
fn keys() {
    let site = show(
        r#"
        map $arg_x $y {
            default other;
            "" empty;
            a letter;
            CASE case;
            "two words" words;
            ~^(?<first>.)-(.*)$ "$first and $2";
            ~*^UPPER upper;
            \~tilde tilde;
            \default backslash;
            *.a.example star;
        }
        map $arg_x $none { a letter; }
        map $arg_x$arg_y $both { ab $y; }
        "#,
        "$y|$none|$both",
    );
    gets(
        &site,
        &[
            ("/", "200\n\nempty||"),
            ("/?x=a", "200\n\nletter|letter|"),
            ("/?x=A", "200\n\nletter|letter|"),
            ("/?x=case", "200\n\ncase||"),
            ("/?x=b", "200\n\nother||"),
            ("/?x=b-c-d", "200\n\nb and c-d||"),
            ("/?x=upperx", "200\n\nupper||"),
            ("/?x=~tilde", "200\n\ntilde||"),
            ("/?x=default", "200\n\nbackslash||"),
            ("/?x=b.a.example", "200\n\nother||"),
            ("/?x=a&y=b", "200\n\nletter|letter|letter"),
        ],
    );
}

/// Values beyond a thousand are kept in another way.
#[test]
fn many_values() {
    let mut map = String::from("map $arg_x $y { default none; same twice;\n");
    for n in 0..3000 {
        let value = if n % 100 == 7 { "v${arg_y}" } else { "value" };
        map.push_str(&format!("KEY{n} {value}{n};\n"));
    }
    map.push_str("nothing \"\"; quoted \"a \\\"b\\\"\"; ~^re two; }");
    gets(
        &show(&map, "$y|$y"),
        &[
            ("/?x=key0", "200\n\nvalue0|value0"),
            ("/?x=Key1023", "200\n\nvalue1023|value1023"),
            ("/?x=key2999", "200\n\nvalue2999|value2999"),
            ("/?x=key2907&y=1", "200\n\nv12907|v12907"),
            ("/?x=nothing", "200\n\n|"),
            ("/?x=quoted", "200\n\na \"b\"|a \"b\""),
            ("/?x=regular", "200\n\ntwo|two"),
            ("/?x=key3000", "200\n\nnone|none"),
        ],
    );
}

#[test]
fn hostnames() {
    let site = show(
        r#"
        map $arg_x $y {
            hostnames;
            default none;
            a.example exact;
            *.a.example below;
            *.b.a.example longer;
            a.* ahead;
            .c.example both;
        }
        "#,
        "$y",
    );
    gets(
        &site,
        &[
            ("/?x=a.example", "200\n\nexact"),
            ("/?x=A.example.", "200\n\nexact"),
            ("/?x=x.a.example", "200\n\nbelow"),
            ("/?x=x.b.a.example", "200\n\nlonger"),
            ("/?x=a.org", "200\n\nahead"),
            ("/?x=c.example", "200\n\nboth"),
            ("/?x=d.c.example", "200\n\nboth"),
            ("/?x=d", "200\n\nnone"),
        ],
    );
}

#[test]
fn a_value_is_computed_once_unless_volatile() {
    let site = site(
        r#"
        map $uri $kept { default $uri; }
        map $uri $fresh { volatile; default $uri; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location /a { set $x $kept$fresh; rewrite ^ /b last; }
            location /b { return 200 $x|$kept|$fresh; }
            location /c { set $kept mine; set $fresh mine; return 200 $kept|$fresh; }
        }
        "#,
    );
    gets(&site, &[("/a", "200\n\n/a/a|/a|/b"), ("/c", "200\n\nmine|mine")]);
}

#[test]
fn entries_of_other_files() {
    let site = show("map $arg_x $y { include %%DIR%%/*.map; b B; }", "$y")
        .file("one.map", "a A;\n")
        .file("two.map", "default D;\n");
    gets(&site, &[("/?x=a", "200\n\nA"), ("/?x=b", "200\n\nB"), ("/?x=c", "200\n\nD")]);
}

#[test]
fn variables_that_need_each_other() {
    let site = show("map $b $a { default $b; } map $a $b { default $a; }", "<$a>")
        .allow_log("cycle while evaluating variable");
    on_each_driver(&site, |server| {
        server.get("/");
        server.wait_log("cycle while evaluating variable");
    });
}

/// The shares are those of nginx, so that a client stays where it was.
#[test]
fn clients_are_split_as_by_nginx() {
    let site = show(
        "split_clients $arg_x $y { 0.5% half; 20% two; 29.5% three; * rest; }
         split_clients $arg_x $z { 50% a; 50% b; }
         split_clients $arg_x $part { 0.01% a; }",
        "$y|$z|$part",
    );
    gets(
        &site,
        &[
            ("/?x=1", "200\n\nthree|a|"),
            ("/?x=2", "200\n\ntwo|a|"),
            ("/?x=3", "200\n\nrest|b|"),
            ("/?x=15", "200\n\nhalf|a|"),
        ],
    );
}

/// Of many expressions, few are tried; the first that matches decides as before, with its captures.
#[test]
fn the_first_of_many_expressions_decides() {
    let many: String = (0..200).map(|n| format!("~*crawler{n}x crawler-{n};\n")).collect();
    let location =
        |n| format!("location ~ ^/type{n}/(?<rest>.+)\\.x$ {{ return 200 {n}:$rest; }}\n");
    let locations: String = (0..50).map(location).collect();
    let names: String = (0..50).map(|n| format!("~^site{n}\\.(.+)\\.example$ ")).collect();
    let http = format!(
        "map $arg_agent $kind {{
            default none;
            ~^(?<word>[a-z]+)=(.*)$ $word-$2;
            {many}
            ~crawler first-is-later;
        }}
        server {{
            listen 127.0.0.1:%%PORT%%;
            location / {{ return 200 $kind; }}
            {locations}
        }}
        server {{ listen 127.0.0.1:%%PORT%%; server_name {names}; return 200 site:$1; }}"
    );
    let server = site(&http).start();
    for (path, expected) in [
        ("/?agent=Crawler17X", "crawler-17"),
        ("/?agent=a-crawler199x-b", "crawler-199"),
        ("/?agent=crawler", "first-is-later"),
        ("/?agent=key=crawler3x", "key-crawler3x"),
        ("/?agent=other", "none"),
        ("/type49/a/b.x", "49:a/b"),
        ("/type4/.x", "none"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: site7.of.mine.example\r\n\r\n");
    assert_eq!(client.response().text(), "site:of.mine");
}

#[test]
fn numbers_and_ranges() {
    let site = show(
        "num_map $arg_n $port { default none; <=1023 low; 443 https; 8080-8090 range; 8085-9000 second; >=60000 high$arg_x; }
         num_map $arg_n $bare { >5 more; }
         num_map $arg_v $fresh { volatile; 1 one; }",
        "$port|$bare|$fresh",
    );
    gets(
        &site,
        &[
            ("/?n=0", "200\n\nlow||"),
            ("/?n=443", "200\n\nhttps|more|"),
            ("/?n=1023", "200\n\nlow|more|"),
            ("/?n=1024", "200\n\nnone|more|"),
            ("/?n=8090", "200\n\nrange|more|"),
            ("/?n=8091&v=01", "200\n\nsecond|more|one"),
            ("/?n=18446744073709551615&x=er", "200\n\nhigher|more|"),
            // Not numbers.
            ("/?n=18446744073709551616", "200\n\nnone||"),
            ("/?n=-7", "200\n\nnone||"),
            ("/?n=7.5", "200\n\nnone||"),
            ("/", "200\n\nnone||"),
        ],
    );
}

#[test]
fn values_of_json_documents() {
    let site = site(
        r#"
        json_set $name $arg_json user.name;
        json_set $tag $arg_json user.tags[1];
        json_set $user $arg_json user;
        json_set $dotted $arg_json '["a.b"]';
        json_set $other $arg_other user.name;
        json_set $http_x $arg_json x;
        map $name $mapped { default none; jo known; }
        json_max_depth 3;
        client_body_early_read 1;
        json_set $from_body $request_body id;
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { return 200 "$name|$tag|$user|$dotted|$other|$http_x|$mapped"; }
            location /body { return 200 "<$from_body>"; }
            location /set { set $name fixed; return 200 "$name|$tag|$name"; }
        }
        "#,
    );
    let get = |json: &str| format!("GET /?json={json} HTTP/1.1\r\nHost: a\r\nX: header\r\n\r\n");
    let post = |body: &str| {
        format!("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let set =
        "GET /set?json={\"user\":{\"name\":\"jo\",\"tags\":[1,2]}} HTTP/1.1\r\nHost: a\r\n\r\n";
    let exchange: &[(String, &str)] = &[
        (
            get(r#"{"user":{"name":"jo","tags":[1,"\u00e9"]}}"#),
            r#"jo|é|{"name":"jo","tags":[1,"\u00e9"]}||||known"#,
        ),
        (get(r#"{"a.b":[true],"x":null}&other={"user":{"name":0}}"#), "|||[true]|0|null|none"),
        // An invalid document has no values at all; nor has one that is nested too deep.
        (get(r#"{"user":{"name":"jo"}"#), "||||||none"),
        (get(r#"{"user":{"name":"jo","x":[[1]]}}"#), "||||||none"),
        (get(""), "||||||none"),
        (post(r#"{"id":"7"}"#), "<7>"),
        (post("id=7"), "<>"),
        (set.to_owned(), "fixed|2|fixed"),
    ];
    on_each_driver(&site, |server| {
        for (request, expected) in exchange {
            let mut client = server.client();
            client.send(request);
            assert_eq!(client.response().text(), *expected, "{request}");
        }
    });
}
