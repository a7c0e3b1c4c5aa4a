//! Limits that a request has to pass before a backend sends it to an upstream server.
//!
//! A module stores its [`Gate`] in the settings of a location; backends call it once per request to a
//! server, right before sending. Never called for responses from a cache.

use nowait_front::limit::connections::CountGuard;
use nowait_http::conf::Location;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::slots::Key;
use nowait_http::trace::Trace;

/// Delays or refuses requests to upstream servers.
pub trait Gate: Send + Sync {
    /// Waits for the turn of a request. It counts until the returned values are dropped.
    ///
    /// `outlives_client`: it continues after the client has left.
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    fn pass<'a>(
        &'a self,
        request: &'a mut Request,
        outlives_client: bool,
    ) -> LocalFuture<'a, Result<Vec<CountGuard>, u16>>;

    /// Explains the limits of a request for `nowait explain`, without counting it.
    fn explain(&self, request: &Request, trace: &mut Trace);
}

/// The gate of a location.
pub static GATE: Key<Box<dyn Gate>> = Key::new();

/// Whether requests of a location have to pass a gate.
pub fn is_gated(location: &Location) -> bool {
    location.settings.get(&GATE).is_some()
}

/// Waits until a request may be sent, if its location has a gate: see [`Gate::pass`].
///
/// # Errors
/// The status to respond with.
pub async fn pass(request: &mut Request, outlives_client: bool) -> Result<Vec<CountGuard>, u16> {
    let current = request.current().clone();
    match current.conf.location(request.location_id()).settings.get(&GATE) {
        Some(gate) => gate.pass(request, outlives_client).await,
        None => Ok(Vec::new()),
    }
}
