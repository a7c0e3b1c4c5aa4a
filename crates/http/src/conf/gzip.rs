//! Settings of compression. nginx: `ngx_http_gzip_filter_module`, `ngx_http_gunzip_filter_module`,
//! `ngx_http_gzip_static_module` and related parts of `ngx_http_core_module`.

use nowait_conf::{
    Bounded, Buffers, Cx, Diagnostic, Invalid, Node, Regex, Setting, Size, Value, arity,
};

use super::content_types::ContentTypes;

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
    gzip_comp_level: Bounded<1, 9> = "1", in HTTP | SERVER | LOCATION, args "level";
    /// Content types to compress, in addition to `text/html`; `*` means all.
    gzip_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Minimum length of a response to compress, in bytes according to its `Content-Length`.
    gzip_min_length: Size = "20", in HTTP | SERVER | LOCATION, args "length";
    /// Minimum HTTP version for which responses are compressed.
    gzip_http_version: HttpVersion = "1.1", in HTTP | SERVER | LOCATION, args "1.0 | 1.1";
    /// When to compress responses to proxies, which are requests with a `Via` field: never (`off`),
    /// if `Expires` forbids caching (`expired`), if `Cache-Control` has the parameter (`no-cache`,
    /// `no-store`, `private`), if the response lacks `Last-Modified` or `ETag` (`no_last_modified`,
    /// `no_etag`), if the request has `Authorization` (`auth`), or always (`any`).
    gzip_proxied: GzipProxied = "off", in HTTP | SERVER | LOCATION, args "off | expired | no-cache | no-store | private | no_last_modified | no_etag | auth | any ...";
    /// Controls whether responses that `gzip`, `gzip_static` or `gunzip` may change carry `Vary:
    /// Accept-Encoding`, for caches.
    gzip_vary: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Case-insensitive regular expressions for the `User-Agent` of clients whose responses are not
    /// compressed; `msie6` stands for old versions of MSIE.
    gzip_disable: Option<GzipDisable>, in HTTP | SERVER | LOCATION, args "regex ...";
    /// Accepted for compatibility: compressed data is sent before more is produced.
    gzip_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
    /// Size of the compression window, in bytes: a power of two.
    gzip_window: Window = "32k", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: the hash table has a fixed size.
    gzip_hash: Hash = "128k", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: only the compression itself holds data back.
    gzip_no_buffer: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: memory is allocated when there is something to compress.
    postpone_gzipping: Size = "0", in HTTP | SERVER | LOCATION, args "size";
}

nowait_conf::directives! {
    /// Decompression of responses.
    #[derive(Debug)]
    module "gunzip";
    pub struct GunzipConf with GunzipConfLayer;

    /// Enables or disables decompression of responses with `Content-Encoding: gzip` for clients
    /// that do not accept it. It works piece by piece, so little of a long text is in memory.
    gunzip: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: each piece is sent before the next is produced.
    gunzip_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
}

nowait_conf::directives! {
    /// Precompressed files.
    #[derive(Debug)]
    module "gzip_static";
    pub struct GzipStaticConf with GzipStaticConfLayer;

    /// Sends the file with the same name and the extension `.gz` instead, to clients that accept
    /// gzip (by the rules of `gzip`) or to all. Such files should have the same modification time
    /// as the originals.
    gzip_static: GzipStatic = "off", in HTTP | SERVER | LOCATION, args "on | off | always";
}

nowait_conf::setting_enum! {
    /// `gzip_http_version`
    pub enum HttpVersion {
        /// 1.0
        Http10 = "1.0",
        /// 1.1
        Http11 = "1.1",
    }
}

nowait_conf::setting_enum! {
    /// `gzip_static`
    pub enum GzipStatic {
        /// `off`
        Off = "off",
        /// For clients that accept it.
        On = "on",
        /// For all.
        Always = "always",
    }
}

nowait_conf::setting_flags! {
    /// `gzip_proxied`
    pub struct GzipProxied {
        /// Never.
        OFF = "off",
        /// `Expires` forbids caching.
        EXPIRED = "expired",
        /// `Cache-Control: no-cache`
        NO_CACHE = "no-cache",
        /// `Cache-Control: no-store`
        NO_STORE = "no-store",
        /// `Cache-Control: private`
        PRIVATE = "private",
        /// There is no `Last-Modified`.
        NO_LAST_MODIFIED = "no_last_modified",
        /// There is no `ETag`.
        NO_ETAG = "no_etag",
        /// The request has `Authorization`.
        AUTH = "auth",
        /// Always.
        ANY = "any",
    }
}

/// `gzip_disable`
///
/// nginx differs: there `msie6` is also inherited by a level that has its own expressions.
#[derive(Debug, Clone, Default)]
pub struct GzipDisable {
    /// Old versions of MSIE.
    pub msie6: bool,
    /// Expressions for other clients.
    pub agents: Vec<Regex>,
}

impl Setting for GzipDisable {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let mut disable = Self::default();
        disable.again(node, cx)?;
        Ok(disable)
    }

    /// Several directives of one block accumulate.
    fn again(&mut self, node: &Node, _cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        for word in &node.args {
            match &word.text[..] {
                b"msie6" => self.msie6 = true,
                _ => self.agents.push(Regex::parse(word, true)?),
            }
        }
        Ok(())
    }
}

/// `gzip_window`, as the binary logarithm of the size: 9 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub u8);

impl Value for Window {
    fn from_word(text: &[u8]) -> Result<Self, Invalid> {
        power(text, 15).map(Window).ok_or_else(|| {
            Invalid::message("\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k")
        })
    }
}

/// `gzip_hash`, as the binary logarithm of the size: 9 to 17.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub u8);

impl Value for Hash {
    fn from_word(text: &[u8]) -> Result<Self, Invalid> {
        power(text, 17).map(Hash).ok_or_else(|| {
            Invalid::message(
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
}
