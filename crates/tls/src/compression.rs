//! Compression of certificates (RFC 8879), with TLS 1.3.
//!
//! rustls compresses a chain in the first handshake that needs it, and keeps the result. That may be on a
//! loop, so the levels are low: a chain of 4 KB takes about 0.1 ms.

use nowait_brotli::{Encoder, Operation, Parameters};
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{
    CertCompressor, CompressionCache, CompressionFailed, CompressionLevel, ZLIB_COMPRESSOR,
};

/// Compressed chains that a server keeps: of several certificates, in both forms.
const KEPT_MAX: usize = 8;

const BROTLI_QUALITY: u8 = 5;

/// 64 KB, which is more than rustls sends.
const WINDOW_BITS: u8 = 16;

/// The algorithms that servers offer, in order of preference.
pub(crate) const ALL: &[&dyn CertCompressor] = &[&Brotli, &Zlib];

pub(crate) fn cache() -> CompressionCache {
    CompressionCache::new(KEPT_MAX)
}

#[derive(Debug)]
struct Brotli;

impl CertCompressor for Brotli {
    fn compress(&self, text: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let options = Parameters {
            quality: BROTLI_QUALITY,
            window_bits: WINDOW_BITS,
            size: Some(text.len() as u64),
            block_bits: None,
        };
        let mut out = Vec::new();
        let mut encoder = Encoder::new(options).map_err(|_| CompressionFailed)?;
        encoder.encode(&text, Operation::Finish, &mut out).map_err(|_| CompressionFailed)?;
        Ok(out)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[derive(Debug)]
struct Zlib;

impl CertCompressor for Zlib {
    fn compress(&self, text: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        ZLIB_COMPRESSOR.compress(text, CompressionLevel::Interactive)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}
