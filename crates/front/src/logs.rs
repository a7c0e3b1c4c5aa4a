//! The logs of a generation.
//!
//! Created when a generation comes into use, from the settings of its blocks (locations, servers)
//! and the files that the master opened. Protocols call [`Logs::access`] and [`Logs::about`]; both
//! only copy a line into the ring of the log writer.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nowait_runtime::net::Address;

use crate::log::access::{AccessLogs, OpenAccessLogs};
use crate::log::debug_connection::DebugConnections;
use crate::log::directives::{ErrorLogTo, ErrorTarget};
use crate::log::error::{Details, ErrorLog, LineContext, common_level};
use crate::log::writer::Writer;
use crate::log::{Level, LogReport, Logged};

/// The logs of a block, not yet open.
#[derive(Clone, Copy)]
pub struct BlockLogs<'a> {
    /// `access_log`
    pub access: &'a AccessLogs,
    /// `error_log`; empty: the main one.
    pub error: &'a [ErrorLogTo],
}

/// The logs of a generation, by the numbers of its blocks.
pub struct Logs {
    writer: Arc<Writer>,
    main: ErrorLog,
    debug: DebugConnections,
    access: Box<[OpenAccessLogs]>,
    /// `None`: the main one.
    error: Box<[Option<ErrorLog>]>,
    /// The block whose log takes lines without context; `None`: the main one.
    tasks: Option<usize>,
    /// Some log or client takes lines at level debug.
    debugs: bool,
}

/// The context of an error line.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// The number of the block.
    pub block: usize,
    /// The number of the connection.
    pub connection: u64,
    /// The peer of the connection, for `debug_connection`.
    pub peer: &'a Address,
    /// The parts of the line besides its message.
    pub details: Option<&'a dyn Details>,
}

impl Logs {
    /// Opens the logs of all blocks, in order. `opened` gives each file that the master has opened,
    /// once.
    pub fn open<'a>(
        blocks: impl Iterator<Item = BlockLogs<'a>>,
        writer: Arc<Writer>,
        main: ErrorLog,
        debug: DebugConnections,
        opened: &mut dyn FnMut(&Path) -> Option<File>,
    ) -> Self {
        let (mut access, mut error) = (Vec::new(), Vec::new());
        for block in blocks {
            access.push(block.access.open(&writer, opened));
            let outputs = block.error.iter().map(|log| log.open(&writer, opened));
            let outputs: Vec<_> = outputs.collect();
            error.push((!outputs.is_empty()).then(|| ErrorLog::new(outputs)));
        }
        let debugs = !debug.is_empty()
            || error.iter().flatten().chain([&main]).any(|log| log.enabled(Level::Debug));
        Self {
            writer,
            main,
            debug,
            access: access.into(),
            error: error.into(),
            tasks: None,
            debugs,
        }
    }

    /// Writes lines without context to the log of this block.
    pub fn with_tasks(self, block: usize) -> Self {
        Self { tasks: Some(block), ..self }
    }

    /// The threads that write the logs, for the next generation.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Gives the log writer files that were opened again.
    pub fn reopen(&self, mut fresh: impl FnMut(&Path) -> Option<File>) {
        self.writer.reopen(|path| fresh(Path::new(path)));
    }

    /// Tells the log writer that the file of a log will be handed over later.
    pub fn expect_file(&self, path: &Path) {
        self.writer.expect_file(path);
    }

    /// Gives the log writer files of some logs; the others stay as they are.
    pub fn replace(&self, mut fresh: impl FnMut(&Path) -> Option<File>) {
        self.writer.replace(|path| fresh(Path::new(path)));
    }

    /// Writes pending lines; false if that took longer than `limit`.
    pub fn flush(&self, limit: Duration) -> bool {
        self.writer.flush(limit)
    }

    /// Writes a line without context.
    pub fn error(&self, level: Level, message: fmt::Arguments<'_>) {
        let log = self.tasks.map_or(&self.main, |block| self.of(block));
        log.log(level, LineContext::default(), message);
    }

    /// Whether a line of this level would be written. `details` do not matter.
    pub fn enabled(&self, about: About<'_>, level: Level) -> bool {
        self.of(about.block).enabled(level) || self.is_debugged(about.peer)
    }

    /// Whether any log takes lines at level debug, or `debug_connection` names any client: checked
    /// before such a line is formatted, since they are rarely enabled.
    pub fn debugs(&self) -> bool {
        self.debugs || common_level() == Some(Level::Debug)
    }

    /// Writes a line with its context.
    pub fn about(&self, about: About<'_>, level: Level, message: fmt::Arguments<'_>) {
        let log = self.of(about.block);
        let debug = self.is_debugged(about.peer);
        if !log.enabled(level) && !debug {
            return;
        }
        let entry = LineContext {
            connection: Some(about.connection),
            os_error: None,
            details: about.details,
            debug_connection: debug,
        };
        log.log(level, entry, message);
    }

    /// Writes the access log lines of a subject that has been served by this block.
    pub fn access(&self, block: usize, subject: &impl Logged) {
        if let Some(logs) = self.access.get(block) {
            logs.write(subject);
        }
    }

    fn of(&self, block: usize) -> &ErrorLog {
        match self.error.get(block) {
            Some(Some(log)) => log,
            _ => &self.main,
        }
    }

    fn is_debugged(&self, peer: &Address) -> bool {
        !self.debug.is_empty() && self.debug.contains(peer.inet().map(|inet| inet.ip()))
    }
}

/// Reports failures of logs to the main error log.
impl LogReport for Logs {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.main.log(level, LineContext::default(), message);
    }
}

/// Whether an error log of the blocks is standard error.
pub fn uses_stderr<'a>(blocks: impl Iterator<Item = BlockLogs<'a>>) -> bool {
    let mut logs = blocks.flat_map(|block| block.error);
    logs.any(|log| log.target == ErrorTarget::Stderr)
}

/// Files that the logs of the blocks are written to, each once.
pub fn files<'a>(blocks: impl Iterator<Item = BlockLogs<'a>>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for block in blocks {
        let error = block.error.iter().filter_map(|log| log.file());
        for file in block.access.files().chain(error) {
            if !files.iter().any(|known| known == file) {
                files.push(file.to_path_buf());
            }
        }
    }
    files
}
