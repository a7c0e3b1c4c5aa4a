//! Directory listings: entries in, a body out, in nginx's four formats and as a page for browsers.
//!
//! The autoindex handler reads the directory through the runtime's `fs`, leaves out what
//! [`listed`] refuses, and makes a [`Renderer`]. Nothing here touches the file system or the clock.
//! Bodies are made chunk by chunk, as they are sent, so that of a large directory no more than its
//! entries is in memory.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use bytes::Bytes;

use nowait_message::escape::{self, Set};
use nowait_message::http_date::{self, Civil};

use super::page::{PageSettings, Totals};
use super::sort::directories_first;

/// Width of the name column of the HTML format, in characters.
const NAME_WIDTH: usize = 50;
/// Blanks to fill columns with.
const BLANKS: [u8; NAME_WIDTH] = [b' '; NAME_WIDTH];
/// Width of exact sizes.
const SIZE_WIDTH: usize = 19;
/// Width of rounded ones.
const SCALED_WIDTH: usize = 7;
/// A chunk is closed once it is this long; bytes.
const CHUNK_BYTES: usize = 16 * 1024;
/// Longest `callback` argument of the JSONP format, bytes.
const CALLBACK_MAX: usize = 128;

/// The `autoindex_format` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// nginx's page.
    Html,
    /// A page for browsers.
    Page(PageSettings),
    /// A `<list>` of `<directory>`, `<file>` and `<other>`.
    Xml,
    /// An array of objects; with a callback (see [`callback`]) inside a call.
    Json {
        /// JSONP.
        callback: Option<Vec<u8>>,
    },
}

impl Format {
    /// `Content-Type` without charset. XML is always declared `charset=utf-8` on top.
    pub fn content_type(&self) -> &'static str {
        match self {
            Format::Html | Format::Page(_) => "text/html",
            Format::Xml => "text/xml",
            Format::Json { callback: None } => "application/json",
            Format::Json { callback: Some(_) } => "application/javascript",
        }
    }
}

/// Type of an entry, after following a symbolic link; a dangling link is `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Any other type.
    Other,
}

/// One name of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Any bytes but NUL and `/`.
    pub name: Vec<u8>,
    /// Type of the entry.
    pub kind: Kind,
    /// Bytes; shown for files, in HTML for all but directories.
    pub size: u64,
    /// Modification time, Unix seconds.
    pub mtime: i64,
}

/// The style of the HTML format; the other formats give exact sizes and UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `autoindex_exact_size`
    pub exact_size: bool,
    /// Seconds east of Greenwich with `autoindex_localtime on`, else 0.
    pub offset_seconds: i32,
    /// The response's charset is UTF-8: names are measured and cut in characters, not bytes.
    pub utf8: bool,
}

/// Whether a name is listed: dot files are not.
pub fn listed(name: &[u8]) -> bool {
    !name.starts_with(b".")
}

/// The reason why a `callback` argument is refused with 400 (the client's fault).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackError {
    /// More than 128 bytes.
    TooLong(Vec<u8>),
    /// Characters other than letters, digits, `_` and `.`.
    Invalid(Vec<u8>),
}

impl fmt::Display for CallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, name) = match self {
            CallbackError::TooLong(name) => ("too long", name),
            CallbackError::Invalid(name) => ("invalid", name),
        };
        write!(f, "client sent {what} callback name: \"{}\"", name.escape_ascii())
    }
}

impl std::error::Error for CallbackError {}

/// The format for `autoindex_format jsonp` and the request's `callback` argument as it stands in the URI.
/// Without a callback it is plain JSON. Names that could be script code are refused.
pub fn callback(argument: Option<&[u8]>) -> Result<Format, CallbackError> {
    let Some(name) = argument.filter(|name| !name.is_empty()) else {
        return Ok(Format::Json { callback: None });
    };
    if name.len() > CALLBACK_MAX {
        return Err(CallbackError::TooLong(name.to_vec()));
    }
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(b)) {
        return Err(CallbackError::Invalid(name.to_vec()));
    }
    Ok(Format::Json { callback: Some(name.to_vec()) })
}

/// A listing on its way out.
pub struct Renderer {
    format: Format,
    /// The path of the request, decoded.
    uri: Vec<u8>,
    options: Options,
    totals: Totals,
    /// `html` declares UTF-8.
    declares_utf8: bool,
    entries: std::vec::IntoIter<Entry>,
    stage: Stage,
}

