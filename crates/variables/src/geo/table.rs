//! The tables of `geo`: networks by longest prefix, and ranges of IPv4 addresses.
//!
//! Lists have up to millions of entries with few different values. So an entry is its address and the number
//! of its value, eight bytes for IPv4, and each value is kept once.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::cidr::Cidr;

/// The number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueId(u32);

/// The values of a block, each once.
#[derive(Default)]
pub(super) struct Values {
    list: Vec<Bytes>,
    numbers: FxHashMap<Bytes, ValueId>,
}

impl Values {
    /// The number of a value.
    pub fn number(&mut self, text: &[u8]) -> ValueId {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let id = ValueId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let text = Bytes::copy_from_slice(text);
        self.list.push(text.clone());
        self.numbers.insert(text, id);
        id
    }

    /// The value of a number.
    pub fn get(&self, id: ValueId) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        self.list.get(id.0 as usize).unwrap_or(&NONE)
    }

    /// No further value is added.
    pub fn finish(&mut self) {
        self.numbers = FxHashMap::default();
        self.list.shrink_to_fit();
    }
}

/// Networks and their values. A look-up costs one probe for each length of prefix that occurs.
#[derive(Default)]
pub(super) struct Networks {
    v4: Prefixes<u32>,
    v6: Prefixes<u128>,
}

impl Networks {
    /// Adds a network, or replaces its value and returns the old one.
    pub fn insert(&mut self, network: Cidr, value: ValueId) -> Option<ValueId> {
        match network {
            Cidr::V4 { address, mask } => self.v4.insert(address, mask, value),
            Cidr::V6 { address, mask } => self.v6.insert(address, mask, value),
        }
    }

    /// No further network is added.
    pub fn finish(&mut self) {
        self.v4.finish();
        self.v6.finish();
    }

    /// Removes a network; false if it does not exist.
    pub fn remove(&mut self, network: Cidr) -> bool {
        match network {
            Cidr::V4 { address, mask } => self.v4.remove(address, mask),
            Cidr::V6 { address, mask } => self.v6.remove(address, mask),
        }
    }

    /// The value of the smallest network with this address.
    pub fn find(&self, address: IpAddr) -> Option<ValueId> {
        match address {
            IpAddr::V4(ip) => self.v4.find(ip.into()),
            IpAddr::V6(ip) => self.v6.find(ip.into()),
        }
    }
}

/// One table per length of prefix, the longest first.
struct Prefixes<A>(Vec<(A, FxHashMap<A, ValueId>)>);

impl<A> Default for Prefixes<A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<A: Copy + Ord + Hash + std::ops::BitAnd<Output = A>> Prefixes<A> {
    fn insert(&mut self, address: A, mask: A, value: ValueId) -> Option<ValueId> {
        let at = match self.0.binary_search_by(|(known, _)| mask.cmp(known)) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (mask, FxHashMap::default()));
                at
            }
        };
        self.0[at].1.insert(address, value)
    }

    fn remove(&mut self, address: A, mask: A) -> bool {
        let length = self.0.iter_mut().find(|(known, _)| *known == mask);
        length.is_some_and(|(_, networks)| networks.remove(&address).is_some())
    }

    fn find(&self, address: A) -> Option<ValueId> {
        self.0.iter().find_map(|(mask, networks)| networks.get(&(address & *mask)).copied())
    }

    /// Gives back the room of entries that do not come.
    fn finish(&mut self) {
        self.0.iter_mut().for_each(|(_, networks)| networks.shrink_to_fit());
    }
}

/// Ranges of IPv4 addresses. As in nginx, each /16 network has its own list, and overlaps are
/// checked there: that determines which configurations are accepted.
#[derive(Default)]
pub(super) struct Ranges(FxHashMap<u16, Vec<Range>>);

/// A range within a /16 network.
#[derive(Clone, Copy)]
struct Range {
    start: u16,
    end: u16,
    value: ValueId,
}

/// The result of [`Ranges::insert`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RangeInsert {
    New,
    /// The range existed, with this value.
    Replaced(ValueId),
    /// The range overlaps this one without being inside it.
    Overlaps(Ipv4Addr, Ipv4Addr),
}

impl Ranges {
    /// Adds a range. A range inside another one replaces that part of it.
    pub fn insert(&mut self, start: u32, end: u32, value: ValueId) -> RangeInsert {
        let mut added = RangeInsert::New;
        for (network, start, end) in parts(start, end) {
            let ranges = self.0.entry(network).or_default();
            let new = Range { start, end, value };
            let at = ranges.partition_point(|range| range.end < start);
            let old = match ranges.get(at) {
                Some(old) if old.start <= end => *old,
                _ => {
                    ranges.insert(at, new);
                    continue;
                }
            };
            if old.start == start && old.end == end {
                ranges[at] = new;
                added = RangeInsert::Replaced(old.value);
            } else if old.start <= start && end <= old.end {
                let before = (old.start < start).then(|| Range { end: start - 1, ..old });
                let after = (end < old.end).then(|| Range { start: end + 1, ..old });
                ranges.splice(at..=at, before.into_iter().chain([new]).chain(after));
            } else {
                let whole = |low: u16| Ipv4Addr::from(u32::from(network) << 16 | u32::from(low));
                return RangeInsert::Overlaps(whole(old.start), whole(old.end));
            }
        }
        added
    }

