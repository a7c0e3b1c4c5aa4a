//! Settings of caching: one table for every protocol that has a cache (`proxy_cache`, `fastcgi_cache` and
//! so on). nginx: `ngx_http_upstream_conf_t` and the modules' tables.
//!
//! A protocol's module expands [`cache_rows!`](crate::cache_rows) once with its prefix; all of them come to the
//! same [`CacheConf`], so that the cache knows no protocol. Where objects are stored is in
//! [`super::path`].

use std::time::Duration;

use bytes::Bytes;
use nowait_caching::validity::ValidByStatus;
use nowait_conf::{Cx, Diagnostic, Node, Seconds, Setting, Span, Value, arity, number};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::Method;

use super::path::CachePaths;
use super::purge::conf::Purge;
use crate::upstream::Cause;

/// Generates the rows of a protocol's cache and their conversion to a [`CacheConf`].
///
/// `cache_rows! { module "proxy", prefix "proxy_"; pub struct ProxyCacheConf with
/// ProxyCacheConfLayer; }`
#[macro_export]
macro_rules! cache_rows {
    (
        module $module:literal, prefix $prefix:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// The zone of the cache for responses: one that a `…_cache_path` defines, or a text with
            /// variables that evaluates to the name of one. An empty value means `off`.
            cache: $crate::cache::conf::CacheZone = "off", in HTTP | SERVER | LOCATION, args "zone | off";
            /// The text that identifies a response in the cache. By default, the scheme and the name of the
            /// upstream, and the URI of the request to it.
            cache_key: Option<nowait_http::variables::complex::Complex>, in HTTP | SERVER | LOCATION, args "string";
            /// If one of the texts is neither empty nor `0`, the cache is not searched. The origin's
            /// response may still be stored.
            cache_bypass: Option<$crate::cache::conf::Texts>, in HTTP | SERVER | LOCATION, args "string ...";
            /// If one of the texts is neither empty nor `0`, the response is not stored.
            no_cache: Option<$crate::cache::conf::Texts>, in HTTP | SERVER | LOCATION, args "string ...";
            /// How long responses with these codes are valid; without codes, those with 200, 301 and 302.
            /// The first line that matches a code applies; `any` matches every code. Header fields of the
            /// response take precedence: `X-Accel-Expires`, then `Cache-Control`, then `Expires`.
            cache_valid: Vec<$crate::cache::conf::Valid>, in HTTP | SERVER | LOCATION, args "[code | any ...] time";
            /// Minimum number of requests for a key, including this one, for its response to be stored.
            cache_min_uses: u32 = "1", in HTTP | SERVER | LOCATION, args "number";
            /// Requests whose range begins at this byte or later go to the origin unchanged, and the
            /// response is not stored: all bytes before the range would have to be fetched first.
            cache_max_range_offset: Option<nowait_conf::Offset>, in HTTP | SERVER | LOCATION, args "number";
            /// When a stale response may be served: if the origin can't be reached (`error`), does
            /// not respond in time (`timeout`), sends a malformed response (`invalid_header`) or
            /// one of these codes, and while another request updates the response (`updating`).
            cache_use_stale: $crate::cache::conf::UseStale = "off", in HTTP | SERVER | LOCATION, args "error | timeout | invalid_header | updating | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | off ...";
            /// Methods whose responses are cached; GET and HEAD always are.
            cache_methods: $crate::cache::conf::CacheMethods = "GET HEAD", in HTTP | SERVER | LOCATION, args "GET | HEAD | POST ...";
            /// Controls whether only one request at a time is sent to the origin to fill a key.
            /// Other requests for the key wait for it.
            cache_lock: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Maximum time for which requests wait for the one that fills their key. Then they are
            /// sent to the origin, and their responses are not stored.
            cache_lock_timeout: nowait_conf::Msec = "5s", in HTTP | SERVER | LOCATION, args "time";
            /// If the request that fills a key has received nothing from the origin for this long, one more
            /// is sent.
            cache_lock_age: nowait_conf::Msec = "5s", in HTTP | SERVER | LOCATION, args "time";
            /// Controls whether stale responses are revalidated by conditional requests, so that
            /// the origin need not send them again.
            cache_revalidate: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether HEAD is sent to the origin as GET, so that the response can be
            /// stored. If not, the key should contain `$request_method`.
            cache_convert_head: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether a response that may be served stale is updated by a background
            /// request, for which the client does not wait.
            cache_background_update: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// If one of the texts is neither empty nor `0`, the request purges: the response
            /// stored under its key is removed, with all variants. If the key ends with an
            /// asterisk, all keys that begin with the text before it are purged. The response is
            /// 204, with the number of objects in `X-Purged`; or 404 if there was none and the key
            /// has no asterisk. Use `map`, `geo` and similar directives to control who may purge.
            ///
            /// The forms of the third-party module `ngx_cache_purge` begin with a word without variables. With
            /// a method, or `on` for PURGE, requests with that method purge, if they come `from` one of the
            /// addresses; others get 403. With `purge_all` they purge the whole cache. With the name of a
            /// zone and a key, GET, HEAD, DELETE and PURGE requests of this location purge that key; use `allow` and
            /// `deny` to control who may. The response is 200 with a page, or 404.
            cache_purge: Option<$crate::cache::purge::conf::Purge>, in HTTP | SERVER | LOCATION, args "string ... | off | on | method [purge_all] [from address | CIDR | unix: | all ...] | zone key";
            /// Texts whose words, separated by spaces or commas, are tags. If there are any, a purging
            /// request removes the responses with these tags instead of the one under its key.
            cache_purge_tag: Option<$crate::cache::conf::Texts>, in HTTP | SERVER | LOCATION, args "string ...";
            /// If one of the texts is neither empty nor `0`, a purging request does not remove responses,
            /// but marks them as stale: they can still be revalidated, or served when the origin fails.
            cache_purge_soft: Option<$crate::cache::conf::Texts>, in HTTP | SERVER | LOCATION, args "string ...";
            /// Controls whether a response is streamed to waiting requests while it is fetched and
            /// stored, to each at its own speed. Requires the lock.
            cache_read_while_filling: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether RFC 9111 is followed in full, which nginx intentionally does not:
            /// `Age` and the origin's `Date`, normalized `Vary`, `Cache-Control` of requests,
            /// heuristic freshness, invalidation, `CDN-Cache-Control`. Responses with
            /// `no-transform` are not compressed.
            cache_rfc9111: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Texts whose words, separated by spaces or commas, become tags of the stored response, by
            /// which it can be purged; for example `$upstream_http_surrogate_key`.
            cache_tag: Option<$crate::cache::conf::Texts>, in HTTP | SERVER | LOCATION, args "string ...";
            /// The name of the cache in the `Cache-Status` header (RFC 9211), which reports how a request
            /// was handled. If empty or `off`, the header is not added.
            cache_status: $crate::cache::conf::CacheName = "off", in HTTP | SERVER | LOCATION, args "name | off";
        }

        impl $crate::conf::keeping::Caches for $layer {
            fn zone(&self) -> Option<&$crate::cache::conf::CacheZone> {
                self.cache.as_ref()
            }

            fn resolve(
                cx: &mut nowait_conf::Cx<'_>,
                chain: &[&nowait_conf::Scope],
            ) -> Option<std::sync::Arc<$crate::cache::conf::CacheConf>> {
                use $crate::cache::conf::{CacheConf, Valid};
                let conf = $conf::resolve(cx, chain);
                let zone = conf.cache.clone().resolve(cx, concat!($prefix, "cache"))?;
                let conf = std::sync::Arc::unwrap_or_clone(conf);
                Some(std::sync::Arc::new(CacheConf {
                    names: &$crate::cache::conf::Names {
                        cache: concat!($prefix, "cache"),
                        key: concat!($prefix, "cache_key"),
                        bypass: concat!($prefix, "cache_bypass"),
                        no_cache: concat!($prefix, "no_cache"),
                        valid: concat!($prefix, "cache_valid"),
                        min_uses: concat!($prefix, "cache_min_uses"),
                        methods: concat!($prefix, "cache_methods"),
                        purge: concat!($prefix, "cache_purge"),
                    },
                    zone,
                    key: conf.cache_key,
                    bypass: conf.cache_bypass.unwrap_or_default(),
                    no_cache: conf.no_cache.unwrap_or_default(),
                    valid: Valid::table(conf.cache_valid),
                    min_uses: conf.cache_min_uses,
                    max_range_offset: conf.cache_max_range_offset.map(|offset| offset.0),
                    use_stale: conf.cache_use_stale,
                    methods: conf.cache_methods,
                    lock: conf.cache_lock,
                    lock_timeout: conf.cache_lock_timeout.duration(),
                    lock_age: conf.cache_lock_age.duration(),
                    revalidate: conf.cache_revalidate,
                    convert_head: conf.cache_convert_head,
                    background_update: conf.cache_background_update,
                    purge: conf.cache_purge.unwrap_or_default(),
                    purge_tags: conf.cache_purge_tag.unwrap_or_default(),
                    purge_soft: conf.cache_purge_soft.unwrap_or_default(),
                    read_while_filling: conf.cache_read_while_filling,
                    strict: conf.cache_rfc9111,
                    tags: conf.cache_tag.unwrap_or_default(),
                    status: conf.cache_status.0,
                }))
            }
        }
    };
}

