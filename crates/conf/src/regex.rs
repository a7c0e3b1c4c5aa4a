//! Regular expressions: PCRE2 as in nginx, with JIT where available, and bounded effort.
//!
//! Checked when the configuration is read (`location ~`, `server_name ~`, `map`, `if`, `rewrite`), and
//! matched per request from any thread. An expression is compiled for matching when it is first matched:
//! of the thousands that a configuration may have, most are not matched often, or at all, and each takes
//! kilobytes then. Patterns and subjects are bytes; `(*UTF)` at the start of a pattern switches to UTF-8.

use std::fmt;
use std::sync::{Arc, OnceLock};

use nowait_spare::SharedSpares;
use pcre2::bytes::{CaptureLocations, RegexBuilder};

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::field::Setting;
use crate::tree::{Node, Word};

/// How often one match may backtrack (PCRE2's `LIMIT_MATCH`; with JIT it counts fewer steps).
/// Reaching it takes one to two milliseconds and is [`MatchError::Effort`]. PCRE2's own default,
/// which nginx uses, is 10,000,000: a worker held up tenfold as long by one hostile URI.
pub const MATCH_LIMIT: u32 = 1_000_000;

/// Memory of one match on the heap at most, in KiB (PCRE2's `LIMIT_HEAP`; not used by JIT).
pub const HEAP_LIMIT_KIB: u32 = 4096;

/// Match states kept for reuse per expression.
const SPARE_MAX: usize = 64;

/// A valid expression. Cheap to clone.
#[derive(Clone)]
pub struct Regex(Arc<Inner>);

struct Inner {
    pattern: Box<[u8]>,
    caseless: bool,
    /// The names of named groups, and the numbers of these.
    names: Box<[(Box<str>, usize)]>,
    groups: usize,
    /// Set by the first match.
    compiled: OnceLock<Box<Compiled>>,
}

/// What a match needs.
struct Compiled {
    code: pcre2::bytes::Regex,
    spare: SharedSpares<CaptureLocations>,
}

/// The groups of a match as byte offsets into the subject; group 0 is the whole match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    groups: Vec<Option<(usize, usize)>>,
}

impl Captures {
    /// Start and end of group `n`; `None` if it took no part in the match or does not exist.
    pub fn get(&self, n: usize) -> Option<(usize, usize)> {
        self.groups.get(n).copied().flatten()
    }

    /// Clears the match and keeps the memory.
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// The number of groups, the whole match included; 0 before a match.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The text of group `n` of the subject that was matched.
    pub fn text<'s>(&self, n: usize, subject: &'s [u8]) -> Option<&'s [u8]> {
        let (start, end) = self.get(n)?;
        subject.get(start..end)
    }
}

/// The reason why a match could not be decided: the fault of the request or of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchError {
    /// [`MATCH_LIMIT`] or another bound was reached.
    Effort,
    /// Another error of PCRE2, such as a subject that is not UTF-8 for a `(*UTF)` expression.
    Library(i32),
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchError::Effort => f.write_str("pcre2_match() failed: effort limit reached"),
            MatchError::Library(code) => write!(f, "pcre2_match() failed: {code}"),
        }
    }
}

impl std::error::Error for MatchError {}

/// PCRE2's codes for bounds: JIT stack, match limit, depth limit, heap limit.
const EFFORT_CODES: [i32; 4] = [-46, -47, -53, -63];

impl From<pcre2::Error> for MatchError {
    fn from(error: pcre2::Error) -> MatchError {
        match error.code() {
            code if EFFORT_CODES.contains(&code) => MatchError::Effort,
            code => MatchError::Library(code),
        }
    }
}

/// The reason why a pattern is invalid, in nginx's wording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexError {
    message: String,
    /// The position in the pattern, in bytes.
    offset: Option<usize>,
    /// PCRE2's number of it.
    code: i32,
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RegexError {}

impl RegexError {
    /// The finding about a word of the configuration that ends with the pattern.
    pub fn in_word(self, word: &Word, pattern: &[u8]) -> Diagnostic {
        let mut span = word.span;
        // Point at the exact byte if the word in the file is that of the parser, quoted or not.
        let added = ((span.end - span.start) as usize).checked_sub(word.text.len());
        let before = word.text.len().checked_sub(pattern.len());
        if let (Some(offset), Some(before), Some(quotes @ (0 | 2))) = (self.offset, before, added) {
            let quote = quotes as u32 / 2;
            span.end -= quote;
            let at = span.start + quote + (before + offset) as u32;
            span.start = at.min(span.end.saturating_sub(1));
        }
        Diagnostic::emerg(self.message).at(span).expected("a regular expression (PCRE2)")
    }
}

