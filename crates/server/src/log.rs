//! The error log of the master and of the control thread: one line at a time.
//!
//! Used before, and beside, the request-level log that the `http` crate writes through its log
//! thread: by the single-threaded master for everything, and by the server process for its own life
//! cycle. Files are written by the [log process](crate::log_process), so that a hanging disk delays
//! neither for long. Never used on an event loop.

use nowait_conf::Errno;
use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use nowait_front::log::error::LineContext;
use nowait_front::log::error_options::LineOptions;
use nowait_front::log::time::with_now;
use nowait_front::log::{escape, syslog};
use nowait_sys::localtime::LocalTime;

use crate::log_process::{LogFile, LogProcess, OpenResult, late};

/// Longer lines are cut (nginx: NGX_MAX_ERROR_STR).
const LINE_BYTES_MAX: usize = 2048;

/// Room for the syslog prefix of a line.
const SYSLOG_HEADER_BYTES: usize = 128;

pub use nowait_front::log::Level;

/// One destination of the log.
#[derive(Debug)]
pub struct Sink {
    /// The destination.
    pub to: Destination,
    /// The least severe level that is written.
    pub level: Level,
    /// The form of lines, and a filter. Rates apply to requests alone.
    pub options: LineOptions,
}

/// A destination of the main error log.
#[derive(Debug)]
pub enum Destination {
    /// Standard error.
    Stderr,
    /// A file that the log process has open.
    File(Arc<LogFile>),
    /// A syslog server; lines that it does not accept at once are lost.
    Syslog {
        /// Facility, tag and host name.
        options: syslog::SyslogOptions,
        /// The socket, created when first needed.
        socket: RefCell<syslog::SyslogSocket>,
    },
}

impl Destination {
    /// A syslog server.
    pub fn syslog(options: &syslog::SyslogOptions) -> Destination {
        let socket = RefCell::new(syslog::SyslogSocket::new(options.server.clone()));
        Destination::Syslog { options: options.clone(), socket }
    }
}

impl Sink {
    /// A sink of every line, in nginx's form.
    fn plain(to: Destination, level: Level) -> Sink {
        Sink { to, level, options: LineOptions::default() }
    }

    /// The line of a message; `None` if the filter does not let it pass.
    fn render(&self, level: Level, message: &str) -> Option<String> {
        if self.options.is_plain() {
            return Some(render(level, message));
        }
        if !self.options.accepts(message.as_bytes()) {
            return None;
        }
        let mut line = Vec::new();
        let context = LineContext::default();
        with_now(|now| self.options.render(&mut line, now, level, context, message.as_bytes()));
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    fn file(&self) -> Option<&Arc<LogFile>> {
        match &self.to {
            Destination::File(file) => Some(file),
            Destination::Stderr | Destination::Syslog { .. } => None,
        }
    }
}

/// The log. Lines go to every sink that accepts their level; during startup, important ones also go
/// to standard error.
#[derive(Debug)]
pub struct StartupLog {
    sinks: Vec<Sink>,
    /// Copy warnings and worse to standard error: until the program has started.
    to_stderr: bool,
    /// Also collect errors here while a control client waits for the result.
    noted: RefCell<Option<String>>,
    /// The process that writes the files.
    process: Arc<LogProcess>,
}

impl StartupLog {
    /// A log to standard error only.
    pub fn stderr(level: Level) -> StartupLog {
        StartupLog::to(Sink::plain(Destination::Stderr, level))
    }

    /// A log to the file that `-e` names, opened (and created) before the configuration is read. If that
    /// fails, an alert goes to standard error, which then becomes the log, as in nginx.
    pub fn open(path: &Path, level: Level) -> StartupLog {
        let mut log = StartupLog::stderr(level);
        let opened = log.process.open([(path.to_owned(), false)]).map(|mut files| files.pop());
        let why = match opened {
            Ok(Some((file, OpenResult::Yes))) => {
                log.set_sinks(vec![Sink::plain(Destination::File(Arc::new(file)), level)]);
                return log;
            }
            Ok(Some((_, OpenResult::No(failure)))) => failure.message,
            Ok(_) => late(path),
            Err(error) => format!("fork() failed {}", OsErrorText(&error)),
        };
        complain(&format!("[alert] could not open error log file: {why}"));
        log
    }