    /// Removes a range; false if a part of it does not exist.
    pub fn remove(&mut self, start: u32, end: u32) -> bool {
        let mut all = true;
        for (network, start, end) in parts(start, end) {
            let ranges = self.0.entry(network).or_default();
            match ranges.iter().position(|range| range.start == start && range.end == end) {
                Some(at) => drop(ranges.remove(at)),
                None => all = false,
            }
        }
        all
    }

    /// The value of the range with this address.
    pub fn find(&self, address: u32) -> Option<ValueId> {
        let (network, low) = split(address);
        let ranges = self.0.get(&network)?;
        let range = ranges.get(ranges.partition_point(|range| range.end < low))?;
        (range.start <= low).then_some(range.value)
    }
}

fn split(address: u32) -> (u16, u16) {
    let [a, b, c, d] = address.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The parts of a range in each /16 network.
fn parts(start: u32, end: u32) -> impl Iterator<Item = (u16, u16, u16)> {
    let (first, low) = split(start);
    let (last, high) = split(end);
    (first..=last).map(move |network| {
        let start = if network == first { low } else { 0 };
        let end = if network == last { high } else { u16::MAX };
        (network, start, end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> u32 {
        text.parse::<Ipv4Addr>().expect("an address").into()
    }

    fn value(values: &mut Values, text: &str) -> ValueId {
        values.number(text.as_bytes())
    }

    fn text(values: &Values, id: ValueId) -> String {
        String::from_utf8_lossy(values.get(id)).into_owned()
    }

    #[test]
    fn the_longest_prefix_decides() {
        let mut networks = Networks::default();
        let mut values = Values::default();
        let mut add = |network: &str, text| {
            let (network, _) = Cidr::parse(network.as_bytes()).expect("a network");
            networks.insert(network, value(&mut values, text))
        };
        assert_eq!(add("192.0.2.0/24", "net"), None);
        assert_eq!(add("192.0.2.7", "one"), None);
        assert_eq!(add("0.0.0.0/0", "all"), None);
        assert_eq!(add("2001:db8::/32", "six"), None);
        let old = add("192.0.2.0/24", "new");
        assert_eq!(old.map(|old| text(&values, old)).as_deref(), Some("net"));
        values.finish();
        networks.finish();
        let find = |address: &str| {
            let found = networks.find(address.parse().expect("an address"));
            found.map(|value| text(&values, value))
        };
        assert_eq!(find("192.0.2.7").as_deref(), Some("one"));
        assert_eq!(find("192.0.2.8").as_deref(), Some("new"));
        assert_eq!(find("198.51.100.1").as_deref(), Some("all"));
        assert_eq!(find("2001:db8::1").as_deref(), Some("six"));
        assert_eq!(find("2001:db9::1"), None);
    }

    #[test]
    fn a_range_takes_its_part_of_the_one_around_it() {
        let mut ranges = Ranges::default();
        let mut values = Values::default();
        let middle = value(&mut values, "middle");
        let mut add = |start: &str, end: &str, text| {
            ranges.insert(ip(start), ip(end), value(&mut values, text))
        };
        assert_eq!(add("10.0.0.0", "10.2.0.255", "outer"), RangeInsert::New);
        assert_eq!(add("10.0.0.0", "10.0.0.9", "first"), RangeInsert::New);
        assert_eq!(add("10.0.0.20", "10.0.0.29", "middle"), RangeInsert::New);
        assert_eq!(add("10.2.0.250", "10.2.0.255", "last"), RangeInsert::New);
        assert_eq!(add("10.0.0.20", "10.0.0.29", "again"), RangeInsert::Replaced(middle));
        let overlaps = add("10.0.0.25", "10.0.0.35", "x");
        let (start, end) = (Ipv4Addr::new(10, 0, 0, 20), Ipv4Addr::new(10, 0, 0, 29));
        assert_eq!(overlaps, RangeInsert::Overlaps(start, end));
        let find = |address: &str| ranges.find(ip(address)).map(|value| text(&values, value));
        for (address, expected) in [
            ("9.255.255.255", None),
            ("10.0.0.9", Some("first")),
            ("10.0.0.10", Some("outer")),
            ("10.0.0.29", Some("again")),
            ("10.0.0.30", Some("outer")),
            ("10.1.5.5", Some("outer")),
            ("10.2.0.249", Some("outer")),
            ("10.2.0.255", Some("last")),
            ("10.2.1.0", None),
        ] {
            assert_eq!(find(address).as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn only_what_is_there_is_removed() {
        let mut ranges = Ranges::default();
        ranges.insert(ip("10.0.0.0"), ip("10.1.0.0"), value(&mut Values::default(), "a"));
        assert!(!ranges.remove(ip("10.0.0.0"), ip("10.0.0.1")));
        assert!(ranges.remove(ip("10.0.0.0"), ip("10.1.0.0")));
        assert_eq!(ranges.find(ip("10.0.5.0")), None);
        assert!(!ranges.remove(ip("10.0.0.0"), ip("10.1.0.0")));
    }
}
