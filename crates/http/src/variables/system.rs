//! Variables of the program and of time.

use super::Builtin;
use super::core::{builtins, number};
use crate::request::Request;
use nowait_runtime::clock;
use nowait_sys::tcp_info::TcpInfo;

pub use nowait_front::NGINX_VERSION;

/// The table of this module.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Name of the host.
    "hostname" => |_, out| { out.extend_from_slice(nowait_sys::process::hostname().as_bytes()); true };
    /// Current time in seconds with millisecond resolution.
    "msec" => msec;
    /// Version of nginx that Nowait follows.
    "nginx_version" => |_, out| { out.extend_from_slice(NGINX_VERSION.as_bytes()); true };
    /// Process ID of the server process.
    "pid" => |_, out| number(u64::from(std::process::id()), out);
    /// Receive window of the client's TCP connection in bytes.
    "tcpinfo_rcv_space" => |r, out| tcp(r, |info| info.rcv_space, out);
    /// Round-trip time of the client's TCP connection in microseconds.
    "tcpinfo_rtt" => |r, out| tcp(r, |info| info.rtt_us, out);
    /// Variance of the round-trip time in microseconds.
    "tcpinfo_rttvar" => |r, out| tcp(r, |info| info.rttvar_us, out);
    /// Congestion window of the client's TCP connection in segments.
    "tcpinfo_snd_cwnd" => |r, out| tcp(r, |info| info.snd_cwnd, out);
    /// Local time in ISO 8601 format.
    "time_iso8601" => |_, out| { out.extend_from_slice(&clock().iso_time()); true };
    /// Local time in the common log format.
    "time_local" => |_, out| { out.extend_from_slice(&clock().log_time()); true };
};

/// The value of a variable that is the same for all requests.
pub fn constant(name: &str) -> Option<&'static str> {
    (name == "nginx_version").then_some(NGINX_VERSION)
}

fn tcp(r: &Request, part: fn(&TcpInfo) -> u32, out: &mut Vec<u8>) -> bool {
    r.exchange().tcp_info().is_ok_and(|info| number(u64::from(part(&info)), out))
}

fn msec(_: &crate::request::Request, out: &mut Vec<u8>) -> bool {
    let ms = clock().unix_ms();
    out.extend_from_slice(format!("{}.{:03}", ms / 1000, ms % 1000).as_bytes());
    true
}
