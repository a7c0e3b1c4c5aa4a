//! Reads a JSON document (RFC 8259) once and notes the values at paths. It keeps no tree of the document, and a stack
//! of limited depth instead of recursion, because clients send such documents.

use std::borrow::Cow;

use super::path::{Paths, ROOT};

/// Where a value is in the document.
#[derive(Clone, Copy, Debug)]
struct FoundValue {
    first: usize,
    end: usize,
    /// The contents of a string, which may have escapes.
    is_string: bool,
}

/// An object or array that has not ended.
struct OpenValue {
    first: usize,
    node: Option<u32>,
    is_array: bool,
    /// Of the next element.
    index: u64,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    paths: &'a Paths,
    found: Vec<Option<FoundValue>>,
}

/// The values at the paths, in their order. `None`: the document is invalid, or nested deeper than `depth_max`.
///
/// Strings are without quotes and escapes; other values are as in the document. Of members with the same name, the
/// last counts.
pub fn extract<'a>(
    text: &'a [u8],
    paths: &'a Paths,
    depth_max: usize,
) -> Option<Vec<Option<Cow<'a, [u8]>>>> {
    let mut scan = Scan { text, at: 0, paths, found: vec![None; paths.len()] };
    scan.document(depth_max)?;
    let value = |found: FoundValue| {
        let raw = &text[found.first..found.end];
        if found.is_string { unescape(raw) } else { Some(Cow::Borrowed(raw)) }
    };
    Some(paths.ends.iter().map(|&end| scan.found[end as usize].and_then(value)).collect())
}

impl Scan<'_> {
    fn document(&mut self, depth_max: usize) -> Option<()> {
        let mut open: Vec<OpenValue> = Vec::new();
        let mut node = Some(ROOT);
        loop {
            self.blanks();
            let first = self.at;
            match self.peek()? {
                byte @ (b'{' | b'[') => {
                    if open.len() >= depth_max {
                        return None;
                    }
                    let is_array = byte == b'[';
                    open.push(OpenValue { first, node, is_array, index: 0 });
                    self.at += 1;
                    self.blanks();
                    if self.peek()? != if is_array { b']' } else { b'}' } {
                        node = self.enter(open.last_mut()?)?;
                        continue;
                    }
                }
                b'"' => {
                    let end = self.string()?;
                    self.store(node, FoundValue { first: first + 1, end, is_string: true });
                }
                byte => {
                    match byte {
                        b't' => self.word(b"true")?,
                        b'f' => self.word(b"false")?,
                        b'n' => self.word(b"null")?,
                        _ => self.number()?,
                    }
                    self.store(node, FoundValue { first, end: self.at, is_string: false });
                }
            }
            // A value has ended, and with it maybe those around it.
            node = loop {
                self.blanks();
                let Some(top) = open.last_mut() else {
                    return (self.at == self.text.len()).then_some(());
                };
                let byte = self.peek()?;
                self.at += 1;
                match byte {
                    b',' => break self.enter(top)?,
                    b']' if top.is_array => {}
                    b'}' if !top.is_array => {}
                    _ => return None,
                }
                let found = FoundValue { first: top.first, end: self.at, is_string: false };
                let ended = top.node;
                self.store(ended, found);
                open.pop();
            };
        }
    }

    /// The node of the element or member that follows; reads the name of a member.
    fn enter(&mut self, open: &mut OpenValue) -> Option<Option<u32>> {
        if open.is_array {
            let index = open.index;
            open.index += 1;
            return Some(open.node.and_then(|node| self.paths.element(node, index)));
        }
        self.blanks();
        let first = self.at + 1;
        let end = self.string()?;
        self.blanks();
        self.word(b":")?;
        let Some(node) = open.node else { return Some(None) };
        let name = unescape(&self.text[first..end])?;
        Some(self.paths.member(node, &name))
    }

    fn store(&mut self, node: Option<u32>, value: FoundValue) {
        if let Some(node) = node {
            self.found[node as usize] = Some(value);
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Reads a string with its quotes; where its contents end.
    fn string(&mut self) -> Option<usize> {
        self.word(b"\"")?;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(self.at - 1);
                }
                b'\\' => self.at += escape(&self.text[self.at..])?.1,
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let first = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > first).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }
}

