//! Analyses regular expressions as texts: the bytes that a part of them may match, and its anchors.
//!
//! An approximation that prefers missing a mistake to a false alarm; never compiles expressions.

/// A group of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatternGroup<'p> {
    pub name: Option<&'p str>,
    /// The text between the parentheses, without the name.
    pub body: &'p str,
    /// Whether `*`, `+` or `{n,` follows it.
    pub is_repeated: bool,
}

/// Maximum number of examined groups of one expression: each contains the text of those within it.
const GROUPS_MAX: usize = 20;

/// The capturing groups in the order of their numbers.
pub(crate) fn groups(pattern: &str) -> Vec<PatternGroup<'_>> {
    let groups = all_groups(pattern).into_iter();
    groups.filter_map(|(group, captures)| captures.then_some(group)).take(GROUPS_MAX).collect()
}

/// Every group, and whether it captures.
fn all_groups(pattern: &str) -> Vec<(PatternGroup<'_>, bool)> {
    let bytes = pattern.as_bytes();
    let mut found: Vec<(PatternGroup<'_>, bool)> = Vec::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (at, byte) in specials(pattern) {
        match byte {
            b'(' => {
                let rest = &pattern[at + 1..];
                let (name, skip, captures) = group_start(rest);
                found.push((PatternGroup { name, body: "", is_repeated: false }, captures));
                open.push((found.len() - 1, at + 1 + skip));
            }
            b')' => {
                if let Some((index, start)) = open.pop() {
                    let group = &mut found[index].0;
                    group.body = pattern.get(start..at).unwrap_or_default();
                    group.is_repeated = match bytes.get(at + 1) {
                        Some(b'*' | b'+') => true,
                        Some(b'{') => {
                            pattern[at..].split('}').next().is_some_and(|t| t.ends_with(','))
                        }
                        _ => false,
                    };
                }
            }
            _ => {}
        }
    }
    found
}

/// The name of a group, the bytes before its body, and whether it captures.
fn group_start(rest: &str) -> (Option<&str>, usize, bool) {
    let Some(after) = rest.strip_prefix('?') else { return (None, 0, true) };
    for (opening, closing) in [("<", '>'), ("P<", '>'), ("'", '\'')] {
        if let Some(name) = after.strip_prefix(opening)
            && !name.starts_with(['=', '!'])
            && let Some((name, _)) = name.split_once(closing)
        {
            return (Some(name), 1 + opening.len() + name.len() + 1, true);
        }
    }
    let skip = after.find([':', '=', '!', '>', '|']).map_or(0, |at| at + 2);
    (None, skip, false)
}

/// The bytes of an expression that are neither escaped nor in a class, with their places.
fn specials(pattern: &str) -> impl Iterator<Item = (usize, u8)> {
    let bytes = pattern.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(&byte) = bytes.get(at) {
            let here = at;
            match byte {
                b'\\' => at += 2,
                b'[' => at = class_end(bytes, at),
                _ => {
                    at += 1;
                    return Some((here, byte));
                }
            }
        }
        None
    })
}

/// The place behind the class that begins at `start`.
fn class_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    if bytes.get(at) == Some(&b'^') {
        at += 1;
    }
    // A "]" at the beginning is one of the class.
    if bytes.get(at) == Some(&b']') {
        at += 1;
    }
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b']' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Whether a part of an expression may match nearly all bytes, including slashes and dots.
pub(crate) fn is_permissive(part: &str) -> bool {
    let has_class = part.contains("[^") || ["\\S", "\\D", "\\W"].iter().any(|c| part.contains(c));
    has_class || specials(part).any(|(_, byte)| byte == b'.')
}

/// Whether a part of an expression may match line ends.
pub(crate) fn matches_line_ends(part: &str) -> bool {
    let bytes = part.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = atom_end(bytes, at);
        let atom = part.get(at..end).unwrap_or_default();
        let is_blank = |text: &str| ["\\s", "\\D", "\\W"].iter().any(|class| text.contains(class));
        let matches = match atom.strip_prefix("[^") {
            Some(class) => {
                !(class.contains("\\s") || class.contains("\\n") && class.contains("\\r"))
            }
            None => is_blank(atom),
        };
        if matches {
            return true;
        }
        at = end;
    }
    part.contains("(?s")
}

/// The place behind the character, class or escape at `at`.
fn atom_end(bytes: &[u8], at: usize) -> usize {
    let end = match bytes.get(at) {
        Some(b'\\') => at + 2,
        Some(b'[') => class_end(bytes, at),
        _ => at + 1,
    };
    end.min(bytes.len())
}

