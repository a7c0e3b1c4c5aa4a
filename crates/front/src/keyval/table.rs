//! The pairs of a zone, in the memory that its size allows; for all workers.
//!
//! Looking a key up takes a lock for some look-ups of a hash table: one for strings, one per length of a prefix
//! otherwise. Time is an argument: milliseconds since 1970, since pairs with a time outlive the process in a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use nowait_variables::cidr::Cidr;
use serde_json::{Map, Value, json};

/// What a pair takes besides its key and value, in bytes.
const FIXED_BYTES: u64 = 128;

/// Pairs that are removed at a time when theirs is over: others wait for the lock.
const EXPIRED_MAX: usize = 256;

/// The longest key, in bytes: prefixes of each length are looked up one by one.
pub const KEY_BYTES_MAX: usize = 4096;

/// How the key of a pair matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// The whole text.
    Exact,
    /// An address within the network; the smallest network counts.
    Network,
    /// A text that begins with it; the longest one counts.
    Prefix,
}

/// The pairs.
pub struct Pairs {
    kind: Match,
    table: RwLock<KeyTable>,
}

#[derive(Default)]
struct KeyTable {
    by_key: HashMap<Arc<str>, Pair>,
    /// The keys of networks.
    networks: HashMap<Network, Arc<str>>,
    /// The lengths of prefixes, or of networks (those of IPv6 are 128 larger), with the number of keys.
    lengths: BTreeMap<usize, usize>,
    /// Keys by the time at which they are removed.
    ends: BTreeSet<(u64, Arc<str>)>,
    bytes: u64,
    bytes_max: u64,
    was_loaded: bool,
}

struct Pair {
    /// A text.
    value: Bytes,
    /// When it is removed.
    ends_ms: Option<u64>,
}

impl Pair {
    fn is_alive(&self, now_ms: u64) -> bool {
        self.ends_ms.is_none_or(|end| end > now_ms)
    }
}

/// A network: whether it is of IPv6, the length of its prefix, its bits.
type Network = (bool, u8, u128);

/// The reason why a pair was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The key is no address, no network, or too long.
    Format,
    /// There is such a key.
    Exists,
    /// There is no such key.
    NotFound,
    /// The zone has no room.
    Full,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "invalid key format",
            Self::Exists => "key already exists",
            Self::NotFound => "keyval key not found",
            Self::Full => "keyval zone has no room",
        })
    }
}

impl std::error::Error for PairError {}

/// The network of a text. A network of addresses that stand for IPv4 is one of IPv4.
fn network(key: &[u8]) -> Option<Network> {
    Some(match Cidr::parse(key)?.0 {
        Cidr::V4 { address, mask } => (false, mask.count_ones() as u8, address.into()),
        Cidr::V6 { address, mask } if mask.count_ones() >= 96 && address >> 32 == 0xffff => {
            (false, mask.count_ones() as u8 - 96, address & u128::from(u32::MAX))
        }
        Cidr::V6 { address, mask } => (true, mask.count_ones() as u8, address),
    })
}

/// The place of a network's length among all lengths.
fn place((is_v6, length, _): Network) -> usize {
    usize::from(length) + if is_v6 { 128 } else { 0 }
}

impl KeyTable {
    fn of_size(bytes: u64) -> Self {
        Self { bytes_max: bytes, ..Self::default() }
    }

    fn find(&self, kind: Match, key: &[u8], now_ms: u64) -> Option<&Pair> {
        let alive = |key: &str| self.by_key.get(key).filter(|pair| pair.is_alive(now_ms));
        match kind {
            Match::Exact => alive(std::str::from_utf8(key).ok()?),
            Match::Prefix => {
                let lengths = self.lengths.range(..=key.len()).rev();
                lengths
                    .filter_map(|(length, _)| std::str::from_utf8(&key[..*length]).ok())
                    .find_map(alive)
            }
            Match::Network => {
                let address = address(key)?;
                let (is_v6, width, bits) = match address {
                    IpAddr::V4(ip) => (false, 32, u128::from(u32::from(ip))),
                    IpAddr::V6(ip) => (true, 128, u128::from(ip)),
                };
                let base = if is_v6 { 128 } else { 0 };
                let lengths = self.lengths.range(base..=base + width).rev();
                // A network of IPv4 is never as long as the first one of IPv6.
                lengths
                    .filter(|(place, _)| is_v6 || **place <= 32)
                    .filter_map(|(place, _)| {
                        let length = place - base;
                        let rest = width - length;
                        let masked = match rest {
                            128 => 0,
                            rest => bits >> rest << rest,
                        };
                        self.networks.get(&(is_v6, length as u8, masked))
                    })
                    .find_map(|key| alive(key))
            }
        }
    }

