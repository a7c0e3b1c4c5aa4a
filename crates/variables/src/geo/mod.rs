//! `geo`: a variable whose value depends on the client's address. nginx: `ngx_http_geo_module`.

mod table;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

use crate::cidr::Cidr;
use crate::{Compute, Index, Mentions, Namespace, Subject, Table, variable_name};
use table::{Networks, RangeInsert, Ranges, ValueId, Values};

/// Represents clients without an IP address; matches only if it is listed.
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::BROADCAST;

struct Geo {
    /// The text with the address; `None`: the client's address.
    address: Option<Index>,
    proxies: Vec<Cidr>,
    recursive: bool,
    values: Values,
    entries: Entries,
}

enum Entries {
    Networks(Networks),
    Ranges { ranges: Ranges, default: Option<ValueId> },
}

/// The state of the block being read.
#[derive(Default)]
struct GeoBlock {
    proxies: Vec<Cidr>,
    recursive: bool,
    volatile: bool,
    values: Values,
    networks: Networks,
    /// Whether `networks` has an entry.
    begun: bool,
    ranges: Option<Ranges>,
    default: Option<ValueId>,
}

/// Reads a `geo` block and defines its variable.
///
/// # Errors
/// An invalid argument; errors in its lines go to `cx`.
pub fn geo<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (source, name) = match &node.args[..] {
        [name] => (None, name),
        [source, name] => (Some(source), name),
        _ => return Err(node.arity_error()),
    };
    let address = match source {
        None => None,
        Some(word) => {
            let source = variable_name(word)?.to_owned();
            cx.global::<Mentions<N>>().note(source.as_bytes(), word.span);
            Some(cx.global::<Table<N>>().index(&source))
        }
    };
    let variable = variable_name(name)?.to_owned();
    let mut block = GeoBlock::default();
    cx.each_entry(node, |cx, entry| {
        let done = match &entry.name.text[..] {
            b"proxy" | b"proxy_recursive" if !N::Subject::HAS_PROXIES => Err(entry
                .error(format!("\"{}\" is not allowed here", entry.name))
                .hint("only in HTTP can proxies state the client's address")),
            _ => block.entry(cx, entry),
        };
        cx.accept(done);
    });
    let GeoBlock {
        proxies, recursive, volatile, mut values, mut networks, ranges, default, ..
    } = block;
    values.finish();
    networks.finish();
    let entries = match ranges {
        Some(ranges) => Entries::Ranges { ranges, default },
        None => Entries::Networks(networks),
    };
    let geo = Geo { address, proxies, recursive, values, entries };
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(geo), volatile)
        .map_err(|error| name.error(error.to_string()))
}

impl GeoBlock {
    fn entry(&mut self, cx: &mut Cx<'_>, entry: &Node) -> Result<(), Diagnostic> {
        let value = match (&entry.name.text[..], &entry.args[..]) {
            (b"ranges", []) if self.begun => {
                return Err(entry.error(
                    "the \"ranges\" directive must be the first directive inside \"geo\" block",
                ));
            }
            (b"ranges", []) => {
                self.ranges.get_or_insert_default();
                return Ok(());
            }
            (b"proxy_recursive", []) => {
                self.recursive = true;
                return Ok(());
            }
            (b"volatile", []) => {
                self.volatile = true;
                return Ok(());
            }
            (b"proxy", [network]) => {
                self.proxies.push(parse_network(cx, network)?);
                return Ok(());
            }
            (_, [value]) => value,
            _ => {
                return Err(entry
                    .error("invalid number of the geo parameters")
                    .expected("a network and a value"));
            }
        };
        let name = &entry.name;
        match self.ranges.take() {
            Some(mut ranges) => {
                let done = self.range(cx, &mut ranges, name, value);
                self.ranges = Some(ranges);
                done
            }
            None => self.network(cx, name, value),
        }
    }

    fn network(&mut self, cx: &mut Cx<'_>, name: &Word, value: &Word) -> Result<(), Diagnostic> {
        self.begun = true;
        let everything: &[Cidr] = match &name.text[..] {
            b"delete" => {
                let network = parse_network(cx, value)?;
                if !self.networks.remove(network) {
                    let text = format!("no network \"{value}\" to delete");
                    cx.report(Diagnostic::warn(text).at(value.span));
                }
                return Ok(());
            }
            b"default" => &[Cidr::V4 { address: 0, mask: 0 }, Cidr::V6 { address: 0, mask: 0 }],
            _ => &[parse_network(cx, name)?],
        };
        let number = self.values.number(&value.text);
        for network in everything {
            if let Some(old) = self.networks.insert(*network, number) {
                let old = String::from_utf8_lossy(self.values.get(old));
                let text = format!(
                    "duplicate network \"{name}\", value: \"{value}\", old value: \"{old}\""
                );
                cx.report(Diagnostic::warn(text).at(name.span));
            }
        }
        Ok(())
    }