    fn to(sink: Sink) -> StartupLog {
        let (noted, process) = Default::default();
        StartupLog { sinks: vec![sink], to_stderr: true, noted, process }
    }

    /// The process that opens and writes the files.
    pub fn process(&self) -> &Arc<LogProcess> {
        &self.process
    }

    /// Replaces the sinks once the configuration has named them.
    pub fn set_sinks(&mut self, sinks: Vec<Sink>) {
        self.sinks = sinks;
    }

    /// Stops (or starts) the copying of warnings to standard error.
    pub fn set_stderr_copy(&mut self, on: bool) {
        self.to_stderr = on;
    }

    /// The first sink that is a file: standard error is redirected to it.
    pub fn first_file(&self) -> Option<&Arc<LogFile>> {
        self.sinks.iter().find_map(Sink::file)
    }

    /// Whether standard error is itself a sink.
    pub fn has_stderr_sink(&self) -> bool {
        self.sinks.iter().any(|sink| matches!(sink.to, Destination::Stderr))
    }

    /// Writes a line.
    pub fn log(&self, level: Level, message: impl fmt::Display) {
        let message = message.to_string();
        let message = escape::line(&message);
        let for_people = self.to_stderr && level <= Level::Warn;
        for sink in self.sinks.iter().filter(|sink| sink.level >= level) {
            let Some(line) = sink.render(level, &message) else { continue };
            // If the log itself cannot be written, there is nowhere to report it.
            let _ = match &sink.to {
                Destination::File(file) => {
                    file.write(line.as_bytes());
                    Ok(())
                }
                // Standard error gets the short form.
                Destination::Stderr if for_people => Ok(()),
                Destination::Stderr => std::io::stderr().write_all(line.as_bytes()),
                Destination::Syslog { options, socket } => {
                    let mut datagram = Vec::with_capacity(line.len() + SYSLOG_HEADER_BYTES);
                    with_now(|now| options.push_header(&mut datagram, level, &now.syslog));
                    datagram.extend_from_slice(line.trim_end_matches('\n').as_bytes());
                    socket.borrow_mut().send(&datagram)
                }
            };
        }
        self.sync(level);
        if for_people {
            complain(&format!("[{level}] {message}"));
        }
        if level <= Level::Error {
            self.note(format_args!("nowait: [{level}] {message}"));
        }
    }

    /// The lines are in the file before the next step begins, unless the disk is slow.
    fn sync(&self, level: Level) {
        if self.sinks.iter().any(|sink| sink.level >= level && sink.file().is_some()) {
            self.process.sync();
        }
    }

    /// Prints a hint about the previous line during startup.
    pub fn hint(&self, hint: impl fmt::Display) {
        if self.to_stderr {
            let _ = writeln!(std::io::stderr(), "  = hint: {hint}");
        }
        self.note(format_args!("  = hint: {hint}"));
    }

    /// Runs `work` and returns the errors that it logged, with hints, as lines for people.
    pub fn noting<T>(&self, work: impl FnOnce() -> T) -> (T, String) {
        self.noted.replace(Some(String::new()));
        let result = work();
        (result, self.noted.take().unwrap_or_default())
    }

    fn note(&self, line: impl fmt::Display) {
        if let Some(noted) = &mut *self.noted.borrow_mut() {
            noted.push_str(&format!("{line}\n"));
        }
    }

