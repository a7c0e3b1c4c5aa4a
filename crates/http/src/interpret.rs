//! What happens to a complete request head before the phases, whatever the protocol.
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
    request.received.set(request.head.length() as u64);
    request.method = request.head.method();
    request.header_only = request.method == Method::Head;
    request.host_port = Some(request.head.host_port()).filter(|port| *port != 0);
    match request.head.normalize(merge) {
        Ok(normalized) => {
            request.uri.path.clear();
            request.uri.path.extend_from_slice(&normalized.path);
            request.uri.args = normalized.args.map(<[u8]>::to_vec);
            // "http://host?args" has no path that could be passed on unchanged.
            request.rewriting.unparsed = request.head.uri().first() != Some(&b'?');
        }
        Err(_) => {
            request.log(
                Level::Info,
                format_args!("client sent invalid request while reading client request line"),
            );
            request.head.refuse_target();
            request.persistence.body_discarded = true;
            return false;
        }
    }
    true
}

/// Chooses the virtual server by the request's host.
pub fn choose_server(request: &mut Request, servers: &Virtual) {
    // The only server is that of the request already.
    if !servers.has_choice {
        return;
    }
    let host = request.head.host().unwrap_or_default();
    let found = servers.names.lookup(host, |regex| regex.search_in(request, host));
    match found {
        Ok(Some(&server)) => request.set_server(server),
        Ok(None) => {}
        Err(error) => request.log(Level::Alert, format_args!("{error}")),
    }
}

/// The status to respond with to methods that no handler sees.
pub fn refused_method(request: &Request) -> Option<u16> {
    let name = match request.method {
        Method::Trace => "TRACE",
        Method::Connect
            if request.server().takes_connect && request.head.version() >= Version::Http11 =>
        {
            // "A CONNECT request message does not have content" (RFC 9110 section 9.3.6).
            let has_content = request.body_length != BodyLength::None
                || request.head.content_length().is_some_and(|length| length > 0);
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
