//! What status pages tell of sessions of `stream`: `http` serves the pages, and knows no sessions.

use std::sync::Arc;

use nowait_upstream::Group;

/// The state of `stream`, read at one time.
#[derive(Debug, Default)]
pub struct SessionsReport {
    /// Sessions so far.
    pub total: u64,
    /// Sessions that go on, those of UDP included.
    pub active: u64,
    /// Sessions of UDP that go on.
    pub udp_active: u64,
    /// Datagrams of clients that were dropped for want of room.
    pub udp_dropped: u64,
    /// Groups of upstream servers that have a block.
    pub upstreams: Vec<Arc<Group>>,
}

/// Makes the report.
pub type ReportSessions = Box<dyn Fn() -> SessionsReport + Send + Sync>;
