//! `$proxy_host` and related variables. nginx: `ngx_http_proxy_vars`.

use nowait_http::address;
use nowait_http::request::Request;
use nowait_http::variables::Builtin;
use nowait_http::variables::core::number;

use super::context;

/// The variables of this module.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "proxy_host",
        doc: "Host and port of the server in `proxy_pass`; the port only if it is not that of the scheme.",
        get: |r, out| destination(r, out, |destination| &destination.host_header),
    },
    Builtin {
        name: "proxy_port",
        doc: "Port of the server in `proxy_pass`, or that of the scheme: 80 or 443.",
        get: |r, out| destination(r, out, |destination| &destination.port),
    },
    Builtin {
        name: "proxy_add_x_forwarded_for",
        doc: "The `X-Forwarded-For` field of the request with the client's address appended, \
              or only the address.",
        get: add_x_forwarded_for,
    },
    Builtin {
        name: "proxy_internal_body_length",
        doc: "Length of the request body passed to the upstream server, if known.",
        get: |r, out| context::of(r).framing.get().length.is_some_and(|length| number(length, out)),
    },
    Builtin {
        name: "proxy_internal_chunked",
        doc: "`chunked` if a request body of unknown length is passed to the upstream server.",
        get: |r, out| {
            let chunked = context::of(r).framing.get().chunked;
            if chunked {
                out.extend_from_slice(b"chunked");
            }
            chunked
        },
    },
];

fn destination(
    r: &Request,
    out: &mut Vec<u8>,
    part: fn(&nowait_backend::url::Destination) -> &bytes::Bytes,
) -> bool {
    let Some(destination) = context::destination(r) else { return false };
    out.extend_from_slice(part(destination));
    true
}

fn add_x_forwarded_for(r: &Request, out: &mut Vec<u8>) -> bool {
    for value in r.head().fields().named(b"x-forwarded-for") {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    address::append_ip(r.peer(), out);
    true
}
