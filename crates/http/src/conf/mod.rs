//! From the tree of directives to plain structs: servers, locations and listeners.
//!
//! Called once per generation by the program ([`HttpConf::build`]). Request code sees only what
//! this module made: resolved settings, compiled texts, indices instead of names.

pub mod access;
pub mod backend;
pub mod blocks;
pub mod body;
pub mod cache;
pub mod cache_path;
pub mod charset;
pub mod client;
pub mod codings;
pub mod content;
pub mod files;
pub mod gzip;
pub mod health;
pub mod log;
pub mod pages;
pub mod predicates;
pub mod proxy;
pub mod resolver;
pub mod rewrite;
pub mod slice;
pub mod ssi;
pub mod upstream;
pub mod variables;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Row, Template, Value, Word};

use crate::location_tree::Locations;
use crate::log::access::AccessLogs;
use crate::mime::Types;
use crate::module::{Filters, Handlers};
use crate::path::FilePath;
use crate::request::{Request, Uri};
use crate::slots::Settings;
use crate::special_pages::ServerTokens;
use crate::variables::Resolved;
use crate::variables::complex::Complex;

pub use blocks::{HTTP_ROWS, build};
pub use nowait_front::servers::{Listen, ListenId, ServerId};
pub use nowait_variables::Regex;

/// Number of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocationId(pub u32);

/// The `http` block; empty if there is none.
#[derive(Default)]
pub struct HttpConf {
    pub(crate) servers: Box<[Server]>,
    pub(crate) locations: Box<[Location]>,
    pub(crate) listens: Box<[Listen]>,
    /// The variables in use.
    pub variables: Resolved,
    /// Whether `$realpath_root` is used.
    pub wants_realpath: bool,
    /// Conversions of charsets.
    pub charset_maps: std::sync::Arc<crate::charset::Maps>,
    /// Zones of `limit_req` and `limit_conn`.
    pub limit_zones: crate::modules::limit::conf::LimitZones,
    /// Health checks.
    pub health_checks: Vec<health::HealthCheck>,
    /// Settings of the resolvers, by their numbers.
    pub resolvers: Vec<std::sync::Arc<nowait_resolver::Settings>>,
    /// How names are resolved without a setting in an inner block.
    pub resolving: nowait_front::resolving::Resolving,
    /// Groups of upstream servers.
    pub upstreams: upstream::Upstreams,
    /// Caches, by their numbers.
    pub caches: Vec<cache_path::CachePath>,
    /// Directories for temporary files.
    pub temp_paths: Vec<body::TempPath>,
}

/// A virtual server.
pub struct Server {
    /// The first `server_name`.
    pub name: Bytes,
    /// Settings for reading request heads.
    pub head: client::HeadConf,
    /// When bodies are read before the location is known.
    pub early_read: predicates::Predicates,
    /// Settings outside of all locations.
    pub root: LocationId,
    /// The locations.
    pub locations: Locations<LocationId, Regex>,
}

/// A location, or the settings of a server outside of its locations.
pub struct Location {
    /// Its pattern in the configuration; empty for a server's own settings.
    pub name: Bytes,
    /// Whether only internal redirects lead here.
    pub internal: bool,
    /// The directory of its files.
    pub path: FilePath,
    /// Content types by extension.
    pub types: std::sync::Arc<Types>,
    /// Connections and sending.
    pub client: client::ClientConf,
    /// Request bodies.
    pub body: body::BodyConf,
    /// Files.
    pub files: files::FileConf,
    /// Error pages and redirects.
    pub pages: pages::PagesConf,
    /// Charsets of texts.
    pub charset: charset::CharsetConf,
    /// Compression.
    pub gzip: gzip::GzipConf,
    /// Decompression.
    pub gunzip: gzip::GunzipConf,
    /// How names in variables are resolved.
    pub resolving: nowait_front::resolving::Resolving,
    /// Compression by Brotli.
    pub brotli: codings::BrotliConf,
    /// Compression by Zstandard.
    pub zstd: codings::ZstdConf,
    /// Settings of the rewrite module.
    pub rewrite: rewrite::RewriteConf,
    /// Server-side includes.
    pub ssi: ssi::SsiConf,
    /// `limit_except`.
    pub limit_except: Option<access::LimitExcept>,
    /// Cache settings of the HTTP proxy; `None`: no cache.
    pub cache: Option<Box<cache::CacheConf>>,
    /// Fetching in parts.
    pub slice: slice::SliceConf,
    /// `proxy_pass`; most locations have none.
    pub proxy: Option<Box<proxy::ProxyConf>>,
    /// When 103 (Early Hints) of upstreams is passed on.
    pub early_hints: predicates::Predicates,
    /// `types` and `default_type`.
    pub mime: content::MimeConf,
    /// Error logs.
    pub log: log::LogConf,
    /// Access logs.
    pub access_logs: AccessLogs,
    /// The handlers of its phases.
    pub handlers: Handlers,
    /// The filters of its responses.
    pub filters: Filters,
    /// What modules keep for it besides.
    pub settings: Settings,
}