    fn charge(key: &str, value: &[u8]) -> u64 {
        FIXED_BYTES + json_bytes(key.as_bytes()) + json_bytes(value)
    }

    fn add(
        &mut self,
        kind: Match,
        key: &str,
        value: &str,
        ends_ms: Option<u64>,
    ) -> Result<(), PairError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(PairError::Format);
        }
        let net = match kind {
            Match::Network => Some(network(key.as_bytes()).ok_or(PairError::Format)?),
            Match::Exact | Match::Prefix => None,
        };
        if self.by_key.contains_key(key) || net.is_some_and(|net| self.networks.contains_key(&net))
        {
            return Err(PairError::Exists);
        }
        let charge = Self::charge(key, value.as_bytes());
        if self.bytes + charge > self.bytes_max {
            return Err(PairError::Full);
        }
        self.bytes += charge;
        let key: Arc<str> = key.into();
        if let Some(net) = net {
            self.networks.insert(net, key.clone());
            *self.lengths.entry(place(net)).or_default() += 1;
        }
        if kind == Match::Prefix {
            *self.lengths.entry(key.len()).or_default() += 1;
        }
        if let Some(end) = ends_ms {
            self.ends.insert((end, key.clone()));
        }
        self.by_key.insert(key, Pair { value: Bytes::copy_from_slice(value.as_bytes()), ends_ms });
        Ok(())
    }

    /// Sets the value of a key, or its end, or both.
    fn change(
        &mut self,
        key: &str,
        value: Option<&str>,
        ends_ms: Option<u64>,
    ) -> Result<(), PairError> {
        let (name, _) = self.by_key.get_key_value(key).ok_or(PairError::NotFound)?;
        let name = name.clone();
        let pair = self.by_key.get_mut(key).ok_or(PairError::NotFound)?;
        if let Some(value) = value {
            let value = Bytes::copy_from_slice(value.as_bytes());
            let (old, new) = (Self::charge(key, &pair.value), Self::charge(key, &value));
            let bytes = self.bytes - old + new;
            // The zone may be smaller than before a reload.
            if new > old && bytes > self.bytes_max {
                return Err(PairError::Full);
            }
            (self.bytes, pair.value) = (bytes, value);
        }
        if let Some(end) = ends_ms {
            if let Some(old) = pair.ends_ms.replace(end) {
                self.ends.remove(&(old, name.clone()));
            }
            self.ends.insert((end, name));
        }
        Ok(())
    }

    fn remove(&mut self, kind: Match, key: &str) -> Result<(), PairError> {
        let (key, pair) = self.by_key.remove_entry(key).ok_or(PairError::NotFound)?;
        self.bytes -= Self::charge(&key, &pair.value);
        if let Some(end) = pair.ends_ms {
            self.ends.remove(&(end, key.clone()));
        }
        let length = match kind {
            Match::Exact => return Ok(()),
            Match::Prefix => key.len(),
            Match::Network => {
                let net = network(key.as_bytes()).expect("keys of this kind are networks");
                self.networks.remove(&net);
                place(net)
            }
        };
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
        Ok(())
    }

    /// Removes pairs whose time is over, some at a time. Whether none is left.
    fn expire(&mut self, kind: Match, now_ms: u64) -> bool {
        for _ in 0..EXPIRED_MAX {
            match self.ends.first().cloned() {
                Some((end, key)) if end <= now_ms => {
                    self.ends.pop_first();
                    let _ = self.remove(kind, &key);
                }
                _ => return true,
            }
        }
        false
    }
}

/// An address: as text, or as the 4 or 16 bytes of `$binary_remote_addr`. An IPv4 client of an IPv6 socket counts
/// as IPv4, or a network of IPv4 would not block it.
fn address(key: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(key).ok();
    let address: IpAddr = match text.and_then(|text| text.parse().ok()) {
        Some(address) => address,
        None if key.len() == 4 => <[u8; 4]>::try_from(key).ok()?.into(),
        None => <[u8; 16]>::try_from(key).ok()?.into(),
    };
    Some(address.to_canonical())
}

/// The bytes that a text takes in JSON, without quotes: the state file is no larger than the zone.
fn json_bytes(text: &[u8]) -> u64 {
    let bytes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.iter().map(|byte| bytes(*byte)).sum()
}

