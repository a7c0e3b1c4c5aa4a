//! A client that sends anything: the server never panics and goes on serving.

use std::io::{Read, Write};

use crate::stage::{on_each_driver, server};

/// Requests whose mutations are sent.
const SEEDS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /a?b=c HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1,3-4,-5\r\nIf-Range: \"x\"\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n0123456789",
    "HEAD http://a.test:80/%61/../b//c?d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: [::1]:80\r\nIf-Modified-Since: Fri, 13 Jul 2012 11:01:20 GMT\r\n\
     If-None-Match: W/\"a\", \"b\"\r\nCookie: a=b; c=d\r\n\r\n",
    "GET /old\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03",
];

/// Mutated requests per seed and driver.
const ROUNDS: u64 = 60;

/// A small generator: the same garbage on every run.
struct GarbageRng(u64);

impl GarbageRng {
    fn next(&mut self) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap()
    }
}

fn mutate(random: &mut GarbageRng, seed: &str) -> Vec<u8> {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => bytes.insert(at, b"\0\r\n :;%/\x7f\xff"[random.below(10)]),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at.max(1)),
            4 => {
                let piece = bytes[at..].to_vec();
                bytes.extend_from_slice(&piece);
            }
            _ => {
                let n = random.below(5000);
                bytes.splice(at..at, std::iter::repeat_n(b'a', n));
            }
        }
        if bytes.is_empty() {
            bytes.push(b'G');
        }
    }
    bytes
}

#[test]
fn garbage_is_answered_or_dropped() {
    let site = server(
        "error_page 400 404 405 414 /error; location = /error { return 200 \"$request|$args|$http_cookie\"; }
         location /b { autoindex on; } location ~ ^/(a+)$ { root %%DIR%%/html; try_files $uri /$1/ =404; }",
    )
    .file("html/a", "0123456789");
    on_each_driver(&site, |server| {
        let mut random = GarbageRng(0x2545_f491_4f6c_dd1d);
        for seed in SEEDS {
            for _ in 0..ROUNDS {
                let bytes = mutate(&mut random, seed);
                let mut client = server.client();
                // The server may close at any time.
                let _ = client.stream().write_all(&bytes);
                client.half_close();
                let mut answer = Vec::new();
                match client.read_to_end(&mut answer) {
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                        panic!("no end for {:?}", String::from_utf8_lossy(&bytes))
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(server.get("/a").text(), "0123456789");
    });
}