/// Pools named by `aio`, with their positions: the program checks that they are defined.
#[derive(Default)]
pub struct PoolsWanted(pub Vec<(String, Word)>);

impl HttpConf {
    /// A virtual server.
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    /// A location.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.locations[id.0 as usize]
    }

    /// A listener.
    pub fn listen(&self, id: ListenId) -> &Listen {
        &self.listens[id.0 as usize]
    }

    /// All listeners in the order of their numbers.
    pub fn listens(&self) -> &[Listen] {
        &self.listens
    }

    /// All locations.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }
}

impl Location {
    /// The content type for a URI: by its extension, otherwise `default_type`.
    pub fn content_type(&self, uri: &Uri) -> Option<Bytes> {
        let known = uri.extension().and_then(|extension| self.types.lookup(extension));
        let kind = known.unwrap_or(&self.mime.default_type.0);
        (!kind.is_empty()).then(|| kind.clone())
    }

    /// How much the server reveals about itself.
    pub fn server_tokens(&self) -> ServerTokens {
        self.pages.server_tokens
    }

    /// The line of the `Server` field.
    pub(crate) fn server_line(&self) -> &'static str {
        self.server_tokens().line()
    }

    /// The name, escaped for a `Location` header.
    pub fn escaped_name(&self) -> Vec<u8> {
        let mut out = Vec::new();
        nowait_message::escape::push_uri(&mut out, nowait_message::escape::Set::Uri, &self.name);
        out
    }
}

/// Rows of all tables of this crate, for the registry and the reference.
pub fn rows() -> Vec<&'static [Row]> {
    let core = [
        HTTP_ROWS,
        client::HeadConf::ROWS,
        client::ClientConf::ROWS,
        body::BodyConf::ROWS,
        files::FileConf::ROWS,
        pages::PagesConf::ROWS,
        access::LIMIT_EXCEPT_ROWS,
        rewrite::RewriteConf::ROWS,
        rewrite::REWRITE_ROWS,
        cache::ProxyCacheConf::ROWS,
        cache_path::PROXY_CACHE_PATH_ROWS,
        variables::MAP_ROWS,
        variables::GEO_ROWS,
        variables::SPLIT_CLIENTS_ROWS,
        resolver::ResolverConf::ROWS,
        health::HEALTH_ROWS,
        upstream::UPSTREAM_ROWS,
        nowait_upstream::conf::ROWS,
        nowait_upstream::conf::HTTP_ROWS,
        predicates::EarlyReadConf::ROWS,
        predicates::EarlyHintsConf::ROWS,
        content::MimeConf::ROWS,
        log::LogConf::ROWS,
        log::LOG_ROWS,
    ];
    core.into_iter().chain(crate::modules::rows()).collect()
}

/// Compiles text with variables.
///
/// # Errors
/// Malformed variables.
pub fn complex(word: &Word, cx: &mut Cx<'_>) -> Result<Complex, Diagnostic> {
    nowait_variables::text(word, cx)
}

/// A size that may contain variables; without any it is a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeText(Complex);

impl std::ops::Deref for SizeText {
    type Target = Complex;

    fn deref(&self) -> &Complex {
        &self.0
    }
}

impl nowait_conf::Setting for SizeText {
    const ARITY: nowait_conf::Arity = nowait_conf::arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let text = complex(word, cx)?;
        if text.literal().is_some() {
            value::<nowait_conf::Size>(node, 0)?;
        }
        Ok(Self(text))
    }
}

/// A URI of the same server, or the name of a location; empty cancels the setting of an outer block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUri(pub Box<[u8]>);

impl nowait_conf::Setting for LocalUri {
    const ARITY: nowait_conf::arity::Arity = nowait_conf::arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text[..].into()))
    }
}

/// Compiles parsed text with variables.
///
/// # Errors
/// Malformed variables.
pub fn compile(template: &Template, cx: &mut Cx<'_>) -> Result<Complex, Diagnostic> {
    nowait_variables::compile(template, cx)
}

/// Records the positions of variables.
pub fn mention(template: &Template, cx: &mut Cx<'_>) {
    nowait_variables::mention::<Request>(template, cx);
}

/// The value of argument `n`.
///
/// # Errors
/// The fault of the argument, in nginx's words.
pub fn value<T: Value>(node: &Node, n: usize) -> Result<T, Diagnostic> {
    let word = node.args.get(n).ok_or_else(|| node.arity_error())?;
    T::from_word(&word.text).map_err(|invalid| invalid.in_node(node, word))
}

/// The value of a parameter such as `max=10`.
///
/// # Errors
/// The fault of the value.
pub fn word_value<T: Value>(value: &Word, parameter: &Word) -> Result<T, Diagnostic> {
    T::from_word(&value.text).map_err(|invalid| invalid.in_parameter(parameter))
}