    fn range(
        &mut self,
        cx: &mut Cx<'_>,
        ranges: &mut Ranges,
        name: &Word,
        value: &Word,
    ) -> Result<(), Diagnostic> {
        match &name.text[..] {
            b"default" => {
                if let Some(old) = self.default {
                    let old = String::from_utf8_lossy(self.values.get(old));
                    let text = format!(
                        "duplicate default geo range value: \"{value}\", old value: \"{old}\""
                    );
                    cx.report(Diagnostic::warn(text).at(name.span));
                }
                self.default = Some(self.values.number(&value.text));
            }
            b"delete" => {
                let (start, end) = parse_range(value)?;
                if !ranges.remove(start, end) {
                    let text = format!("no address range \"{value}\" to delete");
                    cx.report(Diagnostic::warn(text).at(value.span));
                }
            }
            _ => {
                let (start, end) = parse_range(name)?;
                match ranges.insert(start, end, self.values.number(&value.text)) {
                    RangeInsert::New => {}
                    RangeInsert::Replaced(old) => {
                        let old = String::from_utf8_lossy(self.values.get(old));
                        let text = format!(
                            "duplicate range \"{name}\", value: \"{value}\", old value: \"{old}\""
                        );
                        cx.report(Diagnostic::warn(text).at(name.span));
                    }
                    RangeInsert::Overlaps(start, end) => {
                        return Err(
                            name.error(format!("range \"{name}\" overlaps \"{start}-{end}\""))
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

fn parse_network(cx: &mut Cx<'_>, word: &Word) -> Result<Cidr, Diagnostic> {
    let Some((network, surplus)) = Cidr::parse(&word.text) else {
        return Err(word
            .error(format!("invalid network \"{word}\""))
            .expected("an address or a network such as 192.0.2.0/24"));
    };
    if surplus {
        let text = format!("low address bits of {word} are meaningless");
        cx.report(Diagnostic::warn(text).at(word.span));
    }
    Ok(network)
}

/// A range of IPv4 addresses, both ends included.
fn parse_range(word: &Word) -> Result<(u32, u32), Diagnostic> {
    let ends = || {
        let (start, end) = std::str::from_utf8(&word.text).ok()?.split_once('-')?;
        let start: Ipv4Addr = start.parse().ok()?;
        let end: Ipv4Addr = end.parse().ok()?;
        (start <= end).then(|| (start.into(), end.into()))
    };
    ends().ok_or_else(|| {
        word.error(format!("invalid range \"{word}\""))
            .expected("two IPv4 addresses such as 192.0.2.0-192.0.2.255")
    })
}

impl Geo {
    /// The address to look for; `None` when there is no IP address.
    fn address<S: Subject>(&self, subject: &S) -> Option<IpAddr> {
        let address = match self.address {
            None => subject.peer_ip()?,
            Some(variable) => {
                let mut text = Vec::new();
                subject.variables().append(variable, subject, &mut text);
                let text = std::str::from_utf8(&text).ok()?;
                let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
                bare.unwrap_or(text).parse().ok()?
            }
        };
        if self.proxies.is_empty() {
            return Some(address);
        }
        Some(subject.forwarded(address, &self.proxies, self.recursive))
    }
}

impl<S: Subject> Compute<S> for Geo {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        self.address.into_iter().for_each(add);
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let address = self.address(subject).map(|ip| ip.to_canonical());
        let address = address.unwrap_or(IpAddr::V4(NO_ADDRESS));
        let found = match &self.entries {
            Entries::Networks(networks) => networks.find(address),
            Entries::Ranges { ranges, default } => {
                let ip = match address {
                    IpAddr::V4(ip) => ip,
                    IpAddr::V6(_) => NO_ADDRESS,
                };
                ranges.find(ip.into()).or(*default)
            }
        };
        Some(found.map(|value| self.values.get(value).clone()).unwrap_or_default())
    }
}
