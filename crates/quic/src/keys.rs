//! The keys that all workers of a process share, derived from its [`HostKey`].

use std::sync::Arc;

use aws_lc_rs::hmac;

use crate::HostKey;
use crate::connection_id::IdKey;
use crate::tokens::TokenKey;

/// The keys.
pub(crate) struct Keys {
    pub(crate) ids: Arc<IdKey>,
    pub(crate) tokens: Arc<TokenKey>,
    pub(crate) reset: Arc<hmac::Key>,
}

impl Keys {
    /// Those of a host; `ids`: the key of connection IDs, which stays that of the masters' secret.
    pub(crate) fn new(host: &HostKey, ids: Option<Arc<IdKey>>) -> Keys {
        Keys {
            ids: ids.unwrap_or_else(|| Arc::new(IdKey::new(host))),
            tokens: Arc::new(host.token_key()),
            reset: Arc::new(host.reset_key()),
        }
    }
}
