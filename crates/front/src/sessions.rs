//! Parts of status pages that `http` serves and does not know: sessions of `stream`, and datagrams of QUIC.

use std::sync::Arc;

use nowait_upstream::Group;

use crate::keyval::KeyvalZone;

/// The state of `stream`, read at one time.
#[derive(Debug, Default)]
pub struct SessionsReport {
    /// Sessions so far.
    pub total: u64,
    /// Sessions in progress, those of UDP included.
    pub active: u64,
    /// UDP sessions in progress.
    pub udp_active: u64,
    /// Client datagrams dropped because a buffer was full.
    pub udp_dropped: u64,
    /// Groups of upstream servers that have a block.
    pub upstreams: Vec<Arc<Group>>,
    /// Key-value zones.
    pub keyvals: Vec<Arc<KeyvalZone>>,
}

/// Makes the report.
pub type ReportSessions = Box<dyn Fn() -> SessionsReport + Send + Sync>;

/// The counters of QUIC, with their names.
pub type ReportQuic = Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>;