impl Regex {
    /// Checks a pattern.
    pub fn new(pattern: &[u8], caseless: bool) -> Result<Regex, RegexError> {
        let code = compile(pattern, caseless, false)?;
        let names = code.capture_names().iter().enumerate();
        let names = names.filter_map(|(n, name)| Some((name.as_deref()?.into(), n)));
        Ok(Regex(Arc::new(Inner {
            pattern: pattern.into(),
            caseless,
            names: names.collect(),
            groups: code.captures_len().saturating_sub(1),
            compiled: OnceLock::new(),
        })))
    }

    /// Compiles the expression for matching, which its first match does otherwise.
    pub fn prepare(&self) {
        // Whether that fails is seen by its match.
        let _ = self.compiled();
    }

    fn compiled(&self) -> Result<&Compiled, MatchError> {
        if let Some(compiled) = self.0.compiled.get() {
            return Ok(compiled);
        }
        // A worker that does the same meanwhile is not waited for.
        let code = compile(&self.0.pattern, self.0.caseless, true)
            .map_err(|error| MatchError::Library(error.code))?;
        let _ =
            self.0.compiled.set(Box::new(Compiled { code, spare: SharedSpares::new(SPARE_MAX) }));
        self.0.compiled.get().map(|compiled| &**compiled).ok_or(MatchError::Effort)
    }

    /// Compiles a word of the configuration.
    pub fn parse(word: &Word, caseless: bool) -> Result<Regex, Diagnostic> {
        Regex::new(&word.text, caseless).map_err(|error| error.in_word(word, &word.text))
    }

    /// The pattern as it was written.
    pub fn pattern(&self) -> &[u8] {
        &self.0.pattern
    }

    pub fn is_caseless(&self) -> bool {
        self.0.caseless
    }

    /// The named groups and their numbers.
    pub fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.names.iter().map(|(name, n)| (&**name, *n))
    }

    /// The number of groups without the whole match.
    pub fn groups(&self) -> usize {
        self.0.groups
    }

    /// Whether the expression matches somewhere in the subject.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchError> {
        let compiled = self.compiled()?;
        compiled.with_state(|state| compiled.search(state, subject))
    }

    /// The groups of the first match.
    pub fn captures(&self, subject: &[u8]) -> Result<Option<Captures>, MatchError> {
        let mut captures = Captures::default();
        Ok(self.captures_into(subject, &mut captures)?.then_some(captures))
    }

    /// Like [`Regex::captures`], into a value whose memory is used again. Unchanged if nothing
    /// matches.
    pub fn captures_into(
        &self,
        subject: &[u8],
        captures: &mut Captures,
    ) -> Result<bool, MatchError> {
        let compiled = self.compiled()?;
        compiled.with_state(|state| {
            let matched = compiled.search(state, subject)?;
            if matched {
                captures.groups.clear();
                captures.groups.extend((0..=self.0.groups).map(|n| state.get(n)));
            }
            Ok(matched)
        })
    }
}

impl Compiled {
    fn search(&self, state: &mut CaptureLocations, subject: &[u8]) -> Result<bool, MatchError> {
        Ok(self.code.captures_read(state, subject)?.is_some())
    }

    /// Borrows a match state. A worker never waits for another.
    fn with_state<T>(&self, run: impl FnOnce(&mut CaptureLocations) -> T) -> T {
        let spare = self.spare.take();
        let mut state = spare.unwrap_or_else(|| self.code.capture_locations());
        let result = run(&mut state);
        self.spare.keep(state);
        result
    }
}

/// Compiles a pattern, for matching by machine code where that is available, or to see whether it is valid.
fn compile(pattern: &[u8], caseless: bool, jit: bool) -> Result<pcre2::bytes::Regex, RegexError> {
    // The limits stand in the pattern itself, where a pattern's own lower limits win.
    let limits = format!("(*LIMIT_MATCH={MATCH_LIMIT})(*LIMIT_HEAP={HEAP_LIMIT_KIB})");
    let (body, offsets) = escaped(pattern);
    RegexBuilder::new()
        .caseless(caseless)
        .jit_if_available(jit)
        .build(&format!("{limits}{body}"))
        .map_err(|error| compile_error(pattern, &error, limits.len(), &offsets))
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.0.caseless { "i" } else { "" };
        write!(f, "/{}/{flags}", String::from_utf8_lossy(&self.0.pattern))
    }
}

/// Equal by pattern and flags.
impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.0.caseless == other.0.caseless && self.0.pattern == other.0.pattern
    }
}

impl Eq for Regex {}

impl Setting for Regex {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Regex, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Regex::parse(word, false)
    }
}

/// The pattern as text, since the library takes no other: bytes that are not UTF-8 become `\xHH`.
/// With the offset in the pattern for each byte of the text.
fn escaped(pattern: &[u8]) -> (String, Vec<usize>) {
    let mut text = String::with_capacity(pattern.len());
    let mut offsets = Vec::with_capacity(pattern.len());
    let mut at = 0;
    for chunk in pattern.utf8_chunks() {
        text.push_str(chunk.valid());
        offsets.extend(at..at + chunk.valid().len());
        at += chunk.valid().len();
        for byte in chunk.invalid() {
            let hex = format!("\\x{byte:02x}");
            offsets.extend(std::iter::repeat_n(at, hex.len()));
            text.push_str(&hex);
            at += 1;
        }
    }
    (text, offsets)
}

