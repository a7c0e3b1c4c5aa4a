//! The listing for browsers (`autoindex_format page`): a table that can be sorted, with sizes and
//! dates for people, in light and dark colours, on screens of any width.
//!
//! Used by [`super::listing`], which asks for the beginning, each row and the end. Names are any
//! bytes: what is shown is escaped text, what is linked is percent-encoded. Nothing here depends on
//! scripts; with scripts, a click sorts without a request, and dates take the visitor's form.

use std::io::Write as _;
use std::sync::LazyLock;

use nowait_http::directories::Uploads;
use nowait_http::page_style;
use nowait_message::escape::{self, Set};
use nowait_message::http_date::Civil;

use super::conf::ArchiveFormats;
use super::listing::{Entry, Kind};
use super::sort::{Key, Sorting};

/// The content of the page's `<style>`.
static STYLE: LazyLock<String> = LazyLock::new(|| {
    [page_style::STYLE, include_str!("page.css"), include_str!("upload.css")].concat()
});

/// The content of its `<script>`.
const SCRIPT: &str = include_str!("page.js");

/// The same where uploads are accepted.
const UPLOAD_SCRIPT: &str = concat!(include_str!("page.js"), include_str!("upload.js"));

/// The value of `Content-Security-Policy`.
static POLICY: LazyLock<String> = LazyLock::new(|| page_style::policy(&STYLE, Some(SCRIPT)));

/// The same where uploads are accepted: the script sends requests to this server.
static UPLOAD_POLICY: LazyLock<String> = LazyLock::new(|| {
    let policy = page_style::policy(&STYLE, Some(UPLOAD_SCRIPT));
    format!("{policy}; connect-src 'self'")
});

/// Formats into a buffer.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        write!($out, $($arg)*).expect("writing to a Vec cannot fail")
    };
}

/// The contents of a page besides its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// The order of the rows.
    pub sorting: Sorting,
    /// The name of the server, for the last line.
    pub server: &'static str,
    /// The directory has more entries than are listed.
    pub truncated: bool,
    /// The archives that are offered.
    pub archives: ArchiveFormats,
    /// The README of the directory, as HTML.
    pub readme: Option<Vec<u8>>,
    /// Files that clients may add, if any.
    pub uploads: Option<Uploads>,
}

/// Numbers in the head of a page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    directories: u64,
    files: u64,
    bytes: u64,
}

impl Totals {
    /// Counts a directory's entries.
    pub fn of(entries: &[Entry]) -> Totals {
        entries.iter().fold(Totals::default(), |mut totals, entry| {
            if entry.kind == Kind::Directory {
                totals.directories += 1;
            } else {
                totals.files += 1;
                totals.bytes = totals.bytes.saturating_add(size(entry).unwrap_or(0));
            }
            totals
        })
    }

    fn is_empty(self) -> bool {
        self.directories + self.files == 0
    }

    fn put(self, out: &mut Vec<u8>) {
        let plural =
            |n: u64, one: &'static str, more: &'static str| if n == 1 { one } else { more };
        if self.directories > 0 {
            let word = plural(self.directories, "directory", "directories");
            put!(out, "{} {word}", GroupedNumber(self.directories));
        }
        if self.files > 0 {
            let comma = if self.directories > 0 { ", " } else { "" };
            put!(
                out,
                "{comma}{} {}, ",
                GroupedNumber(self.files),
                plural(self.files, "file", "files")
            );
            put_size(out, self.bytes);
        }
    }
}

/// The size to show. Sizes of directories and devices are meaningless.
fn size(entry: &Entry) -> Option<u64> {
    (entry.kind == Kind::File).then_some(entry.size)
}

/// A number with commas between groups of three digits.
struct GroupedNumber(u64);

impl std::fmt::Display for GroupedNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.to_string();
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A size with three significant digits at most, in units of 1000.
struct HumanSize(u64);

