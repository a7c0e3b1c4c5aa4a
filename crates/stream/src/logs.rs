//! The logs of a generation: which lines of which sessions go where.
//!
//! Made when a generation comes into use, from what its servers say and the files that the master
//! opened. Sessions only copy a line into the ring of the log writer.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_front::log::Level;
use nowait_front::log::access::OpenAccessLogs;
use nowait_front::log::debug_connection::DebugConnections;
use nowait_front::log::directives::ErrorTarget;
use nowait_front::log::error::{Details, Entry, ErrorLog};
use nowait_front::log::writer::Writer;

use crate::conf::StreamConf;
use crate::session::Session;

/// The logs of a generation, by server.
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
        conf: &StreamConf,
        writer: Arc<Writer>,
        main: ErrorLog,
        debug: DebugConnections,
        opened: &mut dyn FnMut(&Path) -> Option<File>,
    ) -> Self {
        let mut access = Vec::with_capacity(conf.servers().len());
        let mut error = Vec::with_capacity(conf.servers().len());
        for server in conf.servers() {
            access.push(server.access_logs.open(&writer, opened));
            let outputs = server.log.error_log.iter().map(|log| log.open(&writer, opened));
            let outputs: Vec<_> = outputs.collect();
            error.push((!outputs.is_empty()).then(|| ErrorLog::new(outputs)));
        }
        Self { writer, main, debug, access: access.into(), error: error.into() }
    }

    /// The threads that write the logs.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Writes a line about no session.
    pub fn error(&self, level: Level, message: fmt::Arguments<'_>) {
        self.main.log(level, Entry::default(), message);
    }

    fn of(&self, session: &Session) -> &ErrorLog {
        match self.error.get(session.server_id().0 as usize) {
            Some(Some(log)) => log,
            _ => &self.main,
        }
    }

    /// Whether a line of this level about a session would be written.
    pub fn enabled(&self, session: &Session, level: Level) -> bool {
        self.of(session).enabled(level) || self.is_debugged(session)
    }

    fn is_debugged(&self, session: &Session) -> bool {
        let peer = || session.connection_peer.inet().map(|inet| inet.ip());
        !self.debug.is_empty() && self.debug.contains(peer())
    }

    /// Writes a line about a session.
    pub(crate) fn session_error(
        &self,
        session: &Session,
        level: Level,
        details: Option<&dyn Details>,
        message: fmt::Arguments<'_>,
    ) {
        let log = self.of(session);
        let debug = self.is_debugged(session);
        if log.enabled(level) || debug {
            log.log(level, session.entry(details, debug), message);
        }
    }

    /// Writes the access log lines of a session that has ended.
    pub(crate) fn access(&self, session: &Session) {
        if let Some(logs) = self.access.get(session.server_id().0 as usize) {
            logs.write(session);
        }
    }
}

/// Whether an error log of the configuration is standard error.
pub fn uses_stderr(conf: &StreamConf) -> bool {
    let logs = conf.servers().iter().flat_map(|server| &server.log.error_log);
    logs.into_iter().any(|log| log.target == ErrorTarget::Stderr)
}

/// Files that the logs of a configuration are written to, each once.
pub fn files(conf: &StreamConf) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut add = |file: &Path| {
        if !files.iter().any(|known| known == file) {
            files.push(file.to_path_buf());
        }
    };
    conf.access_logs.files().for_each(&mut add);
    for server in conf.servers() {
        let error = server.log.error_log.iter().filter_map(|log| log.file());
        server.access_logs.files().chain(error).for_each(&mut add);
    }
    files
}
