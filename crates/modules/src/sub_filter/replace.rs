//! Finds and replaces strings in a text that arrives in pieces. nginx: `ngx_http_sub_parse`.
//!
//! Sans-IO; used by `sub_filter`. The earliest match wins, and among several at one place the string
//! given first, however the text is cut into pieces. Case is ignored. Keeps no more of the text than
//! the beginning of a possible match.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// Texts up to this size are copied together.
const COPY_BYTES_MAX: usize = 1024;

/// The search strings, in their order.
#[derive(Debug)]
pub struct Patterns {
    /// In lower case; none is empty.
    strings: Box<[Bytes]>,
    shortest: usize,
    /// Distance that a search may advance if this byte (in lower case) is at the position of the
    /// shortest string's last byte.
    steps: Box<[u8; 256]>,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
enum SearchResult {
    Match {
        start: usize,
        end: usize,
        which: usize,
    },
    /// The text ends within a possible match that begins here.
    Perhaps(usize),
    Nothing,
}

impl Patterns {
    /// For these strings; empty ones are never found.
    pub fn new(strings: Vec<Bytes>) -> Self {
        let strings: Vec<Bytes> =
            strings.into_iter().map(|string| string.to_ascii_lowercase().into()).collect();
        let lengths = strings.iter().map(Bytes::len).filter(|len| *len > 0);
        let shortest = lengths.min().unwrap_or(0);
        let window = shortest.min(usize::from(u8::MAX));
        let step = |distance: usize| u8::try_from(distance).unwrap_or(u8::MAX);
        let mut steps = Box::new([step(window); 256]);
        for string in strings.iter().filter(|string| !string.is_empty()) {
            for distance in 0..window {
                let byte = usize::from(string[shortest - 1 - distance]);
                steps[byte] = steps[byte].min(step(distance));
            }
        }
        Self { strings: strings.into(), shortest, steps }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.shortest == 0
    }

    /// Searches for the `wanted` strings. `ended`: nothing follows the text.
    fn find(&self, text: &[u8], wanted: &[bool], ended: bool) -> SearchResult {
        if self.shortest == 0 {
            return SearchResult::Nothing;
        }
        let mut last = self.shortest - 1;
        while let Some(byte) = text.get(last) {
            let step = self.steps[usize::from(byte.to_ascii_lowercase())];
            if step > 0 {
                last += usize::from(step);
                continue;
            }
            match self.at(text, last + 1 - self.shortest, wanted, ended) {
                SearchResult::Nothing => last += 1,
                found => return found,
            }
        }
        if ended {
            return SearchResult::Nothing;
        }
        let rest = last + 1 - self.shortest..text.len();
        rest.into_iter()
            .map(|start| self.at(text, start, wanted, false))
            .find(|found| *found != SearchResult::Nothing)
            .unwrap_or(SearchResult::Nothing)
    }

    /// The first of the wanted strings that matches here.
    fn at(&self, text: &[u8], start: usize, wanted: &[bool], ended: bool) -> SearchResult {
        let text = &text[start..];
        for (which, string) in self.strings.iter().enumerate() {
            let len = string.len().min(text.len());
            if len == 0
                || !wanted.get(which).is_some_and(|wanted| *wanted)
                || !text[..len].eq_ignore_ascii_case(&string[..len])
            {
                continue;
            }
            if len == string.len() {
                return SearchResult::Match { start, end: start + len, which };
            }
            if !ended {
                return SearchResult::Perhaps(start);
            }
        }
        SearchResult::Nothing
    }
}

/// State of the replacement in one text.
pub struct Replacer {
    patterns: Arc<Patterns>,
    replacements: Vec<Bytes>,
    /// Strings that are still searched for.
    wanted: Vec<bool>,
    once: bool,
    /// The beginning of a possible match.
    held: Bytes,
    out: VecDeque<Bytes>,
    /// The end of `out`, while small texts are appended to it.
    small: BytesMut,
}

impl Replacer {
    /// Replaces each string by the replacement with the same index; `once`: only its first
    /// occurrence.
    pub fn new(patterns: Arc<Patterns>, replacements: Vec<Bytes>, once: bool) -> Self {
        let wanted = vec![true; patterns.len()];
        let held = Bytes::new();
        let (out, small) = (VecDeque::new(), BytesMut::new());
        Self { patterns, replacements, wanted, once, held, out, small }
    }

