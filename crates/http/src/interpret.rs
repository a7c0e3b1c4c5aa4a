//! Processes a complete request head before the phases, independent of the protocol.
//!
//! Used by front ends. nginx: `ngx_http_process_request_uri`, `ngx_http_process_request_header`.

use nowait_front::servers::Virtual;
use nowait_message::{Method, Version};

use crate::log::Level;
use crate::request::{BodyLength, Request};

/// Takes method and target over from the head. False: the target is malformed, and the request must be
/// refused with 400.
pub fn head(request: &mut Request) -> bool {
    let merge = request.server().head.merge_slashes;
    request.head_received(request.head().method());
    request.set_host_port(Some(request.head().host_port()).filter(|port| *port != 0));
    if request.adopt_target(merge) {
        return true;
    }
    request.log(
        Level::Info,
        format_args!("client sent invalid request while reading client request line"),
    );
    request.head_mut().refuse_target();
    request.discard_body();
    false
}

/// Takes over the parsed part of an invalid head. An error page is requested with GET, which
/// `$request_method` then shows.
pub fn refused_head(request: &mut Request) {
    request.discard_body();
    let method = match request.head().method() {
        Method::Head => Method::Head,
        method if !request.head().is_malformed() => method,
        _ => Method::Other,
    };
    request.head_received(method);
}

/// Chooses the virtual server by the request's host.
pub fn choose_server(request: &mut Request, servers: &Virtual) {
    // The only server is that of the request already.
    if !servers.has_choice {
        return;
    }
    let host = request.head().host().unwrap_or_default();
    let found = servers.names.lookup(host, |regex| regex.search_in(request, host));
    match found {
        Ok(Some(&server)) => request.set_server(server),
        Ok(None) => {}
        Err(error) => request.log(Level::Alert, format_args!("{error}")),
    }
}

/// The status for methods that are refused before any handler.
pub fn refused_method(request: &Request) -> Option<u16> {
    let name = match request.method() {
        Method::Trace => "TRACE",
        Method::Connect
            if request.server().takes_connect && request.head().version() >= Version::Http11 =>
        {
            // "A CONNECT request message does not have content" (RFC 9110 section 9.3.6).
            let has_content = request.body_length() != BodyLength::None
                || request.head().content_length().is_some_and(|length| length > 0);
            if has_content {
                request.log(
                    Level::Info,
                    format_args!(
                        "client sent CONNECT request with body while reading client request headers"
                    ),
                );
            }
            return has_content.then_some(400);
        }
        Method::Connect => "CONNECT",
        _ => return None,
    };
    request.log(
        Level::Info,
        format_args!("client sent {name} method while reading client request headers"),
    );
    Some(405)
}
