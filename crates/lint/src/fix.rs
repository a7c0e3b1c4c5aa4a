//! Changes to the texts of configurations.
//!
//! Called with the edits of findings; returns texts, and writes nothing.

use nowait_conf::Span;

/// A range of a file, and what is to be written there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub span: Span,
    pub text: Vec<u8>,
}

/// Applies edits of one file to its text. Of edits that overlap, the first in the text is applied, and
/// the others are left for another run; so is an edit beyond the end of the text.
pub fn fix(text: &[u8], edits: &[&Edit]) -> Vec<u8> {
    let mut edits: Vec<&Edit> = edits.to_vec();
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    edits.dedup_by(|one, two| {
        (one.span.start, one.span.end, &one.text) == (two.span.start, two.span.end, &two.text)
    });
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        let (start, end) = (edit.span.start as usize, edit.span.end as usize);
        if start < at || end < start || end > text.len() {
            continue;
        }
        out.extend_from_slice(&text[at..start]);
        out.extend_from_slice(&edit.text);
        at = end;
    }
    out.extend_from_slice(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_in_order_and_once() {
        let edit = |start, end, text: &str| Edit {
            span: Span { start, end, ..Span::BUILT_IN },
            text: text.into(),
        };
        let edits = [
            edit(4, 5, "E"),
            edit(0, 1, "A"),
            edit(0, 1, "A"),
            edit(2, 5, "over"),
            edit(6, 6, "!"),
            edit(5, 9, "beyond"),
        ];
        let edits: Vec<&Edit> = edits.iter().collect();
        assert_eq!(fix(b"abcdef", &edits), b"Aboverf!");
    }
}
