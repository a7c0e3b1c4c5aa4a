//! Finds the regular expressions that can match a text, without running them.
//!
//! Called by tables that try expressions in order: `map`, `server_name`, locations. For each pattern, it
//! extracts literals of which every match contains at least one; one pass over a text then tells which
//! patterns are worth trying. Where a pattern requires several literals (`^/shop12/.*\.html$`), the one that
//! the fewest other patterns share is taken. It never decides that a pattern matches, and compiles and runs
//! none: those are the caller's.
//!
//! Patterns are PCRE's. `regex-syntax` reads them, after a check that refuses everything that means something else to
//! it ([`is_common_syntax`]); of a pattern that is refused nothing is learned, so it is always tried.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use aho_corasick::{AhoCorasick, MatchKind, PatternID};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};
use rustc_hash::FxHashMap;

/// Fewer patterns than this are tried one by one.
const PATTERNS_MIN: usize = 8;
/// Shorter literals occur in too many texts.
const LITERAL_BYTES_MIN: usize = 2;
/// Longer literals are cut: the rest distinguishes few more texts, and costs memory.
const LITERAL_BYTES_MAX: usize = 32;
/// Patterns with more alternatives are always tried.
const LITERALS_PER_PATTERN_MAX: usize = 64;
/// Of one pattern, so many groups of literals are compared with those of the others.
const GROUPS_MAX: usize = 8;
/// Of a text with more different literals, the candidates are collected before the first is tried.
const LISTS_MAX: usize = 16;
/// Deeper patterns are always tried.
const NESTING_MAX: u32 = 50;

/// Literals of which every match of a pattern contains at least one.
type Alternatives = Vec<Vec<u8>>;

/// The literals of a list of patterns.
#[derive(Debug, Clone)]
pub struct Candidates {
    /// Finds the literals, in lower case, without regard to case.
    literals: AhoCorasick,
    /// The patterns of each literal, in order: those of one literal after those of the one before it.
    owners: Box<[u32]>,
    /// Where the patterns of each literal end.
    ends: Box<[u32]>,
    /// The patterns without literals, in order.
    always: Box<[u32]>,
}

