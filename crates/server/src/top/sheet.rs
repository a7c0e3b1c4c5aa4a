//! A table of a report: what a tab of the screen shows, or a part of the text.
//!
//! Pure data. Cells are texts with a number to sort by; nothing here knows what they mean.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// Widest cell in the text, in characters; a longer one is the last of its row, or is cut.
const WIDTH_MAX: usize = 60;

/// How a cell is to be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SheetCell {
    pub text: String,
    /// What it is sorted by; without it, by its text.
    pub number: Option<f64>,
    pub tone: Tone,
}

impl SheetCell {
    /// A text. Control characters, which could steer a terminal, are replaced.
    pub fn text(text: impl Into<String>) -> SheetCell {
        SheetCell { text: printable(&text.into()), ..SheetCell::default() }
    }

    /// A number; `None` is shown as a dash, and sorted last.
    pub fn number(value: Option<f64>, show: fn(f64) -> String) -> SheetCell {
        let value = value.filter(|value| value.is_finite());
        let text = value.map_or_else(|| "-".to_owned(), show);
        SheetCell { text, number: Some(value.unwrap_or(-1.0)), tone: Tone::Plain }
    }

    /// The same cell with this tone.
    pub fn toned(self, tone: Tone) -> SheetCell {
        SheetCell { tone, ..self }
    }
}

/// A text without control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A row: its cells, and a key that stays the same from one report to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SheetRow {
    pub key: String,
    pub cells: Vec<SheetCell>,
    /// What a sparkline shows of it.
    pub trend: Option<f64>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// The name of its tab.
    pub title: &'static str,
    /// Titles, and whether the column holds numbers.
    pub columns: Vec<(&'static str, bool)>,
    pub rows: Vec<SheetRow>,
    /// What a sparkline shows.
    pub trend: &'static str,
    /// What is said without rows.
    pub empty: &'static str,
}

impl Sheet {
    /// Sorts the rows by a column: numbers from the largest, texts from A, or the other way round.
    pub fn sort(&mut self, column: usize, is_reversed: bool) {
        let compare = |a: &SheetRow, b: &SheetRow| {
            let (Some(a), Some(b)) = (a.cells.get(column), b.cells.get(column)) else {
                return Ordering::Equal;
            };
            match (a.number, b.number) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                _ => a.text.cmp(&b.text),
            }
        };
        self.rows.sort_by(|a, b| if is_reversed { compare(b, a) } else { compare(a, b) });
    }

    /// The width of each column, in characters.
    pub fn widths(&self) -> Vec<usize> {
        let title = |(title, _): &(&str, bool)| title.chars().count();
        let mut widths: Vec<usize> = self.columns.iter().map(title).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }

    /// As lines of text: a title, then the rows; numbers are right-aligned.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if self.rows.is_empty() {
            let _ = writeln!(text, "  {}", self.empty);
            return text;
        }
        let widths: Vec<usize> =
            self.widths().into_iter().map(|width| width.min(WIDTH_MAX)).collect();
        let heads = self.columns.iter().map(|(title, _)| *title);
        self.line(&mut text, &widths, heads);
        for row in &self.rows {
            self.line(&mut text, &widths, row.cells.iter().map(|cell| &*cell.text));
        }
        text
    }

    fn line<'t>(&self, out: &mut String, widths: &[usize], cells: impl Iterator<Item = &'t str>) {
        let mut line = String::new();
        let last = widths.len().saturating_sub(1);
        for (at, (cell, (width, (_, is_number)))) in
            cells.zip(widths.iter().zip(&self.columns)).enumerate()
        {
            let cell =
                if at == last { cell.to_owned() } else { cell.chars().take(*width).collect() };
            // Writing to a string cannot fail.
            let _ = match is_number {
                true => write!(line, "  {cell:>width$}"),
                false => write!(line, "  {cell:<width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let row = |name: &str, number: Option<f64>| SheetRow {
            key: name.to_owned(),
            cells: vec![SheetCell::text(name), SheetCell::number(number, |n| n.to_string())],
            trend: None,
        };
        Sheet {
            title: "Things",
            columns: vec![("Name", false), ("Count", true)],
            rows: vec![row("b", Some(2.0)), row("a", Some(10.0)), row("c", None)],
            trend: "",
            empty: "none",
        }
    }

    fn keys(sheet: &Sheet) -> Vec<&str> {
        sheet.rows.iter().map(|row| &*row.key).collect()
    }

    #[test]
    fn rows_are_sorted() {
        let mut sheet = sheet();
        sheet.sort(1, false);
        assert_eq!(keys(&sheet), ["a", "b", "c"]);
        sheet.sort(1, true);
        assert_eq!(keys(&sheet), ["c", "b", "a"]);
        sheet.sort(0, true);
        assert_eq!(keys(&sheet), ["c", "b", "a"]);
        sheet.sort(9, false);
        assert_eq!(keys(&sheet), ["c", "b", "a"]);
    }

    #[test]
    fn text_is_aligned() {
        assert_eq!(
            sheet().text(),
            "Things\n  Name  Count\n  b         2\n  a        10\n  c         -\n"
        );
        let empty = Sheet { rows: Vec::new(), ..sheet() };
        assert_eq!(empty.text(), "Things\n  none\n");
    }

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(SheetCell::text("a\u{1b}[2Jb\nc").text, "a\u{fffd}[2Jb\u{fffd}c");
    }
}
