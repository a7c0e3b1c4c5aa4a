//! `nowait cache purge`: removes objects from a cache of the running server.
//!
//! Called by `main`. Asks the master named by the pid file over its control socket, and prints how
//! many objects were removed.

use crate::cli::Options;
use crate::config;
use crate::control::{self, Answer, Wish};
use crate::pidfile;
use crate::place::Place;
use crate::wire::PurgeOrder;

/// Purges, and returns the message for the operator.
///
/// # Errors
/// The message for the operator.
pub fn purge(order: PurgeOrder, options: &Options) -> Result<String, String> {
    let place = Place::find(options)?;
    if place.serve.is_some() {
        return Err(place.no_configuration());
    }
    let settings = config::settings(&place).map_err(|refused| refused.rendered)?;
    let pid = pidfile::read(&settings.pid).map_err(|message| {
        let hint = pidfile::hint(&settings.pid);
        format!("[error] {message}\n  = hint: {hint}")
    })?;
    match control::request(pid, &Wish::Purge(order)) {
        Answer::Done(1, _) => Ok("1 object purged\n".to_owned()),
        Answer::Done(objects, _) => Ok(format!("{objects} objects purged\n")),
        Answer::Failed(reason) => Err(reason.trim_end().to_owned()),
        Answer::Unreachable => Err(format!(
            "[error] the master process {pid} cannot be reached: it has ended, is not nowait, or \
             runs in another network namespace"
        )),
    }
}
