//! `geoip2`.

use nowait_testkit::mmdb::{self, MmdbValue};

use crate::stage::{self, exchanges, gets, on_each_driver, site};

/// Wants a server with such a file not to start, for this reason.
#[track_caller]
fn refused(block: &str, file: Option<&[u8]>, reason: &str) {
    let mut site = site(&format!("{block} server {{ listen 127.0.0.1:%%PORT%%; }}"));
    if let Some(content) = file {
        site = site.file("geo.mmdb", content);
    }
    stage::refused(&site, reason);
}

/// A country by code and name, and a value of each kind.
fn country(code: &'static str, name: &'static str) -> MmdbValue {
    MmdbValue::Map(vec![
        (
            "country",
            MmdbValue::Map(vec![
                ("iso_code", MmdbValue::Text(code)),
                ("names", MmdbValue::Map(vec![("en", MmdbValue::Text(name))])),
            ]),
        ),
        (
            "location",
            MmdbValue::Map(vec![
                ("latitude", MmdbValue::Double(-33.123_456_7)),
                ("r", MmdbValue::U16(500)),
            ]),
        ),
        (
            "list",
            MmdbValue::Array(vec![
                MmdbValue::Map(vec![("name", MmdbValue::Text("first"))]),
                MmdbValue::Text("last"),
            ]),
        ),
        (
            "kinds",
            MmdbValue::Map(vec![
                ("float", MmdbValue::Float(1.5)),
                ("yes", MmdbValue::Bool(true)),
                ("no", MmdbValue::Bool(false)),
                ("bytes", MmdbValue::Bytes(b"raw")),
                ("u32", MmdbValue::U32(4_000_000_000)),
                ("u64", MmdbValue::U64(18_000_000_000_000_000_000)),
                ("u128", MmdbValue::U128(0x12_3456_789a)),
                ("i32", MmdbValue::I32(-5)),
                ("0", MmdbValue::Text("key")),
            ]),
        ),
    ])
}

fn sample() -> Vec<u8> {
    mmdb::database(
        1_700_000_000,
        &[
            ("192.0.2.0/24", country("AU", "Australia")),
            ("2001:db8::/32", country("JP", "Japan")),
            ("127.0.0.0/8", country("LO", "Loopback")),
        ],
    )
}

#[test]
fn values_of_all_kinds() {
    let site = site(
        r#"
        geoip2 geo.mmdb {
            $code source=$arg_ip country iso_code;
            $name default=Nowhere source=$arg_ip country names en;
            $latitude source=$arg_ip location latitude;
            $radius source=$arg_ip location r;
            $first source=$arg_ip list 0 name;
            $last source=$arg_ip list -1;
            $beyond source=$arg_ip list 7;
            $whole default=map source=$arg_ip country;
            $float source=$arg_ip kinds float;
            $yes source=$arg_ip kinds yes;
            $no source=$arg_ip kinds no;
            $bytes source=$arg_ip kinds bytes;
            $u32 source=$arg_ip kinds u32;
            $u64 source=$arg_ip kinds u64;
            $u128 source=$arg_ip kinds u128;
            $i32 source=$arg_ip kinds i32;
            $key source=$arg_ip kinds 0;
            $mine country iso_code;
            $built metadata build_epoch;
        }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { return 200 $code|$name|$mine|$built; }
            location /kinds { return 200 $float|$yes|$no|$bytes|$u32|$u64|$u128|$i32|$key; }
            location /paths { return 200 $latitude|$radius|$first|$last|$beyond|$whole; }
        }
        "#,
    )
    .file("geo.mmdb", sample());
    gets(
        &site,
        &[
            ("/?ip=192.0.2.7", "200\n\nAU|Australia|LO|1700000000"),
            ("/?ip=::ffff:192.0.2.7", "200\n\nAU|Australia|LO|1700000000"),
            ("/?ip=2001:db8:1::9", "200\n\nJP|Japan|LO|1700000000"),
            ("/?ip=198.51.100.1", "200\n\n|Nowhere|LO|1700000000"),
            ("/?ip=nonsense", "200\n\n|Nowhere|LO|1700000000"),
            ("/", "200\n\n|Nowhere|LO|1700000000"),
            (
                "/kinds?ip=192.0.2.7",
                "200\n\n1.50000|1|0|raw|4000000000|18000000000000000000|\
                 0x0000000000000000000000123456789a|-5|key",
            ),
            ("/paths?ip=192.0.2.7", "200\n\n-33.12346|500|first|last||map"),
        ],
    );
}

