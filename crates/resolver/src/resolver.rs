//! The resolver: a handle shared by all workers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::pool::Pool;

use crate::answer::{Addresses, ResolveError, Services};
use crate::name::Name;
use crate::settings::Settings;

/// How long an address written as a name "is valid".
const LITERAL_VALID: Duration = Duration::from_secs(24 * 3600);

/// A DNS client with its cache. Clones are handles of the same one. `Send + Sync`; the futures run
/// on any worker.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    settings: Option<Settings>,
    _pool: Option<Pool>,
}

impl Resolver {
    /// For a `resolver` directive. Nothing is opened or asked before the first question. `system`
    /// resolves the names of name servers.
    pub fn new(settings: Settings, _system: &Resolver) -> Resolver {
        Resolver(Arc::new(Inner { settings: Some(settings), _pool: None }))
    }

    /// The system's: `/etc/hosts`, then the servers of `/etc/resolv.conf`. Both are read in `pool`
    /// when first needed, and again when they have changed.
    pub fn system(pool: Pool) -> Resolver {
        Resolver(Arc::new(Inner { settings: None, _pool: Some(pool) }))
    }

    /// The addresses of `name`, which may be an address itself.
    ///
    /// # Errors
    /// [`ResolveError::TimedOut`] after `timeout` (`resolver_timeout`); what the servers say.
    pub async fn resolve(
        &self,
        name: &[u8],
        _timeout: Duration,
    ) -> Result<Addresses, ResolveError> {
        if let Some(address) = literal(name) {
            let valid = nowait_runtime::now() + LITERAL_VALID;
            return Ok(Addresses { list: Arc::new([address]), valid });
        }
        Name::new(name).ok_or(ResolveError::NotFound)?;
        Err(ResolveError::NoServers)
    }

    /// The addresses of `name`, if they are known already: then there is no need for a future.
    pub fn known(&self, name: &[u8], now: Instant) -> Option<Addresses> {
        let address = literal(name)?;
        Some(Addresses { list: Arc::new([address]), valid: now + LITERAL_VALID })
    }

    /// The servers of `service` at `name` (`service=` of nginx's `server` directive), with the
    /// addresses of each.
    ///
    /// # Errors
    /// As [`resolve`](Resolver::resolve).
    pub async fn services(
        &self,
        service: &[u8],
        name: &[u8],
        _timeout: Duration,
    ) -> Result<Services, ResolveError> {
        let name = Name::new(name).ok_or(ResolveError::NotFound)?;
        name.service(service).ok_or(ResolveError::NotFound)?;
        Err(ResolveError::NoServers)
    }
}

/// An address written as a name, IPv6 perhaps in brackets.
fn literal(name: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(name).ok()?;
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