/// The names of the directives of a protocol's cache.
#[derive(Debug)]
pub struct Names {
    /// `cache`
    pub cache: &'static str,
    /// `cache_key`
    pub key: &'static str,
    /// `cache_bypass`
    pub bypass: &'static str,
    /// `no_cache`
    pub no_cache: &'static str,
    /// `cache_valid`
    pub valid: &'static str,
    /// `cache_min_uses`
    pub min_uses: &'static str,
    /// `cache_methods`
    pub methods: &'static str,
    /// `cache_purge`
    pub purge: &'static str,
}

/// A location's cache settings, for any protocol.
#[derive(Debug, Clone)]
pub struct CacheConf {
    /// The names of its directives.
    pub names: &'static Names,
    /// The cache.
    pub zone: Zone,
    /// `cache_key`
    pub key: Option<Complex>,
    /// `cache_bypass`
    pub bypass: Texts,
    /// `no_cache`
    pub no_cache: Texts,
    /// `cache_valid`
    pub valid: ValidByStatus,
    /// `cache_min_uses`
    pub min_uses: u32,
    /// `cache_max_range_offset`
    pub max_range_offset: Option<u64>,
    /// `cache_use_stale`
    pub use_stale: UseStale,
    /// `cache_methods`
    pub methods: CacheMethods,
    /// `cache_lock`
    pub lock: bool,
    /// `cache_lock_timeout`
    pub lock_timeout: Duration,
    /// `cache_lock_age`
    pub lock_age: Duration,
    /// `cache_revalidate`
    pub revalidate: bool,
    /// `cache_convert_head`
    pub convert_head: bool,
    /// `cache_background_update`
    pub background_update: bool,
    /// `cache_purge`
    pub purge: Purge,
    /// `cache_purge_tag`
    pub purge_tags: Texts,
    /// `cache_purge_soft`
    pub purge_soft: Texts,
    /// `cache_read_while_filling`
    pub read_while_filling: bool,
    /// `cache_rfc9111`
    pub strict: bool,
    /// `cache_tag`
    pub tags: Texts,
    /// `cache_status`
    pub status: Option<Complex>,
}

