//! `$upstream_*`: variables about the upstream servers of a request. nginx:
//! `ngx_http_upstream_vars`.
//!
//! Values of several tries are joined by `, `, those before and after an internal redirect by ` : `.

use std::time::Duration;

use nowait_upstream::Peer;

use super::core::{joined, number, seconds};
use super::{Builtin, Family};
use crate::request::Request;
use crate::upstream_state::{PeerName, Try, UpstreamState};

/// The variables of this module.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "upstream_addr",
        doc: "Addresses of the upstream servers that were tried.",
        get: |r, out| {
            each(r, out, |one, out| {
                out.extend_from_slice(one.peer.as_deref().unwrap_or_default().as_bytes());
            })
        },
    },
    Builtin {
        name: "upstream_last_addr",
        doc: "IP address without port, or path as `unix:/run/x.sock`, of the upstream server that was chosen last.",
        get: |r, out| last(r, |peer| peer.append_host(out)),
    },
    Builtin {
        name: "upstream_last_server_name",
        doc: "Name, within its group, of the upstream server that was chosen last.",
        get: |r, out| last(r, |peer| out.extend_from_slice(peer.server_name())),
    },
    Builtin {
        name: "upstream_status",
        doc: "Statuses of the upstream responses, or of the error in their place (502, 504); \
              `-` if there was none.",
        get: |r, out| {
            each(r, out, |one, out| match one.status {
                0 => out.push(b'-'),
                status => {
                    number(u64::from(status), out);
                }
            })
        },
    },
    Builtin {
        name: "upstream_queue_time",
        doc: "Times that the request spent in the `queue` of the group, in seconds with \
              millisecond resolution; `-` where it did not wait.",
        get: |r, out| each(r, out, |one, out| time(one.queue, out)),
    },
    Builtin {
        name: "upstream_connect_time",
        doc: "Times for establishing connections to upstream servers, in seconds with \
              millisecond resolution; `-` if that failed.",
        get: |r, out| each(r, out, |one, out| time(one.connect, out)),
    },
    Builtin {
        name: "upstream_header_time",
        doc: "Times until the response heads arrived, in seconds with millisecond resolution.",
        get: |r, out| each(r, out, |one, out| time(one.header, out)),
    },
    Builtin {
        name: "upstream_response_time",
        doc: "Times until the responses were complete, in seconds with millisecond resolution.",
        get: |r, out| {
            // While the head of our own response is made, the upstream's response counts as
            // unfinished, even if all of it has arrived.
            let head = r.sent().head_bytes() == 0;
            each(r, out, |one, out| {
                time(one.response.filter(|_| !head || one.header.is_none()), out)
            })
        },
    },
    Builtin {
        name: "upstream_response_length",
        doc: "Lengths of the response bodies in bytes.",
        get: |r, out| sums(r, out, |one| one.response_length),
    },
    Builtin {
        name: "upstream_bytes_received",
        doc: "Bytes received from the upstream servers.",
        get: |r, out| sums(r, out, |one| one.bytes_received),
    },
    Builtin {
        name: "upstream_bytes_sent",
        doc: "Bytes sent to the upstream servers.",
        get: |r, out| sums(r, out, |one| one.bytes_sent),
    },
];

/// The families of this module.
pub const FAMILIES: &[Family] = &[
    Family {
        prefix: "upstream_http_",
        doc: "A header field of the upstream response: the rest of the name in lower case with \
              underscores for dashes.",
        get: |r, name, out| {
            let Some(head) = UpstreamState::get(r.state()).and_then(|state| state.head()) else {
                return false;
            };
            let lines = head.fields().map(|field| (field.name, field.value));
            joined(lines, name, b", ", out)
        },
    },
    Family {
        prefix: "upstream_trailer_",
        doc: "A trailer field of the upstream response.",
        get: |r, name, out| {
            let Some(state) = UpstreamState::get(r.state()) else { return false };
            let trailers = state.trailers();
            joined(trailers.iter().map(|h| (&h.name[..], &h.value[..])), name, b", ", out)
        },
    },
    Family { prefix: "upstream_cookie_", doc: "A cookie set by the upstream server.", get: cookie },
];

/// Appends a value for each try; false if there was none.
fn each(r: &Request, out: &mut Vec<u8>, append: impl Fn(&Try, &mut Vec<u8>)) -> bool {
    let Some(state) = UpstreamState::get(r.state()) else { return false };
    let tries = state.tries();
    for (n, one) in tries.iter().enumerate() {
        if n > 0 {
            out.extend_from_slice(if one.after_redirect { b" : " } else { b", " });
        }
        append(one, out);
    }
    !tries.is_empty()
}

/// Looks at the server that was chosen last; false if none was. A group that has no usable server any more
/// does not replace it.
fn last(r: &Request, look: impl FnOnce(&Peer)) -> bool {
    let Some(state) = UpstreamState::get(r.state()) else { return false };
    let tries = state.tries();
    let chosen = tries.iter().rev().find_map(|one| match &one.peer {
        Some(PeerName::Peer(peer)) => Some(peer),
        _ => None,
    });
    chosen.is_some_and(|peer| {
        look(peer);
        true
    })
}

/// Appends a number for each try.
fn sums(r: &Request, out: &mut Vec<u8>, of: fn(&Try) -> u64) -> bool {
    each(r, out, |one, out| {
        number(of(one), out);
    })
}

fn time(elapsed: Option<Duration>, out: &mut Vec<u8>) {
    match elapsed {
        Some(elapsed) => seconds(elapsed, out),
        None => out.push(b'-'),
    }
}

/// Skips spaces; tabs don't count.
fn blanks(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|&&b| b == b' ').count();
    &text[count..]
}

/// nginx: `ngx_http_parse_set_cookie_lines`.
fn cookie(r: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(head) = UpstreamState::get(r.state()).and_then(|state| state.head()) else {
        return false;
    };
    let mut lines = head.fields().filter(|f| f.name.eq_ignore_ascii_case(b"set-cookie"));
    let found = lines.find_map(|line| {
        let (start, rest) = line.value.split_at_checked(name.len())?;
        let rest = blanks(blanks(rest).strip_prefix(b"=")?);
        let end = rest.iter().position(|&b| b == b';').unwrap_or(rest.len());
        start.eq_ignore_ascii_case(name).then_some(&rest[..end])
    });
    found.is_some_and(|value| {
        out.extend_from_slice(value);
        true
    })
}