/// The position of the renderer: the beginning of the next chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    FirstEntry,
    Entries,
    Ended,
}

impl Renderer {
    /// Sorts the entries. For a large directory this takes a while: it belongs into a pool.
    pub fn new(
        format: Format,
        uri: Vec<u8>,
        mut entries: Vec<Entry>,
        options: Options,
    ) -> Renderer {
        let mut totals = Totals::default();
        match &format {
            Format::Page(page) => {
                totals = Totals::of(&entries);
                entries.sort_by(|a, b| page.sorting.compare(a, b));
            }
            _ => entries.sort_by(|a, b| directories_first(a, b).then_with(|| a.name.cmp(&b.name))),
        }
        // nginx differs: without "charset" it leaves such names to the guess of the browser.
        let declares_utf8 = format == Format::Html && is_utf8_beyond_ascii(&uri, &entries);
        let entries = entries.into_iter();
        Renderer { format, uri, options, totals, declares_utf8, entries, stage: Stage::Begin }
    }

    /// The next chunk, of [`CHUNK_BYTES`] and at most one entry more, but for the beginning of a
    /// page, which has a style; `None` after the last one.
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        if self.stage == Stage::Ended {
            return None;
        }
        let mut out = Vec::with_capacity(CHUNK_BYTES + 1024);
        if self.stage == Stage::Begin {
            self.begin(&mut out);
            self.stage = Stage::FirstEntry;
        }
        while out.len() < CHUNK_BYTES {
            let Some(entry) = self.entries.next() else {
                self.end(&mut out);
                self.stage = Stage::Ended;
                break;
            };
            self.entry(&mut out, &entry);
            self.stage = Stage::Entries;
        }
        Some(out.into())
    }

    fn begin(&self, out: &mut Vec<u8>) {
        match &self.format {
            Format::Html => html_begin(out, &self.uri, self.declares_utf8),
            Format::Page(page) => page.begin(out, &self.uri, self.totals),
            Format::Xml => out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n"),
            Format::Json { callback } => json_begin(out, callback.as_deref()),
        }
    }

    fn entry(&self, out: &mut Vec<u8>, entry: &Entry) {
        match &self.format {
            Format::Html => html_entry(out, entry, self.options),
            Format::Page(page) => page.row(out, entry, self.options.offset_seconds),
            Format::Xml => xml_entry(out, entry),
            Format::Json { .. } => json_entry(out, entry, self.stage == Stage::FirstEntry),
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        match &self.format {
            Format::Html => out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n"),
            Format::Page(page) => page.end(out, &self.uri, self.totals),
            Format::Xml => out.extend_from_slice(b"</list>\r\n"),
            Format::Json { callback: None } => out.extend_from_slice(b"\r\n]"),
            Format::Json { callback: Some(_) } => out.extend_from_slice(b"\r\n]);"),
        }
    }
}

/// Formats into a buffer.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        write!($out, $($arg)*).expect("writing to a Vec cannot fail")
    };
}

fn html_begin(out: &mut Vec<u8>, uri: &[u8], declares_utf8: bool) {
    out.extend_from_slice(b"<html>\r\n<head>");
    if declares_utf8 {
        out.extend_from_slice(b"<meta charset=\"utf-8\">");
    }
    out.extend_from_slice(b"<title>Index of ");
    escape::push_html(out, uri);
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
    escape::push_html(out, uri);
    out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
}

/// Whether any text contains characters outside ASCII and is valid UTF-8.
fn is_utf8_beyond_ascii(uri: &[u8], entries: &[Entry]) -> bool {
    let texts = || entries.iter().map(|entry| &entry.name[..]).chain([uri]);
    !texts().all(<[u8]>::is_ascii) && texts().all(|text| std::str::from_utf8(text).is_ok())
}

