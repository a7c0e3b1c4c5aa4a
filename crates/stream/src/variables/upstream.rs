//! `$upstream_*`: the tries of upstream servers by a session. The values of several tries are
//! joined by `, `. nginx: `ngx_stream_upstream_vars`.

use std::time::Duration;

use super::{Builtin, builtin_rows, number, seconds};
use crate::session::Session;
use crate::tries::Try;

/// The variables of this module.
pub const BUILTINS: &[Builtin] = builtin_rows! {
    /// Addresses of the upstream servers that were tried.
    "upstream_addr" => |s, out| each(s, out, |one, out| out.extend_from_slice(one.name().as_bytes()));
    /// Bytes received from the upstream servers.
    "upstream_bytes_received" => |s, out| each(s, out, |one, out| { number(one.received, out); });
    /// Bytes sent to the upstream servers.
    "upstream_bytes_sent" => |s, out| each(s, out, |one, out| { number(one.sent, out); });
    /// Times for establishing connections to upstream servers, in seconds with millisecond
    /// resolution; `-` if that failed.
    "upstream_connect_time" => |s, out| each(s, out, |one, out| time(one.connect, out));
    /// Times until the first byte arrived; `-` if none did.
    "upstream_first_byte_time" => |s, out| each(s, out, |one, out| time(one.first_byte, out));
    /// IP address without port, or path as `unix:/run/x.sock`, of the upstream server that was chosen last.
    "upstream_last_addr" => last_address;
    /// Times until the upstream part of the session ended; `-` while it is in progress.
    "upstream_session_time" => |s, out| each(s, out, |one, out| time(one.session, out));
};

fn last_address(s: &Session, out: &mut Vec<u8>) -> bool {
    let tries = s.tries.borrow();
    let chosen = tries.iter().rev().find_map(Try::peer);
    chosen.is_some_and(|peer| {
        peer.append_host(out);
        true
    })
}

fn each(s: &Session, out: &mut Vec<u8>, append: fn(&Try, &mut Vec<u8>)) -> bool {
    let tries = s.tries.borrow();
    for (n, one) in tries.iter().enumerate() {
        if n > 0 {
            out.extend_from_slice(b", ");
        }
        append(one, out);
    }
    !tries.is_empty()
}

fn time(time: Option<Duration>, out: &mut Vec<u8>) {
    match time {
        Some(time) => {
            seconds(time, out);
        }
        None => out.push(b'-'),
    }
}
