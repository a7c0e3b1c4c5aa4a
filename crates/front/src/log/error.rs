//! Error logs: levels, nginx's line format, several destinations at once.
//!
//! An [`ErrorLog`] has the destinations of one context of the configuration. Callers ask
//! [`ErrorLog::enabled`] first, which is one comparison, and pay for formatting only then. The line
//! is `YYYY/MM/DD HH:MM:SS [level] PID#TID: *CONNECTION message (2: No such file or directory),
//! client: …`, or a JSON object, at most [`LINE_MAX`] bytes.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use super::error_json::{self, Preamble};
use super::error_options::LineOptions;
use super::error_rate::{LeftOut, Verdict};
use super::escape;
use super::syslog;
use super::time;
use super::writer::Sink;
use super::{Level, LogReport, OsError};

/// Longest line with its line feed, bytes (`NGX_MAX_ERROR_STR`), escapes included; longer messages are
/// cut.
pub const LINE_MAX: usize = 2048;
/// Longest syslog datagram, bytes: a line and its header.
const SYSLOG_MAX: usize = LINE_MAX + 128;
/// Bytes of a message reserved for the system's error text.
const OS_ERROR_ROOM: usize = 50;

/// One destination with its level.
#[derive(Debug, Clone)]
pub struct Output {
    /// The destination of lines.
    pub sink: Sink,
    /// The least severe level that is written.
    pub level: Level,
    /// Set for a syslog destination: lines get its header instead of a line feed.
    pub syslog: Option<syslog::SyslogOptions>,
    /// The form of lines, and which of them are written.
    pub options: LineOptions,
}

/// The parts of a line besides its message.
#[derive(Default, Clone, Copy)]
pub struct LineContext<'a> {
    /// The number of the connection.
    pub connection: Option<u64>,
    /// The system's error.
    pub os_error: Option<&'a io::Error>,
    /// The client and the request, appended to all but debug lines.
    pub details: Option<&'a dyn Details>,
    /// The client matches `debug_connection`: every line goes to every destination.
    pub debug_connection: bool,
}

/// Appends the context of a message: client and request.
pub trait Details {
    /// Appends `, client: …` and so on.
    fn append(&self, out: &mut Vec<u8>);

    /// Names the same parts one by one, for lines in JSON.
    fn fields(&self, field: &mut dyn FnMut(&str, &[u8]));
}

/// The usual [`Details`], in nginx's order. Empty parts are left out.
#[derive(Debug, Default, Clone, Copy)]
pub struct RequestDetails<'a> {
    /// The current action: ` while reading client request line`.
    pub action: Option<&'a str>,
    /// The client's address without port.
    pub client: &'a [u8],
    /// The server's name, or the listening address before there is a request.
    pub server: &'a [u8],
    /// The request line.
    pub request: &'a [u8],
    /// The URI of a subrequest.
    pub subrequest: &'a [u8],
    /// The upstream's URL.
    pub upstream: &'a [u8],
    /// The `Host` field.
    pub host: Option<&'a [u8]>,
    /// The `Referer` field.
    pub referrer: Option<&'a [u8]>,
}

impl Details for RequestDetails<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        if let Some(action) = self.action {
            out.extend_from_slice(b" while ");
            out.extend_from_slice(action.as_bytes());
        }
        out.extend_from_slice(b", client: ");
        out.extend_from_slice(self.client);
        // A server without name is shown, too, once there is a request.
        out.extend_from_slice(b", server: ");
        out.extend_from_slice(self.server);
        let filled = |value: &&[u8]| !value.is_empty();
        for (name, value) in [
            (", request: \"", Some(self.request).filter(filled)),
            (", subrequest: \"", Some(self.subrequest).filter(filled)),
            (", upstream: \"", Some(self.upstream).filter(filled)),
            (", host: \"", self.host),
            (", referrer: \"", self.referrer),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(value);
                out.push(b'"');
            }
        }
    }

    fn fields(&self, field: &mut dyn FnMut(&str, &[u8])) {
        for (name, value) in [
            ("action", self.action.map(str::as_bytes)),
            ("client", Some(self.client)),
            ("server", Some(self.server)),
            ("request", Some(self.request)),
            ("subrequest", Some(self.subrequest)),
            ("upstream", Some(self.upstream)),
            ("host", self.host),
            ("referrer", self.referrer),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                field(name, value);
            }
        }
    }
}

