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
    /// Zones of servers, by name.
    pub zones: Vec<SessionZone>,
}

/// Sessions that `status_zone` counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionZone {
    /// The name.
    pub name: String,
    /// Sessions in progress.
    pub processing: u64,
    /// Sessions that have ended, however. Never falls.
    pub ended: u64,
    /// Sessions without a status: a worker that stopped has ended them.
    pub discarded: u64,
    /// Sessions whose connection was handed over to another listening socket.
    pub passed: u64,
    /// Bytes received from clients.
    pub received: u64,
    /// Bytes sent to clients.
    pub sent: u64,
    /// All other sessions that have ended, by status.
    pub statuses: Vec<(u16, u64)>,
}

impl SessionZone {
    /// Sessions, including those in progress. May fall by one when a session turns out to be another server's.
    pub fn connections(&self) -> u64 {
        self.ended + self.processing
    }

    /// Sessions that have ended, by the first digit of their status.
    pub fn class(&self, class: u16) -> u64 {
        let of_class = self.statuses.iter().filter(|(status, _)| status / 100 == class);
        of_class.map(|(_, count)| count).sum()
    }
}

/// Makes the report.
pub type ReportSessions = Box<dyn Fn() -> SessionsReport + Send + Sync>;

/// The counters of QUIC, with their names.
pub type ReportQuic = Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>;
