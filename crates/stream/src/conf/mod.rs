//! From the `stream` block to plain structs: servers, listeners, groups of upstream servers.
//!
//! Called once per generation by the program ([`build`]). Sessions use only the structs made here.

pub mod core;
pub mod limit;
pub mod log;
pub mod pass;
pub mod ssl_preread;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::Row;
use nowait_front::access::AccessConf;
use nowait_front::resolving::Resolving;
use nowait_front::servers::{Listen, ServerId};
use nowait_front::upstreams::Upstreams;
use nowait_sys::listen::ListenAddress;

use crate::blocks::STREAM_ROWS;
use crate::modules::{access, answer, proxy, set};
use crate::session::Session;

pub use crate::blocks::build;

/// Text with session variables.
pub type Complex = nowait_variables::Complex<Session>;

/// The content of the `stream` block; empty if there is none.
#[derive(Default)]
pub struct StreamConf {
    pub(crate) servers: Box<[Server]>,
    pub(crate) listens: Box<[Listen]>,
    /// The variables in use.
    pub variables: nowait_variables::Resolved<Session>,
    /// Groups of upstream servers.
    pub upstreams: Upstreams<Session>,
    /// Settings of the resolvers, indexed by their numbers.
    pub resolvers: Vec<Arc<nowait_resolver::Settings>>,
    /// The access logs of the block itself: as in nginx, their files are opened even if every
    /// server has its own logs.
    pub access_logs: nowait_front::log::access::AccessLogs,
    /// Zones of `limit_conn`.
    pub limit_zones: limit::LimitZones,
    /// Name resolution where no server overrides it.
    pub resolving: Resolving,
}

/// A server of the `stream` block.
pub struct Server {
    /// The first `server_name`.
    pub name: Bytes,
    /// Settings of connections, up to the content phase.
    pub core: core::CoreConf,
    /// Resolution of names in variables.
    pub resolving: Resolving,
    /// What happens to sessions.
    pub content: Content,
    /// Settings of the proxy.
    pub proxy: proxy::conf::ProxyConf,
    /// Access rules.
    pub access: AccessConf,
    /// Proxies that are trusted to state the client's address.
    pub realip: access::RealIpConf,
    /// Limits on concurrent sessions.
    pub limits: limit::Limits,
    /// `set`, in order.
    pub sets: Box<[set::Set]>,
    /// Whether the ClientHello is read (`ssl_preread`).
    pub ssl_preread: bool,
    /// Logs.
    pub log: log::LogConf,
    /// Access logs, not yet open.
    pub access_logs: nowait_front::log::access::AccessLogs,
}

/// What happens to the sessions of a server.
#[derive(Clone, Debug)]
pub enum Content {
    /// No such directive: sessions end at once.
    Nothing,
    /// `pass`
    Pass(pass::PassTo),
    /// `return`
    Return(Complex),
    /// `proxy_pass`
    Proxy(proxy::conf::Pass),
}

impl StreamConf {
    /// A server.
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    /// All servers, in order.
    pub fn servers(&self) -> &[Server] {
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

/// Rows of all tables of this crate, for the registry and the reference.
pub fn rows() -> Vec<&'static [Row]> {
    vec![
        STREAM_ROWS,
        core::CoreConf::ROWS,
        core::ResolverConf::ROWS,
        log::LogConf::ROWS,
        log::LOG_ROWS,
        access::ACCESS_ROWS,
        access::RealIpConf::ROWS,
        limit::LIMIT_CONN_ROWS,
        limit::LimitConnConf::ROWS,
        set::MAP_ROWS,
        set::GEO_ROWS,
        set::SPLIT_CLIENTS_ROWS,
        set::SET_ROWS,
        ssl_preread::SslPrereadConf::ROWS,
        answer::RETURN_ROWS,
        pass::PASS_ROWS,
        proxy::conf::PASS_ROWS,
        proxy::conf::ProxyConf::ROWS,
        proxy::conf::DEPRECATED_ROWS,
        nowait_upstream::conf::STREAM_ROWS,
    ]
}
