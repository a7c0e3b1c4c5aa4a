//! The directives of logs: `log_format`, `access_log`, `open_log_file_cache`, and `error_log` below
//! the main context. Protocols have the rows; their functions are here.
//!
//! Reading them opens nothing, so that testing a configuration changes nothing; [`super::access`]
//! opens the logs for a generation.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{
    Cx, Diagnostic, Msec, Node, Seconds, Setting, Size, Template, Value, Word, arity, number,
};

use super::error_options::{self, LineOptions};
use super::format::{Escape, LogFormat};
use super::syslog;
use super::writer::{Buffering, OpenFileCache};
use super::{Formats, Level};

/// `buffer=` when only `gzip` is given, bytes.
const GZIP_BUFFER: usize = 64 * 1024;
/// `gzip` without level.
const GZIP_LEVEL: u32 = 1;

/// The formats defined until now.
struct LogFormats<N> {
    list: Vec<Arc<LogFormat>>,
    /// The presets that logs use.
    presets: Vec<Arc<LogFormat>>,
    of: PhantomData<fn(N)>,
}

impl<N: Formats> Default for LogFormats<N> {
    fn default() -> Self {
        let built_in = N::FORMAT.map(|(name, text)| {
            let text = Template::parse(&Word::built_in(text))
                .expect("the text of a built-in format is well-formed: protocols test it");
            Arc::new(LogFormat { name: name.into(), escape: Escape::Default, texts: vec![text] })
        });
        Self { list: built_in.into_iter().collect(), presets: Vec::new(), of: PhantomData }
    }
}

impl<N: Formats> LogFormats<N> {
    /// The preset with this name.
    fn preset(&mut self, name: &str) -> Option<Arc<LogFormat>> {
        if let Some(known) = self.presets.iter().find(|format| format.name == name) {
            return Some(known.clone());
        }
        let (name, text) = N::PRESETS.iter().find(|(known, _)| *known == name)?;
        let text = Template::parse(&Word::built_in(*text))
            .expect("the text of a preset is well-formed: protocols test it");
        let format = LogFormat { name: (*name).into(), escape: Escape::Json, texts: vec![text] };
        self.presets.push(Arc::new(format));
        self.presets.last().cloned()
    }
}

/// Reads a `log_format`.
///
/// # Errors
/// The fault of the directive.
pub fn log_format<N: Formats>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, texts @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
    let known = &cx.global::<LogFormats<N>>().list;
    if known.iter().any(|format| *name == format.name.as_str()) {
        return Err(name.error(format!("duplicate \"log_format\" name \"{name}\"")));
    }
    let (escape, texts) = match texts {
        [first, rest @ ..] => match first.strip_prefix("escape=") {
            Some(word) => (parse_escape(&word)?, rest),
            None => (Escape::Default, texts),
        },
        [] => (Escape::Default, texts),
    };
    let texts = texts.iter().map(Template::parse).collect::<Result<Vec<_>, _>>()?;
    for text in &texts {
        // A format that no log uses must be valid, too.
        nowait_variables::compile::<N>(text, cx)?;
    }
    let format = LogFormat { name: name.lossy().into_owned(), escape, texts };
    cx.global::<LogFormats<N>>().list.push(Arc::new(format));
    Ok(())
}

fn parse_escape(word: &Word) -> Result<Escape, Diagnostic> {
    match word.as_bytes() {
        b"default" => Ok(Escape::Default),
        b"json" => Ok(Escape::Json),
        b"none" => Ok(Escape::None),
        _ => Err(word
            .error(format!("unknown log format escaping \"{word}\""))
            .expected("default, json or none")),
    }
}

/// One `access_log` of a protocol.
pub struct AccessLog<N> {
    /// `None` means `off`: nothing is logged on this level, even if other logs are given.
    to: Option<Box<AccessLogTo>>,
    of: PhantomData<fn(N)>,
}

// A derive would require the same traits of `N`.
impl<N> Clone for AccessLog<N> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), of: PhantomData }
    }
}

impl<N> fmt::Debug for AccessLog<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccessLog").field(&self.to).finish()
    }
}

/// Destination and parameters of an access log.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLogTo {
    /// The destination.
    pub destination: Destination,
    /// The format of a line.
    pub format: Arc<LogFormat>,
    /// Conditions for writing lines.
    pub buffering: Buffering,
    /// `if=`: the line is skipped if the value is empty or `0`.
    pub condition: Option<Template>,
}