impl Pairs {
    /// No pairs, and no room.
    pub(super) fn new(kind: Match) -> Pairs {
        Pairs { kind, table: RwLock::default() }
    }

    /// Sets the size in bytes. Pairs that have no room any more stay until they are removed.
    pub(super) fn set_size(&self, bytes: u64) {
        self.write().bytes_max = bytes;
    }

    /// Adds the pairs of a state file, unless there are newer ones. The text is checked in any case: the next start
    /// has to read it.
    pub(super) fn load(&self, text: &[u8], now_ms: u64) -> Result<(), String> {
        let mut read = KeyTable { was_loaded: true, ..KeyTable::of_size(self.usage().1) };
        let pairs: Map<String, Value> = match text {
            b"" => Map::new(),
            text => serde_json::from_slice(text).map_err(|error| error.to_string())?,
        };
        for (key, value) in pairs {
            let (value, end) = match &value {
                Value::String(text) => (Some(&text[..]), None),
                Value::Object(members) => (
                    members.get("value").and_then(Value::as_str),
                    members.get("ends_ms").and_then(Value::as_u64),
                ),
                _ => (None, None),
            };
            let value = value.ok_or_else(|| format!("key \"{key}\" has no value"))?;
            if end.is_none_or(|end| end > now_ms) {
                let added = read.add(self.kind, &key, value, end);
                added.map_err(|error| format!("{error}: \"{key}\""))?;
            }
        }
        let mut table = self.write();
        if !table.was_loaded && table.by_key.is_empty() {
            *table = read;
        }
        table.was_loaded = true;
        Ok(())
    }

