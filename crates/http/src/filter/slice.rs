//! Responses fetched in parts. nginx: `ngx_http_slice_filter_module`.

use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// Comes first: later filters see the whole response.
pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if crate::slice::begin(request, response) {
        return Ok(());
    }
    request.slice.set(None);
    // nginx closes the connection.
    Err(Box::new(Special { status: 502, ..Special::default() }))
}
