//! The access and error logs of a location, ready for requests.
//!
//! Built in three steps: the directives are read ([`super::directives`]), variables are resolved to
//! numbers with the rest of the configuration ([`AccessLogs::resolve`]), and the generation opens
//! the logs ([`AccessLogs::open`]) with descriptors that the master opened.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_conf::{CompiledTemplate, Cx, Diagnostic, Part, VariableNames};
use nowait_variables::{Index, Table};

use super::directives::{AccessLog, Destination, ErrorLogTo, ErrorTarget, LogFileCache};
use super::error::Output;
use super::error_options::LineOptions;
use super::format::CompiledFormat;
use super::syslog;
use super::time;
use super::writer::{Buffering, OpenFileCache, Sink, Writer};
use super::{Formats, Logged};

/// Gives the file of a path that the master opened, once; `None` from then on, and for paths that it
/// did not open.
pub type OpenedFiles<'a> = &'a mut dyn FnMut(&Path) -> Option<File>;

/// The access logs of a location, not yet open.
#[derive(Debug, Clone, Default)]
pub struct AccessLogs {
    logs: Vec<Compact>,
}

#[derive(Debug, Clone)]
struct Compact {
    to: To,
    format: Arc<CompiledFormat>,
    condition: Option<CompiledTemplate>,
}

#[derive(Debug, Clone)]
enum To {
    File(PathBuf, Buffering),
    Paths(CompiledTemplate, Option<OpenFileCache>),
    Syslog(syslog::SyslogOptions),
}

impl AccessLogs {
    /// The logs of a level. `list` is its `access_log` list, `cache` its `open_log_file_cache`. Errors are
    /// reported to `cx`.
    pub fn resolve<N: Formats>(
        cx: &mut Cx<'_>,
        list: &[AccessLog<N>],
        cache: LogFileCache,
    ) -> AccessLogs {
        for log in AccessLog::effective(list) {
            let path = match &log.destination {
                Destination::Paths(path) => Some(path),
                Destination::File(_) | Destination::Syslog(_) => None,
            };
            for text in log.format.texts.iter().chain(&log.condition).chain(path) {
                nowait_variables::mention::<N>(text, cx);
            }
        }
        match Self::compile(list, cache.0, cx.global::<Table<N>>()) {
            Ok(logs) => logs,
            Err(errors) => {
                errors.into_iter().for_each(|error| cx.report(error));
                Self::default()
            }
        }
    }

    /// Replaces names of variables by numbers. All errors are returned.
    fn compile<N>(
        list: &[AccessLog<N>],
        cache: Option<OpenFileCache>,
        names: &mut dyn VariableNames,
    ) -> Result<AccessLogs, Vec<Diagnostic>> {
        let mut logs = Vec::new();
        let mut errors = Vec::new();
        for log in AccessLog::effective(list) {
            let compiled = (|| {
                let to = match &log.destination {
                    Destination::File(path) => To::File(path.clone(), log.buffering),
                    Destination::Paths(path) => To::Paths(path.compile(names)?, cache),
                    Destination::Syslog(options) => To::Syslog(options.clone()),
                };
                let format = Arc::new(log.format.compile(names)?);
                let condition = log.condition.as_ref().map(|text| text.compile(names));
                Ok(Compact { to, format, condition: condition.transpose()? })
            })();
            match compiled {
                Ok(log) => logs.push(log),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(AccessLogs { logs }) } else { Err(errors) }
    }

    /// The files that the master opens.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.logs.iter().filter_map(|log| match &log.to {
            To::File(path, _) => Some(path.as_path()),
            To::Paths(..) | To::Syslog(_) => None,
        })
    }

    /// Connects the logs to the writer.
    pub fn open(&self, writer: &Writer, opened: OpenedFiles<'_>) -> OpenAccessLogs {
        let open = |log: &Compact| {
            let (sink, kind) = match &log.to {
                To::File(path, buffering) => {
                    (writer.file(path, opened(path), *buffering), LogKind::File)
                }
                To::Paths(path, cache) => {
                    (writer.paths("access_log", *cache), LogKind::Paths(path.clone()))
                }
                To::Syslog(options) => (writer.syslog(options), LogKind::Syslog(options.clone())),
            };
            OpenLog { sink, kind, format: log.format.clone(), condition: log.condition.clone() }
        };
        OpenAccessLogs { logs: self.logs.iter().map(open).collect() }
    }
}

