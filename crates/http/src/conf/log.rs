//! The rows of request logs: `log_format`, `access_log`, `open_log_file_cache`, and `error_log` and `error_log_tag`
//! below the main context. `nowait_front::log` interprets them. nginx: `ngx_http_log_module`.

use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_front::log::access::AccessLogs;
use nowait_front::log::directives::{AccessLog, ErrorLogTo, LogFileCache, log_format};

use crate::conf::values::complex;
use crate::variables::complex::{Complex, HttpVariables};

/// The log of configurations without `access_log`, below the prefix.
pub const DEFAULT_ACCESS_LOG: &str = "logs/access.log";

nowait_conf::directives! {
    /// Logs of a location.
    #[derive(Debug)]
    module "log";
    pub struct LogConf with LogLayer;

    /// Writes a line for every request to a file, in the given format (`combined` by default). With
    /// `buffer`, lines are written once that many bytes have accumulated or, with `flush`, once
    /// they are that old. `gzip` compresses them (level 1 to 9; with a buffer of 64k by default).
    /// Requests whose `if` condition is `0` or empty are not logged. A path may contain variables,
    /// but not together with a buffer. `syslog:` sends lines to a syslog server. `off` cancels
    /// logging on this level. Dedicated threads write the lines, so a hanging disk delays no
    /// request; lines that had to be dropped are counted in the error log.
    access_log: Vec<AccessLog<HttpVariables>>, in HTTP | SERVER | LOCATION | LOCATION_IF | LIMIT_EXCEPT,
    args "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]] | off";
    /// Keeps log files with variables in their path open: at most `max` files, each from its
    /// `min_uses`-th use (1) within `inactive` (10s), rechecking the path after `valid` (60s).
    open_log_file_cache: LogFileCache = "off", in HTTP | SERVER | LOCATION,
    args "max=number [inactive=time] [min_uses=number] [valid=time] | off";
    /// Writes messages about requests to a file, to standard error (`stderr`) or to a syslog server
    /// (`syslog:`), from this level on (`error`): `debug`, `info`, `notice`, `warn`, `error`,
    /// `crit`, `alert` or `emerg`. Several may be given. Without any, the log of the main context
    /// is used. That of the `http` block also gets messages about certificates and health checks. The other
    /// parameters are those of `error_log` in the main context.
    error_log: Vec<ErrorLogTo>, in HTTP | SERVER | LOCATION,
    args "file [level] [json | format=json | format=text] [tag=text] [filter=[!]~[*]regex] [rate=number r/s|r/m]";
    /// Adds a member with this name and value to lines of error logs in JSON that are about a request. Lines without
    /// a value do not have it.
    error_log_tag: Vec<ErrorLogTag>, in HTTP | SERVER | LOCATION, args "name value";
}

/// One `error_log_tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLogTag {
    /// The name of the member.
    pub name: Box<str>,
    /// Its value.
    pub value: Complex,
}

impl Setting for ErrorLogTag {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, value] = node.args.as_slice() else { return Err(node.arity_error()) };
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.text.is_empty() || !name.text.iter().copied().all(is_plain) {
            let error = name.error(format!("invalid name \"{name}\" of a tag"));
            return Err(error.expected("letters, digits, \"_\", \"-\" and \".\""));
        }
        Ok(Self { name: name.to_str()?.into(), value: complex(value, cx)? })
    }
}

nowait_conf::rows! {
    pub static LOG_ROWS, module "log";

    /// Names a format for `access_log`: text with variables, joined if given as several strings.
    /// `escape` selects how values are written. By default `"`, `\` and anything but printable
    /// ASCII become `\xXX`, and a missing value becomes `-`. `json` escapes them for JSON strings
    /// (bytes from 0x80 are copied, except control characters), `none` does not change them; with both
    /// a missing value is empty. The format `combined` is
    /// predefined. So are, unless the configuration defines them, `json` (Nowait's own: the request and all its times)
    /// and `ecs` (the same by the names of the Elastic Common Schema).
    "log_format" => log_format::<HttpVariables>, in HTTP, take at_least(2),
    default "combined \"...\"", args "name [escape=default | json | none] string ...";
}

/// The logs of tasks beside requests, such as those of certificates and health checks: `error_log` of the `http`
/// block. nginx differs: it uses the log of the main context.
#[derive(Default)]
pub struct TaskLogs {
    /// They serve no requests.
    pub access: AccessLogs,
    /// Empty: the main one.
    pub error: Vec<ErrorLogTo>,
}

impl TaskLogs {
    /// With the `error_log` of the `http` block; none: the main one is used.
    pub fn new(error: Vec<ErrorLogTo>) -> Self {
        Self { access: AccessLogs::default(), error }
    }
}

/// The access logs of a location; the default one if no block has any.
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