    /// Writes a rendered text, one record per line, without copying it to standard error (the
    /// caller shows it there).
    pub fn log_file_only(&self, level: Level, message: impl fmt::Display) {
        let message = message.to_string();
        for sink in self.sinks.iter().filter(|sink| sink.level >= level) {
            if let Some(file) = sink.file()
                && let Some(line) = sink.render(level, &message)
            {
                file.write(line.as_bytes());
            }
        }
        self.sync(level);
    }
}

/// A line of the log, with its time and process. Long messages are cut; control characters, of file
/// names for example, are escaped.
pub fn render(level: Level, message: &str) -> String {
    let time = LocalTime::now().error_log();
    let message = escape::line(message);
    let mut line = format!("{time} [{level}] {}#{}: {message}", std::process::id(), thread_id());
    cut(&mut line, LINE_BYTES_MAX);
    line.push('\n');
    line
}

/// Prints lines, of which the first begins with the program's name, to standard error.
pub fn complain(message: &str) {
    let lines: Vec<_> = message.split('\n').map(escape::line).collect();
    let _ = writeln!(std::io::stderr(), "nowait: {}", lines.join("\n"));
}

/// Mode of a new log. A daemon has no umask, so the mode alone keeps other users from writing.
const LOG_MODE: u32 = 0o644;

/// Opens a log for appending, and creates it with mode 0644 if it is missing.
///
/// # Errors
/// The kernel's error. A FIFO is opened for reading too, so that the call does not wait for a
/// reader.
pub fn open_log(path: &Path) -> std::io::Result<File> {
    let fifo = std::fs::metadata(path).is_ok_and(|m| {
        use std::os::unix::fs::FileTypeExt;
        m.file_type().is_fifo()
    });
    OpenOptions::new().append(true).create(true).mode(LOG_MODE).read(fifo).open(path)
}

/// An operating-system error as nginx shows it: `(2: No such file or directory)`.
#[derive(Debug)]
pub struct OsErrorText<'a>(pub &'a std::io::Error);

impl fmt::Display for OsErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({})", Errno(self.0))
    }
}

/// A path and the error: `open() "/x" failed (2: No such file or directory)`.
pub fn failed(call: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{call} \"{}\" failed {}", path.display(), OsErrorText(error))
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let mut end = bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_nginx_format_and_levels_filter() {
        let path = std::env::temp_dir().join(format!("nowait-log-{}", std::process::id()));
        let mut log = StartupLog::open(&path, Level::Notice);
        log.set_stderr_copy(false);
        log.log(Level::Notice, "start worker processes");
        log.log(Level::Info, "not this");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 1);
        let (head, message) = text.split_once(": ").unwrap();
        assert_eq!(message, "start worker processes\n");
        assert_eq!(&head[4..5], "/");
        assert!(head[19..].starts_with(&format!(" [notice] {}#", std::process::id())), "{head}");
    }

    #[test]
    fn a_syslog_server_gets_the_lines_too() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let text = format!("server={},tag=web,nohostname", server.local_addr().unwrap());
        let options = syslog::SyslogOptions::parse(&text, "host", &|_, _| None).unwrap();
        let mut log = StartupLog::to(Sink::plain(Destination::syslog(&options), Level::Notice));
        log.set_stderr_copy(false);
        log.log(Level::Info, "not this");
        log.log(Level::Notice, "start worker processes");
        let mut datagram = [0; 512];
        let length = server.recv(&mut datagram).unwrap();
        let line = String::from_utf8_lossy(&datagram[..length]).into_owned();
        // local7 is 23, notice 5.
        assert!(line.starts_with("<189>") && line.contains(" web: "), "{line}");
        assert!(line.ends_with(": start worker processes"), "{line}");
        assert!(!log.has_stderr_sink() && log.first_file().is_none());
    }

    #[test]
    fn errors_show_as_in_nginx() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            failed("open()", Path::new("/x"), &error),
            "open() \"/x\" failed (2: No such file or directory)"
        );
    }
}