fn html_entry(out: &mut Vec<u8>, entry: &Entry, options: Options) {
    let directory = entry.kind == Kind::Directory;
    out.extend_from_slice(b"<a href=\"");
    escape::push_uri(out, Set::Component, &entry.name);
    out.extend_from_slice(if directory { b"/\">" } else { b"\">" });

    // Names that are not UTF-8 are measured in bytes.
    let text = options.utf8.then(|| std::str::from_utf8(&entry.name).ok()).flatten();
    let mut width = text.map_or(entry.name.len(), |text| text.chars().count());
    if width > NAME_WIDTH {
        let shown = NAME_WIDTH - 3;
        let end =
            text.and_then(|text| text.char_indices().nth(shown)).map_or(shown, |(index, _)| index);
        escape::push_html(out, &entry.name[..end]);
        out.extend_from_slice(b"..&gt;</a>");
    } else {
        escape::push_html(out, &entry.name);
        if directory && width < NAME_WIDTH {
            out.push(b'/');
            width += 1;
        }
        out.extend_from_slice(b"</a>");
        out.extend_from_slice(&BLANKS[..NAME_WIDTH - width]);
    }

    let time = Civil::from_unix(entry.mtime.saturating_add(i64::from(options.offset_seconds)));
    // Formatting by `write!` took most of the time of a large listing.
    out.push(b' ');
    push_two(out, time.day);
    out.push(b'-');
    out.extend_from_slice(http_date::MONTHS[time.month as usize - 1]);
    put!(out, "-{} ", time.year);
    push_two(out, time.hour);
    out.push(b':');
    push_two(out, time.minute);
    out.push(b' ');
    match (directory, options.exact_size) {
        (true, exact) => {
            out.extend_from_slice(&BLANKS[..if exact { SIZE_WIDTH } else { SCALED_WIDTH } - 1]);
            out.push(b'-');
        }
        (false, true) => push_size(out, entry.size),
        (false, false) => push_scaled(out, entry.size),
    }
    out.extend_from_slice(b"\r\n");
}

/// A number below 100 in two digits.
fn push_two(out: &mut Vec<u8>, number: u32) {
    let digit = |number: u32| b'0' + u8::try_from(number % 10).unwrap_or_default();
    out.extend_from_slice(&[digit(number / 10), digit(number)]);
}

/// A size, on the right of its column.
fn push_size(out: &mut Vec<u8>, mut size: u64) {
    let mut column = [b' '; SIZE_WIDTH];
    for place in column.iter_mut().rev() {
        *place = b'0' + u8::try_from(size % 10).unwrap_or_default();
        size /= 10;
        if size == 0 {
            return out.extend_from_slice(&column);
        }
    }
    // Larger than any file.
    put!(out, "{size}");
    out.extend_from_slice(&column);
}

/// A size in seven columns, rounded to the nearest K, M or G from 10,000 bytes on.
fn push_scaled(out: &mut Vec<u8>, size: u64) {
    const K: u64 = 1024;
    const M: u64 = 1024 * K;
    const G: u64 = 1024 * M;
    let (unit, letter) = match size {
        ..10_000 => return put!(out, " {size:>6}"),
        10_000..M => (K, 'K'),
        M..G => (M, 'M'),
        _ => (G, 'G'),
    };
    let rounded = size / unit + u64::from(size % unit >= unit / 2);
    put!(out, "{rounded:>6}{letter}");
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "directory",
        Kind::File => "file",
        Kind::Other => "other",
    }
}

fn xml_entry(out: &mut Vec<u8>, entry: &Entry) {
    let (name, time) = (type_name(entry.kind), Civil::from_unix(entry.mtime));
    put!(
        out,
        "<{name} mtime=\"{:4}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year,
        time.month,
        time.day,
        time.hour,
        time.minute,
        time.second
    );
    if entry.kind == Kind::File {
        put!(out, "\" size=\"{}", entry.size);
    }
    // nginx differs: it writes every byte, and no parser reads the list then. XML 1.0 2.2 has neither
    // other bytes than text nor most control characters, and 2.11 changes line ends.
    let is_text = |c: char| !c.is_ascii_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text = match std::str::from_utf8(&entry.name) {
        Ok(name) if name.chars().all(is_text) => Cow::Borrowed(name),
        _ => {
            out.extend_from_slice(b"\" uri=\"");
            escape::push_uri(out, Set::Component, &entry.name);
            let text = String::from_utf8_lossy(&entry.name);
            Cow::Owned(text.replace(|c| !is_text(c), "\u{fffd}"))
        }
    };
    out.extend_from_slice(b"\">");
    escape::push_html(out, text.as_bytes());
    put!(out, "</{name}>\r\n");
}

fn json_begin(out: &mut Vec<u8>, callback: Option<&[u8]>) {
    if let Some(name) = callback {
        // The comment keeps browsers from guessing another type than script from the first bytes,
        // which the client chose.
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(name);
        out.push(b'(');
    }
    out.push(b'[');
}

