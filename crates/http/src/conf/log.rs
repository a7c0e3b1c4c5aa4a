//! The rows of logs of requests: `log_format`, `access_log`, `open_log_file_cache`, and `error_log`
//! below the main context. What they say is `nowait_front::log`. nginx: `ngx_http_log_module`.

use nowait_conf::{Cx, Scope};
use nowait_front::log::access::AccessLogs;
use nowait_front::log::directives::{AccessLog, ErrorLogTo, LogFileCache, log_format};

use crate::request::Request;

/// The log of configurations without `access_log`, below the prefix.
pub const DEFAULT_ACCESS_LOG: &str = "logs/access.log";

nowait_conf::directives! {
    /// Logs of a location.
    #[derive(Debug)]
    module "log";
    pub struct LogConf with LogLayer;

    /// Writes a line for every request to a file, in a format (`combined` if none is given). With
    /// `buffer` lines are written when so many bytes are together, or, with `flush`, when they are
    /// so old; `gzip` compresses what is written (level 1 to 9; a buffer of 64k if none is given).
    /// Requests for which the condition is `0` or empty are not logged. A path may contain
    /// variables, but not together with a buffer. `syslog:` sends lines to a syslog server. `off`
    /// ends the logging of the level. Lines are written by threads of their own: a disk that
    /// hangs holds up no request, and lines that had to be dropped are counted in the error log.
    access_log: Vec<AccessLog<Request>>, in HTTP | SERVER | LOCATION | LOCATION_IF | LIMIT_EXCEPT,
    args "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]] | off";
    /// Keeps descriptors of logs whose path contains variables: at most `max` files, each from
    /// its `min_uses`-th use (1) within the time of `inactive` (10s) on, checking the path again
    /// after `valid` (60s).
    open_log_file_cache: LogFileCache = "off", in HTTP | SERVER | LOCATION,
    args "max=number [inactive=time] [min_uses=number] [valid=time] | off";
    /// Writes messages about requests to a file, standard error (`stderr`) or a syslog server
    /// (`syslog:`), down to a level (`error`): `debug`, `info`, `notice`, `warn`, `error`, `crit`,
    /// `alert` or `emerg`. Several may be given. Without any the log of the main context is used.
    error_log: Vec<ErrorLogTo>, in HTTP | SERVER | LOCATION, args "file [level]";
}

nowait_conf::rows! {
    pub static LOG_ROWS, module "log";

    /// Names a format of `access_log`: text with variables, of which several strings are joined.
    /// `escape` says how values are written: by default `"`, `\` and what is not printable ASCII
    /// become `\xXX` and a missing value `-`; `json` makes them fit for JSON strings and `none`
    /// leaves them alone, both with nothing for a missing value. The format `combined` exists.
    "log_format" => log_format::<Request>, in HTTP, take at_least(2),
    default "combined \"...\"", args "name [escape=default | json | none] string ...";
}

/// The access logs of a location: the default one if no block says anything.
pub fn access_logs(cx: &mut Cx<'_>, log: &LogConf, chain: &[&Scope]) -> AccessLogs {
    let layers = chain.iter().filter_map(|scope| scope.get::<LogLayer>());
    let given = layers.into_iter().any(|layer| layer.access_log.is_some());
    let default;
    let list = if given {
        &log.access_log[..]
    } else {
        default = [AccessLog::built_in(cx, DEFAULT_ACCESS_LOG)];
        &default
    };
    AccessLogs::resolve(cx, list, log.open_log_file_cache)
}
