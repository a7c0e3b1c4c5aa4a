//! `gzip`, `brotli` and `zstd`: compress responses as they are sent. nginx:
//! `ngx_http_gzip_filter_module`.
//!
//! Each has two steps: before ranges are cut, it decides whether to compress the response, and adjusts
//! its head; after charset conversion, it compresses the [`body`]. Brotli and Zstandard precede gzip.

mod body;
mod codings;
pub mod conf;
mod gzip;

use std::cell::Cell;

use nowait_conf::{Cx, Scope};
use nowait_http::accept_encoding::Coding;
use nowait_http::module::{LocationBuilder, Module};
use nowait_http::variables::Builtin;
use nowait_http::variables::core::builtins;

use self::conf::{BrotliConf, GzipConf, ZstdConf};

/// This module.
pub static MODULE: Module = Module {
    rows: &[BrotliConf::ROWS, ZstdConf::ROWS, GzipConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    codings::build(cx, chain, parts);
    gzip::build(cx, chain, parts);
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Compression ratio achieved by `brotli`: original size divided by compressed size.
    "brotli_ratio" => |r, out| codings::ratio(r, Coding::Brotli, out);
    /// Compression ratio achieved by `zstd`: original size divided by compressed size.
    "zstd_ratio" => |r, out| codings::ratio(r, Coding::Zstd, out);
    /// Compression ratio achieved by `gzip`: original size divided by compressed size.
    "gzip_ratio" => |r, out| gzip::ratio(r, out);
};

/// Lengths of a compressed text; zero before it is complete.
#[derive(Debug, Default)]
pub struct Counts {
    /// Length of the text by its `Content-Length`; other filters may have changed it since.
    pub expected: Option<u64>,
    /// Bytes of the text.
    pub taken: Cell<u64>,
    /// Bytes it was compressed to.
    pub made: Cell<u64>,
}

impl Counts {
    /// The state before compression begins.
    fn of(expected: Option<u64>) -> Self {
        Self { expected, ..Self::default() }
    }

    /// Appends the ratio with two decimals; false if there is none.
    fn append_ratio(&self, out: &mut Vec<u8>) -> bool {
        let (taken, made) = (u128::from(self.taken.get()), u128::from(self.made.get()));
        let Some(thousandths) = (taken * 1000).checked_div(made) else { return false };
        let hundredths = (thousandths + 5) / 10;
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        out.extend_from_slice(text.as_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded() {
        let text = |taken, made| {
            let counts = Counts { taken: Cell::new(taken), made: Cell::new(made), expected: None };
            let mut out = Vec::new();
            counts.append_ratio(&mut out).then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(text(0, 0), None);
        assert_eq!(text(0, 20).as_deref(), Some("0.00"));
        assert_eq!(text(2125, 1000).as_deref(), Some("2.13"));
        assert_eq!(text(1999, 1000).as_deref(), Some("2.00"));
        assert_eq!(text(u64::MAX, 1).as_deref(), Some("18446744073709551615.00"));
    }
}
