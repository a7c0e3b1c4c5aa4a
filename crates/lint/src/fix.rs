//! Changes to the texts of configurations.
//!
//! Called with the edits of findings; returns texts, and never writes files.

use std::collections::BTreeMap;

use nowait_conf::Span;

/// A range of a file, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub span: Span,
    pub text: Vec<u8>,
}

/// Accepted edits by their ranges, which do not overlap.
type AcceptedEdits<'e> = BTreeMap<(usize, usize), &'e [u8]>;

/// Applies fixes to the text of one file. Each fix consists of edits in this file that belong
/// together, and is applied as a whole or not at all: not if it exceeds the end of the text, or
/// overlaps a different earlier one. Also returns which fixes were applied.
pub fn fix(text: &[u8], fixes: &[&[Edit]]) -> (Vec<u8>, Vec<bool>) {
    let mut accepted = AcceptedEdits::new();
    let mut order: Vec<usize> = (0..fixes.len()).collect();
    order.sort_by_key(|n| fixes[*n].iter().map(|edit| edit.span.start).min());
    let mut applied = vec![false; fixes.len()];
    for index in order {
        applied[index] = accept(&mut accepted, fixes[index], text.len());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for ((start, end), new) in accepted {
        out.extend_from_slice(&text[at..start]);
        out.extend_from_slice(new);
        at = end;
    }
    out.extend_from_slice(&text[at..]);
    (out, applied)
}

/// Adds all edits of a fix, or none.
fn accept<'e>(accepted: &mut AcceptedEdits<'e>, fix: &'e [Edit], length: usize) -> bool {
    let mut added = Vec::new();
    for edit in fix {
        let range = (edit.span.start as usize, edit.span.end as usize);
        if accepted.get(&range).is_some_and(|text| *text == edit.text) {
            continue;
        }
        let is_known = accepted.contains_key(&range);
        let before =
            accepted.range(..range).next_back().is_some_and(|(known, _)| known.1 > range.0);
        let after = accepted.range(range..).next().is_some_and(|(known, _)| known.0 < range.1);
        if is_known || before || after || range.1 < range.0 || range.1 > length {
            for range in added {
                accepted.remove(&range);
            }
            return false;
        }
        accepted.insert(range, &edit.text);
        added.push(range);
    }
    !fix.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: u32, end: u32, text: &str) -> Edit {
        Edit { span: Span { start, end, ..Span::BUILT_IN }, text: text.into() }
    }

    #[test]
    fn edits_are_applied_in_order_and_once() {
        let fixes = [
            vec![edit(4, 5, "E")],
            vec![edit(0, 1, "A")],
            vec![edit(0, 1, "A")],
            vec![edit(2, 5, "over")],
            vec![edit(6, 6, "!")],
            vec![edit(5, 9, "beyond")],
            vec![edit(2, 2, "-")],
        ];
        let fixes: Vec<&[Edit]> = fixes.iter().map(Vec::as_slice).collect();
        let (text, applied) = fix(b"abcdef", &fixes);
        assert_eq!(text, b"Ab-overf!");
        assert_eq!(applied, [false, true, true, true, true, false, true]);
    }

    #[test]
    fn a_fix_is_applied_as_a_whole() {
        let fixes = [
            vec![edit(0, 2, "X")],
            // Its second edit overlaps the first fix.
            vec![edit(4, 5, "Y"), edit(1, 3, "")],
            vec![edit(4, 5, "Z")],
            // Edits of one fix that overlap each other.
            vec![edit(5, 6, ""), edit(5, 5, "a"), edit(5, 5, "b")],
            vec![],
        ];
        let fixes: Vec<&[Edit]> = fixes.iter().map(Vec::as_slice).collect();
        let (text, applied) = fix(b"abcdef", &fixes);
        assert_eq!(text, b"XcdZf");
        assert_eq!(applied, [true, false, true, false, false]);
    }
}
