//! Positions of lines in a text, marked every kilobyte or so.
//!
//! A text may be one line of megabytes with a finding in every word. From the nearest mark, a line and a
//! column are found in constant time. Made by [`Sources`](crate::Sources) on first use.

use std::ops::Range;

/// Bytes between two marks; a character or more.
const STEP: usize = 1024;

/// The counts before a place in a text, at the start of a character.
#[derive(Debug)]
struct Mark {
    offset: usize,
    /// Characters before it.
    characters: usize,
    /// Start of the line that it is in.
    line: usize,
}

/// The marks of a text.
#[derive(Debug)]
pub(crate) struct Marks(Vec<Mark>);

impl Marks {
    pub(crate) fn of(text: &[u8]) -> Marks {
        let mut marks = vec![Mark { offset: 0, characters: 0, line: 0 }];
        let (mut offset, mut characters, mut line, mut next) = (0, 0, 0, STEP);
        let mut advance = |length: usize, ends_line: bool| {
            if offset >= next {
                marks.push(Mark { offset, characters, line });
                next = offset + STEP;
            }
            offset += length;
            characters += 1;
            if ends_line {
                line = offset;
            }
        };
        for chunk in text.utf8_chunks() {
            chunk.valid().chars().for_each(|letter| advance(letter.len_utf8(), letter == '\n'));
            if !chunk.invalid().is_empty() {
                // The sequence is shown as one character.
                advance(chunk.invalid().len(), false);
            }
        }
        Marks(marks)
    }

    /// The line around `offset`, without the LF.
    pub(crate) fn line(&self, text: &[u8], offset: usize) -> Range<usize> {
        let mark = self.before(offset);
        let start = text[mark.offset..offset].iter().rposition(|&b| b == b'\n');
        let start = start.map_or(mark.line, |at| mark.offset + at + 1);
        // The first mark in another line, and the one before it: the line ends between them.
        let behind = self.0.partition_point(|mark| mark.line <= offset);
        let from = self.0.get(behind.saturating_sub(1)).map_or(0, |mark| mark.offset).max(offset);
        let end = text[from..].iter().position(|&b| b == b'\n');
        start..end.map_or(text.len(), |at| from + at)
    }

    /// The characters between the start of the line around `offset` and `offset`.
    pub(crate) fn characters(&self, text: &[u8], offset: usize) -> usize {
        let line = self.line(text, offset).start;
        self.characters_before(text, offset) - self.characters_before(text, line)
    }

    fn characters_before(&self, text: &[u8], offset: usize) -> usize {
        let mark = self.before(offset);
        mark.characters + String::from_utf8_lossy(&text[mark.offset..offset]).chars().count()
    }

    /// The last mark that is not behind `offset`.
    fn before(&self, offset: usize) -> &Mark {
        let behind = self.0.partition_point(|mark| mark.offset <= offset);
        &self.0[behind - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every place of a text with the result of a scan of the whole text.
    fn check(text: &[u8]) {
        let marks = Marks::of(text);
        for offset in 0..=text.len() {
            let start = text[..offset].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            let end = text[offset..].iter().position(|&b| b == b'\n');
            let end = end.map_or(text.len(), |at| offset + at);
            assert_eq!(marks.line(text, offset), start..end, "{offset}");
            let characters = String::from_utf8_lossy(&text[start..offset]).chars().count();
            assert_eq!(marks.characters(text, offset), characters, "{offset}");
        }
    }

    #[test]
    fn every_place_of_a_text() {
        check(b"");
        check(b"\n\na\n");
        check("ab\u{e4}\u{20ac}\u{1f600} \n".repeat(700).as_bytes());
        check("\u{20ac}".repeat(1500).as_bytes());
        let mut odd = Vec::new();
        for n in 0..1500 {
            odd.extend_from_slice(if n % 3 == 0 { b"\xe2\x82" } else { b"\xff\xc3" });
            if n % 701 == 700 {
                odd.push(b'\n');
            }
        }
        check(&odd);
        let mut lines = vec![b'x'; 1023];
        lines.extend_from_slice(b"\n\n");
        lines.extend_from_slice(&[b'y'; 3000]);
        check(&lines);
    }

    /// Locates 43,000 places, which would take minutes if each were counted from the start of the line.
    #[test]
    fn one_line_of_megabytes() {
        let text = vec![b'x'; 4 << 20];
        let marks = Marks::of(&text);
        for offset in (0..text.len()).step_by(97) {
            assert_eq!(marks.characters(&text, offset), offset);
        }
    }
}
