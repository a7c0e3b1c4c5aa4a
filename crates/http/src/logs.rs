//! The logs of a generation: which lines of which requests go where.
//!
//! Made when a generation comes into use, from what its locations say and the files that the master
//! opened. Request code calls [`access`] and [`Request::log`]; both only copy a line into the ring
//! of the log writer.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::address;
use crate::conf::HttpConf;
use crate::log::access::OpenAccessLogs;
use crate::log::debug_connection::DebugConnections;
use crate::log::directives::ErrorTarget;
use crate::log::error::{Details, Entry, ErrorLog, RequestDetails};
use crate::log::writer::Writer;
use crate::log::{Level, Logged, Report};
use crate::request::Request;

/// The logs of a generation, by location.
pub struct Logs {
    writer: Arc<Writer>,
    main: ErrorLog,
    debug: DebugConnections,
    access: Box<[OpenAccessLogs]>,
    /// `None`: the main one.
    error: Box<[Option<ErrorLog>]>,
}

impl Logs {
    /// Opens the logs of a configuration. `opened` gives each file that the master has opened,
    /// once.
    pub fn open(
        conf: &HttpConf,
        writer: Arc<Writer>,
        main: ErrorLog,
        debug: DebugConnections,
        opened: &mut dyn FnMut(&Path) -> Option<File>,
    ) -> Self {
        let mut access = Vec::with_capacity(conf.locations().len());
        let mut error = Vec::with_capacity(conf.locations().len());
        for location in conf.locations() {
            access.push(location.access_logs.open(&writer, opened));
            let outputs = location.log.error_log.iter().map(|log| log.open(&writer, opened));
            let outputs: Vec<_> = outputs.collect();
            error.push((!outputs.is_empty()).then(|| ErrorLog::new(outputs)));
        }
        Self { writer, main, debug, access: access.into(), error: error.into() }
    }

    /// Logs that write nothing but errors to standard error, for tests.
    ///
    /// # Errors
    /// When the log writer's thread can't be started.
    pub fn stderr(conf: &HttpConf) -> std::io::Result<Self> {
        let main = ErrorLog::stderr(Level::Error);
        let access = conf.locations().iter().map(|_| OpenAccessLogs::default()).collect();
        let error = conf.locations().iter().map(|_| None).collect();
        let writer = Arc::new(Writer::start()?);
        Ok(Self { writer, main, debug: DebugConnections::default(), access, error })
    }

    /// The thread that writes the logs, for the next generation.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Gives the log writer files that were opened anew.
    pub fn reopen(&self, mut fresh: impl FnMut(&Path) -> Option<File>) {
        self.writer.reopen(|path| fresh(Path::new(path)));
    }

    /// Writes what is still waiting; false if that took longer than `limit`.
    pub fn flush(&self, limit: Duration) -> bool {
        self.writer.flush(limit)
    }

    /// Writes a line about no request.
    pub fn error(&self, level: Level, message: fmt::Arguments<'_>) {
        self.main.log(level, Entry::default(), message);
    }

    /// Writes a line about a request.
    pub(crate) fn request_error(
        &self,
        request: &Request,
        level: Level,
        message: fmt::Arguments<'_>,
    ) {
        let log = match self.error.get(request.location.0 as usize) {
            Some(Some(log)) => log,
            _ => &self.main,
        };
        let debug = !self.debug.is_empty()
            && self.debug.contains(request.connection.peer.inet().map(|inet| inet.ip()));
        if !log.enabled(level) && !debug {
            return;
        }
        let entry = Entry {
            connection: Some(request.connection.number),
            os_error: None,
            details: Some(&About(request)),
            debug_connection: debug,
        };
        log.log(level, entry, message);
    }
}

/// Failures of logs are told to the main error log.
impl Report for Logs {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.error(level, message);
    }
}

/// What error lines say about a request.
struct About<'a>(&'a Request);

impl Details for About<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        let request = self.0;
        let mut client = Vec::new();
        address::append_ip(request.peer(), &mut client);
        let line = request.head.request_line();
        let listen;
        let server = if line.is_empty() {
            listen = request.connection.listen.to_string();
            listen.as_bytes()
        } else {
            request.server_name()
        };
        let state = request.upstream.as_deref();
        let mut upstream = Vec::new();
        if let Some(state) = state {
            state.append_url(request.head.uri(), &mut upstream);
        }
        let details = RequestDetails {
            action: state.and_then(|state| state.action()),
            upstream: &upstream,
            client: &client,
            server,
            request: line,
            subrequest: if request.is_nested() { &request.uri.path } else { &[] },
            host: request.head.header(nowait_h1::Known::Host),
            referrer: request.head.header(nowait_h1::Known::Referer),
        };
        details.append(out);
    }
}

/// Writes the access log lines of a finished request, after the lines of the error log that were kept
/// until then.
pub fn access(request: &Request) {
    if let Some(state) = &request.upstream {
        for (level, text) in state.take_notices() {
            request.log(level, format_args!("{text}"));
        }
    }
    let logs = &request.current.logs.access;
    let Some(log) = logs.get(request.location.0 as usize) else { return };
    log.write(request);
}

/// The text of the format that exists without being defined.
pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \
     \"$request\" $status $body_bytes_sent \
     \"$http_referer\" \"$http_user_agent\"";

impl Logged for Request {
    const FORMAT: Option<(&'static str, &'static str)> = Some(("combined", COMBINED));

    fn append_root(&self, out: &mut Vec<u8>) {
        self.location().path.append_root(self, out);
    }
}

/// Whether an error log of the configuration is standard error.
pub fn uses_stderr(conf: &HttpConf) -> bool {
    let logs = conf.locations().iter().flat_map(|location| &location.log.error_log);
    logs.into_iter().any(|log| log.target == ErrorTarget::Stderr)
}

/// Files that the logs of a configuration are written to, each once.
pub fn files(conf: &HttpConf) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for location in conf.locations() {
        let access = location.access_logs.files();
        let error = location.log.error_log.iter().filter_map(|log| log.file());
        for file in access.chain(error) {
            if !files.iter().any(|known| known == file) {
                files.push(file.to_path_buf());
            }
        }
    }
    files
}
