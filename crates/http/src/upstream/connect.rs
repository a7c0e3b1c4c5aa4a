//! Connections to upstreams: idle ones, and new ones.

use std::io;

use nowait_runtime::net::Stream;

use super::{Settings, Target};

/// Connects to the target.
///
/// # Errors
/// `TimedOut` after `connect_timeout`; what the network says.
pub(super) async fn connect(target: &Target, settings: &Settings) -> io::Result<Stream> {
    Stream::connect(&target.address, settings.connect_timeout).await
}