/// The destination of access lines.
#[derive(Debug, Clone, PartialEq)]
pub enum Destination {
    /// A file.
    File(PathBuf),
    /// A file for each line.
    Paths(Template),
    /// A syslog server.
    Syslog(syslog::SyslogOptions),
}

impl<N> AccessLog<N> {
    /// `off`
    pub const OFF: Self = Self { to: None, of: PhantomData };

    /// A log.
    pub fn to(to: AccessLogTo) -> Self {
        Self { to: Some(Box::new(to)), of: PhantomData }
    }

    /// The effective logs of a level's list: none if one of them is `off`.
    pub fn effective(list: &[Self]) -> Vec<&AccessLogTo> {
        list.iter().map(|log| log.to.as_deref()).collect::<Option<_>>().unwrap_or_default()
    }
}

impl<N: Formats> AccessLog<N> {
    /// A log at a path below the prefix, in the built-in format; `off` if the protocol has none.
    pub fn built_in(cx: &mut Cx<'_>, path: &str) -> Self {
        let path = cx.paths().full(path.as_bytes());
        let format = N::FORMAT.and_then(|_| cx.global::<LogFormats<N>>().list.first().cloned());
        let Some(format) = format else { return Self::OFF };
        Self::to(AccessLogTo {
            destination: Destination::File(path_of(path)),
            format,
            buffering: Buffering::default(),
            condition: None,
        })
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Buffered files of a configuration: each has one buffer, so its parameters must agree.
#[derive(Default)]
struct Buffered(HashMap<PathBuf, Buffering>);

impl<N: Formats> Setting for AccessLog<N> {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [path, rest @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
        if *path == "off" {
            return match rest.first() {
                None => Ok(Self::OFF),
                Some(word) => Err(node.parameter_error(word)),
            };
        }
        let destination = parse_destination(path, cx)?;
        let format = find_format::<N>(rest.first(), node, cx)?;
        let options = parse_options(rest.get(1..).unwrap_or_default(), node)?;
        let buffering = options.buffering;
        if buffering.flush.is_some() && buffering.buffer_bytes == 0 {
            let message = format!("no buffer is defined for access_log \"{path}\"");
            return Err(path.error(message).hint("add buffer=size"));
        }
        if buffering.buffer_bytes > 0 {
            match &destination {
                Destination::Paths(_) => {
                    return Err(path.error("buffered logs cannot have variables in name"));
                }
                Destination::Syslog(_) => {
                    return Err(path.error("logs to syslog cannot be buffered"));
                }
                Destination::File(file) => {
                    let known = &mut cx.global::<Buffered>().0;
                    if *known.entry(file.clone()).or_insert(buffering) != buffering {
                        return Err(path.error(format!(
                            "access_log \"{path}\" already defined with conflicting parameters"
                        )));
                    }
                }
            }
        }
        let condition = options.condition;
        Ok(Self::to(AccessLogTo { destination, format, buffering, condition }))
    }
}

fn parse_destination(path: &Word, cx: &mut Cx<'_>) -> Result<Destination, Diagnostic> {
    if let Some(options) = parse_syslog(path)? {
        return Ok(Destination::Syslog(options));
    }
    if path.text.contains(&0) {
        return Err(path.error("file name with a zero byte"));
    }
    // As in nginx the prefix is also put in front of a path that begins with a variable.
    let full = cx.paths().full(&path.text);
    if !path.text.contains(&b'$') {
        return Ok(Destination::File(path_of(full)));
    }
    Template::parse(&Word { text: full, ..path.clone() }).map(Destination::Paths)
}

/// The form of a destination.
const SYSLOG_SYNTAX: &str =
    "syslog:server=ADDRESS[,facility=NAME][,severity=LEVEL][,tag=NAME][,nohostname]";

fn parse_syslog(word: &Word) -> Result<Option<syslog::SyslogOptions>, Diagnostic> {
    let Some(text) = word.strip_prefix("syslog:") else { return Ok(None) };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let options = syslog::SyslogOptions::parse(text.to_str()?, &host, &syslog::system_resolver);
    options.map(Some).map_err(|error| {
        let refused = word.error(error.to_string());
        match error {
            syslog::SyslogError::Parameter(_) | syslog::SyslogError::NoServer => {
                refused.expected(SYSLOG_SYNTAX)
            }
            _ => refused,
        }
    })
}

fn find_format<N: Formats>(
    name: Option<&Word>,
    node: &Node,
    cx: &mut Cx<'_>,
) -> Result<Arc<LogFormat>, Diagnostic> {
    let formats = &cx.global::<LogFormats<N>>().list;
    let wanted = match (name, N::FORMAT) {
        (Some(name), _) => name.lossy(),
        (None, Some((name, _))) => name.into(),
        (None, None) => {
            let error = node.error("log format is not specified");
            return Err(error.hint("name a format that \"log_format\" defines above this line"));
        }
    };
    if let Some(found) = formats.iter().find(|format| format.name.eq_ignore_ascii_case(&wanted)) {
        return Ok(found.clone());
    }
    if let Some(preset) = cx.global::<LogFormats<N>>().preset(&wanted) {
        return Ok(preset);
    }
    let formats = &cx.global::<LogFormats<N>>().list;
    let error = name.unwrap_or(&node.name).error(format!("unknown log format \"{wanted}\""));
    Err(match nowait_conf::nearest(&wanted, formats.iter().map(|format| format.name.as_str())) {
        Some(near) => error.hint(format!("did you mean \"{near}\"?")),
        None => error.hint("define it with \"log_format\" above this line"),
    })
}

struct AccessOptions {
    buffering: Buffering,
    condition: Option<Template>,
}

fn parse_options(words: &[Word], node: &Node) -> Result<AccessOptions, Diagnostic> {
    let mut buffering = Buffering::default();
    let mut condition = None;
    for word in words {
        if let Some(size) = word.strip_prefix("buffer=") {
            let bytes = Size::from_word(&size.text).ok().map(Size::bytes).filter(|&n| n > 0);
            let refuse = || {
                size.error(format!("invalid buffer size \"{size}\"")).expected("a size such as 32k")
            };
            buffering.buffer_bytes = bytes.ok_or_else(refuse)?;
        } else if let Some(time) = word.strip_prefix("flush=") {
            let flush = Msec::from_word(&time.text).ok().map(Msec::duration);
            let refuse = || {
                time.error(format!("invalid flush time \"{time}\"")).expected("a time such as 5s")
            };
            buffering.flush = Some(flush.filter(|time| !time.is_zero()).ok_or_else(refuse)?);
        } else if *word == "gzip" || word.text.starts_with(b"gzip=") {
            let level = match word.strip_prefix("gzip=") {
                None => GZIP_LEVEL,
                Some(level) => gzip_level(&level)?,
            };
            buffering.gzip = Some(level);
            if buffering.buffer_bytes == 0 {
                buffering.buffer_bytes = GZIP_BUFFER;
            }
        } else if let Some(text) = word.strip_prefix("if=") {
            condition = Some(Template::parse(&text)?);
        } else {
            return Err(node.parameter_error(word));
        }
    }
    Ok(AccessOptions { buffering, condition })
}

fn gzip_level(word: &Word) -> Result<u32, Diagnostic> {
    let level = number(&word.text).and_then(|level| u32::try_from(level).ok());
    level.filter(|level| (1..=9).contains(level)).ok_or_else(|| {
        word.error(format!("invalid compression level \"{word}\"")).expected("1 to 9")
    })
}

/// The value of `open_log_file_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFileCache(pub Option<OpenFileCache>);

impl Setting for LogFileCache {
    const ARITY: arity::Arity = arity::between(1, 4);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (mut max, mut off) = (0, false);
        let (mut inactive, mut valid) = (Duration::from_secs(10), Duration::from_secs(60));
        let mut min_uses = 1;
        let seconds = |word: Word| Seconds::from_word(&word.text).ok().map(Seconds::duration);
        for word in &node.args {
            let read = if let Some(value) = word.strip_prefix("max=") {
                number(&value.text).map(|number| max = number as usize)
            } else if let Some(value) = word.strip_prefix("inactive=") {
                seconds(value).map(|time| inactive = time)
            } else if let Some(value) = word.strip_prefix("min_uses=") {
                let uses = number(&value.text).and_then(|uses| u32::try_from(uses).ok());
                uses.map(|uses| min_uses = uses)
            } else if let Some(value) = word.strip_prefix("valid=") {
                seconds(value).map(|time| valid = time)
            } else {
                (*word == "off").then(|| off = true)
            };
            read.ok_or_else(|| {
                word.error(format!("invalid \"open_log_file_cache\" parameter \"{word}\""))
            })?;
        }
        if off {
            return Ok(LogFileCache(None));
        }
        if max == 0 {
            return Err(node.error("\"open_log_file_cache\" must have \"max\" parameter"));
        }
        Ok(LogFileCache(Some(OpenFileCache { max, inactive, min_uses, valid })))
    }
}

/// One `error_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLogTo {
    /// The destination.
    pub target: ErrorTarget,
    /// The least severe level that is written.
    pub level: Level,
    /// The form of lines, and which of them are written.
    pub options: LineOptions,
}

