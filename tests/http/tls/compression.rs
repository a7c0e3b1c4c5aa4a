//! `ssl_certificate_compression`

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::compress::{CertDecompressor, DecompressionFailed, ZLIB_DECOMPRESSOR};
use rustls::{CertificateCompressionAlgorithm as Algorithm, ClientConfig};

use super::{Authority, TlsClient, beside};
use crate::stage::on_each_driver;

/// Decompresses, and counts.
#[derive(Debug)]
struct Counting {
    algorithm: Algorithm,
    count: AtomicUsize,
}

impl Counting {
    fn new(algorithm: Algorithm) -> &'static Counting {
        Box::leak(Box::new(Counting { algorithm, count: AtomicUsize::new(0) }))
    }
}

impl CertDecompressor for Counting {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.algorithm == Algorithm::Zlib {
            return ZLIB_DECOMPRESSOR.decompress(input, output);
        }
        let mut decoder = brotli_decompressor::Decompressor::new(input, 4096);
        decoder.read_exact(output).map_err(|_| DecompressionFailed)
    }

    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[test]
fn certificates_are_compressed_for_clients_that_allow_it() {
    let authority = Authority::new("CA");
    let plain = authority.issue("plain.example");
    let more = "server { listen 127.0.0.1:%%PORT%% ssl; server_name plain.example;\n\
                ssl_certificate plain.pem; ssl_certificate_key plain.key; }";
    let site = beside(&authority, "ssl_certificate_compression on;", more);
    let site = site.file("plain.pem", &plain.chain).file("plain.key", &plain.key);
    on_each_driver(&site, |server| {
        let ask = |all: &[&'static Counting], name| {
            let mut config = ClientConfig::clone(&authority.client(None));
            config.resumption = rustls::client::Resumption::disabled();
            config.cert_decompressors = all.iter().map(|one| *one as _).collect();
            let config = Arc::new(config);
            // The second time, the server has it ready.
            for _ in 0..2 {
                assert!(TlsClient::new(server, &config, name).get("/").0.starts_with("HTTP/1.1"));
            }
            let counts = all.iter().map(|one| one.count.load(Ordering::Relaxed));
            counts.collect::<Vec<_>>()
        };
        let new = Counting::new;
        let both = || [new(Algorithm::Zlib), new(Algorithm::Brotli)];
        assert_eq!(ask(&both(), "localhost"), [0, 2]);
        assert_eq!(ask(&[new(Algorithm::Zlib)], "localhost"), [2]);
        assert!(ask(&[], "localhost").is_empty());
        assert_eq!(ask(&both(), "plain.example"), [0, 0]);
    });
}