    /// Takes a piece; `None`: the text has ended.
    pub fn push(&mut self, piece: Option<Bytes>) {
        let ended = piece.is_none();
        let piece = piece.unwrap_or_default();
        let held = std::mem::take(&mut self.held);
        let mut text =
            if held.is_empty() { piece } else { Bytes::from([&held[..], &piece[..]].concat()) };
        while !text.is_empty() {
            if !self.wanted.contains(&true) {
                return self.write(text);
            }
            match self.patterns.find(&text, &self.wanted, ended) {
                SearchResult::Nothing => return self.write(text),
                SearchResult::Perhaps(start) => {
                    self.write(text.split_to(start));
                    self.held = text;
                    return;
                }
                SearchResult::Match { start, end, which } => {
                    self.write(text.split_to(start));
                    drop(text.split_to(end - start));
                    let replacement = self.replacements.get(which).cloned().unwrap_or_default();
                    self.write(replacement);
                    if self.once {
                        self.wanted[which] = false;
                    }
                }
            }
        }
    }

    /// The next piece of the result.
    pub fn pop(&mut self) -> Option<Bytes> {
        if let Some(text) = self.out.pop_front() {
            return Some(text);
        }
        (!self.small.is_empty()).then(|| self.small.split().freeze())
    }

    fn write(&mut self, text: Bytes) {
        if text.len() <= COPY_BYTES_MAX {
            self.small.extend_from_slice(&text);
            return;
        }
        if !self.small.is_empty() {
            self.out.push_back(self.small.split().freeze());
        }
        self.out.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pairs: &[(&str, &str)], once: bool, text: &str, piece: usize) -> String {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let patterns = Patterns::new(pairs.iter().map(|(string, _)| bytes(string)).collect());
        let replacements = pairs.iter().map(|(_, replacement)| bytes(replacement)).collect();
        let mut replacer = Replacer::new(Arc::new(patterns), replacements, once);
        let mut out = Vec::new();
        let pieces = text.as_bytes().chunks(piece).map(|piece| Some(Bytes::copy_from_slice(piece)));
        for piece in pieces.chain([None]) {
            replacer.push(piece);
            while let Some(text) = replacer.pop() {
                out.extend_from_slice(&text);
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_result() {
        type Case<'a> = (&'a [(&'a str, &'a str)], bool, &'a str, &'a str);
        let cases: &[Case<'_>] = &[
            (&[("aab", "X")], false, "aaab aab aa", "aX X aa"),
            (&[("A", "")], false, "abAaC", "bC"),
            (&[("a", "1"), ("b", "2")], true, "abab", "12ab"),
            (&[("ab", "1"), ("abc", "2")], false, "abc abd", "1c 1d"),
            (&[("abc", "2"), ("ab", "1")], false, "abc abd ab", "2 1d 1"),
            (&[("abcd", "4"), ("bc", "2")], false, "abcabcd", "a24"),
            (&[("abcabd", "6"), ("ca", "2")], false, "abcabc", "ab2bc"),
            (&[("x", "y")], false, "", ""),
            (&[("", "y"), ("b", "c")], false, "ab", "ac"),
            (&[("</body>", "!")], true, "<b></BODY></body>", "<b>!</body>"),
            (&[("aa", "b")], false, "aaaaa", "bba"),
        ];
        for (pairs, once, text, expected) in cases {
            for piece in 1..=text.len().max(1) {
                assert_eq!(replaced(pairs, *once, text, piece), *expected, "{text} by {piece}");
            }
        }
    }

    #[test]
    fn searches_agree_with_a_plain_one() {
        let mut state = 7u32;
        let mut next = |n: u32| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (state >> 16) % n
        };
        for _ in 0..3000 {
            let mut word = |max: u32| -> String {
                (0..1 + next(max)).map(|_| if next(2) == 0 { 'a' } else { 'B' }).collect()
            };
            let strings = [word(4), word(3), word(6)];
            let text = word(24);
            let pairs: Vec<(&str, &str)> =
                strings.iter().map(String::as_str).zip(["1", "2", "3"]).collect();
            let mut expected = String::new();
            let mut rest = text.as_str();
            while let Some(first) = rest.chars().next() {
                let found = pairs.iter().find(|(string, _)| {
                    rest.get(..string.len()).is_some_and(|part| part.eq_ignore_ascii_case(string))
                });
                match found {
                    Some((string, replacement)) => {
                        expected.push_str(replacement);
                        rest = &rest[string.len()..];
                    }
                    None => {
                        expected.push(first);
                        rest = &rest[1..];
                    }
                }
            }
            for piece in [1, 2, 5, 24] {
                let got = replaced(&pairs, false, &text, piece);
                assert_eq!(got, expected, "{pairs:?} in {text} by {piece}");
            }
        }
    }
}
