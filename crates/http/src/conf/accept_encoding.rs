//! Clients that accept compressed content: settings shared by compression, precompressed files and
//! decompression. nginx: the parts of `ngx_http_core_module` that these have in common.

use nowait_conf::{Cx, Diagnostic, Node, Regex, Setting, arity};

nowait_conf::directives! {
    /// Clients that accept compressed content.
    #[derive(Debug)]
    module "gzip";
    pub struct AcceptEncodingConf with AcceptEncodingConfLayer;

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