impl std::fmt::Display for HumanSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let rounded = |unit: u64| (u128::from(self.0) + u128::from(unit) / 2) / u128::from(unit);
        let mut unit = 1000;
        for name in UNITS {
            let tenths = rounded(unit / 10);
            if tenths < 100 {
                return write!(f, "{}.{} {name}", tenths / 10, tenths % 10);
            }
            // A value that rounds to 1000 belongs to the next unit. The largest number needs no further
            // unit.
            if rounded(unit) < 1000 {
                return write!(f, "{} {name}", rounded(unit));
            }
            unit *= 1000;
        }
        Ok(())
    }
}

/// A size in human-readable form, with the exact number for programs.
fn put_size(out: &mut Vec<u8>, size: u64) {
    let unit = if size == 1 { "byte" } else { "bytes" };
    put!(
        out,
        "<data value=\"{size}\" title=\"{} {unit}\">{}</data>",
        GroupedNumber(size),
        HumanSize(size)
    );
}

/// Readable text from any bytes. Invalid UTF-8, and characters that could hide the end of a name (such as
/// marks that change the direction of writing), become replacement characters.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let hides = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text = String::from_utf8_lossy(text);
    if text.contains(hides) {
        escape::push_html(out, text.replace(hides, "\u{fffd}").as_bytes());
    } else {
        escape::push_html(out, text.as_bytes());
    }
}

/// The symbols of entries, drawn on 20 by 20.
const ICONS: [(&str, &str); 9] = [
    ("d", "M2.5 5.5a1 1 0 0 1 1-1h4l2 2h7a1 1 0 0 1 1 1v7.5a1 1 0 0 1-1 1h-13a1 1 0 0 1-1-1z"),
    ("u", "M16 16v-4.5a3 3 0 0 0-3-3H4.5M8 4.5l-4 4 4 4"),
    ("f", "M5 2.5h6l4 4v11H5zM11 2.5v4h4"),
    ("t", "M5 2.5h6l4 4v11H5zM11 2.5v4h4M7.5 10.5h5M7.5 13.5h5"),
    ("c", "M7 6.5l-4 3.5 4 3.5M13 6.5l4 3.5-4 3.5M11.5 4.5l-3 11"),
    ("i", "M3 4h14v12H3zM3 14l4.5-4.5 3.5 3.5 2-2 4 4M12.5 7.5h.01"),
    (
        "a",
        "M8 14.5V4.5l8-1.5v9.5M8 14.5a2 2 0 1 1-4 0 2 2 0 0 1 4 0zM16 12.5a2 2 0 1 1-4 0 2 2 0 0 1 4 0z",
    ),
    ("v", "M3 5h14v10H3zM8.5 7.5v5l4-2.5z"),
    ("z", "M3 3.5h14v4H3zM4 7.5v9h12v-9M8 10.5h4"),
];

/// Extensions of the kinds of files that have a symbol of their own.
const EXTENSIONS: [(&str, &[&str]); 6] = [
    (
        "i",
        &[
            "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "bmp", "tif", "tiff",
            "heic", "jxl",
        ],
    ),
    ("a", &["mp3", "flac", "ogg", "oga", "opus", "wav", "m4a", "aac"]),
    ("v", &["mp4", "m4v", "mkv", "webm", "mov", "avi", "mpg", "mpeg", "ts"]),
    (
        "z",
        &[
            "zip", "gz", "tgz", "xz", "txz", "bz2", "zst", "7z", "rar", "tar", "deb", "rpm", "iso",
            "img", "jar",
        ],
    ),
    ("t", &["txt", "md", "rst", "log", "pdf", "doc", "docx", "odt", "tex", "csv", "epub", "rtf"]),
    (
        "c",
        &[
            "html", "htm", "css", "js", "mjs", "json", "xml", "yaml", "yml", "toml", "conf", "ini",
            "rs", "c", "h", "cpp", "hpp", "go", "py", "rb", "pl", "php", "java", "sh", "sql",
            "lua", "wasm",
        ],
    ),
];

/// The symbol of an entry.
fn icon(entry: &Entry) -> &'static str {
    if entry.kind == Kind::Directory {
        return "d";
    }
    let Some(dot) = entry.name.iter().rposition(|&b| b == b'.') else { return "f" };
    let extension = &entry.name[dot + 1..];
    let is_it = |known: &&str| known.as_bytes().eq_ignore_ascii_case(extension);
    let found = EXTENSIONS.iter().find(|(_, known)| known.iter().any(is_it));
    found.map_or("f", |(icon, _)| icon)
}

