//! Which of many regular expressions can match a text, found without running them.
//!
//! Called by tables that try expressions in order: `map`, `server_name`, locations. Of each pattern it learns
//! literals of which every match contains at least one; one pass over a text then tells which patterns are
//! worth trying. It never decides that a pattern matches, and compiles and runs none: those are the caller's.
//!
//! Patterns are PCRE's. `regex-syntax` reads them, after a check that refuses everything that means something else to
//! it ([`is_common_syntax`]); of a pattern that is refused nothing is learned, so it is always tried.

use std::ops::ControlFlow;

use aho_corasick::{AhoCorasick, MatchKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// Fewer patterns than this are tried one by one.
const PATTERNS_MIN: usize = 16;
/// Shorter literals occur in too many texts.
const LITERAL_BYTES_MIN: usize = 2;
/// Longer literals are cut: the rest distinguishes few more texts, and costs memory.
const LITERAL_BYTES_MAX: usize = 32;
/// Patterns with more alternatives are always tried.
const LITERALS_PER_PATTERN_MAX: usize = 64;
/// Deeper patterns are always tried.
const NESTING_MAX: u32 = 50;

/// What is known of a list of patterns.
#[derive(Debug, Clone)]
pub struct Candidates {
    /// Finds the literals, in lower case, without regard to case.
    literals: AhoCorasick,
    /// The pattern of each literal.
    owners: Box<[u32]>,
    /// The patterns of which nothing is known, in order.
    always: Box<[u32]>,
}

impl Candidates {
    /// Of patterns in the order in which they are tried. `None` where trying all is as good: there are few, or
    /// too little is known of them.
    pub fn of<'a>(patterns: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Candidates> {
        if patterns.len() < PATTERNS_MIN || u32::try_from(patterns.len()).is_err() {
            return None;
        }
        let (mut literals, mut owners, mut always) = (Vec::new(), Vec::new(), Vec::new());
        for (number, pattern) in (0u32..).zip(patterns) {
            match required_literals(pattern) {
                Some(required) => {
                    owners.extend(required.iter().map(|_| number));
                    literals.extend(required);
                }
                None => always.push(number),
            }
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(&literals)
            .ok()?;
        (!owners.is_empty()).then(|| Candidates {
            literals: automaton,
            owners: owners.into(),
            always: always.into(),
        })
    }

    /// Calls `attempt` with the number of each pattern that can match `text`, in order, until it breaks.
    pub fn try_each<B>(
        &self,
        text: &[u8],
        mut attempt: impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // Allocates only if something was found.
        let mut found: Vec<u32> = self
            .literals
            .find_overlapping_iter(text)
            .map(|hit| self.owners[hit.pattern().as_usize()])
            .collect();
        found.sort_unstable();
        found.dedup();
        let (mut found, mut always) = (found.into_iter().peekable(), self.always.iter().peekable());
        loop {
            // A pattern has literals or none, so the two lists share no number.
            let next = match (found.peek(), always.peek()) {
                (Some(one), Some(other)) if one < *other => found.next(),
                (_, Some(_)) => always.next().copied(),
                (_, None) => found.next(),
            };
            match next {
                Some(number) => attempt(number as usize)?,
                None => return ControlFlow::Continue(()),
            }
        }
    }
}

/// Calls `attempt` for each entry of a table of expressions that can match `text`, in order, until it breaks.
/// Without candidates that is each of them.
pub fn try_in_order<'t, T, B>(
    candidates: Option<&Candidates>,
    table: &'t [T],
    text: &[u8],
    mut attempt: impl FnMut(&'t T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match candidates {
        None => table.iter().try_for_each(attempt),
        Some(candidates) => candidates.try_each(text, |number| attempt(&table[number])),
    }
}

/// Literals in lower case of which every text that the pattern matches contains at least one, without regard
/// to case; `None` if no useful ones are known.
fn required_literals(pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
    let pattern = std::str::from_utf8(pattern).ok()?;
    let pattern = pattern.strip_prefix("(?i)").unwrap_or(pattern);
    if !is_common_syntax(pattern) {
        return None;
    }
    // Literals are compared without regard to case whether the pattern is or not: more texts become
    // candidates, and no character becomes a class of its two cases.
    let parsed = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .nest_limit(NESTING_MAX)
        .build()
        .parse(pattern)
        .ok()?;
    let required = required(&parsed)?;
    is_useful(&required).then_some(required)
}

/// Whether literals are long enough, and not too many.
fn is_useful(literals: &[Vec<u8>]) -> bool {
    literals.len() <= LITERALS_PER_PATTERN_MAX && shortest(literals) >= LITERAL_BYTES_MIN
}