/// The level that all error logs of this process have in place of their own; 0: none.
static COMMON_LEVEL: AtomicU8 = AtomicU8::new(0);

/// The level that all error logs of this process have in place of their own.
pub fn common_level() -> Option<Level> {
    match COMMON_LEVEL.load(Ordering::Relaxed) {
        0 => None,
        number => Level::of_number(number),
    }
}

/// Gives all error logs of this process this level, or again their own, at once; returns the one before.
pub fn set_common_level(level: Option<Level>) -> Option<Level> {
    let number = level.map_or(0, |level| level as u8);
    Level::of_number(COMMON_LEVEL.swap(number, Ordering::Relaxed))
}

/// The error logs of one context.
#[derive(Debug, Clone)]
pub struct ErrorLog {
    outputs: Box<[Output]>,
    level: Level,
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ErrorLog {
    /// A log with these destinations. Without any, lines are dropped.
    pub fn new(outputs: Vec<Output>) -> ErrorLog {
        let level = outputs.iter().map(|output| output.level).max().unwrap_or(Level::Emerg);
        ErrorLog { outputs: outputs.into(), level }
    }

    /// To standard error, written at once: until there is a configuration.
    pub fn stderr(level: Level) -> ErrorLog {
        ErrorLog::new(vec![Output::plain(Sink::stderr(), level)])
    }

    /// Whether a message of this level would be written anywhere.
    #[inline]
    pub fn enabled(&self, level: Level) -> bool {
        level <= common_level().unwrap_or(self.level)
    }

    /// The destinations.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Writes a message if a destination has its level enabled.
    pub fn log(&self, level: Level, entry: LineContext<'_>, message: fmt::Arguments<'_>) {
        if !self.enabled(level) && !entry.debug_connection {
            return;
        }
        LINE.with(|line| match line.try_borrow_mut() {
            Ok(mut line) => self.write(&mut line, level, entry, message),
            // A `Display` of the message logs itself.
            Err(_) => self.write(&mut Vec::new(), level, entry, message),
        });
    }

    fn write(
        &self,
        line: &mut Vec<u8>,
        level: Level,
        entry: LineContext<'_>,
        message: fmt::Arguments<'_>,
    ) {
        // The plain form is rendered once for all destinations that have it.
        line.clear();
        let common = common_level();
        for output in &self.outputs {
            if level > common.unwrap_or(output.level) && !entry.debug_connection {
                continue;
            }
            if !output.options.is_plain() {
                output.write_chosen(level, entry, message);
                continue;
            }
            time::with_now(|now| {
                if line.is_empty() {
                    render(line, &now.error, level, entry, None, message);
                }
                output.put(level, &now.syslog, line);
            });
        }
    }
}

impl Output {
    /// Every line, in nginx's form.
    pub fn plain(sink: Sink, level: Level) -> Output {
        Output { sink, level, syslog: None, options: LineOptions::default() }
    }

    /// Hands a line to the log.
    fn put(&self, level: Level, syslog_time: &str, line: &[u8]) {
        match &self.syslog {
            None => self.sink.write(line),
            Some(options) => {
                let mut datagram = Vec::with_capacity(line.len() + 64);
                options.push_header(&mut datagram, level, syslog_time);
                datagram.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
                datagram.truncate(SYSLOG_MAX);
                self.sink.write(&datagram)
            }
        };
    }

    /// Writes a message in the form of this log, unless it is filtered out or comes too often.
    fn write_chosen(&self, level: Level, entry: LineContext<'_>, message: fmt::Arguments<'_>) {
        let mut text = Vec::new();
        push_message(&mut text, message);
        if self.options.filter.is_some()
            && !self.options.accepts(&with_context(&text, level, entry))
        {
            return;
        }
        if let Some(rate) = &self.options.rate {
            match rate.judge(Instant::now(), level, &text) {
                Verdict::Write => {}
                Verdict::LeaveOut => return,
                Verdict::LeaveOutFirst => return self.sink.wake_writer(),
            }
        }
        self.put_message(level, entry, &text);
    }

