//! Variables that the configuration defines, and `return`.

use nowait_testkit::mmdb::{self, MmdbValue};

use crate::stage::{hear, on_each, stream};

/// What a server answers whose `return` is this.
#[track_caller]
fn check(block: &str, text: &str, expected: &str) {
    let block = format!("{block} server {{ listen 127.0.0.1:%%PORT%%; {text} }}");
    on_each(&stream(&block), |server| assert_eq!(hear(server.addr()), expected));
}

#[test]
fn maps() {
    check(
        "map $remote_addr $name { hostnames; 127.0.0.1 'local $protocol'; default other; }
         map $protocol $regex { ~^(?<letter>T)CP$ $letter-1; }",
        "return \"$name $regex\";",
        "local TCP T-1",
    );
}

#[test]
fn numbers() {
    check(
        "num_map $server_port $port { <=1023 low; >=1024 'not $protocol'; default none; }
         num_map $remote_addr $none { >=0 some; default none; }",
        "return '$port $none';",
        "not TCP none",
    );
}

#[test]
fn networks() {
    check(
        "geo $net { default out; 127.0.0.0/8 in; 192.0.2.0/24 far; }
         geo $server_addr $own { ranges; default out; 127.0.0.0-127.0.0.255 near; }",
        "return $net,$own;",
        "in,near",
    );
}

#[test]
fn databases() {
    let known = MmdbValue::Map(vec![("code", MmdbValue::Text("LO"))]);
    let file = mmdb::database(1, &[("127.0.0.0/8", known)]);
    let block = "geoip2 geo.mmdb {
            auto_reload 1s; $code code; $none default=no source=$server_port code;
            $own source=$server_addr code;
        }
        server { listen 127.0.0.1:%%PORT%%; return $code,$none,$own; }";
    on_each(&stream(block).file("geo.mmdb", &file), |server| {
        assert_eq!(hear(server.addr()), "LO,no,LO");
        let known = MmdbValue::Map(vec![("code", MmdbValue::Text("NEW"))]);
        let new = server.write("new", mmdb::database(2, &[("127.0.0.0/8", known)]));
        std::fs::rename(new, server.dir().join("geo.mmdb")).expect("a rename");
        server.wait_log("geo.mmdb\" reloaded");
        assert_eq!(hear(server.addr()), "NEW,no,NEW");
    });
}

#[test]
fn shares() {
    check("split_clients $remote_addr $share { 100% all; * none; }", "return $share;", "all");
}

#[test]
fn values_that_are_set() {
    check(
        "map $later $mapped { default '<$later>'; }",
        "set $first $remote_addr; set $later \"$first!\"; return '$later $mapped';",
        "127.0.0.1! <127.0.0.1!>",
    );
}

#[test]
fn nothing_to_return() {
    check("", "return '';", "");
}

#[test]
fn the_last_handler_wins() {
    check("", "proxy_pass 127.0.0.1:1; return text;", "text");
}
