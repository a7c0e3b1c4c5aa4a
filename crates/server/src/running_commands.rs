//! Commands to the running server: `nowait cache purge` removes objects from a cache, `nowait log-level` sets the level
//! of its error logs.
//!
//! Called by `main`. Sends the request to the control socket of the master named by the pid file, and
//! prints the result.

use crate::cli::CommandLine;
use crate::config;
use crate::config_path::ConfigPath;
use crate::control::{self, ControlReply, ControlRequest};
use crate::log::Level;
use crate::pidfile;
use crate::wire::PurgeOrder;

/// Purges, and returns the message for the operator.
///
/// # Errors
/// The message for the operator.
pub fn purge(order: PurgeOrder, options: &CommandLine) -> Result<String, String> {
    match ask(&ControlRequest::Purge(order), options)? {
        1 => Ok("1 object purged\n".to_owned()),
        objects => Ok(format!("{objects} objects purged\n")),
    }
}

/// Sets the level of all error logs, and returns the message for the operator.
///
/// # Errors
/// The message for the operator.
pub fn set_log_level(level: Option<Level>, options: &CommandLine) -> Result<String, String> {
    ask(&ControlRequest::LogLevel(level), options)?;
    Ok(match level {
        Some(level) => {
            format!("all error logs have the level \"{level}\" until the next reload\n")
        }
        None => "all error logs have their configured levels\n".to_owned(),
    })
}

/// Sends the request to the running server; returns the number in its reply.
fn ask(request: &ControlRequest, options: &CommandLine) -> Result<u64, String> {
    let place = ConfigPath::find(options)?;
    if place.builtin.is_some() {
        return Err(place.no_configuration());
    }
    // The caller adds the program's name.
    let without_name = |text: String| text.trim_start_matches("nowait: ").to_owned();
    let settings = config::settings(&place).map_err(|refused| without_name(refused.rendered))?;
    let pid = pidfile::read(&settings.pid).map_err(|message| {
        let hint = pidfile::hint(&settings.pid);
        format!("[error] {message}\n  = hint: {hint}")
    })?;
    match control::request(pid, request) {
        ControlReply::Done(number, _) => Ok(number),
        ControlReply::Failed(reason) => Err(reason.trim_end().to_owned()),
        ControlReply::Unreachable => Err(format!(
            "[error] the master process {pid} cannot be reached: it has ended, is not nowait, or \
             runs in another network namespace"
        )),
    }
}