impl Candidates {
    /// Of patterns in the order in which they are tried. `None` where trying all is as good: there are few, or
    /// too little is known of them.
    pub fn of<'a>(patterns: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Candidates> {
        if patterns.len() < PATTERNS_MIN || u32::try_from(patterns.len()).is_err() {
            return None;
        }
        let known: Vec<Vec<Alternatives>> = patterns.map(required_literals).collect();
        let shares = shares(&known);
        let (mut literals, mut always) = (BTreeMap::<Vec<u8>, Vec<u32>>::new(), Vec::new());
        for (number, known) in (0u32..).zip(known) {
            // How many patterns become candidates by these literals, and how long the shortest is.
            let worth = |literals: &Alternatives| {
                let shared: usize = literals.iter().map(|literal| shares[literal]).sum();
                (shared, Reverse(shortest(literals)))
            };
            let Some(chosen) = known.into_iter().min_by_key(worth) else {
                always.push(number);
                continue;
            };
            for literal in chosen {
                let owners = literals.entry(literal).or_default();
                if owners.last() != Some(&number) {
                    owners.push(number);
                }
            }
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(literals.keys())
            .ok()?;
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(literals.len()));
        for owners in literals.into_values() {
            all.extend(owners);
            ends.push(u32::try_from(all.len()).ok()?);
        }
        (!ends.is_empty()).then(|| Candidates {
            literals: automaton,
            owners: all.into(),
            ends: ends.into(),
            always: always.into(),
        })
    }

    /// The patterns of a literal, in order.
    fn owners(&self, literal: PatternID) -> &[u32] {
        let number = literal.as_usize();
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.owners[start as usize..self.ends[number] as usize]
    }

    /// Calls `attempt` with the number of each pattern that can match `text`, in order, until it breaks.
    pub fn try_each<B>(
        &self,
        text: &[u8],
        mut attempt: impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut lists = [&*self.always; LISTS_MAX];
        let mut count = 1;
        for hit in self.literals.find_overlapping_iter(text) {
            let owners = self.owners(hit.pattern());
            // A literal that occurs twice adds nothing.
            if lists[1..count].iter().any(|list| std::ptr::eq(*list, owners)) {
                continue;
            }
            if count == LISTS_MAX {
                return self.all(text).into_iter().try_for_each(|number| attempt(number as usize));
            }
            lists[count] = owners;
            count += 1;
        }
        let lists = &mut lists[..count];
        while let Some(number) = lists.iter().filter_map(|list| list.first()).min().copied() {
            for list in &mut *lists {
                // A pattern with several literals stands in several lists.
                if list.first() == Some(&number) {
                    *list = &list[1..];
                }
            }
            attempt(number as usize)?;
        }
        ControlFlow::Continue(())
    }

    /// The patterns that many texts make candidates, those without literals and those whose literals many share.
    pub fn frequent(&self) -> impl Iterator<Item = usize> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let lists =
            starts.zip(&*self.ends).map(|(start, end)| &self.owners[start as usize..*end as usize]);
        let shared = lists.filter(|owners| owners.len() >= PATTERNS_MIN).flatten();
        self.always.iter().chain(shared).map(|number| *number as usize)
    }

    /// The patterns that can match `text`, in order.
    fn all(&self, text: &[u8]) -> Vec<u32> {
        let hits = self.literals.find_overlapping_iter(text);
        let mut literals: Vec<PatternID> = hits.map(|hit| hit.pattern()).collect();
        literals.sort_unstable();
        literals.dedup();
        let owners = literals.into_iter().flat_map(|literal| self.owners(literal));
        let mut numbers: Vec<u32> = owners.chain(&*self.always).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// How many patterns have each literal.
fn shares(known: &[Vec<Alternatives>]) -> FxHashMap<Vec<u8>, usize> {
    let mut shares = FxHashMap::default();
    for literal in known.iter().flatten().flatten() {
        match shares.get_mut(literal) {
            Some(count) => *count += 1,
            None => {
                shares.insert(literal.clone(), 1);
            }
        }
    }
    shares
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

/// The entries of a large table of expressions that many texts make candidates. Without candidates that is each of
/// them.
pub fn frequent<'t, T>(
    candidates: Option<&Candidates>,
    table: &'t [T],
) -> impl Iterator<Item = &'t T> {
    let all = if candidates.is_none() && table.len() >= PATTERNS_MIN { table } else { &[] };
    let some = candidates.into_iter().flat_map(Candidates::frequent);
    all.iter().chain(some.map(|number| &table[number]))
}

/// Literals in lower case: every text that the pattern matches contains at least one of each group, without
/// regard to case. Empty if no useful ones are known.
fn required_literals(pattern: &[u8]) -> Vec<Alternatives> {
    let mut known = parse(pattern).map(|parsed| required(&parsed)).unwrap_or_default();
    known.retain(|literals| is_useful(literals));
    known
}

