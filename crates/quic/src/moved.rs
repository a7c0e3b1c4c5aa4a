//! A connection on its way to another worker.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nowait_sys::listen::ListenAddress;
use nowait_tls::Session;

use crate::bundle::Bundle;
use crate::connection_id::Place;

/// A connection without its tasks. If it is dropped, the peer is not told.
pub struct MovedConnection {
    pub(crate) bundle: Box<Bundle>,
    pub(crate) listen: Arc<ListenAddress>,
    pub(crate) local: Option<IpAddr>,
    pub(crate) idle_timeout: Duration,
    /// Where its IDs lead.
    pub(crate) places: Vec<Place>,
    pub(crate) session: Option<Session>,
}

impl std::fmt::Debug for MovedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MovedConnection").field("places", &self.places).finish_non_exhaustive()
    }
}