/// The access logs of a location.
#[derive(Debug, Clone, Default)]
pub struct OpenAccessLogs {
    logs: Box<[OpenLog]>,
}

#[derive(Debug, Clone)]
struct OpenLog {
    sink: Sink,
    kind: LogKind,
    format: Arc<CompiledFormat>,
    condition: Option<CompiledTemplate>,
}

#[derive(Debug, Clone)]
enum LogKind {
    File,
    Paths(CompiledTemplate),
    Syslog(syslog::SyslogOptions),
}

/// Provides the values of a subject's log lines.
trait Values {
    /// Appends the raw value of a variable or capture; false, appending nothing, if there is none.
    fn append(&self, part: &Part, out: &mut Vec<u8>) -> bool;
    /// Like [`Logged::append_root`].
    fn append_root(&self, out: &mut Vec<u8>);
}

impl<S: Logged> Values for S {
    fn append(&self, part: &Part, out: &mut Vec<u8>) -> bool {
        match part {
            Part::Literal(text) => {
                out.extend_from_slice(text);
                true
            }
            Part::Variable(index) => self.variables().append(Index::from(*index), self, out),
            Part::Capture(n) => match self.captures().borrow().group(usize::from(*n)) {
                Some(text) => {
                    out.extend_from_slice(text);
                    true
                }
                None => false,
            },
        }
    }

    fn append_root(&self, out: &mut Vec<u8>) {
        Logged::append_root(self, out);
    }
}

impl OpenAccessLogs {
    /// Whether there are no logs.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Writes the lines of a subject.
    pub fn write(&self, subject: &impl Logged) {
        if self.is_empty() {
            return;
        }
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        nowait_runtime::stats::set_label("access log");
        LINE.with_borrow_mut(|line| self.write_values(line, subject));
    }

    /// `line` is a buffer to use.
    fn write_values(&self, line: &mut Vec<u8>, values: &impl Values) {
        for log in &self.logs {
            if let Some(condition) = &log.condition {
                line.clear();
                condition.evaluate(line, |part, out| {
                    values.append(part, out);
                });
                if matches!(&line[..], b"" | b"0") {
                    continue;
                }
            }
            line.clear();
            let mut value = |part: &Part, out: &mut Vec<u8>| values.append(part, out);
            match &log.kind {
                LogKind::File => {
                    log.format.render(line, &mut value);
                    line.push(b'\n');
                    log.sink.write(line);
                }
                LogKind::Syslog(options) => {
                    time::with_now(|now| {
                        options.push_header(line, options.severity, &now.syslog);
                    });
                    log.format.render(line, &mut value);
                    log.sink.write(line);
                }
                LogKind::Paths(path) => {
                    log.format.render(line, &mut value);
                    line.push(b'\n');
                    let mut name = Vec::new();
                    path.evaluate(&mut name, |part, out| {
                        value(part, out);
                    });
                    let mut root = Vec::new();
                    values.append_root(&mut root);
                    log.sink.write_to(&name, &root, line);
                }
            }
        }
    }
}

impl ErrorLogTo {
    /// The file that the master opens.
    pub fn file(&self) -> Option<&Path> {
        match &self.target {
            ErrorTarget::File(path) => Some(path),
            ErrorTarget::Stderr | ErrorTarget::Syslog(_) => None,
        }
    }

