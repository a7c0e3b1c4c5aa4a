//! Lines of error logs as JSON objects, with the names of NGINX Plus: `timestamp`, `level`, `pid`, `tid`,
//! `cnum`, `msg`, `errno`, `errtext`, `client`, `server`, `request`, `upstream` and so on.
//!
//! Pure functions, called where lines are rendered.

use std::io::Write;

use super::Level;
use super::error::{LINE_MAX, LineContext};
use super::escape;

/// The end of an object that had to be shortened.
const TRUNCATED: &[u8] = b",\"truncated\":1";
/// Longest `msg`, bytes: the client and the request always have room behind it.
const MESSAGE_MAX: usize = LINE_MAX / 2;

/// The parts of a line that do not depend on its message.
#[derive(Clone, Copy)]
pub(super) struct Preamble<'a> {
    pub(super) iso8601: &'a str,
    pub(super) level: Level,
    pub(super) process: u32,
    pub(super) thread: i32,
    pub(super) tag: Option<&'a str>,
}

/// Appends a line with its line feed: at most [`LINE_MAX`] bytes.
pub(super) fn push_line(
    line: &mut Vec<u8>,
    preamble: Preamble<'_>,
    entry: LineContext<'_>,
    message: &[u8],
) {
    let mut object = Object { start: line.len(), line, truncated: false };
    object.begin(preamble);
    if let Some(number) = entry.connection {
        let _ = write!(object.line, ",\"cnum\":{number}");
    }
    if let Some(tag) = preamble.tag {
        object.text("tag", tag.as_bytes(), LINE_MAX);
    }
    let error = entry.os_error.and_then(std::io::Error::raw_os_error);
    let (message, shown) = match entry.os_error {
        Some(_) => (message, None),
        None => split_error(message),
    };
    object.text("msg", message, MESSAGE_MAX);
    match (error, shown) {
        (Some(number), _) => {
            let _ = write!(object.line, ",\"errno\":{number}");
            let text = entry.os_error.map(|error| nowait_conf::Errno(error).to_string());
            let text = text.unwrap_or_default();
            let text = text.split_once(": ").map_or(&text[..], |(_, text)| text);
            object.text("errtext", text.as_bytes(), LINE_MAX);
        }
        (None, Some((number, text))) => {
            let _ = write!(object.line, ",\"errno\":{number}");
            object.text("errtext", text, LINE_MAX);
        }
        (None, None) => {}
    }
    if let Some(details) = entry.details.filter(|_| preamble.level != Level::Debug) {
        details.fields(&mut |name, value| object.text(name, value, LINE_MAX));
    }
    object.end();
}

/// Splits `open() "/x" failed (2: No such file or directory)` into its message, the number and the text.
fn split_error(message: &[u8]) -> (&[u8], Option<(u32, &[u8])>) {
    let split = || {
        let rest = message.strip_suffix(b")")?;
        let at = rest.windows(2).rposition(|two| two == b" (")?;
        let (number, text) = {
            let inside = &rest[at + 2..];
            let colon = inside.windows(2).position(|two| two == b": ")?;
            (&inside[..colon], &inside[colon + 2..])
        };
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        Some((&message[..at], Some((number, text))))
    };
    split().unwrap_or((message, None))
}

struct Object<'a> {
    line: &'a mut Vec<u8>,
    start: usize,
    truncated: bool,
}

impl Object<'_> {
    fn begin(&mut self, preamble: Preamble<'_>) {
        let Preamble { iso8601, level, process, thread, .. } = preamble;
        // Writing to a vector cannot fail.
        let _ = write!(
            self.line,
            "{{\"timestamp\":\"{iso8601}\",\"level\":\"{level}\",\"pid\":{process},\"tid\":{thread}"
        );
    }

    /// Appends a member. What does not fit into `bytes_max` and the line is left out.
    fn text(&mut self, name: &str, value: &[u8], bytes_max: usize) {
        // `"}` and the line feed follow.
        let room = LINE_MAX - TRUNCATED.len() - 4;
        let used = self.line.len() - self.start + name.len() + 5;
        let Some(room) = room.checked_sub(used).filter(|room| *room > 0) else {
            self.truncated = true;
            return;
        };
        let room = room.min(bytes_max);
        let _ = write!(self.line, ",\"{name}\":\"");
        let from = self.line.len();
        let value = String::from_utf8_lossy(value);
        for (at, c) in value.char_indices() {
            let before = self.line.len();
            escape::push_json(self.line, &value.as_bytes()[at..at + c.len_utf8()]);
            if self.line.len() - from > room {
                self.line.truncate(before);
                self.truncated = true;
                break;
            }
        }
        self.line.push(b'"');
    }

    fn end(self) {
        if self.truncated {
            self.line.extend_from_slice(TRUNCATED);
        }
        self.line.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::error::RequestDetails;

    fn line(entry: LineContext<'_>, message: &[u8]) -> String {
        let preamble = Preamble {
            iso8601: "2026-11-28T10:00:00+01:00",
            level: Level::Error,
            process: 1,
            thread: 2,
            tag: Some("web"),
        };
        let mut line = b"<189>".to_vec();
        push_line(&mut line, preamble, entry, message);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn members() {
        let details = RequestDetails {
            client: b"192.0.2.1",
            server: b"example.org",
            request: b"GET /\"x\xff HTTP/1.1",
            host: Some(b"example.org"),
            ..Default::default()
        };
        let entry =
            LineContext { connection: Some(7), details: Some(&details), ..LineContext::default() };
        assert_eq!(
            line(entry, b"open() \"/x\" failed (2: No such file or directory)"),
            "<189>{\"timestamp\":\"2026-11-28T10:00:00+01:00\",\"level\":\"error\",\"pid\":1,\"tid\":2,\
             \"cnum\":7,\"tag\":\"web\",\"msg\":\"open() \\\"/x\\\" failed\",\"errno\":2,\
             \"errtext\":\"No such file or directory\",\"client\":\"192.0.2.1\",\
             \"server\":\"example.org\",\"request\":\"GET /\\\"x\u{fffd} HTTP/1.1\",\
             \"host\":\"example.org\"}\n"
        );
        assert!(line(LineContext::default(), b"a (b: c)").contains("\"msg\":\"a (b: c)\"}"));
    }

    #[test]
    fn long_lines_stay_json() {
        let long = vec![b'\x01'; 4000];
        let details = RequestDetails {
            client: b"192.0.2.1",
            request: &long,
            host: Some(&long),
            ..Default::default()
        };
        let entry = LineContext { details: Some(&details), ..LineContext::default() };
        let line = line(entry, &long);
        assert!(line.len() <= LINE_MAX + 5, "{}", line.len());
        assert!(line.ends_with("\",\"truncated\":1}\n"), "{line}");
        assert!(line.contains("\"client\":\"192.0.2.1\""), "{line}");
    }
}
