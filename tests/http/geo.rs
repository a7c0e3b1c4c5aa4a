//! `geo`.

use crate::stage::{exchanges, gets, site};

#[test]
fn networks_and_ranges() {
    let site = site(
        r#"
        geo $arg_ip $net {
            default none;
            192.0.2.0/24 net;
            192.0.2.7 one;
            2001:db8::/32 six;
            198.51.100.0/24 gone;
            delete 198.51.100.0/24;
            255.255.255.255 nobody;
        }
        geo $arg_ip $range {
            ranges;
            default none;
            10.0.0.0-10.2.0.255 outer;
            10.0.0.5-10.0.0.9 inner;
            10.1.0.0-10.1.255.255 whole;
        }
        geo $mine { 127.0.0.0/8 loopback; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { return 200 $net|$range|$mine; }
        }
        "#,
    );
    gets(
        &site,
        &[
            ("/?ip=192.0.2.7", "200\n\none|none|loopback"),
            ("/?ip=192.0.2.8", "200\n\nnet|none|loopback"),
            ("/?ip=198.51.100.1", "200\n\nnone|none|loopback"),
            ("/?ip=2001:db8::1", "200\n\nsix|none|loopback"),
            ("/?ip=2001:db9::1", "200\n\nnone|none|loopback"),
            ("/?ip=::ffff:192.0.2.7", "200\n\none|none|loopback"),
            ("/?ip=10.0.0.4", "200\n\nnone|outer|loopback"),
            ("/?ip=10.0.0.5", "200\n\nnone|inner|loopback"),
            ("/?ip=10.1.2.3", "200\n\nnone|whole|loopback"),
            ("/?ip=10.2.0.255", "200\n\nnone|outer|loopback"),
            ("/?ip=10.2.1.0", "200\n\nnone|none|loopback"),
            ("/?ip=x", "200\n\nnobody|none|loopback"),
            ("/", "200\n\nnobody|none|loopback"),
        ],
    );
}

#[test]
fn addresses_behind_proxies() {
    let site = site(
        r#"
        geo $one { proxy 127.0.0.0/8; proxy 10.0.0.0/8; default none; 192.0.2.0/24 net; }
        geo $all {
            proxy 127.0.0.0/8; proxy 10.0.0.0/8; proxy_recursive;
            default none; 192.0.2.0/24 net;
        }
        geo $untrusted { proxy 10.0.0.0/8; default none; 192.0.2.0/24 net; 127.0.0.1 loopback; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { return 200 $one|$all|$untrusted; }
        }
        "#,
    );
    let with = |value: &str| format!("GET / HTTP/1.1\nHost: a\nX-Forwarded-For: {value}");
    exchanges(
        &site,
        &[
            (&with("192.0.2.1"), "200\n\nnet|net|loopback"),
            (&with("192.0.2.1, 10.1.1.1"), "200\n\nnone|net|loopback"),
            (&with("192.0.2.1, 198.51.100.1, 10.1.1.1"), "200\n\nnone|none|loopback"),
            (&with("192.0.2.1\nX-Forwarded-For: 10.1.1.1"), "200\n\nnone|net|loopback"),
            (&with("unknown"), "200\n\nnone|none|loopback"),
        ],
    );
}