/// The cache that a location uses.
#[derive(Debug, Clone)]
pub enum Zone {
    /// Position in [`paths`](super::path::paths).
    Fixed(usize),
    /// The text evaluates to its name.
    Named(Complex),
}

/// `cache` as it was written.
#[derive(Debug, Clone)]
pub enum CacheZone {
    /// `off`
    Off,
    /// The name of a zone.
    Named(Bytes, Span),
    /// A text with variables.
    Variable(Complex),
}

impl Setting for CacheZone {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        if word.text == b"off" {
            return Ok(Self::Off);
        }
        let text = nowait_http::conf::complex(word, cx)?;
        Ok(match text.literal() {
            Some(name) => Self::Named(name.clone(), word.span),
            None => Self::Variable(text),
        })
    }
}

impl CacheZone {
    /// Looks up the zone; all zones are known at the end of `http`.
    /// `directive`: its name, for errors.
    pub fn resolve(self, cx: &mut Cx<'_>, directive: &str) -> Option<Zone> {
        match self {
            Self::Off => None,
            Self::Variable(text) => Some(Zone::Named(text)),
            Self::Named(name, span) => {
                let found = cx.global::<CachePaths>().position(&name);
                if found.is_none() {
                    let name = String::from_utf8_lossy(&name);
                    let error = format!("\"{directive}\" zone \"{name}\" is unknown");
                    let hint = format!(
                        "define it in the http block: {directive}_path DIRECTORY keys_zone={name}:10m;"
                    );
                    // Inherited by many locations, reported once.
                    let reported = &mut cx.global::<CachePaths>().unknown;
                    if reported.insert(span) {
                        cx.report(Diagnostic::emerg(error).at(span).hint(hint));
                    }
                }
                found.map(Zone::Fixed)
            }
        }
    }
}

/// Texts with variables; the condition holds if one of them is neither empty nor `0`. nginx:
/// `ngx_http_set_predicate_slot`.
#[derive(Debug, Clone, Default)]
pub struct Texts(pub Vec<Complex>);

impl Setting for Texts {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let texts = node.args.iter().map(|word| nowait_http::conf::complex(word, cx));
        texts.collect::<Result<_, _>>().map(Self)
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        self.0.extend(Self::parse(node, cx)?.0);
        Ok(())
    }
}

impl Texts {
    /// Whether one of the texts is neither empty nor `0`.
    pub fn any(&self, request: &Request) -> bool {
        self.deciding(request).is_some()
    }

    /// The first value that is neither empty nor `0`.
    pub fn deciding(&self, request: &Request) -> Option<Bytes> {
        let mut values = self.0.iter().map(|text| request.evaluate(text));
        values.find(|value| !value.is_empty() && value != "0")
    }
}

