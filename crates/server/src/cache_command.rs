//! `nowait cache purge`: removes objects from a cache of the running server.
//!
//! Called by `main`. Sends the request to the control socket of the master named by the pid file, and
//! prints the number of removed objects.

use crate::cli::CommandLine;
use crate::config;
use crate::config_path::ConfigPath;
use crate::control::{self, ControlReply, ControlRequest};
use crate::pidfile;
use crate::wire::PurgeOrder;

/// Purges, and returns the message for the operator.
///
/// # Errors
/// The message for the operator.
pub fn purge(order: PurgeOrder, options: &CommandLine) -> Result<String, String> {
    let place = ConfigPath::find(options)?;
    if place.builtin.is_some() {
        return Err(place.no_configuration());
    }
    let settings = config::settings(&place).map_err(|refused| refused.rendered)?;
    let pid = pidfile::read(&settings.pid).map_err(|message| {
        let hint = pidfile::hint(&settings.pid);
        format!("[error] {message}\n  = hint: {hint}")
    })?;
    match control::request(pid, &ControlRequest::Purge(order)) {
        ControlReply::Done(1, _) => Ok("1 object purged\n".to_owned()),
        ControlReply::Done(objects, _) => Ok(format!("{objects} objects purged\n")),
        ControlReply::Failed(reason) => Err(reason.trim_end().to_owned()),
        ControlReply::Unreachable => Err(format!(
            "[error] the master process {pid} cannot be reached: it has ended, is not nowait, or \
             runs in another network namespace"
        )),
    }
}