fn json_entry(out: &mut Vec<u8>, entry: &Entry, is_first: bool) {
    out.extend_from_slice(if is_first { b"\r\n{ \"name\":\"" } else { b",\r\n{ \"name\":\"" });
    let text = String::from_utf8_lossy(&entry.name);
    nowait_front::log::escape::push_json(out, text.as_bytes());
    // nginx differs: it writes every byte. RFC 8259 8.1: JSON is UTF-8.
    if let Cow::Owned(_) = text {
        out.extend_from_slice(b"\", \"uri\":\"");
        escape::push_uri(out, Set::Component, &entry.name);
    }
    put!(out, "\", \"type\":\"{}\", \"mtime\":\"", type_name(entry.kind));
    out.extend_from_slice(&http_date::format(entry.mtime));
    if entry.kind == Kind::File {
        put!(out, "\", \"size\":{}", entry.size);
    } else {
        out.push(b'"');
    }
    out.extend_from_slice(b" }");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Options = Options { exact_size: true, offset_seconds: 0, utf8: false };

    fn entry(name: &str, kind: Kind, size: u64) -> Entry {
        Entry { name: name.into(), kind, size, mtime: 784_111_777 }
    }

    fn render(format: &Format, uri: &[u8], entries: &mut [Entry], options: Options) -> Vec<Bytes> {
        let mut renderer = Renderer::new(format.clone(), uri.to_vec(), entries.to_vec(), options);
        std::iter::from_fn(|| renderer.next_chunk()).collect()
    }

    fn text(format: &Format, entries: &mut [Entry], options: Options) -> String {
        String::from_utf8(render(format, b"/d<i>r/", entries, options).concat()).unwrap()
    }

    fn lines(entries: &mut [Entry], options: Options) -> Vec<String> {
        let text = text(&Format::Html, entries, options);
        let inner = text.split("../</a>\r\n").nth(1).unwrap().split("</pre>").next().unwrap();
        inner.lines().map(str::to_owned).collect()
    }

    #[test]
    fn html_frame() {
        assert_eq!(
            text(&Format::Html, &mut [], PLAIN),
            "<html>\r\n<head><title>Index of /d&lt;i&gt;r/</title></head>\r\n<body>\r\n\
             <h1>Index of /d&lt;i&gt;r/</h1><hr><pre><a href=\"../\">../</a>\r\n\
             </pre><hr></body>\r\n</html>\r\n"
        );
    }

    #[test]
    fn html_declares_utf8_for_names_outside_ascii() {
        let head = |names: &[&[u8]]| {
            let mut entries: Vec<Entry> = names
                .iter()
                .map(|name| Entry { name: name.to_vec(), ..entry("", Kind::File, 1) })
                .collect();
            let page = render(&Format::Html, b"/", &mut entries, PLAIN).concat();
            String::from_utf8_lossy(&page).contains("<head><meta charset=\"utf-8\"><title>")
        };
        assert!(!head(&[b"a"]));
        assert!(head(&[b"a", "\u{fc}".as_bytes()]));
        assert!(!head(&["\u{fc}".as_bytes(), b"\xfc"]), "some other encoding");
    }

    #[test]
    fn html_columns_and_order() {
        let mut entries = [
            entry("b", Kind::File, 12),
            entry("z", Kind::Directory, 9),
            entry("a&", Kind::Other, 0),
        ];
        let pad = " ".repeat(48);
        assert_eq!(
            lines(&mut entries, PLAIN),
            [
                format!("<a href=\"z/\">z/</a>{pad} 06-Nov-1994 08:49                   -"),
                format!("<a href=\"a%26\">a&amp;</a>{pad} 06-Nov-1994 08:49                   0"),
                format!("<a href=\"b\">b</a>{pad}  06-Nov-1994 08:49                  12"),
            ]
        );
    }

    #[test]
    fn html_sizes_and_local_time() {
        let options = Options { exact_size: false, offset_seconds: -9 * 3600, utf8: false };
        for (size, expected) in [
            (0, "      0"),
            (9999, "   9999"),
            (10_000, "    10K"),
            (10_239, "    10K"),
            (10_751, "    10K"),
            (10_752, "    11K"),
            (1_048_575, "  1024K"),
            (1_048_576, "     1M"),
            (1_572_864, "     2M"),
            (1_073_741_823, "  1024M"),
            (5_368_709_120, "     5G"),
        ] {
            let line = &lines(&mut [entry("f", Kind::File, size)], options)[0];
            assert!(line.ends_with(&format!(" 05-Nov-1994 23:49 {expected}")), "{line}");
        }
        let line = &lines(&mut [entry("d", Kind::Directory, 0)], options)[0];
        assert!(line.ends_with("23:49       -"), "{line}");
    }

    #[test]
    fn long_names_are_cut_in_characters_or_bytes() {
        let shown = |name: &str, kind, utf8| {
            let line = lines(&mut [entry(name, kind, 0)], Options { utf8, ..PLAIN }).remove(0);
            line.split_once('>').unwrap().1.split_once(" 06-").unwrap().0.to_owned()
        };
        let f = Kind::File;
        assert_eq!(shown(&"x".repeat(50), f, true), format!("{}</a>", "x".repeat(50)));
        assert_eq!(shown(&"x".repeat(51), f, true), format!("{}..&gt;</a>", "x".repeat(47)));
        assert_eq!(shown(&"ä".repeat(50), f, true), format!("{}</a>", "ä".repeat(50)));
        assert_eq!(shown(&"ä".repeat(51), f, true), format!("{}..&gt;</a>", "ä".repeat(47)));
        assert_eq!(shown(&"ä".repeat(25), f, false), format!("{}</a>", "ä".repeat(25)));
        assert_eq!(shown(&"<".repeat(51), f, false), format!("{}..&gt;</a>", "&lt;".repeat(47)));
        let d = Kind::Directory;
        assert_eq!(shown(&"x".repeat(49), d, true), format!("{}/</a>", "x".repeat(49)));
        assert_eq!(shown(&"x".repeat(50), d, true), format!("{}</a>", "x".repeat(50)));
        // Not UTF-8: bytes.
        let mut name = vec![b'x'; 60];
        name[0] = 0xff;
        let mut entries = [Entry { name, ..entry("", f, 0) }];
        let body = render(&Format::Html, b"/", &mut entries, Options { utf8: true, ..PLAIN });
        let cut = [&[0xff][..], &[b'x'; 46], b"..&gt;"].concat();
        assert!(body.concat().windows(cut.len()).any(|part| part == cut));
    }

    #[test]
    fn xml_and_json() {
        let mut entries = [
            entry("a\"", Kind::File, 5),
            entry("d", Kind::Directory, 9),
            entry("o", Kind::Other, 1),
        ];
        assert_eq!(
            text(&Format::Xml, &mut entries, PLAIN),
            "<?xml version=\"1.0\"?>\r\n<list>\r\n\
             <directory mtime=\"1994-11-06T08:49:37Z\">d</directory>\r\n\
             <file mtime=\"1994-11-06T08:49:37Z\" size=\"5\">a&quot;</file>\r\n\
             <other mtime=\"1994-11-06T08:49:37Z\">o</other>\r\n</list>\r\n"
        );
        let json = "[\r\n\
             { \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" },\r\n\
             { \"name\":\"a\\\"\", \"type\":\"file\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\", \"size\":5 },\r\n\
             { \"name\":\"o\", \"type\":\"other\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" }\r\n]";
        assert_eq!(text(&callback(None).unwrap(), &mut entries, PLAIN), json);
        assert_eq!(
            text(&callback(Some(b"f.x")).unwrap(), &mut entries, PLAIN),
            format!("/* callback */\r\nf.x({json});")
        );
        assert_eq!(text(&callback(Some(b"")).unwrap(), &mut [], PLAIN), "[\r\n]");
    }

    #[test]
    fn callbacks_that_could_be_script_are_refused() {
        assert!(callback(Some(&[b'a'; 128])).is_ok());
        assert!(matches!(callback(Some(&[b'a'; 129])), Err(CallbackError::TooLong(_))));
        assert_eq!(
            callback(Some(b"a(b")).unwrap_err().to_string(),
            "client sent invalid callback name: \"a(b\""
        );
    }

    #[test]
    fn large_directories_come_in_chunks() {
        let mut entries: Vec<Entry> =
            (0..5000).map(|i| entry(&format!("file-{i}"), Kind::File, i)).collect();
        for format in [Format::Html, Format::Xml, Format::Json { callback: None }] {
            let chunks = render(&format, b"/", &mut entries, PLAIN);
            assert!(chunks.len() > 10);
            assert!(chunks.iter().all(|chunk| chunk.len() < CHUNK_BYTES + 1024));
            let names = chunks.concat();
            assert_eq!(names.windows(5).filter(|w| w == b"file-").count() % 5000, 0);
        }
    }

    #[test]
    fn dot_files_are_hidden() {
        assert!(listed(b"a.b") && !listed(b".a") && !listed(b"..") && !listed(b"."));
    }
}
