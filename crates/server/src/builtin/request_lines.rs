//! The lines that `nowait serve` prints about requests, if standard output is a terminal: an access
//! log like any other, in colours.
//!
//! Called by `builtin`, whose configuration these directives are a part of. What clients send is
//! escaped as in every access log, so that no request reaches the terminal as control characters; the
//! colours are constants of the formats.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};

/// The log's file.
const PATH: &str = "/dev/stdout";

/// Status classes: pattern, name, colour (SGR).
const CLASSES: [(&str, &str, &str); 5] = [
    ("~^2", "success", "32"),
    ("~^3", "redirect", "36"),
    ("~^4", "client", "33"),
    ("~^5", "server", "1;31"),
    ("~^[^2345]", "other", "0"),
];

/// Whether and how requests are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLines {
    /// Not at all.
    Off,
    /// Without colours.
    Plain,
    /// The status in the colour of its class.
    Coloured,
}

impl RequestLines {
    /// What standard output allows: lines on a terminal, in colours unless `NO_COLOR` is set
    /// (no-color.org) or the terminal has none.
    pub fn of_output() -> RequestLines {
        // The terminal may belong to another user, after su: it can't be opened again then.
        let is_usable =
            io::stdout().is_terminal() && OpenOptions::new().append(true).open(PATH).is_ok();
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        match is_usable {
            false => RequestLines::Off,
            true if is_set("NO_COLOR") || is_dumb => RequestLines::Plain,
            true => RequestLines::Coloured,
        }
    }

    /// Directives of the `http` block.
    pub fn directives(self) -> String {
        if self == RequestLines::Off {
            return "    access_log off;\n".to_owned();
        }
        // A line reports the missing file; the error log need not repeat it.
        let mut text = String::from(
            "    log_not_found off;\n    map $time_iso8601 $line_time { \"~T(?<line_clock>[0-9:]{8})\" $line_clock; }\n",
        );
        for (pattern, name, colour) in CLASSES {
            let [colour, dim, end] = [colour, "2", "0"].map(|code| match self {
                RequestLines::Coloured => format!("\u{1b}[{code}m"),
                RequestLines::Off | RequestLines::Plain => String::new(),
            });
            text.push_str(&format!(
                "    map $status $line_{name} {{ default 0; {pattern} 1; }}\n    \
                 log_format {name} \"{dim}$line_time $remote_addr{end} {colour}$status{end} $request_method \
                 $request_uri {dim}$body_bytes_sent B $request_time s{end}\";\n    \
                 access_log {PATH} {name} if=$line_{name};\n"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_optional() {
        assert_eq!(RequestLines::Off.directives(), "    access_log off;\n");
        let plain = RequestLines::Plain.directives();
        assert!(!plain.contains('\u{1b}') && plain.contains("$status $request_method"), "{plain}");
        let coloured = RequestLines::Coloured.directives();
        assert!(coloured.contains("\u{1b}[33m$status\u{1b}[0m"), "{coloured}");
        assert_eq!(coloured.matches("access_log /dev/stdout").count(), CLASSES.len());
    }
}
