//! Plain structs made of the tree of directives: servers, locations and listeners.
//!
//! Called once per generation by the program ([`build`](crate::blocks::build)). Request code uses only the
//! result: resolved settings, compiled texts, indices instead of names.

pub mod accept_encoding;
pub mod body;
pub mod client;
pub mod content_types;
pub mod files;
pub mod http2;
pub mod http3;
pub mod limit_except;
pub mod location_test;
pub mod log;
pub mod mime;
pub mod pages;
pub mod predicates;
pub mod resolver;
pub mod tls;
pub mod upstream;
pub mod uri_scope;
pub mod values;

use std::sync::Arc;

use bytes::Bytes;

use crate::location_tree::Locations;
use crate::log::access::AccessLogs;
use crate::mime::Types;
use crate::module::{Filters, Handlers, ModuleList};
use crate::path::FilePath;
use crate::request::Uri;
use crate::slots::Settings;
use crate::special_pages::ServerTokens;
use crate::variables::complex::{HttpVariables, Resolved};

pub use nowait_front::servers::{Listen, ListenId, ServerId};
pub use values::{
    LocalUri, LocationId, PoolsWanted, Regex, SizeText, compile, compile_regex, complex, mention,
    value, word_value,
};

/// The `http` block; empty if there is none.
#[derive(Default)]
pub struct HttpConf {
    pub(crate) servers: Box<[Server]>,
    pub(crate) locations: Box<[Location]>,
    pub(crate) listens: Box<[Listen]>,
    /// The logs of tasks beside requests.
    pub(crate) task_logs: log::TaskLogs,
    /// The variables in use.
    pub variables: Resolved,
    /// Whether `$realpath_root` is used.
    pub wants_realpath: bool,
    /// Whether variables show what clients of TLS offer.
    pub wants_offers: bool,
    /// Settings of the resolvers, by their numbers.
    pub resolvers: Vec<std::sync::Arc<nowait_resolver::ResolverSettings>>,
    /// The resolver, if inner blocks set none.
    pub resolving: nowait_front::resolver_directives::Resolving,
    /// Groups of upstream servers.
    pub upstreams: upstream::Upstreams,
    /// Sessions of TLS.
    pub sessions: nowait_front::tls::conf::SharedTls,
    /// Directories for temporary files.
    pub temp_paths: Vec<body::TempPath>,
    /// Directories for what modules keep across restarts.
    pub state_paths: Vec<Vec<u8>>,
    /// Further state of modules.
    pub settings: Settings,
    /// The modules.
    pub modules: ModuleList,
}

/// A virtual server.
pub struct Server {
    /// The first `server_name`.
    pub name: Bytes,
    /// Position in the configuration.
    pub span: nowait_conf::Span,
    /// Settings for reading request heads.
    pub head: Arc<client::HeadConf>,
    /// TLS.
    pub tls: nowait_front::tls::conf::ServerTls<HttpVariables>,
    /// HTTP/2.
    pub http2: Arc<http2::Http2Conf>,
    /// HTTP/3.
    pub http3: Arc<http3::Http3Conf>,
    /// Conditions for reading bodies before the location is known.
    pub early_read: predicates::Predicates,
    /// A location takes CONNECT, which otherwise no request of the server may be.
    pub takes_connect: bool,
    /// Settings outside of all locations.
    pub root: LocationId,
    /// The locations.
    pub locations: Locations<LocationId, location_test::LocationTest>,
}