fn compile_error(
    pattern: &[u8],
    error: &pcre2::Error,
    skipped: usize,
    offsets: &[usize],
) -> RegexError {
    let text = error.to_string();
    let reason = match error.offset() {
        Some(offset) => text.split_once(&format!("offset {offset}: ")).map(|(_, reason)| reason),
        None => None,
    };
    let reason = reason.unwrap_or(&text);
    let shown = String::from_utf8_lossy(pattern);
    let offset = error.offset().and_then(|at| offsets.get(at.checked_sub(skipped)?).copied());
    let message = match offset {
        Some(at) => {
            let rest = String::from_utf8_lossy(&pattern[at..]);
            format!("pcre2_compile() failed: {reason} in \"{shown}\" at \"{rest}\"")
        }
        None => format!("pcre2_compile() failed: {reason} in \"{shown}\""),
    };
    RegexError { message, offset, code: error.code() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_and_captures() {
        let regex = Regex::new(br"^/(?<user>\w+)/(\d+)?(x)?", false).unwrap();
        assert_eq!(regex.groups(), 3);
        assert_eq!(regex.names().collect::<Vec<_>>(), [("user", 1)]);
        let subject = b"/jane/x";
        let captures = regex.captures(subject).unwrap().unwrap();
        assert_eq!(captures.len(), 4);
        assert_eq!(captures.get(0), Some((0, 7)));
        assert_eq!(captures.text(1, subject), Some(&b"jane"[..]));
        assert_eq!(captures.get(2), None);
        assert_eq!(captures.text(3, subject), Some(&b"x"[..]));
        assert_eq!(captures.get(9), None);
        assert_eq!(regex.captures(b"/").unwrap(), None);
    }

    #[test]
    fn the_first_match_compiles() {
        let regex = Regex::new(b"(?<n>a)b", false).unwrap();
        assert!(regex.0.compiled.get().is_none());
        assert_eq!(regex.names().collect::<Vec<_>>(), [("n", 1)]);
        assert!(regex.clone().is_match(b"ab").unwrap());
        assert!(regex.0.compiled.get().is_some());
        let prepared = Regex::new(b"a", false).unwrap();
        prepared.prepare();
        assert!(prepared.0.compiled.get().is_some());
    }

    #[test]
    fn case_and_bytes() {
        assert!(!Regex::new(b"A", false).unwrap().is_match(b"a").unwrap());
        assert!(Regex::new(b"A", true).unwrap().is_match(b"a").unwrap());
        let regex = Regex::new(b"^\xff[\xfe-\xff]\xc3\xa4$", false).unwrap();
        assert!(regex.is_match(b"\xff\xfe\xc3\xa4").unwrap());
        assert!(Regex::new("^(*UTF)".as_bytes(), false).is_err());
        let utf = Regex::new("(*UTF)^.$".as_bytes(), false).unwrap();
        assert!(utf.is_match("ä".as_bytes()).unwrap());
        assert!(matches!(utf.is_match(b"\xff"), Err(MatchError::Library(_))));
    }

    #[test]
    fn errors_in_the_words_of_nginx() {
        let error = |pattern: &[u8]| Regex::new(pattern, false).unwrap_err();
        assert_eq!(
            error(b"a(b").to_string(),
            "pcre2_compile() failed: missing closing parenthesis in \"a(b\""
        );
        assert_eq!(
            error(b"a)b").to_string(),
            "pcre2_compile() failed: unmatched closing parenthesis in \"a)b\" at \")b\""
        );
        assert_eq!(error(b"\xff\xff)").offset, Some(2));
    }

    #[test]
    fn effort_is_bounded() {
        let regex = Regex::new(b"^(a+)+$", false).unwrap();
        let mut subject = vec![b'a'; 64];
        subject.push(b'b');
        assert_eq!(regex.is_match(&subject), Err(MatchError::Effort));
        // The state is still good for the next match.
        assert_eq!(regex.is_match(b"aaa"), Ok(true));
    }

    #[test]
    fn one_expression_serves_many_threads() {
        let regex = Regex::new(br"(\d+)-(\d+)", false).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let regex = regex.clone();
                scope.spawn(move || {
                    for n in 0..500 {
                        let subject = format!("x{thread}-{n}");
                        let captures = regex.captures(subject.as_bytes()).unwrap().unwrap();
                        let text = captures.text(2, subject.as_bytes()).unwrap();
                        assert_eq!(text, n.to_string().as_bytes());
                    }
                });
            }
        });
    }
}
