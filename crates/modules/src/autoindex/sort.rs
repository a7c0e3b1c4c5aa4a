//! The order of a listing: what a client may choose, and how names compare.
//!
//! Pure functions; used by [`super::listing`] and [`super::page`].

use std::cmp::Ordering;

use super::listing::{Entry, Kind};

/// The columns of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Key {
    /// The name.
    #[default]
    Name,
    /// The size in bytes.
    Size,
    /// The time of the last modification.
    Date,
}

/// An order of a page: `?sort=KEY&order=asc` or `desc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sorting {
    /// The column.
    pub key: Key,
    /// From the largest to the smallest.
    pub descending: bool,
}

impl Key {
    /// All columns, from left to right.
    pub const ALL: [Key; 3] = [Key::Name, Key::Size, Key::Date];

    /// The value of the argument `sort`.
    pub fn name(self) -> &'static str {
        match self {
            Key::Name => "name",
            Key::Size => "size",
            Key::Date => "date",
        }
    }

    /// The first order of a column: names from A to Z, the largest and the newest first.
    fn descends(self) -> bool {
        self != Key::Name
    }
}

impl Sorting {
    /// The order requested by the arguments `sort` and `order`. Unknown values count as missing.
    pub fn of(sort: Option<&[u8]>, order: Option<&[u8]>) -> Sorting {
        let key = Key::ALL.into_iter().find(|key| sort == Some(key.name().as_bytes()));
        let key = key.unwrap_or_default();
        let descending = match order {
            Some(b"asc") => false,
            Some(b"desc") => true,
            _ => key.descends(),
        };
        Sorting { key, descending }
    }

    /// The order after a click on a column heading; on the current column, the reverse order.
    pub fn after(self, key: Key) -> Sorting {
        let descending = if key == self.key { !self.descending } else { key.descends() };
        Sorting { key, descending }
    }

    /// Directories first; equal entries by name.
    pub fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let directed = |order: Ordering| if self.descending { order.reverse() } else { order };
        let by_key = match self.key {
            Key::Name => directed(natural(&a.name, &b.name)),
            // The size of a directory is unrelated to its contents.
            Key::Size if a.kind == Kind::Directory => Ordering::Equal,
            Key::Size => directed(a.size.cmp(&b.size)),
            Key::Date => directed(a.mtime.cmp(&b.mtime)),
        };
        directories_first(a, b).then(by_key).then_with(|| natural(&a.name, &b.name))
    }
}

/// Directories before everything else.
pub fn directories_first(a: &Entry, b: &Entry) -> Ordering {
    let is_other = |entry: &Entry| entry.kind != Kind::Directory;
    is_other(a).cmp(&is_other(b))
}

/// Numbers by their value, letters without regard to their case, so that `a9` precedes `A10`. Equal
/// only for equal names.
pub fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let ([x, ..], [y, ..]) = (left, right) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((m, after_m), (n, after_n)) = (number(left), number(right));
            (left, right) = (after_m, after_n);
            m.len().cmp(&n.len()).then_with(|| m.cmp(n))
        } else {
            let order = x.to_ascii_lowercase().cmp(&y.to_ascii_lowercase());
            (left, right) = (&left[1..], &right[1..]);
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The digits at the beginning without leading zeros, and what follows them.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|&&b| b == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind, size: u64, mtime: i64) -> Entry {
        Entry { name: name.into(), kind, size, mtime }
    }

    #[test]
    fn names_are_in_natural_order() {
        let sorted = [
            "", "1", "01", "2", "10", "a", "a1", "a1b", "a2", "A10", "a10b", "a010c", "B", "b.txt",
            "\u{e4}",
        ];
        for (n, left) in sorted.iter().enumerate() {
            for (m, right) in sorted.iter().enumerate() {
                let expected = match (left, right) {
                    // The same number: by bytes.
                    (&"1", &"01") => Ordering::Greater,
                    (&"01", &"1") => Ordering::Less,
                    _ => n.cmp(&m),
                };
                assert_eq!(natural(left.as_bytes(), right.as_bytes()), expected, "{left} {right}");
            }
        }
        let long = ["9".repeat(400), "1".to_owned() + &"0".repeat(400)];
        assert_eq!(natural(long[0].as_bytes(), long[1].as_bytes()), Ordering::Less);
    }

    #[test]
    fn clients_choose_among_known_orders() {
        let of = |sort: &str, order: &str| {
            let sorting = Sorting::of(Some(sort.as_bytes()), Some(order.as_bytes()));
            format!("{} {}", sorting.key.name(), sorting.descending)
        };
        assert_eq!(of("size", "asc"), "size false");
        assert_eq!(of("size", ""), "size true");
        assert_eq!(of("date", "ASC"), "date true");
        assert_eq!(of("\"><script>", "desc"), "name true");
        assert_eq!(Sorting::of(None, None), Sorting::default());
        let sorting = Sorting::default().after(Key::Name);
        assert!(sorting.descending && sorting.key == Key::Name);
        assert!(sorting.after(Key::Size).descending && !sorting.after(Key::Name).descending);
    }

    #[test]
    fn directories_come_first_in_every_order() {
        let entries = [
            entry("b", Kind::Directory, 9, 1),
            entry("a", Kind::Directory, 8, 2),
            entry("x2", Kind::File, 5, 3),
            entry("x10", Kind::File, 5, 9),
            entry("y", Kind::Other, 0, 5),
        ];
        let sorted = |key, descending| {
            let mut entries = entries.clone();
            entries.sort_by(|a, b| Sorting { key, descending }.compare(a, b));
            let names = entries.map(|entry| String::from_utf8(entry.name).unwrap());
            names.join(" ")
        };
        assert_eq!(sorted(Key::Name, false), "a b x2 x10 y");
        assert_eq!(sorted(Key::Name, true), "b a y x10 x2");
        assert_eq!(sorted(Key::Size, false), "a b y x2 x10");
        assert_eq!(sorted(Key::Size, true), "a b x2 x10 y");
        assert_eq!(sorted(Key::Date, true), "a b x10 y x2");
    }
}
