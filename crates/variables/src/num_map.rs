//! `num_map`: a variable whose value depends on a number. NGINX Plus: `ngx_http_num_map_module`.
//!
//! Of the keys that contain a number, a single number counts before ranges, then the first in the configuration.
//! When the block was read, they become ranges that do not overlap, so that a look-up is one binary search.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

use crate::{
    Complex, Compute, Index, Namespace, Subject, Table, assigned_urls, text, variable_name,
};

/// A table of `num_map`.
struct NumMap<N> {
    source: Complex<N>,
    /// Sorted by their first numbers, without overlaps.
    ranges: Box<[Segment]>,
    values: Vec<Complex<N>>,
    default: Complex<N>,
}

/// The numbers from `first` to `last` have the value with this position.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Segment {
    first: u64,
    last: u64,
    value: usize,
}

/// Both ends included.
type Range = (u64, u64);

/// Reads a `num_map` block and defines its variable.
///
/// # Errors
/// An invalid argument; errors in its lines go to `cx`.
pub fn num_map<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [source, name] = &node.args[..] else { return Err(node.arity_error()) };
    if !source.text.contains(&b'$') {
        variable_name(source)?;
    }
    let source = text(source, cx)?;
    let variable = variable_name(name)?.to_owned();
    let mut keys: Vec<Range> = Vec::new();
    let mut seen: HashSet<Range> = HashSet::new();
    let mut values = Vec::new();
    let mut default = None;
    let mut volatile = false;
    cx.each_entry(node, |cx, entry| match (&entry.name.text[..], &entry.args[..]) {
        (b"volatile", []) => volatile = true,
        (b"default", [_]) if default.is_some() => {
            cx.report(entry.error("duplicate default num_map parameter"));
        }
        (is_default, [value]) => {
            assigned_urls::note(cx, &variable, value);
            let compiled = text(value, cx);
            let compiled = cx.accept(compiled).unwrap_or_else(|| Complex::from_literal(""));
            if is_default == b"default" {
                default = Some(compiled);
                return;
            }
            let Some(range) = cx.accept(key(&entry.name)) else { return };
            if !seen.insert(range) {
                cx.report(
                    entry.name.error(format!("conflicting parameter \"{}\"", entry.name)).hint(
                        "another line has the same numbers, and only one value can be theirs",
                    ),
                );
                return;
            }
            keys.push(range);
            values.push(compiled);
        }
        _ => cx.report(
            entry
                .error("invalid number of the num_map parameters")
                .expected("a number or a range, and a value"),
        ),
    });
    let map = NumMap::<N> {
        source,
        ranges: segments(&keys).into(),
        values,
        default: default.unwrap_or_else(|| Complex::from_literal("")),
    };
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(map), volatile)
        .map_err(|error| name.error(error.to_string()))
}

/// Reads a key: `80`, `8080-8090`, `<80`, `<=80`, `>80` or `>=80`.
fn key(word: &Word) -> Result<Range, Diagnostic> {
    let invalid = || {
        word.error(format!("invalid number or range \"{word}\""))
            .expected("a number, such as 80; a range: 8080-8090; or a limit: <80, <=80, >80, >=80")
    };
    let text = &word.text[..];
    let parse = |text: &[u8]| number(text).ok_or_else(invalid);
    let range = match text {
        [b'<', b'=', limit @ ..] => Some((0, parse(limit)?)),
        [b'<', limit @ ..] => parse(limit)?.checked_sub(1).map(|last| (0, last)),
        [b'>', b'=', limit @ ..] => Some((parse(limit)?, u64::MAX)),
        [b'>', limit @ ..] => parse(limit)?.checked_add(1).map(|first| (first, u64::MAX)),
        _ => match text.iter().position(|&byte| byte == b'-') {
            Some(at) => Some((parse(&text[..at])?, parse(&text[at + 1..])?)),
            None => Some((parse(text)?, parse(text)?)),
        },
    };
    range.filter(|(first, last)| first <= last).ok_or_else(|| {
        word.error(format!("invalid range \"{word}\"")).hint("it contains no number")
    })
}