    /// Connects the log to the writer.
    pub fn open(&self, writer: &Writer, opened: OpenedFiles<'_>) -> Output {
        let (sink, syslog) = match &self.target {
            ErrorTarget::File(path) => {
                (writer.file(path, opened(path), Buffering::default()), None)
            }
            ErrorTarget::Stderr => (writer.stderr(), None),
            ErrorTarget::Syslog(options) => (writer.syslog(options), Some(options.clone())),
        };
        let output = Output { sink, level: self.level, syslog, options: self.options.clone() };
        if let Some(rate) = &self.options.rate {
            // Without the limit itself, which would keep it alive.
            let options = LineOptions { rate: None, ..self.options.clone() };
            writer.report_left_out(rate, Output { options, ..output.clone() });
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;
    use crate::log::directives::AccessLogTo;
    use crate::log::error::ErrorLog;
    use crate::log::format::{Escape, LogFormat};
    use crate::sample::Samples;
    use nowait_conf::{Template, Word};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(30);

    struct TestNamespace;

    impl VariableNames for TestNamespace {
        fn index(&mut self, name: &[u8]) -> Option<u32> {
            [&b"uri"[..], b"host", b"cond"]
                .iter()
                .position(|known| *known == name)
                .map(|n| n as u32)
        }
    }

    struct TestSubject<'a>([&'a str; 3], &'a str);

    impl Values for TestSubject<'_> {
        fn append(&self, part: &Part, out: &mut Vec<u8>) -> bool {
            let Part::Variable(index) = part else { return false };
            out.extend_from_slice(self.0[*index as usize].as_bytes());
            true
        }

        fn append_root(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.1.as_bytes());
        }
    }

    fn template(text: &str) -> Template {
        Template::parse(&Word::built_in(text)).unwrap()
    }

    fn log(destination: Destination, format: &str, condition: Option<&str>) -> AccessLog<Samples> {
        let format =
            LogFormat { name: "f".into(), escape: Escape::Default, texts: vec![template(format)] };
        AccessLog::to(AccessLogTo {
            destination,
            format: Arc::new(format),
            buffering: Buffering::default(),
            condition: condition.map(template),
        })
    }

    #[test]
    fn lines_reach_their_logs() {
        let dir = std::env::temp_dir().join(format!("nowait-access-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let text = dir.to_str().unwrap().to_owned();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = format!("server={},nohostname", receiver.local_addr().unwrap());
        let options = syslog::SyslogOptions::parse(&server, "", &syslog::system_resolver).unwrap();
        let list = [
            log(Destination::File(dir.join("plain")), "$uri", None),
            log(Destination::File(dir.join("if")), "$uri", Some("$cond")),
            log(Destination::Paths(template(&format!("{text}/$host.log"))), "$uri", None),
            log(Destination::Syslog(options), "$uri", Some("$host")),
        ];
        let logs = AccessLogs::compile(&list, None, &mut TestNamespace).unwrap();
        assert_eq!(logs.files().collect::<Vec<_>>(), [dir.join("plain"), dir.join("if")]);
        let writer = Writer::start().unwrap();
        let open = logs.open(&writer, &mut |_| None);
        let mut line = Vec::new();
        let missing = format!("{text}/missing");
        open.write_values(&mut line, &TestSubject(["/1", "a", "0"], &text));
        open.write_values(&mut line, &TestSubject(["/2\"", "b", "1"], &missing));
        open.write_values(&mut line, &TestSubject(["/3", "", ""], ""));
        assert!(writer.flush(LONG));
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        assert_eq!(read("plain"), "/1\n/2\\x22\n/3\n");
        assert_eq!(read("if"), "/2\\x22\n");
        assert_eq!(
            (read("a.log"), read("b.log"), read(".log")),
            ("/1\n".into(), "".into(), "/3\n".into())
        );
        let mut datagram = [0; 64];
        let length = receiver.recv(&mut datagram).unwrap();
        let datagram = String::from_utf8_lossy(&datagram[..length]).into_owned();
        assert!(datagram.starts_with("<190>") && datagram.ends_with(" nginx: /1"), "{datagram}");

        let target = ErrorTarget::File(dir.join("errors"));
        let error_log = ErrorLogTo { target, level: Level::Error, options: LineOptions::default() };
        let error_log = ErrorLog::new(vec![error_log.open(&writer, &mut |_| None)]);
        crate::error_log!(error_log, Level::Error, Default::default(), "seen");
        crate::error_log!(error_log, Level::Warn, Default::default(), "not seen");
        assert!(writer.flush(LONG));
        assert_eq!(read("errors").lines().count(), 1);
        writer.shutdown(LONG);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn unknown_variables_are_all_reported() {
        let list = [
            log(Destination::File("/a".into()), "$nope", None),
            log(Destination::File("/a".into()), "$uri", Some("$nope2")),
        ];
        let errors = AccessLogs::compile(&list, None, &mut TestNamespace).unwrap_err();
        let messages: Vec<&str> = errors.iter().map(Diagnostic::message).collect();
        assert_eq!(messages, ["unknown \"nope\" variable", "unknown \"nope2\" variable"]);
        let off = [log(Destination::File("/a".into()), "$uri", None), AccessLog::OFF];
        assert!(AccessLogs::compile(&off, None, &mut TestNamespace).unwrap().logs.is_empty());
    }
}
