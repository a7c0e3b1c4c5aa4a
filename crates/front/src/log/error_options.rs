//! The parameters of `error_log` behind the file: level, form of the lines, tag, filter, rate.
//!
//! Read with the configuration; [`super::error`] and the program's own log apply them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Diagnostic, Regex, Word, number};

use super::Level;
use super::error_rate::RateLimit;

/// Longest `tag=`, bytes: every line has it.
const TAG_BYTES_MAX: usize = 64;

/// The form, tag, filter and rate of an error log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineOptions {
    /// Lines are JSON objects instead of nginx's text.
    pub json: bool,
    /// Stands in every line.
    pub tag: Option<Arc<str>>,
    /// Selects lines by their text.
    pub filter: Option<LineFilter>,
    /// Leaves out repetitions.
    pub rate: Option<Arc<RateLimit>>,
}

impl LineOptions {
    /// Whether lines are nginx's, and all of them are written.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a message with its context passes the filter.
    pub fn accepts(&self, text: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.accepts(text))
    }
}

/// `filter=`: a regular expression that lines have to match, or must not.
#[derive(Clone)]
pub struct LineFilter {
    regex: Regex,
    /// Lines that match are dropped.
    negated: bool,
    /// As it was written.
    text: Arc<[u8]>,
}

impl LineFilter {
    fn parse(word: &Word) -> Result<Self, Diagnostic> {
        let (negated, rest) = match word.strip_prefix("!") {
            Some(rest) => (true, rest),
            None => (false, word.clone()),
        };
        let (caseless, pattern) = match (rest.strip_prefix("~*"), rest.strip_prefix("~")) {
            (Some(pattern), _) => (true, pattern),
            (None, Some(pattern)) => (false, pattern),
            (None, None) => {
                let error = word.error(format!("invalid filter \"{word}\""));
                return Err(error.expected("~regex, ~*regex, !~regex or !~*regex"));
            }
        };
        let regex = Regex::new(&pattern.text, caseless);
        let regex = regex.map_err(|error| error.in_word(&pattern, &pattern.text))?;
        Ok(Self { regex, negated, text: word.text.clone().into() })
    }

    fn accepts(&self, text: &[u8]) -> bool {
        // A match that takes too much effort decides nothing: the line is kept.
        self.regex.is_match(text) != Ok(self.negated)
    }
}

impl PartialEq for LineFilter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LineFilter {}

impl fmt::Debug for LineFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LineFilter").field(&String::from_utf8_lossy(&self.text)).finish()
    }
}

/// Selectable parts of nginx's debug log; here they all mean `debug`.
const DEBUG_PARTS: [&str; 7] = [
    "debug_core",
    "debug_alloc",
    "debug_mutex",
    "debug_event",
    "debug_http",
    "debug_mail",
    "debug_stream",
];

/// The parameters behind the file of `error_log`; the level is `error` if none is given.
///
/// # Errors
/// The first invalid one.
pub fn parse(words: &[Word]) -> Result<(Level, LineOptions), Diagnostic> {
    const EXPECTED: &str = "debug, info, notice, warn, error, crit, alert or emerg";
    let mut options = LineOptions::default();
    let (mut level, mut parts) = (None, false);
    for word in words {
        if parse_option(word, &mut options)? {
            continue;
        }
        if let Some(found) = Level::from_name(&word.text) {
            if level.is_some() {
                return Err(word.error(format!("duplicate log level \"{word}\"")));
            }
            level = Some(found);
            continue;
        }
        let is_part = DEBUG_PARTS.iter().any(|part| *word == *part);
        if !is_part || (level.is_some() && !parts) {
            let message = format!("invalid log level \"{word}\"");
            return Err(word.error(message).expected(EXPECTED));
        }
        (level, parts) = (Some(Level::Debug), true);
    }
    Ok((level.unwrap_or(Level::Error), options))
}

/// Whether a word is a parameter other than a level.
fn parse_option(word: &Word, options: &mut LineOptions) -> Result<bool, Diagnostic> {
    if *word == "json" {
        // The form of NGINX Plus.
        options.json = true;
    } else if let Some(format) = word.strip_prefix("format=") {
        options.json = match format.as_bytes() {
            b"json" => true,
            b"text" => false,
            _ => {
                let error = format.error(format!("unknown format \"{format}\""));
                return Err(error.expected("json or text"));
            }
        };
    } else if let Some(tag) = word.strip_prefix("tag=") {
        options.tag = Some(parse_tag(&tag)?);
    } else if let Some(filter) = word.strip_prefix("filter=") {
        options.filter = Some(LineFilter::parse(&filter)?);
    } else if let Some(rate) = word.strip_prefix("rate=") {
        options.rate = Some(Arc::new(parse_rate(&rate)?));
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn parse_tag(tag: &Word) -> Result<Arc<str>, Diagnostic> {
    let text = tag.to_str()?;
    if text.is_empty() || text.len() > TAG_BYTES_MAX || text.chars().any(char::is_control) {
        let error = tag.error(format!("invalid tag \"{tag}\""));
        return Err(error.expected("1 to 64 bytes without control characters"));
    }
    Ok(text.into())
}

fn parse_rate(rate: &Word) -> Result<RateLimit, Diagnostic> {
    let invalid = || {
        let error = rate.error(format!("invalid rate \"{rate}\""));
        error.expected("a number of lines per second or minute, such as 5r/s or 30r/m")
    };
    let (count, window) = match (rate.text.strip_suffix(b"r/s"), rate.text.strip_suffix(b"r/m")) {
        (Some(count), _) => (count, Duration::from_secs(1)),
        (None, Some(count)) => (count, Duration::from_secs(60)),
        (None, None) => return Err(invalid()),
    };
    let count = number(count).and_then(|count| u32::try_from(count).ok()).filter(|&n| n > 0);
    Ok(RateLimit::new(count.ok_or_else(invalid)?, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Level, LineOptions), String> {
        let words: Vec<Word> = text.split_whitespace().map(Word::built_in).collect();
        parse(&words).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn parameters() {
        let (level, options) = read("warn json tag=web filter=!~*favicon rate=5r/m").unwrap();
        assert_eq!((level, options.json, options.tag.as_deref()), (Level::Warn, true, Some("web")));
        assert!(options.accepts(b"open() failed") && !options.accepts(b"open() \"/FavIcon\""));
        assert_eq!(options.rate.as_deref(), Some(&RateLimit::new(5, Duration::from_secs(60))));
        assert!(read("").unwrap().1.is_plain() && read("format=text").unwrap().1.is_plain());
        assert!(read("format=json debug").unwrap().1.json);
        let (_, only) = read("filter=~upstream").unwrap();
        assert!(only.accepts(b"upstream timed out") && !only.accepts(b"other"));
    }

    #[test]
    fn faults() {
        for (text, message) in [
            ("format=xml", "unknown format \"xml\""),
            ("tag=", "invalid tag \"\""),
            ("rate=5", "invalid rate \"5\""),
            ("rate=0r/s", "invalid rate \"0r/s\""),
            ("filter=x", "invalid filter \"x\""),
            ("error warn", "duplicate log level \"warn\""),
            ("loud", "invalid log level \"loud\""),
        ] {
            assert_eq!(read(text).unwrap_err(), message, "{text}");
        }
        assert!(read("filter=~(").is_err());
    }
}