/// Whether an expression matches every URI.
pub(crate) fn matches_everything(pattern: &str) -> bool {
    matches!(
        pattern,
        "" | "^"
            | "/"
            | "^/"
            | "."
            | ".*"
            | "^.*"
            | "^.*$"
            | ".*$"
            | "^/.*"
            | "^/.*$"
            | "/.*"
            | "^(.*)$"
            | "^/(.*)$"
            | "(.*)"
            | "^/(.*)"
            | "/(.*)"
    )
}

/// A dot that is not escaped before a suffix such as `php`: where, in bytes.
pub(crate) fn bare_dot_before_suffix(pattern: &str) -> Option<usize> {
    let body = pattern.strip_suffix('$').unwrap_or(pattern);
    let dots = specials(body).filter(|(_, byte)| *byte == b'.').map(|(at, _)| at);
    dots.last().filter(|&at| {
        let rest = &body[at + 1..];
        let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let inner = inner.map(|inner| inner.strip_prefix("?:").unwrap_or(inner));
        let names = inner.unwrap_or(rest);
        let is_word = |word: &str| {
            (1..=10).contains(&word.len())
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'?')
                && word.starts_with(|c: char| c.is_ascii_alphabetic())
        };
        let alternatives = names.split('|');
        // "/.git": a dot at the beginning of a name is another matter, but as bare.
        let before = &body[..at];
        alternatives.clone().count() >= 1
            && alternatives.into_iter().all(is_word)
            && !before.ends_with(']')
    })
}

/// Whether a repeated group consists of a repetition, so that a failing match takes exponential time.
pub(crate) fn backtracks(pattern: &str) -> bool {
    all_groups(pattern).iter().any(|(group, _)| {
        let end = atom_end(group.body.as_bytes(), 0);
        let quantifier = group.body.get(end..).unwrap_or_default();
        group.is_repeated && matches!(quantifier, "*" | "+" | "*?" | "+?")
    })
}

/// The literal beginning of an anchored expression: `^/a/b` of `^/a/b(c|d)`.
pub(crate) fn literal_prefix(pattern: &str) -> Option<String> {
    let rest = pattern.strip_prefix('^')?;
    let mut prefix = String::new();
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => prefix.push(escaped),
                _ => break,
            },
            '(' | '[' | '.' | '$' | '|' => break,
            '*' | '?' | '{' => {
                prefix.pop();
                break;
            }
            '+' => break,
            _ => prefix.push(c),
        }
    }
    // An alternative may begin differently.
    let has_alternative = {
        let mut depth = 0;
        specials(rest).any(|(_, byte)| {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            byte == b'|' && depth == 0
        })
    };
    (!has_alternative).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_with_their_names() {
        let found = groups(r"^/(?<a>[^/(]+)/(?:x|(y\)z))+(?P<b>.*)$");
        let shown: Vec<_> = found.iter().map(|g| (g.name, g.body)).collect();
        assert_eq!(shown, [(Some("a"), "[^/(]+"), (None, r"y\)z"), (Some("b"), ".*")]);
    }

    #[test]
    fn what_parts_match() {
        for (part, permissive, line_ends) in [
            (r"\d+", false, false),
            ("[a-z.-]+", false, false),
            ("a|b", false, false),
            (r"\.", false, false),
            (".*", true, false),
            ("[^/]+", true, true),
            (r"[^/\s]+", true, false),
            (r"\S+", true, false),
            (r"a\s", false, true),
        ] {
            assert_eq!(is_permissive(part), permissive, "{part}");
            assert_eq!(matches_line_ends(part), line_ends, "{part}");
        }
    }

    #[test]
    fn dots_before_suffixes() {
        for (pattern, at) in [
            (".php$", Some(0)),
            (r"\.php$", None),
            (".(jpg|png)$", Some(0)),
            (r"^/a/.*\.(?:js|css)$", None),
            ("^/a/.*$", None),
            ("^/a.html$", Some(3)),
            ("/.*", None),
        ] {
            assert_eq!(bare_dot_before_suffix(pattern), at, "{pattern}");
        }
    }

    #[test]
    fn exponential_expressions() {
        for pattern in ["^(a+)+$", "(.*)*", "([a-z]+)*$", r"^/(\w+)+/"] {
            assert!(backtracks(pattern), "{pattern}");
        }
        for pattern in ["^/(a+)$", "(ab)+", r"(\.[a-z]+)+$", "(/[a-z]+)*", r"(\w+/)+", "(a|b)+"] {
            assert!(!backtracks(pattern), "{pattern}");
        }
    }

    #[test]
    fn beginnings() {
        for (pattern, prefix) in [
            (r"^/a/b\.c(d)", Some("/a/b.c")),
            ("^/ab*", Some("/a")),
            ("^/a|^/b", None),
            ("/a", None),
            ("^/a$", Some("/a")),
        ] {
            assert_eq!(literal_prefix(pattern).as_deref(), prefix, "{pattern}");
        }
    }
}