/// One `cache_valid`.
#[derive(Debug, Clone)]
pub struct Valid {
    /// Codes; `None` is every code.
    codes: Vec<Option<u16>>,
    seconds: u64,
}

impl Setting for Valid {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (time, codes) = node.args.split_last().ok_or_else(|| node.arity_error())?;
        let Seconds(seconds) = Seconds::from_word(&time.text).map_err(|_| {
            time.error(format!("invalid time value \"{time}\""))
                .expected("a time such as 30s, 10m or 1d")
        })?;
        if codes.is_empty() {
            return Ok(Self { codes: [200, 301, 302].map(Some).to_vec(), seconds });
        }
        let code = |word: &nowait_conf::Word| match number(&word.text) {
            _ if word.text == b"any" => Ok(None),
            Some(code @ 100..=599) => Ok(u16::try_from(code).ok()),
            _ => Err(word.error(format!("invalid status \"{word}\""))),
        };
        let codes = codes.iter().map(code).collect::<Result<_, _>>()?;
        Ok(Self { codes, seconds })
    }
}

impl Valid {
    /// The validity of each code.
    pub fn table(all: Vec<Self>) -> ValidByStatus {
        let entries = all
            .into_iter()
            .flat_map(|valid| valid.codes.into_iter().map(move |code| (code, valid.seconds)));
        ValidByStatus(entries.collect())
    }
}

/// `cache_status`
#[derive(Debug, Clone)]
pub struct CacheName(pub Option<Complex>);

impl Setting for CacheName {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let off = word.text == b"off" || word.text.is_empty();
        if off {
            Ok(Self(None))
        } else {
            nowait_http::conf::complex(word, cx).map(|name| Self(Some(name)))
        }
    }
}

nowait_conf::setting_flags! {
    /// `cache_use_stale`
    pub struct UseStale {
        /// The connection could not be established, or broke.
        ERROR = "error",
        /// The origin did not respond in time.
        TIMEOUT = "timeout",
        /// It sent an empty or malformed response.
        INVALID_HEADER = "invalid_header",
        /// Another request is updating it.
        UPDATING = "updating",
        /// Status 500.
        HTTP_500 = "http_500",
        /// Status 502.
        HTTP_502 = "http_502",
        /// Status 503.
        HTTP_503 = "http_503",
        /// Status 504.
        HTTP_504 = "http_504",
        /// Status 403.
        HTTP_403 = "http_403",
        /// Status 404.
        HTTP_404 = "http_404",
        /// Status 429.
        HTTP_429 = "http_429",
        /// Never.
        OFF = "off",
    }
}

impl UseStale {
    /// Whether a stale response is served after such a failure.
    pub fn after(self, cause: Cause) -> bool {
        let flag = match cause {
            // nginx: NGX_HTTP_UPSTREAM_FT_NOLIVE goes with FT_ERROR.
            Cause::Error | Cause::NoLive => Self::ERROR,
            Cause::Timeout => Self::TIMEOUT,
            Cause::InvalidHeader => Self::INVALID_HEADER,
            Cause::Http500 => Self::HTTP_500,
            Cause::Http502 => Self::HTTP_502,
            Cause::Http503 => Self::HTTP_503,
            Cause::Http504 => Self::HTTP_504,
            Cause::Http403 => Self::HTTP_403,
            Cause::Http404 => Self::HTTP_404,
            Cause::Http429 => Self::HTTP_429,
        };
        !self.contains(Self::OFF) && self.contains(flag)
    }

    /// Whether a stale response is served while another request updates it.
    pub fn while_updating(self) -> bool {
        !self.contains(Self::OFF) && self.contains(Self::UPDATING)
    }
}

nowait_conf::setting_flags! {
    /// `cache_methods`
    pub struct CacheMethods {
        /// GET, always.
        GET = "GET",
        /// HEAD, always.
        HEAD = "HEAD",
        /// POST
        POST = "POST",
    }
}

impl CacheMethods {
    /// Whether responses to this method are cached.
    pub fn allows(self, method: Method) -> bool {
        match method {
            Method::Get | Method::Head => true,
            Method::Post => self.contains(Self::POST),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_by_cause() {
        let stale = UseStale::ERROR.or(UseStale::HTTP_404);
        assert!(stale.after(Cause::Error) && stale.after(Cause::NoLive));
        assert!(stale.after(Cause::Http404) && !stale.after(Cause::Http500));
        assert!(!stale.or(UseStale::OFF).after(Cause::Error));
        assert!(!stale.while_updating() && UseStale::UPDATING.while_updating());
    }

    #[test]
    fn get_and_head_are_always_cached() {
        assert!(CacheMethods::POST.allows(Method::Get) && CacheMethods::POST.allows(Method::Post));
        assert!(!CacheMethods::GET.allows(Method::Post) && !CacheMethods::POST.allows(Method::Put));
    }
}
