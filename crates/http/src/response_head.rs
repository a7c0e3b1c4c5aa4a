//! Completes the head of a response: what is sent, and what logs show, whatever the protocol.
//!
//! Called after the filters, by front ends and for subrequests.

use crate::address;
use crate::request::Request;
use crate::response::Head;

/// Completes the head as it is sent, and as logs show it.
pub fn complete(request: &Request, head: &mut Head) {
    // Only for requested content; error pages have no modification time.
    if !matches!(head.status, 200 | 206 | 304) && head.last_modified_text.is_none() {
        head.last_modified = None;
    }
    if let Some(to) = &head.location
        && to.first() == Some(&b'/')
        && request.location().pages.absolute_redirect
    {
        head.location = Some(absolute(request, to).into());
        head.location_completed = true;
    }
}

/// The target of a redirect with scheme, host and port.
fn absolute(request: &Request, to: &[u8]) -> Vec<u8> {
    let pages = &request.location().pages;
    let mut out = b"http://".to_vec();
    let host = request.host();
    if pages.server_name_in_redirect && !request.server_name().is_empty() {
        out.extend_from_slice(request.server_name());
    } else if !host.is_empty() {
        out.extend_from_slice(host);
    } else {
        address::append_host(request.exchange.local(), &mut out);
    }
    if pages.port_in_redirect
        && let Some(port) = address::port(request.exchange.local()).filter(|port| *port != 80)
    {
        out.push(b':');
        out.extend_from_slice(port.to_string().as_bytes());
    }
    out.extend_from_slice(to);
    out
}
