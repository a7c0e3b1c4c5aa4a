//! Settings of compression: gzip as in nginx, Brotli and Zstandard as in ngx_brotli and zstd-nginx-module.
//! nginx: `ngx_http_gzip_filter_module`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nowait_coding::Dictionary;
use nowait_conf::{
    BoundedNumber, Buffers, Cx, Diagnostic, Disk, Files as _, Node, Setting, Size, Value,
    ValueError, arity,
};
use nowait_http::conf::content_types::ContentTypes;

nowait_conf::directives! {
    /// Compression of responses.
    #[derive(Debug)]
    module "gzip";
    pub struct GzipConf with GzipConfLayer;

    /// Enables or disables gzip compression for clients that accept it. Compressed responses do not
    /// support ranges, and their entity tag becomes weak. Over TLS, do not compress responses that
    /// repeat data from the request next to a secret (BREACH).
    gzip: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Compression level, from 1 (fast) to 9 (small). The thread pool compresses pieces that take
    /// long at a high level.
    gzip_comp_level: BoundedNumber<1, 9> = "1", in HTTP | SERVER | LOCATION, args "level";
    /// Content types to compress, in addition to `text/html`; `*` means all.
    gzip_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Minimum length of a response to compress, in bytes according to its `Content-Length`.
    gzip_min_length: Size = "20", in HTTP | SERVER | LOCATION, args "length";
    /// Accepted for compatibility: compressed data is sent before more is produced.
    gzip_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
    /// Size of the compression window, in bytes: a power of two.
    gzip_window: Window = "32k", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: the hash table has a fixed size.
    gzip_hash: Hash = "128k", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: only the compression itself holds data back.
    gzip_no_buffer: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: memory is allocated when compression begins.
    postpone_gzipping: Size = "0", in HTTP | SERVER | LOCATION, args "size";
}

/// `gzip_window`, as the binary logarithm of the size: 9 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub u8);

impl Value for Window {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        power(text, 15).map(Window).ok_or_else(|| {
            ValueError::message(
                "\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k",
            )
        })
    }
}

/// `gzip_hash`, as the binary logarithm of the size: 9 to 17.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub u8);

impl Value for Hash {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        power(text, 17).map(Hash).ok_or_else(|| {
            ValueError::message(
                "\"gzip_hash\" directive must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k",
            )
        })
    }
}

/// The binary logarithm of a size that is a power of two from 512 to 2^`max`.
fn power(text: &[u8], max: u8) -> Option<u8> {
    let Size(bytes) = Size::from_word(text).ok()?;
    (9..=max).find(|bits| bytes == 1 << bits)
}

nowait_conf::directives! {
    /// Compression of responses by Brotli.
    #[derive(Debug)]
    module "brotli";
    pub struct BrotliConf with BrotliConfLayer;

    /// Enables or disables Brotli compression for clients that accept it (`br`). If a client
    /// accepts several enabled codings, the one with the highest weight is used; among equals,
    /// Brotli before Zstandard before gzip. `gzip_vary` applies to these responses too.
    brotli: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Compression level, from 0 (fast) to 11 (small). The thread pool compresses pieces that take
    /// long.
    brotli_comp_level: BoundedNumber<0, 11> = "6", in HTTP | SERVER | LOCATION, args "level";
    /// Content types to compress, in addition to `text/html`; `*` means all.
    brotli_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Minimum length of a response to compress, in bytes according to its `Content-Length`.
    brotli_min_length: Size = "20", in HTTP | SERVER | LOCATION, args "length";
    /// Size of the compression window: a power of two from 1k to 16m.
    brotli_window: BrotliWindow = "512k", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: compressed data is sent before more is produced.
    brotli_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
}

nowait_conf::directives! {
    /// Compression of responses by Zstandard.
    #[derive(Debug)]
    module "zstd";
    pub struct ZstdConf with ZstdConfLayer;

    /// Enables or disables Zstandard compression for clients that accept it (`zstd`).
    zstd: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Compression level, from 1 (fast) to 22 (small). The thread pool compresses pieces that take
    /// long.
    zstd_comp_level: BoundedNumber<1, 22> = "1", in HTTP | SERVER | LOCATION, args "level";
    /// Content types to compress, in addition to `text/html`; `*` means all.
    zstd_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Minimum length of a response to compress, in bytes according to its `Content-Length`.
    zstd_min_length: Size = "20", in HTTP | SERVER | LOCATION, args "length";
    /// Accepted for compatibility: compressed data is sent before more is produced.
    zstd_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
    /// A dictionary file for `zstd`, made by `zstd --train` or any text, of at most 4 MB. A
    /// relative name is resolved against the directory of the configuration file; the `user` must
    /// be able to read it. Only clients that have the same dictionary can decode such responses.
    /// Browsers cannot: use it with clients you control.
    zstd_dict_file: Option<DictionaryFile>, in HTTP, args "file";
}

/// `zstd_dict_file`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DictionaryFile(pub Dictionary);

impl DictionaryFile {
    /// Largest dictionary: each compression copies it.
    const BYTES_MAX: u64 = 4 << 20;
}

impl Setting for DictionaryFile {
    const ARITY: arity::Arity = arity::exactly(1);

    // Called when a configuration is read, which no event loop does.
    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let path = cx.paths().conf_full(&word.text);
        let shown = String::from_utf8_lossy(&path).into_owned();
        let failed = |error: std::io::Error| {
            word.error(format!("open() \"{shown}\" failed{}", nowait_http::log::OsError(&error)))
        };
        let bytes = Disk.read(Path::new(OsStr::from_bytes(&path))).map_err(failed)?;
        match bytes.len() as u64 {
            0 => Err(word.error(format!("the dictionary \"{shown}\" is empty"))),
            1..=Self::BYTES_MAX => Ok(Self(Dictionary(bytes.into()))),
            _ => Err(word
                .error(format!("the dictionary \"{shown}\" is too large"))
                .expected("at most 4 MB")),
        }
    }
}

/// `brotli_window`, as the binary logarithm of the size: 10 to 24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrotliWindow(pub u8);

impl Value for BrotliWindow {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let bytes = Size::from_word(text).ok().map(|size| size.0);
        let bits = bytes.and_then(|bytes| (10..=24).find(|bits| bytes == 1 << bits));
        bits.map(Self).ok_or_else(|| ValueError::directive("must be a power of two from 1k to 16m"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_powers_of_two() {
        assert_eq!(Window::from_word(b"512"), Ok(Window(9)));
        assert_eq!(Window::from_word(b"32k"), Ok(Window(15)));
        for wrong in [&b"64k"[..], b"256", b"1000", b"x", b"0", b""] {
            assert!(Window::from_word(wrong).is_err());
        }
        assert_eq!(Hash::from_word(b"128k"), Ok(Hash(17)));
        assert!(Hash::from_word(b"256k").is_err());
    }

    #[test]
    fn windows_of_brotli_are_powers_of_two() {
        assert_eq!(BrotliWindow::from_word(b"1k"), Ok(BrotliWindow(10)));
        assert_eq!(BrotliWindow::from_word(b"512k"), Ok(BrotliWindow(19)));
        assert_eq!(BrotliWindow::from_word(b"16m"), Ok(BrotliWindow(24)));
        for wrong in [&b"512"[..], b"32m", b"1000", b"x", b""] {
            assert!(BrotliWindow::from_word(wrong).is_err());
        }
    }
}