/// The segments of a path that ends in a slash.
fn segments(uri: &[u8]) -> Vec<&[u8]> {
    uri.split(|&b| b == b'/').filter(|segment| !segment.is_empty()).collect()
}

impl PageSettings {
    /// The value of `Content-Security-Policy`.
    pub fn policy(&self) -> &'static str {
        if self.uploads.is_some() { &UPLOAD_POLICY } else { &POLICY }
    }

    /// The page up to the rows.
    pub fn begin(&self, out: &mut Vec<u8>, uri: &[u8], totals: Totals) {
        out.extend_from_slice(
            b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
              <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
              <title>Index of ",
        );
        put_text(out, uri);
        put!(out, "</title>\n<style>{}</style>\n</head>\n<body>\n<svg id=\"icons\">", *STYLE);
        for (name, path) in ICONS {
            put!(out, "<symbol id=\"{name}\" viewBox=\"0 0 20 20\"><path d=\"{path}\"/></symbol>");
        }
        out.extend_from_slice(b"</svg>\n<h1 class=\"unseen\">Index of ");
        put_text(out, uri);
        out.extend_from_slice(b"</h1>\n<header>\n<nav aria-label=\"Path\"><ol>");
        put_trail(out, uri);
        out.extend_from_slice(b"</ol></nav>\n");
        if !totals.is_empty() {
            out.extend_from_slice(b"<p>");
            totals.put(out);
            for (flag, name) in [(ArchiveFormats::ZIP, "zip"), (ArchiveFormats::TAR, "tar")] {
                if self.archives.contains(flag) {
                    put!(
                        out,
                        ", <a href=\"?archive={name}\" title=\"Download this directory\">{name}</a>"
                    );
                }
            }
            out.extend_from_slice(b"</p>\n");
        }
        out.extend_from_slice(match self.uploads {
            None => b"</header>\n<main>\n",
            Some(Uploads { may_replace: false }) => b"</header>\n<main data-upload=\"new\">\n",
            Some(Uploads { may_replace: true }) => b"</header>\n<main data-upload=\"replace\">\n",
        });
        if self.truncated {
            out.extend_from_slice(
                b"<p class=\"note\">This directory has more entries than are listed here.</p>\n",
            );
        }
        let is_top = segments(uri).is_empty();
        if !totals.is_empty() || !is_top {
            self.put_head(out);
        }
        if !is_top {
            out.extend_from_slice(
                b"<tr class=\"up\"><td><a href=\"../\"><svg aria-hidden=\"true\"><use href=\"#u\"/>\
                  </svg>Parent directory</a></td><td></td><td></td></tr>\n",
            );
        }
    }

    fn put_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<table>\n<thead><tr>");
        for (key, title) in Key::ALL.into_iter().zip(["Name", "Size", "Modified"]) {
            let state = match (key == self.sorting.key, self.sorting.descending) {
                (false, _) => "",
                (true, false) => " aria-sort=\"ascending\"",
                (true, true) => " aria-sort=\"descending\"",
            };
            let next = self.sorting.after(key);
            let order = if next.descending { "desc" } else { "asc" };
            let name = key.name();
            put!(
                out,
                "<th scope=\"col\"{state}><a href=\"?sort={name}&amp;order={order}\">{title}</a></th>"
            );
        }
        out.extend_from_slice(b"</tr></thead>\n<tbody>\n");
    }

    /// One row; `offset_seconds` is that of the shown time. There may be many: end tags that HTML
    /// does not need are left out.
    pub fn row(&self, out: &mut Vec<u8>, entry: &Entry, offset_seconds: i32) {
        let is_directory = entry.kind == Kind::Directory;
        out.extend_from_slice(if is_directory { b"<tr class=\"d\">" } else { b"<tr>" });
        out.extend_from_slice(b"<td><a href=\"");
        // All but letters and digits is encoded, so that no name begins with a scheme.
        escape::push_uri(out, Set::Component, &entry.name);
        let slash = if is_directory { "/" } else { "" };
        put!(out, "{slash}\"><svg aria-hidden=\"true\"><use href=\"#{}\"/></svg>", icon(entry));
        put_text(out, &entry.name);
        put!(out, "{slash}</a><td>");
        if let Some(size) = size(entry) {
            put_size(out, size);
        }
        let utc = Civil::from_unix(entry.mtime);
        let shown = Civil::from_unix(entry.mtime.saturating_add(i64::from(offset_seconds)));
        put!(
            out,
            "<td><time datetime=\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z\">{:04}-{:02}-{:02} \
             <span>{:02}:{:02}</span></time>\n",
            utc.year,
            utc.month,
            utc.day,
            utc.hour,
            utc.minute,
            utc.second,
            shown.year,
            shown.month,
            shown.day,
            shown.hour,
            shown.minute
        );
    }

    /// The page after the rows.
    pub fn end(&self, out: &mut Vec<u8>, uri: &[u8], totals: Totals) {
        let is_top = segments(uri).is_empty();
        if !totals.is_empty() || !is_top {
            out.extend_from_slice(b"</tbody>\n</table>\n");
        }
        match (totals.is_empty(), is_top) {
            (false, _) => {}
            (true, false) => {
                out.extend_from_slice(b"<p class=\"empty\">This directory is empty.</p>\n");
            }
            (true, true) => out.extend_from_slice(
                b"<p class=\"empty\">The server is running, and this directory is empty.<br>\
                  Files that you put into it appear here; an index.html takes the place of this page.\
                  </p>\n",
            ),
        }
        if let Some(readme) = &self.readme {
            out.extend_from_slice(b"<article aria-label=\"README\">\n");
            out.extend_from_slice(readme);
            out.extend_from_slice(b"</article>\n");
        }
        put!(out, "</main>\n<footer>{}</footer>\n", self.server);
        match self.uploads {
            Some(_) => put!(out, "<script>{UPLOAD_SCRIPT}</script>\n"),
            None if !totals.is_empty() => put!(out, "<script>{SCRIPT}</script>\n"),
            None => {}
        }
        out.extend_from_slice(b"</body>\n</html>\n");
    }
}