/// A location, or the settings of a server outside of its locations.
pub struct Location {
    /// The pattern in the configuration; empty for a server's own settings.
    pub name: Bytes,
    /// Position in the configuration; for an `if` or a `limit_except`, that of the enclosing location.
    pub span: nowait_conf::Span,
    /// Whether it is reached by internal redirects only.
    pub internal: bool,
    /// The directory of its files.
    pub path: FilePath,
    /// Content types by extension.
    pub types: Arc<Types>,
    /// Connections and sending.
    pub client: Arc<client::ClientConf>,
    /// HTTP/2.
    pub http2: Arc<http2::Http2LocationConf>,
    /// Request bodies.
    pub body: Arc<body::BodyConf>,
    /// Files.
    pub files: Arc<files::FileConf>,
    /// Error pages and redirects.
    pub pages: Arc<pages::PagesConf>,
    /// The settings for accepting compressed content.
    pub accept_encoding: Arc<accept_encoding::AcceptEncodingConf>,
    /// The resolver of names in variables.
    pub resolving: nowait_front::resolver_directives::Resolving,
    /// `limit_except`.
    pub limit_except: Option<limit_except::LimitExcept>,
    /// Conditions and `no-transform` follow the RFCs where nginx intentionally does not.
    pub follows_rfcs: bool,
    /// CONNECT has a meaning here: `tunnel_pass`.
    pub takes_connect: bool,
    /// `types` and `default_type`.
    pub mime: Arc<mime::MimeConf>,
    /// Error logs.
    pub log: Arc<log::LogConf>,
    /// Access logs.
    pub access_logs: AccessLogs,
    /// The handlers of its phases.
    pub handlers: Handlers,
    /// The filters of its responses.
    pub filters: Filters,
    /// Further state of modules.
    pub settings: Settings,
}

impl HttpConf {
    /// Bounds of the files that are kept in memory: `resident_files_memory` and
    /// `resident_files_watches`.
    pub fn resident_limits(&self) -> nowait_runtime::fs::resident::ResidentLimits {
        // Set in `http` alone, so that all locations have the same.
        let files = self.locations.first().map(|location| &location.files);
        let memory = files.map_or(0, |files| files.resident_files_memory.0);
        nowait_runtime::fs::resident::ResidentLimits {
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
            watches: files.map_or(0, |files| files.resident_files_watches as usize),
        }
    }

    /// Takes over state that outlives a configuration: that of modules and of upstream servers. Must be
    /// called before the configuration is used.
    pub fn adopt(&mut self, previous: &Self) {
        for adopt in self.modules.0.iter().filter_map(|module| module.adopt) {
            adopt(self, previous);
        }
        self.upstreams.adopt(&previous.upstreams);
        self.sessions.adopt(&previous.sessions);
    }

    /// A virtual server.
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    /// A location.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.locations[id.0 as usize]
    }

    /// The virtual server that a location belongs to.
    pub fn server_of(&self, location: LocationId) -> ServerId {
        // The locations of a server are consecutive, and begin with its root.
        let after = self.servers.partition_point(|server| server.root.0 <= location.0);
        ServerId(u32::try_from(after.saturating_sub(1)).unwrap_or(u32::MAX))
    }

    /// A listener.
    pub fn listen(&self, id: ListenId) -> &Listen {
        &self.listens[id.0 as usize]
    }

    /// All listeners in the order of their numbers.
    pub fn listens(&self) -> &[Listen] {
        &self.listens
    }

    /// Whether an address has `quic`.
    pub fn has_quic(&self) -> bool {
        self.quic().next().is_some()
    }

    /// Whether datagrams to this address are those of HTTP/3.
    pub fn takes_quic(&self, address: &nowait_sys::listen::ListenAddress) -> bool {
        self.listens.iter().any(|listen| listen.spec.quic && listen.spec.address == *address)
    }

    /// `quic_host_key` of the first address with `quic` whose default server has one.
    pub fn quic_host_key(&self) -> Option<&[u8]> {
        let mut keys = self.quic().map(|servers| &self.server(servers.default_server).http3);
        keys.find_map(|http3| http3.quic_host_key.as_ref().map(|key| &key.0[..]))
    }

    /// The servers of addresses with `quic`.
    fn quic(&self) -> impl Iterator<Item = &nowait_front::servers::Virtual> {
        let servers = self.listens.iter().flat_map(Listen::all);
        servers.filter(|servers| servers.quic.is_some())
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

    /// The information that the server reveals about itself.
    pub fn server_tokens(&self) -> ServerTokens {
        self.pages.server_tokens
    }

    /// The name, escaped for a `Location` header.
    pub fn escaped_name(&self) -> Vec<u8> {
        let mut out = Vec::new();
        nowait_message::escape::push_uri(&mut out, nowait_message::escape::Set::Uri, &self.name);
        out
    }
}