    /// The text of the state file.
    pub fn state_text(&self, now_ms: u64) -> Vec<u8> {
        let pairs = self.alive(now_ms).into_iter().map(|(key, value, end)| {
            let value = String::from_utf8_lossy(&value);
            let value = match end {
                Some(end) => json!({ "value": value, "ends_ms": end }),
                None => json!(value),
            };
            (key.to_string(), value)
        });
        let mut text = Value::Object(pairs.collect()).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// The value for a text.
    pub fn find(&self, text: &[u8], now_ms: u64) -> Option<Bytes> {
        self.read().find(self.kind, text, now_ms).map(|pair| pair.value.clone())
    }

    /// The value of exactly this key.
    pub fn get(&self, key: &str, now_ms: u64) -> Option<Bytes> {
        let table = self.read();
        let pair = table.by_key.get(key).filter(|pair| pair.is_alive(now_ms));
        pair.map(|pair| pair.value.clone())
    }

    /// All keys with their values.
    pub fn all(&self, now_ms: u64) -> Vec<(Arc<str>, Bytes)> {
        self.alive(now_ms).into_iter().map(|(key, value, _)| (key, value)).collect()
    }

    /// All pairs with their ends. Long work on many pairs is done without the lock, which requests need.
    fn alive(&self, now_ms: u64) -> Vec<(Arc<str>, Bytes, Option<u64>)> {
        let table = self.read();
        let alive = table.by_key.iter().filter(|(_, pair)| pair.is_alive(now_ms));
        alive.map(|(key, pair)| (key.clone(), pair.value.clone(), pair.ends_ms)).collect()
    }

    /// Adds pairs: all of them, or none. False: there are others already, and these are several.
    ///
    /// # Errors
    /// The reason why one of them can't be added.
    pub fn add(
        &self,
        pairs: &[(String, String, Option<u64>)],
        now_ms: u64,
    ) -> Result<bool, PairError> {
        if let [(key, value, end)] = pairs {
            let mut table = self.write_alive(now_ms);
            return table.add(self.kind, key, value, *end).map(|()| true);
        }
        let mut new = KeyTable { was_loaded: true, ..KeyTable::of_size(self.usage().1) };
        for (key, value, end) in pairs {
            new.add(self.kind, key, value, *end)?;
        }
        let mut table = self.write_alive(now_ms);
        let is_empty = table.by_key.is_empty();
        if is_empty {
            new.bytes_max = table.bytes_max;
            *table = new;
        }
        Ok(is_empty)
    }

    /// Changes the value of a key, or its end, or both.
    ///
    /// # Errors
    /// The reason why it is as before.
    pub fn change(
        &self,
        key: &str,
        value: Option<&str>,
        ends_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), PairError> {
        let mut table = self.write_alive(now_ms);
        table.change(key, value, ends_ms)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// There is no such key.
    pub fn remove(&self, key: &str, now_ms: u64) -> Result<(), PairError> {
        let mut table = self.write_alive(now_ms);
        table.remove(self.kind, key)
    }

    /// Removes all keys.
    pub fn clear(&self) {
        let mut table = self.write();
        let empty = KeyTable { was_loaded: true, ..KeyTable::of_size(table.bytes_max) };
        let old = std::mem::replace(&mut *table, empty);
        drop(table);
        // Without the lock.
        drop(old);
    }

    /// Bytes in use, and the size.
    pub fn usage(&self) -> (u64, u64) {
        let table = self.read();
        (table.bytes, table.bytes_max)
    }

    // The table is valid after every statement that may panic: none does.
    fn read(&self) -> RwLockReadGuard<'_, KeyTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KeyTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table without pairs whose time is over. Long if these are many, but without holding the lock for long.
    fn write_alive(&self, now_ms: u64) -> RwLockWriteGuard<'_, KeyTable> {
        loop {
            let mut table = self.write();
            if table.expire(self.kind, now_ms) {
                return table;
            }
        }
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairs").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(kind: Match, keys: &[&str]) -> Pairs {
        let pairs = Pairs::new(kind);
        pairs.set_size(4096);
        for key in keys {
            assert_eq!(add(&pairs, key, key), Ok(true));
        }
        pairs
    }

    fn add(pairs: &Pairs, key: &str, value: &str) -> Result<bool, PairError> {
        pairs.add(&[(key.into(), value.into(), None)], 0)
    }

    fn found(pairs: &Pairs, text: &[u8]) -> Option<String> {
        pairs.find(text, 0).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn texts_match_as_a_whole() {
        let pairs = pairs(Match::Exact, &["", "a", "ab"]);
        assert_eq!(found(&pairs, b"a").as_deref(), Some("a"));
        assert_eq!(found(&pairs, b"").as_deref(), Some(""));
        assert_eq!(found(&pairs, b"abc"), None);
        assert_eq!(found(&pairs, b"\xff"), None);
    }

    #[test]
    fn the_longest_prefix_counts() {
        let pairs = pairs(Match::Prefix, &["/a", "/a/b", "/c/"]);
        for (text, key) in [
            ("/a/b/c", Some("/a/b")),
            ("/a/c", Some("/a")),
            ("/c", None),
            ("/c/d", Some("/c/")),
            ("", None),
        ] {
            assert_eq!(found(&pairs, text.as_bytes()).as_deref(), key, "{text}");
        }
        assert_eq!(found(&pairs, "/c/\u{e9}".as_bytes()).as_deref(), Some("/c/"));
        pairs.remove("/a/b", 0).unwrap();
        assert_eq!(found(&pairs, b"/a/b/c").as_deref(), Some("/a"));
    }

    #[test]
    fn the_smallest_network_counts() {
        let keys = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "::1"];
        let pairs = pairs(Match::Network, &keys);
        for (text, key) in [
            ("10.1.2.3", Some("10.1.2.3")),
            ("10.1.2.4", Some("10.1.0.0/16")),
            ("10.2.0.1", Some("10.0.0.0/8")),
            ("11.0.0.1", None),
            ("2001:db8::7", Some("2001:db8::/32")),
            ("2001:db9::7", None),
            ("::1", Some("::1")),
            ("a", None),
        ] {
            assert_eq!(found(&pairs, text.as_bytes()).as_deref(), key, "{text}");
        }
        assert_eq!(found(&pairs, &[10, 1, 2, 3]).as_deref(), Some("10.1.2.3"));
        // An IPv4 client of an IPv6 socket.
        assert_eq!(found(&pairs, b"::ffff:10.1.2.4").as_deref(), Some("10.1.0.0/16"));
        let mapped = "::ffff:10.1.2.3".parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(found(&pairs, &mapped.octets()).as_deref(), Some("10.1.2.3"));
        add(&pairs, "::ffff:10.3.0.0/112", "mapped").unwrap();
        assert_eq!(found(&pairs, b"10.3.0.1").as_deref(), Some("mapped"));
        assert_eq!(add(&pairs, "10.1.2.3/32", ""), Err(PairError::Exists));
        assert_eq!(add(&pairs, "10.1.2.300", ""), Err(PairError::Format));
        for all in ["0.0.0.0/0", "::/0"] {
            add(&pairs, all, "all").unwrap();
        }
        assert_eq!(found(&pairs, b"11.0.0.1").as_deref(), Some("all"));
        assert_eq!(found(&pairs, b"ff::1").as_deref(), Some("all"));
    }

    #[test]
    fn a_zone_holds_what_its_size_allows() {
        let pairs = pairs(Match::Exact, &[]);
        let value = "x".repeat(1000);
        let added = (0..9).take_while(|n| add(&pairs, &format!("k{n}"), &value).is_ok()).count();
        assert_eq!(added, 3);
        assert_eq!(pairs.change("k0", Some(&value.repeat(2)), None, 0), Err(PairError::Full));
        assert_eq!(found(&pairs, b"k0"), Some(value));
        pairs.remove("k0", 0).unwrap();
        assert_eq!(add(&pairs, "k8", "y"), Ok(true));
        pairs.clear();
        assert_eq!(pairs.usage(), (0, 4096));
        // The state file has room for what is escaped there.
        assert_eq!(add(&pairs, "k", &"\u{1}".repeat(1000)), Err(PairError::Full));
    }

    #[test]
    fn a_smaller_zone_loses_nothing() {
        let pairs = pairs(Match::Exact, &["a", "b"]);
        pairs.set_size(1);
        assert_eq!(pairs.change("a", Some("aa"), None, 0), Err(PairError::Full));
        assert_eq!(found(&pairs, b"a").as_deref(), Some("a"));
        assert_eq!(pairs.change("a", Some("c"), None, 0), Ok(()));
        assert_eq!(found(&pairs, b"a").as_deref(), Some("c"));
    }

    #[test]
    fn several_are_added_to_an_empty_zone_only() {
        let pairs = pairs(Match::Exact, &[]);
        let two = [("a".into(), "1".into(), None), ("b".into(), "2".into(), None)];
        assert_eq!(pairs.add(&two, 0), Ok(true));
        assert_eq!(pairs.add(&two, 0), Ok(false));
        pairs.clear();
        let same = [two[0].clone(), two[0].clone()];
        assert_eq!(pairs.add(&same, 0), Err(PairError::Exists));
        assert_eq!(pairs.all(0), []);
    }

    #[test]
    fn pairs_end() {
        let pairs = pairs(Match::Prefix, &[]);
        pairs.add(&[("a".into(), "1".into(), Some(100))], 0).unwrap();
        assert!(pairs.find(b"ab", 99).is_some());
        assert!(pairs.find(b"ab", 100).is_none());
        // A new end, and the value of before.
        pairs.change("a", None, Some(300), 99).unwrap();
        assert_eq!(pairs.find(b"a", 299).as_deref(), Some(&b"1"[..]));
        assert_eq!(pairs.get("a", 300), None);
        assert_eq!(pairs.change("a", Some("2"), None, 300), Err(PairError::NotFound));
        assert_eq!(pairs.usage().0, 0);
    }

    #[test]
    fn all_that_have_ended_make_room() {
        let pairs = pairs(Match::Exact, &[]);
        pairs.set_size(1 << 20);
        let many: Vec<_> =
            (0..3 * EXPIRED_MAX + 1).map(|n| (n.to_string(), "x".to_owned(), Some(100))).collect();
        assert_eq!(pairs.add(&many, 0), Ok(true));
        assert_eq!(pairs.remove("none", 100), Err(PairError::NotFound));
        assert_eq!(pairs.usage().0, 0);
    }

    #[test]
    fn a_state_file_holds_the_pairs() {
        let pairs = pairs(Match::Exact, &["a\"\n"]);
        pairs.add(&[("b".into(), "2".into(), Some(100))], 0).unwrap();
        let text = pairs.state_text(50);
        let read = Pairs::new(Match::Exact);
        read.set_size(4096);
        read.load(&text, 50).unwrap();
        assert_eq!(found(&read, b"a\"\n").as_deref(), Some("a\"\n"));
        assert_eq!((read.find(b"b", 99).is_some(), read.find(b"b", 100).is_some()), (true, false));
        // Only the first one counts.
        read.load(b"{\"c\":\"3\"}", 50).unwrap();
        assert_eq!(found(&read, b"c"), None);
        // But all are checked: the next start reads it.
        assert!(read.load(b"{", 50).is_err());
        for wrong in ["[]", "{", "{\"a\":1}", "{\"a\":{}}"] {
            let pairs = Pairs::new(Match::Exact);
            pairs.set_size(4096);
            assert!(pairs.load(wrong.as_bytes(), 0).is_err(), "{wrong}");
        }
    }
}