/// What `regex-syntax` makes of a pattern that it reads as PCRE does.
fn parse(pattern: &[u8]) -> Option<Hir> {
    let pattern = std::str::from_utf8(pattern).ok()?;
    let pattern = pattern.strip_prefix("(?i)").unwrap_or(pattern);
    if !is_common_syntax(pattern) {
        return None;
    }
    // Literals are compared without regard to case whether the pattern is or not: more texts become
    // candidates, and no character becomes a class of its two cases.
    let mut parser =
        ParserBuilder::new().unicode(false).utf8(false).nest_limit(NESTING_MAX).build();
    parser.parse(pattern).ok()
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
fn required(part: &Hir) -> Vec<Alternatives> {
    match part.kind() {
        HirKind::Literal(literal) => {
            let bytes = &literal.0[..literal.0.len().min(LITERAL_BYTES_MAX)];
            vec![vec![bytes.to_ascii_lowercase()]]
        }
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        // All parts have to match.
        HirKind::Concat(parts) => {
            let mut all: Vec<_> = parts.iter().flat_map(required).collect();
            all.sort_by_key(|literals| Reverse(shortest(literals)));
            all.truncate(GROUPS_MAX);
            all
        }
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                // One of those that the part requires is enough.
                let longest = required(part).into_iter().max_by_key(|literals| shortest(literals));
                let Some(literals) = longest else { return Vec::new() };
                all.extend(literals);
                if all.len() > LITERALS_PER_PATTERN_MAX {
                    return Vec::new();
                }
            }
            vec![all]
        }
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) | HirKind::Repetition(_) => {
            Vec::new()
        }
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
        let mut known = required_literals(pattern.as_bytes());
        known.sort_by_key(|literals| Reverse(shortest(literals)));
        known.into_iter().next().map(|all| all.into_iter().map(text).collect())
    }

    #[test]
    fn literals_that_every_match_contains() {
        let some = |all: &[&str]| Some(all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(literals("Googlebot"), some(&["googlebot"]));
        assert_eq!(literals(r"(?i)Googlebot"), some(&["googlebot"]));
        assert_eq!(literals(r"(?:\b)360Spider(?:\b)"), some(&["360spider"]));
        assert_eq!(literals(r"^/old/(?<name>[a-z]+)\.html$"), some(&["/old/"]));
        assert_eq!(literals(r"foo|(?:bar)+|x?baz"), some(&["foo", "bar", "baz"]));
        assert_eq!(literals(r"^www\.(.+)\.example\.(com|org)$"), some(&[".example."]));
        assert_eq!(literals(r"a[]b]cd"), some(&["cd"]));
        assert_eq!(literals(r"ab[[:digit:]]"), some(&["ab"]));
    }

    /// Both parsers interpret these differently, or no literal is required.
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

    /// For any patterns, the first match equals the result of trying all of them.
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
            while patterns.len() < 2 * PATTERNS_MIN {
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

    /// What all patterns have in common does not make them candidates, though it is longer.
    #[test]
    fn the_rarest_literal_of_a_pattern_is_taken() {
        let patterns: Vec<_> = (0..500).map(|n| format!(r"^/s{n}x/(.*)\.(?:html|json)$")).collect();
        let candidates = Candidates::of(patterns.iter().map(|p| p.as_bytes())).unwrap();
        assert_eq!(tried(&candidates, b"/s471x/page.html"), [471]);
        assert_eq!(candidates.frequent().count(), 0);
        assert_eq!(tried(&candidates, b"/other/page.html"), []);
    }

    /// Patterns that have nothing of their own are tried in order, however often their literals occur.
    #[test]
    fn shared_and_numerous_literals() {
        let same: Vec<_> = (0..100)
            .map(|n| format!(r"^/[a-{}]+\.php$", ('b'..='z').nth(n % 25).unwrap()))
            .collect();
        let candidates = Candidates::of(same.iter().map(|p| p.as_bytes())).unwrap();
        assert_eq!(tried(&candidates, b"/a.php.php"), (0..100).collect::<Vec<_>>());
        assert_eq!(tried(&candidates, b"/a.html"), []);
        assert_eq!(candidates.frequent().count(), 100);

        let many: Vec<_> = (10..60).map(|n| format!("x{n}|y{n}")).collect();
        let candidates = Candidates::of(many.iter().map(|p| p.as_bytes())).unwrap();
        let text: String =
            (10..60).rev().flat_map(|n| [format!("y{n}"), format!("x{n}")]).collect();
        assert_eq!(tried(&candidates, text.as_bytes()), (0..50).collect::<Vec<_>>());
    }

    fn tried(candidates: &Candidates, text: &[u8]) -> Vec<usize> {
        let mut tried = Vec::new();
        let all = candidates.try_each(text, |number| {
            tried.push(number);
            ControlFlow::<()>::Continue(())
        });
        assert!(all.is_continue());
        tried
    }

    /// Of thousands of names, a text that contains one is tried against that one.
    #[test]
    fn few_of_many_are_tried() {
        let patterns: Vec<_> = (0..8000).map(|n| format!(r"(?:\b)Crawler{n}x(?:\b)")).collect();
        let candidates = Candidates::of(patterns.iter().map(|p| p.as_bytes())).unwrap();
        let text = b"Mozilla/5.0 (compatible; crawler4711x/1.0)";
        assert_eq!(tried(&candidates, text), [4711]);
    }
}