/// Decimal digits only.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The ranges without overlaps: at each number, the key that counts.
fn segments(keys: &[Range]) -> Vec<Segment> {
    // Where a key begins or has ended; `None`: after all numbers.
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(keys.len() * 2);
    for (at, &(first, last)) in keys.iter().enumerate() {
        changes.push((first, true, at));
        if let Some(after) = last.checked_add(1) {
            changes.push((after, false, at));
        }
    }
    changes.sort_unstable();
    let mut open = BTreeSet::new();
    let mut segments: Vec<Segment> = Vec::new();
    let mut changes = changes.into_iter().peekable();
    while let Some((first, begins, at)) = changes.next() {
        let rank = (keys[at].0 != keys[at].1, at);
        if begins {
            open.insert(rank);
        } else {
            open.remove(&rank);
        }
        let next = changes.peek().map(|next| next.0);
        let Some(&(_, value)) = open.first() else { continue };
        let last = match next {
            // More changes at this number.
            Some(next) if next == first => continue,
            Some(next) => next - 1,
            None => u64::MAX,
        };
        match segments.last_mut() {
            Some(before) if before.value == value && before.last + 1 == first => before.last = last,
            _ => segments.push(Segment { first, last, value }),
        }
    }
    segments
}

fn find(segments: &[Segment], number: u64) -> Option<usize> {
    let after = segments.partition_point(|segment| segment.first <= number);
    let segment = &segments[after.checked_sub(1)?];
    (number <= segment.last).then_some(segment.value)
}

impl<N: Namespace<Subject = S>, S: Subject<Namespace = N>> Compute<S> for NumMap<N> {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        self.source.each_variable(add);
        self.default.each_variable(add);
        for value in &self.values {
            value.each_variable(add);
        }
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let number = number(&subject.evaluate(&self.source));
        let value = number.and_then(|number| find(&self.ranges, number));
        let value = value.and_then(|value| self.values.get(value)).unwrap_or(&self.default);
        Some(subject.evaluate(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let read = |text: &'static str| key(&Word::built_in(text)).ok();
        assert_eq!(read("80"), Some((80, 80)));
        assert_eq!(read("007"), Some((7, 7)));
        assert_eq!(read("8080-8090"), Some((8080, 8090)));
        assert_eq!(read("<=5"), Some((0, 5)));
        assert_eq!(read("<5"), Some((0, 4)));
        assert_eq!(read(">5"), Some((6, u64::MAX)));
        assert_eq!(read(">=5"), Some((5, u64::MAX)));
        assert_eq!(read("18446744073709551615"), Some((u64::MAX, u64::MAX)));
        let wrong = ["", "-", "5-", "-5", "9-8", "<", "<=", "<0", ">", "=5", "5.5", "0x5", "1-2-3"];
        for text in
            wrong.into_iter().chain(["18446744073709551616", ">18446744073709551615", "+5", " 5"])
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// Every number of a small space, against the rule.
    #[test]
    fn the_first_key_counts_and_single_numbers_before_ranges() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let keys: Vec<Range> = (0..random(7))
                .map(|_| match random(4) {
                    0 => (random(20), u64::MAX),
                    1 => (0, random(20)),
                    2 => (3, 3),
                    _ => {
                        let first = random(20);
                        (first, first + random(9))
                    }
                })
                .collect();
            let segments = segments(&keys);
            for number in (0..40).chain([u64::MAX]) {
                let holds =
                    |&(_, &(first, last)): &(usize, &Range)| first <= number && number <= last;
                let holding = || keys.iter().enumerate().filter(holds);
                let single = holding().find(|(_, (first, last))| first == last);
                let expected = single.or_else(|| holding().next()).map(|(at, _)| at);
                assert_eq!(find(&segments, number), expected, "{number} {keys:?}");
            }
        }
    }
}