/// The directories on the way to `uri`. Links are relative: a proxy in front may have changed the
/// beginning of the path.
fn put_trail(out: &mut Vec<u8>, uri: &[u8]) {
    let segments = segments(uri);
    for depth in 0..=segments.len() {
        let up = segments.len() - depth;
        let name: &[u8] = match depth.checked_sub(1) {
            None => b"Home",
            Some(n) => segments[n],
        };
        if up == 0 {
            out.extend_from_slice(b"<li aria-current=\"page\">");
            put_text(out, name);
        } else {
            put!(out, "<li><a href=\"{}\">", "../".repeat(up));
            put_text(out, name);
            out.extend_from_slice(b"</a>");
        }
        out.extend_from_slice(b"</li>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageSettings = PageSettings {
        sorting: Sorting { key: Key::Name, descending: false },
        server: "nowait",
        truncated: false,
        archives: ArchiveFormats::OFF,
        readme: None,
        uploads: None,
    };

    fn entry(name: &[u8], kind: Kind, size: u64) -> Entry {
        Entry { name: name.into(), kind, size, mtime: 784_111_777 }
    }

    fn text(run: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        run(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn row(name: &[u8], kind: Kind, size: u64) -> String {
        text(|out| PAGE.row(out, &entry(name, kind, size), 0))
    }

    #[test]
    fn sizes_for_people() {
        for (size, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1449, "1.4 kB"),
            (9_949, "9.9 kB"),
            (9_950, "10 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (5_368_709_120, "5.4 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(HumanSize(size).to_string(), shown, "{size}");
        }
        assert_eq!(GroupedNumber(1_234_567).to_string(), "1,234,567");
        assert_eq!(GroupedNumber(999).to_string(), "999");
        assert_eq!(text(|out| put_size(out, 1)), "<data value=\"1\" title=\"1 byte\">1 B</data>");
    }

    #[test]
    fn rows_show_any_name() {
        assert_eq!(
            row(b"a b<\"&>.PNG", Kind::File, 1234),
            "<tr><td><a href=\"a%20b%3C%22%26%3E.PNG\"><svg aria-hidden=\"true\"><use href=\"#i\"/>\
             </svg>a b&lt;&quot;&amp;&gt;.PNG</a><td>\
             <data value=\"1234\" title=\"1,234 bytes\">1.2 kB</data>\
             <td><time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 <span>08:49</span></time>\n"
        );
        assert!(row(b"javascript:x", Kind::File, 0).contains("href=\"javascript%3Ax\""));
        let directory = row(b"d", Kind::Directory, 4096);
        assert!(directory.contains("<tr class=\"d\">") && directory.contains("d/</a><td><td>"));
        // Not UTF-8; a terminal's escape; the direction of writing reversed.
        let odd = row(b"\xff\x1b[1m\xe2\x80\xaegnp.exe", Kind::File, 0);
        assert!(odd.contains("</svg>\u{fffd}\u{fffd}[1m\u{fffd}gnp.exe</a>"), "{odd}");
        assert!(odd.contains("href=\"%FF%1B%5B1m%E2%80%AEgnp.exe\""), "{odd}");
        let local = text(|out| PAGE.row(out, &entry(b"f", Kind::Other, 0), -9 * 3600));
        assert!(local.contains("08:49:37Z\">1994-11-05 <span>23:49</span>"), "{local}");
    }

    #[test]
    fn the_trail_is_relative() {
        let trail = |uri: &[u8]| text(|out| put_trail(out, uri));
        assert_eq!(trail(b"/"), "<li aria-current=\"page\">Home</li>");
        assert_eq!(
            trail(b"/a<b/\xff/"),
            "<li><a href=\"../../\">Home</a></li><li><a href=\"../\">a&lt;b</a></li>\
             <li aria-current=\"page\">\u{fffd}</li>"
        );
    }

    #[test]
    fn heads_tell_the_order_and_lead_to_the_other() {
        let page = PageSettings { sorting: Sorting { key: Key::Size, descending: true }, ..PAGE };
        let head = text(|out| page.put_head(out));
        for part in [
            "<th scope=\"col\"><a href=\"?sort=name&amp;order=asc\">Name</a>",
            "<th scope=\"col\" aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">Size",
            "<th scope=\"col\"><a href=\"?sort=date&amp;order=desc\">Modified</a>",
        ] {
            assert!(head.contains(part), "{head}");
        }
    }

    #[test]
    fn frames() {
        let totals = Totals::of(&[
            entry(b"d", Kind::Directory, 9),
            entry(b"f", Kind::File, 1500),
            entry(b"o", Kind::Other, 7),
        ]);
        let page = PageSettings { truncated: true, ..PAGE };
        let begin = text(|out| page.begin(out, b"/<x>/", totals));
        for part in [
            "<title>Index of /&lt;x&gt;/</title>",
            "<p>1 directory, 2 files, <data value=\"1500\"",
            "has more entries",
            "<tr class=\"up\">",
        ] {
            assert!(begin.contains(part), "{part}: {begin}");
        }
        let empty = text(|out| {
            PAGE.begin(out, b"/", Totals::default());
            PAGE.end(out, b"/", Totals::default());
        });
        assert!(empty.contains("The server is running") && !empty.contains("<table"), "{empty}");
        let below = text(|out| {
            PAGE.begin(out, b"/d/", Totals::default());
            PAGE.end(out, b"/d/", Totals::default());
        });
        assert!(below.contains("</table>\n<p class=\"empty\">This directory is empty."), "{below}");
    }

    /// Each hash in the policy is that of an element of the page, byte for byte.
    #[test]
    fn the_policy_allows_the_page() {
        let totals = Totals::of(&[entry(b"f", Kind::File, 1)]);
        let page = text(|out| {
            PAGE.begin(out, b"/", totals);
            PAGE.end(out, b"/", totals);
        });
        let inside = |tag: &str| {
            let (_, rest) = page.split_once(&format!("<{tag}>")).unwrap();
            rest.split_once(&format!("</{tag}>")).unwrap().0
        };
        assert_eq!(PAGE.policy(), page_style::policy(inside("style"), Some(inside("script"))));
        // No external resources, and nothing that the policy forbids.
        for forbidden in ["http:", "https:", "url(", " style=", "onclick"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
