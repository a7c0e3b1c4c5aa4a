//! Variables of the program and of time.

use super::Builtin;
use super::core::{builtins, number};
use nowait_runtime::clock;

/// Version of nginx whose behaviour is followed.
pub const NGINX_VERSION: &str = "1.31.4";

/// The table of this module.
pub const BUILTINS: &[Builtin] = builtins! {
    /// Name of the host.
    "hostname" => |_, out| { out.extend_from_slice(nowait_sys::process::hostname().as_bytes()); true };
    /// Current time in seconds with milliseconds.
    "msec" => msec;
    /// Version of nginx whose behaviour is followed.
    "nginx_version" => |_, out| { out.extend_from_slice(NGINX_VERSION.as_bytes()); true };
    /// Number of the process that serves the request.
    "pid" => |_, out| number(u64::from(std::process::id()), out);
    /// Current time as in ISO 8601, local.
    "time_iso8601" => |_, out| { out.extend_from_slice(&clock().iso_time()); true };
    /// Current time as in the common log format, local.
    "time_local" => |_, out| { out.extend_from_slice(&clock().log_time()); true };
};

fn msec(_: &crate::request::Request, out: &mut Vec<u8>) -> bool {
    let ms = clock().unix_ms();
    out.extend_from_slice(format!("{}.{:03}", ms / 1000, ms % 1000).as_bytes());
    true
}