/// The length of the shortest, which decides how many texts contain one of them.
fn shortest(literals: &[Vec<u8>]) -> usize {
    literals.iter().map(Vec::len).min().unwrap_or(0)
}

/// Of part of a pattern, as [`required_literals`].
fn required(part: &Hir) -> Option<Vec<Vec<u8>>> {
    match part.kind() {
        HirKind::Literal(literal) => {
            let bytes = &literal.0[..literal.0.len().min(LITERAL_BYTES_MAX)];
            Some(vec![bytes.to_ascii_lowercase()])
        }
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        // All parts have to match; one of them is enough to know.
        HirKind::Concat(parts) => {
            parts.iter().filter_map(required).max_by_key(|literals| shortest(literals))
        }
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(required(part)?);
                if all.len() > LITERALS_PER_PATTERN_MAX {
                    return None;
                }
            }
            Some(all)
        }
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

/// Whether PCRE and `regex-syntax` agree on what must occur in a text that the pattern matches, as far as the
/// latter accepts the pattern. They differ on some escapes (`\v`, `\<`), on brackets inside classes, and on what
/// may follow `(?`; only what both surely read alike is accepted.
fn is_common_syntax(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        rest = match first {
            '\\' => match after_escape(rest) {
                Some(rest) => rest,
                None => return false,
            },
            '[' => match after_class(rest) {
                Some(rest) => rest,
                None => return false,
            },
            '(' => {
                let is_group = match rest.strip_prefix('?') {
                    Some(kind) => kind.starts_with(':') || is_name(kind),
                    None => !rest.starts_with('*'),
                };
                if !is_group {
                    return false;
                }
                rest
            }
            _ => rest,
        };
    }
    true
}