/// The destination of error lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorTarget {
    /// A file.
    File(PathBuf),
    /// Standard error.
    Stderr,
    /// A syslog server.
    Syslog(syslog::SyslogOptions),
}

impl Setting for ErrorLogTo {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [word, parameters @ ..] = node.args.as_slice() else { return Err(node.arity_error()) };
        let target = if *word == "stderr" {
            ErrorTarget::Stderr
        } else if word.text.starts_with(b"memory:") {
            return Err(word
                .error("logging to memory is not supported")
                .hint("use a file; requests never wait for its disk"));
        } else if let Some(options) = parse_syslog(word)? {
            ErrorTarget::Syslog(options)
        } else if word.text.contains(&0) {
            return Err(word.error("file name with a zero byte"));
        } else {
            ErrorTarget::File(path_of(cx.paths().full(&word.text)))
        };
        let (level, options) = error_options::parse(parameters)?;
        Ok(ErrorLogTo { target, level, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Samples;
    use nowait_conf::{Bundle, Context, Diagnostics, Paths, Registry, Scope, parse};
    use std::path::Path;

    nowait_conf::directives! {
        /// The rows of a protocol.
        #[derive(Debug)]
        module "log";
        struct LogConf with LogLayer;

        /// Somewhere.
        access_log: Vec<AccessLog<Samples>>, in HTTP, args "";
        /// Some files.
        open_log_file_cache: LogFileCache = "off", in HTTP, args "";
        /// Somewhere else.
        error_log: Vec<ErrorLogTo>, in HTTP, args "";
    }

    #[derive(Default)]
    struct Blocks(Vec<Scope>);

    nowait_conf::rows! {
        static STRUCTURE, module "test";

        /// The one of the sample.
        "log_format" => log_format::<Samples>, in HTTP, take at_least(2), args "";

        /// Opens the levels of these tests.
        block "http" => |cx: &mut Cx<'_>, node: &Node| {
            let scope = cx.block(Context::HTTP, node.children());
            cx.global::<Blocks>().0.push(scope);
            Ok(())
        }, in MAIN, take none(), args "{ ... }";
    }

    fn read(text: &str) -> Result<LogConf, Vec<String>> {
        let mut files = Bundle::default();
        files.add("/etc/test.conf", text);
        let main = Path::new("/etc/test.conf");
        let (tree, mut diagnostics) = parse(&files, main, None);
        let registry = Registry::new(&[LogConf::ROWS, STRUCTURE]);
        assert_eq!(registry.conflicts(), Vec::<String>::new());
        let mut cx = Cx::new(&registry, Paths::new(Path::new("/srv"), main), &mut diagnostics);
        cx.run(&tree);
        let blocks = cx.take_global::<Blocks>();
        let conf = LogConf::resolve(&mut cx, &[&blocks.0[0]]);
        messages(&diagnostics).map_or(Ok(std::sync::Arc::unwrap_or_clone(conf)), Err)
    }

    fn messages(diagnostics: &Diagnostics) -> Option<Vec<String>> {
        let list: Vec<String> = diagnostics.iter().map(|d| d.message().to_owned()).collect();
        (!list.is_empty()).then_some(list)
    }

    fn http(text: &str) -> Result<LogConf, Vec<String>> {
        read(&format!("http {{ {text} }}"))
    }

    fn one(text: &str) -> AccessLogTo {
        let conf = http(&format!("log_format main \"$uri\"; {text}")).unwrap();
        AccessLog::effective(&conf.access_log)[0].clone()
    }

    #[test]
    fn access_logs() {
        let log = one("access_log logs/a.log;");
        assert_eq!(log.destination, Destination::File("/srv/logs/a.log".into()));
        assert_eq!((&log.format.name[..], log.buffering), ("combined", Buffering::default()));
        let log = one("access_log /a main buffer=32k flush=5s gzip=3 if=$x$y;");
        assert_eq!(log.format.name, "main");
        assert_eq!(
            log.buffering,
            Buffering {
                buffer_bytes: 32 * 1024,
                flush: Some(Duration::from_secs(5)),
                gzip: Some(3)
            }
        );
        assert_eq!(log.condition.unwrap().variables().count(), 2);
        let log = one("access_log /a MAIN gzip;");
        assert_eq!((log.buffering.buffer_bytes, log.buffering.gzip), (GZIP_BUFFER, Some(1)));
        let Destination::Paths(path) = one("access_log $host.log;").destination else { panic!() };
        assert_eq!(path.variables().collect::<Vec<_>>(), [b"host"]);
        assert_eq!(
            path,
            Template::parse(&Word {
                text: b"/srv/$host.log".into(),
                span: path.span(),
                quoted: false
            })
            .unwrap()
        );
        assert!(matches!(
            one("access_log syslog:server=127.0.0.1,tag=x main if=$x;").destination,
            Destination::Syslog(_)
        ));
    }

    #[test]
    fn off_wins() {
        let conf = http("access_log /a; access_log off;").unwrap();
        assert_eq!(conf.access_log.len(), 2);
        assert!(AccessLog::effective(&conf.access_log).is_empty());
        assert!(http("").unwrap().access_log.is_empty());
    }

    #[test]
    fn refusals_have_nginx_wording() {
        for (text, message) in [
            ("access_log off x;", "invalid parameter \"x\""),
            ("access_log /a nope;", "unknown log format \"nope\""),
            ("access_log /a combined buffer=0;", "invalid buffer size \"0\""),
            ("access_log /a combined buffer=1k flush=0;", "invalid flush time \"0\""),
            ("access_log /a combined gzip=10;", "invalid compression level \"10\""),
            ("access_log /a combined gzipx;", "invalid parameter \"gzipx\""),
            ("access_log /a combined flush=1s;", "no buffer is defined for access_log \"/a\""),
            ("access_log /$a combined buffer=1k;", "buffered logs cannot have variables in name"),
            (
                "access_log syslog:server=127.0.0.1 combined buffer=1k;",
                "logs to syslog cannot be buffered",
            ),
            (
                "access_log /a combined buffer=1k; access_log /a combined buffer=2k;",
                "access_log \"/a\" already defined with conflicting parameters",
            ),
            ("access_log syslog:tag=x;", "no syslog server specified"),
            ("log_format a x; log_format a y;", "duplicate \"log_format\" name \"a\""),
            ("log_format combined y;", "duplicate \"log_format\" name \"combined\""),
            ("log_format a escape=x y;", "unknown log format escaping \"x\""),
            ("log_format a;", "invalid number of arguments in \"log_format\" directive"),
            ("open_log_file_cache max=x;", "invalid \"open_log_file_cache\" parameter \"max=x\""),
            (
                "open_log_file_cache inactive=1s;",
                "\"open_log_file_cache\" must have \"max\" parameter",
            ),
            ("error_log /a nope;", "invalid log level \"nope\""),
            ("error_log /a error warn;", "duplicate log level \"warn\""),
            ("error_log /a error debug_http;", "invalid log level \"debug_http\""),
            ("error_log memory:32m;", "logging to memory is not supported"),
        ] {
            assert_eq!(http(text).unwrap_err(), [message], "{text}");
        }
    }

    #[test]
    fn equal_buffers_may_be_shared() {
        let text = "access_log /a combined buffer=1k if=$x; access_log /a combined buffer=1k;";
        assert_eq!(http(text).unwrap().access_log.len(), 2);
    }

    #[test]
    fn formats() {
        let conf = http(
            "log_format j escape=json '{\"uri\":\"$uri\",' '\"x\":\"${arg_x}y\"}';
             access_log /a j;",
        )
        .unwrap();
        let log = AccessLog::effective(&conf.access_log)[0].clone();
        assert_eq!((log.format.escape, log.format.texts.len()), (Escape::Json, 2));
    }

    #[test]
    fn file_cache() {
        assert_eq!(http("").unwrap().open_log_file_cache, LogFileCache(None));
        assert_eq!(http("open_log_file_cache off;").unwrap().open_log_file_cache.0, None);
        let text = "open_log_file_cache max=3 inactive=20s valid=1m min_uses=2;";
        assert_eq!(
            http(text).unwrap().open_log_file_cache.0,
            Some(OpenFileCache {
                max: 3,
                inactive: Duration::from_secs(20),
                min_uses: 2,
                valid: Duration::from_secs(60)
            })
        );
    }

    #[test]
    fn error_logs() {
        let conf = http(
            "error_log e.log; error_log stderr debug_http debug_core;
             error_log syslog:server=127.0.0.1 warn; error_log /x debug;",
        )
        .unwrap();
        let levels: Vec<Level> = conf.error_log.iter().map(|log| log.level).collect();
        assert_eq!(levels, [Level::Error, Level::Debug, Level::Warn, Level::Debug]);
        assert_eq!(conf.error_log[0].target, ErrorTarget::File("/srv/e.log".into()));
        assert_eq!(conf.error_log[1].target, ErrorTarget::Stderr);
        assert!(matches!(conf.error_log[2].target, ErrorTarget::Syslog(_)));
    }
}