/// The character of an escape, which begins with its backslash, and the length of the escape.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let character = match text.get(1)? {
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let high = unit(text)?;
            if !(0xd800..0xdc00).contains(&high) {
                // A lone second half of a pair is no character.
                return Some((char::from_u32(high)?, 6));
            }
            let low = text.get(6..).filter(|rest| rest.starts_with(b"\\u")).and_then(unit)?;
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            return Some((char::from_u32(0x10000 + (((high - 0xd800) << 10) | low))?, 12));
        }
        _ => return None,
    };
    Some((character, 2))
}

/// The number of `\uXXXX`.
fn unit(text: &[u8]) -> Option<u32> {
    text.get(2..6)?
        .iter()
        .try_fold(0, |unit, &digit| Some((unit << 4) | char::from(digit).to_digit(16)?))
}

/// The contents of a string without escapes; `None` if one is malformed.
pub(super) fn unescape(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = text.iter().position(|&byte| byte == b'\\') else {
        return Some(Cow::Borrowed(text));
    };
    let mut out = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some(&byte) = rest.first() {
        if byte == b'\\' {
            let (character, length) = escape(rest)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[length..];
        } else {
            out.push(byte);
            rest = &rest[1..];
        }
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the paths get of a document, with `-` for nothing.
    fn read(text: &str, paths: &[&str]) -> Option<String> {
        let mut tree = Paths::default();
        for path in paths {
            tree.add(path.as_bytes()).expect("a valid path");
        }
        let values = extract(text.as_bytes(), &tree, 5)?;
        let shown = values.iter().map(|value| match value {
            Some(value) => String::from_utf8_lossy(value).into_owned(),
            None => "-".to_owned(),
        });
        Some(shown.collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn values() {
        for (text, paths, expected) in [
            (r#"{"a":"x","b":-1.50e+7,"c":null}"#, &["a", "b", "c", "d"][..], "x|-1.50e+7|null|-"),
            (
                r#" { "a" : [ true , {"b":[ ]} ] } "#,
                &["a", "a[0]", "a[1].b", "a[2]"],
                "[ true , {\"b\":[ ]} ]|true|[ ]|-",
            ),
            (r#"[10,[20,21],"\u00e9\uD83D\uDE00\n\/"]"#, &["[0]", "[1][1]", "[2]"], "10|21|é😀\n/"),
            (
                r#"{"k":1,"o":{"k":2,"x":1},"k":3,"o":{"k":4}}"#,
                &["k", "o.k", "o.x", "o"],
                "3|4|1|{\"k\":4}",
            ),
            (
                r#"{"\u0061":"by an escape","a\u0000":0}"#,
                &["a", "[\"a\\u0000\"]"],
                "by an escape|0",
            ),
            // An index finds no member, and a name no element.
            (r#"{"a":{"0":1},"b":[{"c":1}]}"#, &["a[0]", "b.c", "a[\"0\"]"], "-|-|1"),
            (r#"{"skipped":{"a":[{}]},"a":""}"#, &["a"], ""),
            ("5", &["a"], "-"),
            ("[[[[[1]]]]]", &["[0][0][0][0][0]"], "1"),
        ] {
            assert_eq!(read(text, paths).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_documents() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "]",
            "{]",
            "[}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "[,]",
            "[1,]",
            "[1 2]",
            "{\"a\":1}x",
            "{\"a\":1",
            "{a:1}",
            "{'a':1}",
            "{\"a\":01}",
            "-",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "tru",
            "nul",
            "True",
            "NaN",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\uD83D\"",
            "\"\\uD83Dx\"",
            "\"\\uD83D\\u0041\"",
            "\"\\uDE00\"",
            "\"a\nb\"",
            "[[[[[[1]]]]]]",
            "{\"a\":1,\"b\":[[[[[]]]]]}",
            "//x\n1",
            "1,2",
        ] {
            assert_eq!(read(text, &["a"]), None, "{text}");
        }
    }
}