#[test]
fn addresses_behind_proxies() {
    let block = |recursive: &str| {
        site(&format!(
            r#"
            geoip2 geo.mmdb {{ $code default=none country iso_code; $peer source=$remote_addr country iso_code; }}
            geoip2_proxy 127.0.0.0/8;
            geoip2_proxy 10.0.0.0/8;
            {recursive}
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 $code|$peer; }} }}
            "#
        ))
        .file("geo.mmdb", sample())
    };
    let with = |value: &str| format!("GET / HTTP/1.1\nHost: a\nX-Forwarded-For: {value}");
    exchanges(
        &block(""),
        &[
            (&with("192.0.2.1"), "200\n\nAU|LO"),
            (&with("192.0.2.1, 10.1.1.1"), "200\n\nnone|LO"),
            ("GET / HTTP/1.1\nHost: a", "200\n\nLO|LO"),
        ],
    );
    exchanges(
        &block("geoip2_proxy_recursive on;"),
        &[(&with("2001:db8::1, 10.1.1.1"), "200\n\nJP|LO")],
    );
}

#[test]
fn a_changed_file_is_read_again() {
    let site = site(
        r#"
        geoip2 geo.mmdb { auto_reload 1s; $code country iso_code; $built metadata build_epoch; }
        server { listen 127.0.0.1:%%PORT%%; location / { return 200 $code|$built; } }
        "#,
    )
    .file("geo.mmdb", sample())
    .allow_log("cannot reload database");
    on_each_driver(&site, |server| {
        let replace = |content: &[u8]| {
            let new = server.write("new.mmdb", content);
            std::fs::rename(new, server.dir().join("geo.mmdb")).expect("a rename");
        };
        assert_eq!(server.get("/").text(), "LO|1700000000");
        replace(b"not a database");
        server.wait_log("cannot reload database");
        assert_eq!(server.get("/").text(), "LO|1700000000");
        replace(&mmdb::database(1_800_000_000, &[("127.0.0.0/8", country("NW", "New"))]));
        server.wait_log("geo.mmdb\" reloaded");
        assert_eq!(server.get("/").text(), "NW|1800000000");
    });
}

#[test]
fn hostile_databases_are_refused_or_have_no_values() {
    let block = "geoip2 geo.mmdb { $code country iso_code; }";
    let whole = sample();
    for (content, text) in [
        (Vec::new(), "it is not a usable MaxMind database"),
        (whole[..whole.len() / 2].to_vec(), "it is not a usable MaxMind database"),
        (vec![0; 1 << 20], "it is not a usable MaxMind database"),
        (tree(u32::MAX, 32), "it is not a usable MaxMind database"),
        (tree(1, 7), "it is not a usable MaxMind database"),
    ] {
        refused(block, Some(&content), text);
    }
    let values = [
        // A pointer to itself, one out of the file, one between two maps.
        MmdbValue::Pointer(0),
        MmdbValue::Pointer(u32::MAX),
        MmdbValue::Map(vec![("country", MmdbValue::Pointer(0))]),
        // A map of 16 million entries, a text of 16 MB, an unknown type.
        MmdbValue::Raw(b"\xff\xff\xff\xff".to_vec()),
        MmdbValue::Raw(b"\x5f\xff\xff\xff".to_vec()),
        MmdbValue::Raw(b"\x00\xff".to_vec()),
        // Maps in maps.
        MmdbValue::Raw(b"\xe1\x47country".repeat(100_000)),
    ];
    for value in values {
        let site = site(&format!(
            "{block} server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 <$code>; }} }}"
        ))
        .file("geo.mmdb", mmdb::database(1, &[("127.0.0.0/8", value)]));
        gets(&site, &[("/", "200\n\n<>")]);
    }
}

/// A database that claims to have such a tree.
fn tree(node_count: u32, record_size: u16) -> Vec<u8> {
    let mut out = vec![0; 64];
    mmdb::metadata(&mut out, node_count, record_size, 1);
    out
}

#[test]
fn errors() {
    let file = sample();
    for (line, text) in [
        ("auto_reload;", "invalid number of arguments for auto_reload"),
        ("auto_reload soon;", "invalid interval for auto_reload \"soon\""),
        ("reload 1s;", "invalid setting \"reload\""),
        ("$x metadata;", "invalid number of arguments for metadata of \"$x\""),
        ("$x metadata age;", "unknown metadata \"age\""),
        ("$x source=ip country;", "invalid source variable name in \"source=ip\""),
        ("$x name=ip country;", "invalid setting \"name=ip\""),
        ("$uri country;", "the duplicate \"uri\" variable"),
    ] {
        let block = format!("geoip2 geo.mmdb {{ {line} }}");
        refused(&block, Some(&file), text);
    }
    let twice = "geoip2 geo.mmdb { } geoip2 geo.mmdb { }";
    refused(twice, Some(&file), "duplicate database");
    refused("geoip2 none.mmdb { }", None, "open() failed (2: No such file or directory)");
    refused("geoip2_proxy 1.2.3;", None, "invalid network \"1.2.3\"");
}
