//! The `stream` block as plain structs: servers, listeners, groups of upstream servers.
//!
//! Made by [`blocks`](crate::blocks), once per generation. Sessions use only these structs.

pub mod core;
pub mod log;
pub mod ssl;

use std::sync::Arc;

use bytes::Bytes;
use nowait_front::limit::{LimitZone, Slots};
use nowait_front::resolver_directives::Resolving;
use nowait_front::servers::{Listen, ServerId};
use nowait_front::upstreams::Upstreams;
use nowait_sys::listen::ListenAddress;

use crate::module::{Content, Handler};
use crate::variables::complex::StreamVariables;
use crate::zone::SessionsZone;

pub use crate::variables::complex::Complex;

/// The zones of `limit_conn` that were named so far, while the block is read.
pub type ZonesNamed = Slots<StreamVariables, ()>;

/// The content of the `stream` block; empty if there is none.
#[derive(Default)]
pub struct StreamConf {
    pub(crate) servers: Box<[StreamServer]>,
    pub(crate) listens: Box<[Listen]>,
    /// The variables in use.
    pub variables: nowait_variables::Resolved<StreamVariables>,
    /// Groups of upstream servers.
    pub upstreams: Upstreams<StreamVariables>,
    /// Settings of the resolvers, indexed by their numbers.
    pub resolvers: Vec<Arc<nowait_resolver::ResolverSettings>>,
    /// The access logs of the block itself: as in nginx, their files are opened even if every
    /// server has its own logs.
    pub access_logs: nowait_front::log::access::AccessLogs,
    /// Zones of `limit_conn`.
    pub limit_zones: Box<[LimitZone<StreamVariables, ()>]>,
    /// Key-value zones.
    pub keyvals: Vec<Arc<nowait_front::keyval::KeyvalZone>>,
    /// Whether variables show what clients of TLS offer.
    pub wants_offers: bool,
    /// Sessions of TLS.
    pub tls_sessions: nowait_front::tls::conf::SharedTls,
    /// Name resolution where no server overrides it.
    pub resolving: Resolving,
}

/// A server of the `stream` block.
pub struct StreamServer {
    /// The first `server_name`.
    pub name: Bytes,
    /// Settings of connections, up to the content phase.
    pub core: Arc<core::CoreConf>,
    /// TLS.
    pub tls: ssl::SessionTls,
    /// Resolution of names in variables.
    pub resolving: Resolving,
    /// Handlers of the phases before the content, in order.
    pub handlers: Box<[Box<dyn Handler>]>,
    /// The handling of sessions; without it, they end at once.
    pub content: Option<Box<dyn Content>>,
    /// Counts its sessions.
    pub(crate) zone: Option<Arc<SessionsZone>>,
    /// Logs.
    pub log: Arc<log::LogConf>,
    /// Access logs, not yet open.
    pub access_logs: nowait_front::log::access::AccessLogs,
}

impl StreamConf {
    /// A server.
    pub fn server(&self, id: ServerId) -> &StreamServer {
        &self.servers[id.0 as usize]
    }

    /// All servers, in order.
    pub fn servers(&self) -> &[StreamServer] {
        &self.servers
    }

    /// All listeners, in the order of their numbers.
    pub fn listens(&self) -> &[Listen] {
        &self.listens
    }

    /// The listener at an address, if the block has one.
    pub fn listen_at(&self, address: &ListenAddress) -> Option<&Listen> {
        self.listens.iter().find(|listen| listen.spec.address == *address)
    }
}
