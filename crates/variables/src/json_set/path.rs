//! The paths of `json_set`: `user.name`, `tags[0]`, `data["a.b"].c`. The paths of one document form a tree.

use std::collections::BTreeMap;

use super::scan::unescape;

/// The node where all paths begin.
pub(super) const ROOT: u32 = 0;

/// Paths that begin alike share their nodes.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<PathNode>,
    /// The node where each path ends.
    pub(super) ends: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct PathNode {
    members: BTreeMap<Box<[u8]>, u32>,
    elements: BTreeMap<u64, u32>,
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
enum PathStep {
    Member(Box<[u8]>),
    Element(u64),
}

impl Default for Paths {
    fn default() -> Self {
        Paths { nodes: vec![PathNode::default()], ends: Vec::new() }
    }
}

impl Paths {
    /// Adds a path; the position of its value. `None`: it is malformed.
    pub fn add(&mut self, path: &[u8]) -> Option<usize> {
        let mut at = ROOT;
        for step in parse(path)? {
            let next = u32::try_from(self.nodes.len()).ok()?;
            let node = &mut self.nodes[at as usize];
            at = match step {
                PathStep::Member(name) => *node.members.entry(name).or_insert(next),
                PathStep::Element(index) => *node.elements.entry(index).or_insert(next),
            };
            if at == next {
                self.nodes.push(PathNode::default());
            }
        }
        self.ends.push(at);
        Some(self.ends.len() - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn member(&self, node: u32, name: &[u8]) -> Option<u32> {
        self.nodes[node as usize].members.get(name).copied()
    }

    pub(super) fn element(&self, node: u32, index: u64) -> Option<u32> {
        self.nodes[node as usize].elements.get(&index).copied()
    }
}

fn parse(path: &[u8]) -> Option<Vec<PathStep>> {
    let mut steps = Vec::new();
    let mut rest = path;
    // A name stands at the begin and behind a dot; brackets anywhere but behind a dot.
    let mut takes_name = true;
    while !rest.is_empty() {
        rest = match rest {
            [b'[', b'"', quoted @ ..] => {
                let (name, after) = quoted_name(quoted)?;
                steps.push(PathStep::Member(name));
                after
            }
            [b'[', inner @ ..] => {
                let digits = inner.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let (index, after) = inner.split_at(digits);
                let index = std::str::from_utf8(index).ok()?.parse().ok()?;
                steps.push(PathStep::Element(index));
                after.strip_prefix(b"]")?
            }
            [b'.', after @ ..] if !takes_name => {
                let (name, after) = plain_name(after)?;
                steps.push(PathStep::Member(name));
                after
            }
            _ if takes_name => {
                let (name, after) = plain_name(rest)?;
                steps.push(PathStep::Member(name));
                after
            }
            _ => return None,
        };
        takes_name = false;
    }
    (!steps.is_empty()).then_some(steps)
}

/// A name up to a dot or a bracket, and what follows. `$` would begin a path in other languages.
fn plain_name(text: &[u8]) -> Option<(Box<[u8]>, &[u8])> {
    if matches!(text, [] | [b'.' | b'[' | b'$', ..]) {
        return None;
    }
    let end = text.iter().position(|byte| matches!(byte, b'.' | b'['));
    let (name, after) = text.split_at(end.unwrap_or(text.len()));
    Some((name.into(), after))
}

/// A name up to `"]`, with the escapes of JSON, and what follows.
fn quoted_name(text: &[u8]) -> Option<(Box<[u8]>, &[u8])> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    let name = unescape(&text[..at])?;
    Some((name.into_owned().into(), text[at + 1..].strip_prefix(b"]")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<String> {
        let steps = parse(path.as_bytes())?;
        let shown = steps.iter().map(|step| match step {
            PathStep::Member(name) => format!("{:?}", String::from_utf8_lossy(name)),
            PathStep::Element(index) => index.to_string(),
        });
        Some(shown.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn paths() {
        for (path, expected) in [
            ("a", "\"a\""),
            ("a.b$.c", "\"a\" \"b$\" \"c\""),
            ("a[0][12].b", "\"a\" 0 12 \"b\""),
            ("[3]", "3"),
            ("[007].x", "7 \"x\""),
            ("[\"\"]", "\"\""),
            ("a[\"b.c\"][\"d]\"].e", "\"a\" \"b.c\" \"d]\" \"e\""),
            (r#"["q\"\u00e9\uD83D\uDE00\\"]"#, "\"q\\\"é😀\\\\\""),
            ("a]b", "\"a]b\""),
        ] {
            assert_eq!(read(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn malformed_paths() {
        for path in [
            "",
            ".a",
            "a.",
            "a..b",
            "$",
            "$.a",
            "a.$b",
            "a[0]b",
            "a[\"x\"]y",
            "a[]",
            "a[x]",
            "a[1a]",
            "a[1",
            "a[-1]",
            "a[\"x",
            "a[\"x\"",
            "a[\"x\"b",
            "a.[0]",
            "[\"\\q\"]",
            "[\"\\u12\"]",
            "[\"\\uD83D\"]",
            "[\"\\uDE00\"]",
            "[\"\\",
            "[99999999999999999999]",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