/// Whether a group's name follows, behind `(?`: `<name>` or `P<name>`, but not `<=` or `<!`.
fn is_name(kind: &str) -> bool {
    let name = kind.strip_prefix('P').unwrap_or(kind).strip_prefix('<');
    name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// What follows an escape that means the same to both; `rest` begins behind the backslash.
fn after_escape(rest: &str) -> Option<&str> {
    let escaped = rest.chars().next()?;
    let is_common = match escaped {
        'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'b' | 'B' | 'A' | 'z' | 't' | 'n' | 'r' | 'f' => true,
        '<' | '>' => false,
        other => other.is_ascii_punctuation(),
    };
    // `\b{start}` is a word boundary to one of them only.
    let after = &rest[escaped.len_utf8()..];
    (is_common && !(escaped.eq_ignore_ascii_case(&'b') && after.starts_with('{'))).then_some(after)
}

/// What follows a class that both end at the same place; `rest` begins behind the bracket.
fn after_class(rest: &str) -> Option<&str> {
    let mut rest = rest.strip_prefix('^').unwrap_or(rest);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let first = rest.chars().next()?;
        rest = &rest[first.len_utf8()..];
        match first {
            ']' => return Some(rest),
            // The difference, intersection or symmetric difference of two classes to one of them only.
            '&' | '-' | '~' if rest.starts_with(first) => return None,
            // The difference, intersection or symmetric difference of two classes to one of them only.
            '&' | '-' | '~' if rest.starts_with(first) => return None,
            '[' => {
                let name = rest.strip_prefix(':')?;
                let length = name.find(|c: char| !c.is_ascii_alphabetic() && c != '^')?;
                rest = name[length..].strip_prefix(":]")?;
            }
            '\\' => rest = after_escape(rest)?,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nowait_conf::Regex;

    use super::*;

    fn literals(pattern: &str) -> Option<Vec<String>> {
        let text = |literal: Vec<u8>| String::from_utf8(literal).unwrap();
        required_literals(pattern.as_bytes()).map(|all| all.into_iter().map(text).collect())
    }

    #[test]
    fn literals_that_every_match_contains() {
        let some = |all: &[&str]| Some(all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(literals("Googlebot"), some(&["googlebot"]));
        assert_eq!(literals(r"(?i)Googlebot"), some(&["googlebot"]));
        assert_eq!(literals(r"(?:\b)360Spider(?:\b)"), some(&["360spider"]));
        assert_eq!(literals(r"^/old/(?<name>[a-z]+)\.html$"), some(&[".html"]));
        assert_eq!(literals(r"foo|(?:bar)+|x?baz"), some(&["foo", "bar", "baz"]));
        assert_eq!(literals(r"^www\.(.+)\.example\.(com|org)$"), some(&[".example."]));
        assert_eq!(literals(r"a[]b]cd"), some(&["cd"]));
        assert_eq!(literals(r"ab[[:digit:]]"), some(&["ab"]));
    }

    /// The two read these differently, or nothing is required.
    #[test]
    fn patterns_that_are_always_tried() {
        for pattern in [
            ".*",
            "a",
            "foo|.",
            "(foo)?",
            r"foo\vbar",
            r"foo\<bar",
            r"x[a[b]|cd]",
            "(?x)foo bar",
            "(?=foo)bar",
            "(?<=foo)bar",
            "(*UTF8)foo",
            r"\Qfoo\E",
            r"\bfoo\b{2}",
            r"foo\x41",
            "(?P=n)foo",
            r"foo\1",
            "[[.a.]]foo",
            "[ab&&a]bc",
            "[ab&&a]bc",
            "(foo",
            "foo)",
            "[foo",
        ] {
            assert_eq!(literals(pattern), None, "{pattern}");
        }
    }

    /// A small generator, by seed: the same numbers in every run.
    struct SampleRng(u64);

    impl SampleRng {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
            from[self.below(from.len())]
        }
    }

    /// No matter what the patterns are, the first match is the one that trying all of them finds.
    #[test]
    fn the_first_match_is_that_of_trying_all() {
        const PIECES: &[&str] = &[
            "ab",
            "Bc",
            "ca",
            "a",
            "b",
            "c",
            ".",
            "(?:ab|bc)",
            "(ab|c)",
            "[ab]",
            "[^a]",
            "[]a]",
            "[a[b]",
            "\\b",
            "^",
            "$",
            "a+",
            "(?:bc)?",
            "b*",
            "(?:ca){2}",
            "\\.",
            "\\w",
            "|",
            "(?i)",
            "(?=a)",
            "(?<n>bc)",
            "[a&&b]",
            "[ab&&a]",
            "[!--]",
            "[ab&&a]",
            "[!--]",
            "a{0}",
            "\\v",
            "\\<",
            "x++",
            "(?:ab)*+",
            "[[:alpha:]]",
            "[a\\]b]",
            "\\-",
        ];
        const TEXTS: &[&str] = &[
            "a", "b", "c", "A", "B", "C", ".", "ab", "bc", "ca", " ", "<", "[", "]", "&", "\n",
            "-", "x",
        ];
        let mut random = SampleRng(1);
        let mut matches = 0;
        for _ in 0..300 {
            let mut patterns = Vec::new();
            while patterns.len() < PATTERNS_MIN {
                let pieces = 1 + random.below(5);
                let pattern: String = (0..pieces).map(|_| random.pick(PIECES)).collect();
                if let Ok(regex) = Regex::new(pattern.as_bytes(), random.below(2) == 0) {
                    patterns.push(regex);
                }
            }
            let Some(candidates) = Candidates::of(patterns.iter().map(Regex::pattern)) else {
                continue;
            };
            for _ in 0..40 {
                let pieces = random.below(9);
                let text: String = (0..pieces).map(|_| random.pick(TEXTS)).collect();
                let is_match = |number: usize| patterns[number].is_match(text.as_bytes()).unwrap();
                let all: Vec<_> = (0..patterns.len()).filter(|number| is_match(*number)).collect();
                let mut tried = Vec::new();
                let first = candidates.try_each(text.as_bytes(), |number| {
                    tried.push(number);
                    if is_match(number) {
                        ControlFlow::Break(number)
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                let shown: Vec<_> = patterns
                    .iter()
                    .map(|regex| regex.pattern().escape_ascii().to_string())
                    .collect();
                assert_eq!(first.break_value(), all.first().copied(), "{text:?} {shown:?}");
                assert!(tried.is_sorted());
                matches += usize::from(!all.is_empty());
            }
        }
        assert!(matches > 1000, "the texts match something: {matches}");
    }

    /// Of thousands of names, a text that contains one is tried against that one.
    #[test]
    fn few_of_many_are_tried() {
        let patterns: Vec<_> = (0..8000).map(|n| format!(r"(?:\b)Crawler{n}x(?:\b)")).collect();
        let candidates = Candidates::of(patterns.iter().map(|p| p.as_bytes())).unwrap();
        let mut tried = Vec::new();
        let all = candidates.try_each(b"Mozilla/5.0 (compatible; crawler4711x/1.0)", |number| {
            tried.push(number);
            ControlFlow::<()>::Continue(())
        });
        assert!(all.is_continue());
        assert_eq!(tried, [4711]);
    }
}
