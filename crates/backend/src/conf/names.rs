//! Sets of field names: hidden response fields, replaced request fields.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_message::Known;

/// A header name as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(pub Box<[u8]>);

impl Setting for HeaderName {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text.as_slice().into()))
    }
}

/// A set of case-insensitive header names. Names known to the parser cost one bit test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSet {
    /// One bit for each name. Two halves, since shifting all 128 bits at once is expensive.
    known: [u64; 2],
    others: Vec<Box<[u8]>>,
}

impl NameSet {
    /// The hidden header fields: the default and the given ones, except those that are passed.
    pub fn hidden(default: &[&str], hide: &[HeaderName], pass: &[HeaderName]) -> Self {
        let passed: NameSet = pass.iter().map(|name| &*name.0).collect();
        let default = default.iter().map(|name| name.as_bytes());
        default
            .chain(hide.iter().map(|name| &*name.0))
            .filter(|name| !passed.contains(name, Known::from_bytes(name)))
            .collect()
    }

    /// Adds a name.
    pub fn insert(&mut self, name: &[u8]) {
        match Known::from_bytes(name) {
            Some(known) => self.known[known as usize / 64 % 2] |= 1 << (known as u32 % 64),
            None if self.others.iter().any(|other| other.eq_ignore_ascii_case(name)) => {}
            None => self.others.push(name.into()),
        }
    }

    /// Whether a name is in the set; `known` is its number, if it has one.
    #[inline]
    pub fn contains(&self, name: &[u8], known: Option<Known>) -> bool {
        match known {
            Some(known) => self.known[known as usize / 64 % 2] & 1 << (known as u32 % 64) != 0,
            None => self.others.iter().any(|other| other.eq_ignore_ascii_case(name)),
        }
    }
}

impl<'a> FromIterator<&'a [u8]> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> Self {
        let mut set = Self::default();
        names.into_iter().for_each(|name| set.insert(name));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_fields_are_not_hidden() {
        let name = |text: &str| HeaderName(text.as_bytes().into());
        let set =
            NameSet::hidden(&["Date", "X-Pad"], &[name("x-own"), name("ETag")], &[name("DATE")]);
        let has = |text: &str| set.contains(text.as_bytes(), Known::from_bytes(text.as_bytes()));
        assert!(has("x-pad") && has("X-Own") && has("etag"));
        assert!(!has("Date") && !has("Server") && !has("X-Owner"));
    }
}