    fn put_message(&self, level: Level, entry: LineContext<'_>, text: &[u8]) {
        let mut line = Vec::new();
        time::with_now(|now| {
            self.options.render(&mut line, now, level, entry, text);
            self.put(level, &now.syslog, &line);
        });
    }

    /// Writes how many repetitions of a message were left out.
    pub(super) fn put_left_out(&self, left_out: &LeftOut) {
        let LeftOut { count, level, sample } = left_out;
        let sample = String::from_utf8_lossy(sample);
        let text = format!("{count} lines were left out by \"rate\", the last: {sample}");
        self.put_message(*level, LineContext::default(), text.as_bytes());
    }
}

impl LineOptions {
    /// Appends a line with its line feed.
    pub fn render(
        &self,
        line: &mut Vec<u8>,
        now: &time::Stamps,
        level: Level,
        entry: LineContext<'_>,
        message: &[u8],
    ) {
        if self.json {
            let (process, thread) = ids();
            let tag = self.tag.as_deref();
            let preamble = Preamble { iso8601: &now.iso8601, level, process, thread, tag };
            error_json::push_line(line, preamble, entry, message);
        } else {
            let message = String::from_utf8_lossy(message);
            let tag = self.tag.as_deref();
            render(line, &now.error, level, entry, tag, format_args!("{message}"));
        }
    }
}

/// The text that filters see: the message, the system's error, the client and the request.
fn with_context(message: &[u8], level: Level, entry: LineContext<'_>) -> Vec<u8> {
    let mut text = message.to_vec();
    if let Some(error) = entry.os_error {
        let _ = write!(text, "{}", OsError(error));
    }
    if let Some(details) = entry.details.filter(|_| level != Level::Debug) {
        details.append(&mut text);
    }
    text
}

fn push_message(out: &mut Vec<u8>, message: fmt::Arguments<'_>) {
    if out.write_fmt(message).is_err() {
        out.extend_from_slice(b"(unprintable)");
    }
}

/// The numbers of this process and thread.
fn ids() -> (u32, i32) {
    thread_local! {
        static IDS: (u32, i32) =
            (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
    }
    IDS.with(|ids| *ids)
}

impl LogReport for ErrorLog {
    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.log(level, LineContext::default(), message);
    }
}

fn render(
    line: &mut Vec<u8>,
    time: &str,
    level: Level,
    entry: LineContext<'_>,
    tag: Option<&str>,
    message: fmt::Arguments<'_>,
) {
    let (process, thread) = ids();
    // Writing to a vector cannot fail.
    let _ = write!(line, "{time} [{level}] {process}#{thread}: ");
    if let Some(number) = entry.connection {
        let _ = write!(line, "*{number} ");
    }
    if let Some(tag) = tag {
        let _ = write!(line, "[{tag}] ");
    }
    push_message(line, message);
    if let Some(error) = entry.os_error {
        if line.len() > LINE_MAX - OS_ERROR_ROOM {
            line.truncate(LINE_MAX - OS_ERROR_ROOM);
            line.extend_from_slice(b"...");
        }
        // Writing to a vector cannot fail.
        let _ = write!(line, "{}", OsError(error));
    }
    if level != Level::Debug
        && let Some(details) = entry.details
    {
        details.append(line);
    }
    // Escapes make a line longer, never shorter, so the text cut off here would not fit anyway.
    escape::cut(line, LINE_MAX - 1);
    // One message is one line without control characters for terminals, for any text from clients,
    // upstream servers or file names. nginx differs: it writes the bytes unchanged.
    escape::line_from(line, 0);
    escape::cut(line, LINE_MAX - 1);
    line.push(b'\n');
}

/// Writes to an [`ErrorLog`] if the level is enabled; the message is formatted only then.
///
/// `error_log!(log, Level::Warn, entry, "format {}", args)`
#[macro_export]
macro_rules! error_log {
    ($log:expr, $level:expr, $entry:expr, $($message:tt)+) => {{
        let log = &$log;
        let level: $crate::log::Level = $level;
        let entry: $crate::log::error::LineContext<'_> = $entry;
        if log.enabled(level) || entry.debug_connection {
            log.log(level, entry, ::std::format_args!($($message)+));
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Temp {
            let name = format!("nowait-error-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            Temp(path)
        }

        fn output(&self, level: Level) -> Output {
            let sink = Sink::direct(File::create(&self.0).unwrap());
            Output::plain(sink, level)
        }

        fn lines(&self) -> Vec<String> {
            std::fs::read_to_string(&self.0).unwrap().lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Without the time.
    fn rest(line: &str) -> &str {
        &line[20..]
    }

    #[test]
    fn the_line() {
        let temp = Temp::new("line");
        let log = ErrorLog::new(vec![temp.output(Level::Info)]);
        let error = io::Error::from_raw_os_error(2);
        let details = RequestDetails {
            action: Some("sending to client"),
            client: b"192.0.2.1",
            server: b"example.com",
            request: b"GET / HTTP/1.1",
            host: Some(b"example.com"),
            referrer: Some(b"http://a/"),
            ..Default::default()
        };
        let entry = LineContext {
            connection: Some(7),
            os_error: Some(&error),
            details: Some(&details),
            debug_connection: false,
        };
        error_log!(log, Level::Error, entry, "open() \"{}\" failed", "/x");
        error_log!(log, Level::Info, LineContext::default(), "a\nb");
        error_log!(log, Level::Debug, entry, "not written");
        let ids = format!("{}#{}:", std::process::id(), rustix::thread::gettid().as_raw_nonzero());
        let lines = temp.lines();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            rest(&lines[0]),
            format!(
                "[error] {ids} *7 open() \"/x\" failed (2: No such file or directory) while \
                 sending to client, client: 192.0.2.1, server: example.com, \
                 request: \"GET / HTTP/1.1\", host: \"example.com\", referrer: \"http://a/\""
            )
        );
        assert_eq!(&lines[0][4..5], "/");
        assert_eq!(rest(&lines[1]), format!("[info] {ids} a b"));
    }

    #[test]
    fn each_destination_has_its_level() {
        let (a, b) = (Temp::new("a"), Temp::new("b"));
        let log = ErrorLog::new(vec![a.output(Level::Error), b.output(Level::Notice)]);
        assert!(log.enabled(Level::Notice) && !log.enabled(Level::Info));
        for level in Level::ALL {
            log.report(level, format_args!("x"));
        }
        assert_eq!(a.lines().len(), 4);
        assert_eq!(b.lines().len(), 6);
        let forced = LineContext { debug_connection: true, ..LineContext::default() };
        error_log!(log, Level::Debug, forced, "x");
        assert!(a.lines()[4].contains("[debug]") && b.lines()[6].contains("[debug]"));
    }

    #[test]
    fn long_lines_are_cut_but_keep_the_system_error() {
        let temp = Temp::new("long");
        let log = ErrorLog::new(vec![temp.output(Level::Error)]);
        let error = io::Error::from_raw_os_error(36);
        let details = RequestDetails { client: b"192.0.2.1", ..Default::default() };
        let entry = LineContext {
            os_error: Some(&error),
            details: Some(&details),
            ..LineContext::default()
        };
        log.log(Level::Error, entry, format_args!("{}", "x".repeat(5000)));
        let text = std::fs::read(&temp.0).unwrap();
        assert_eq!(text.len(), LINE_MAX);
        assert!(text.ends_with(b"\n"));
        let line = String::from_utf8(text).unwrap();
        assert!(line.contains("xxx... (36: File name too long), client"), "{}", &line[1980..]);
    }

    #[test]
    fn debug_lines_have_no_details() {
        let temp = Temp::new("debug");
        let log = ErrorLog::new(vec![temp.output(Level::Debug)]);
        let details = RequestDetails { client: b"192.0.2.1", ..Default::default() };
        let entry = LineContext { details: Some(&details), ..LineContext::default() };
        error_log!(log, Level::Debug, entry, "x");
        assert!(temp.lines()[0].ends_with(": x"));
    }
}
