//! Logs of sessions. nginx: `ngx_stream_log_module`, `ngx_stream_core_module`.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_front::log::access::AccessLogs;
use nowait_front::log::directives::{self, AccessLog, ErrorLogTo, LogFileCache};

use crate::variables::complex::StreamVariables;

nowait_conf::directives! {
    /// Logs of a server.
    #[derive(Debug)]
    module "stream_log";
    pub struct LogConf with LogLayer;

    /// Writes a line for every session when it ends, in a format that `log_format` in `stream`
    /// defines; there is no default format. Otherwise the same as `access_log` in `http`.
    access_log: Vec<AccessLog<StreamVariables>>, in STREAM | STREAM_SERVER,
    args "path format [buffer=size] [gzip[=level]] [flush=time] [if=condition] | off";
    /// Keeps log files with variables in their path open, as in `http`.
    open_log_file_cache: LogFileCache = "off", in STREAM | STREAM_SERVER,
    args "max=number [inactive=time] [min_uses=number] [valid=time] | off";
    /// Writes messages about sessions to a file, to standard error (`stderr`) or to a syslog server
    /// (`syslog:`), from this level on. Without any, the log of the main context is used. The other parameters
    /// are those of `error_log` in the main context.
    error_log: Vec<ErrorLogTo>, in STREAM | STREAM_SERVER,
    args "file [level] [json | format=json | format=text] [tag=text] [filter=[!]~[*]regex] [rate=number r/s|r/m]";
}

nowait_conf::rows! {
    pub static LOG_ROWS, module "stream_log";

    /// Names a format for `access_log` in `stream`: text with session variables, joined if given as
    /// several strings. `escape` selects how values are written, as in `http`.
    "log_format" => log_format, in STREAM, take at_least(2),
    args "name [escape=default | json | none] string ...";
}

fn log_format(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    directives::log_format::<StreamVariables>(cx, node)
}

impl LogConf {
    /// The access logs, with their variables resolved.
    pub fn access_logs(&self, cx: &mut Cx<'_>) -> AccessLogs {
        AccessLogs::resolve(cx, &self.access_log, self.open_log_file_cache)
    }
}
