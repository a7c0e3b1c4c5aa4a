//! A connection on its way to another worker.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nowait_sys::listen::ListenAddress;
use nowait_tls::Session;

use crate::Directory;
use crate::bundle::Bundle;
use crate::connection_id::Place;

/// A connection without its tasks. If it is dropped, the peer is not told.
pub struct MovedConnection {
    pub(crate) bundle: Box<Bundle>,
    pub(crate) listen: Arc<ListenAddress>,
    pub(crate) local: Option<IpAddr>,
    pub(crate) idle_timeout: Duration,
    pub(crate) transit: Transit,
    pub(crate) session: Option<Session>,
}

/// The places that the IDs of a connection lead to, while it is at none of them: what arrives there is dropped, instead of
/// being answered by a reset.
pub(crate) struct Transit {
    directory: Arc<Directory>,
    places: Vec<Place>,
}

impl Transit {
    pub(crate) fn begin(directory: Arc<Directory>, places: Vec<Place>) -> Transit {
        directory.note_moved(&places, None);
        Transit { directory, places }
    }

    /// The connection has arrived. Returns the places that lead to it now.
    pub(crate) fn end(mut self, at: Place) -> Vec<Place> {
        let places = std::mem::take(&mut self.places);
        self.directory.note_moved(&places, Some(at));
        places
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        self.directory.forget_moved(&self.places);
    }
}

impl std::fmt::Debug for MovedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MovedConnection")
            .field("places", &self.transit.places)
            .finish_non_exhaustive()
    }
}
