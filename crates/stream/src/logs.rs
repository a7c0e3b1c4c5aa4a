//! The logs of a generation: which lines of which sessions are written where.

use nowait_front::log::Level;
use nowait_front::log::error::Details;
use nowait_front::logs::{About, BlockLogs};

use crate::conf::StreamConf;
use crate::session::Session;

/// The logs of all servers.
pub fn blocks(conf: &StreamConf) -> impl Iterator<Item = BlockLogs<'_>> {
    conf.servers()
        .iter()
        .map(|server| BlockLogs { access: &server.access_logs, error: &server.log.error_log })
}

/// Like [`blocks`], plus the `stream` block's own logs: as in nginx, their files are opened even if
/// every server has its own.
pub fn all(conf: &StreamConf) -> impl Iterator<Item = BlockLogs<'_>> {
    blocks(conf).chain([BlockLogs { access: &conf.access_logs, error: &[] }])
}

impl Session {
    /// Whether a line of this level would be written.
    pub(crate) fn logs(&self, level: Level) -> bool {
        self.current.logs.enabled(self.about(None), level)
    }

    pub(crate) fn about<'a>(&'a self, details: Option<&'a dyn Details>) -> About<'a> {
        About {
            block: self.server_id().0 as usize,
            connection: self.number,
            peer: &self.connection_peer,
            details,
        }
    }
}
