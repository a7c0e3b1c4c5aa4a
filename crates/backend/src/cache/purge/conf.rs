//! `cache_purge`: the requests that purge. Read by the table of [`cache::conf`](crate::cache::conf).
//!
//! NGINX Plus has conditions. The third-party module `ngx_cache_purge` has two other forms: methods
//! with addresses, and locations of their own ([`super::location`]). Those begin with plain words, for
//! which conditions have no use; so the first argument tells the forms apart.

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_front::access::{AccessVerdict, AddressMatch, Rule, by_address};
use nowait_http::module::set_content;
use nowait_http::request::Request;

use super::location::Location;
use crate::cache::conf::{CacheZone, Texts, Zone};

/// The requests that purge.
#[derive(Clone, Debug, Default)]
pub enum Purge {
    /// None here. A separate location purges by its content.
    #[default]
    Never,
    /// Those for which one of the texts is neither empty nor `0`.
    If(Texts),
    /// Those with a method.
    Method(ByMethod),
}

/// A method that purges.
#[derive(Clone, Debug)]
pub struct ByMethod {
    method: Bytes,
    /// All objects are purged, regardless of the request's key.
    all: bool,
    /// The clients that may use it; all clients if empty.
    from: Box<[Rule]>,
}

/// The purge requested by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A purge of its key, tags or prefix, by a condition.
    Condition,
    /// The same by its method.
    Method,
    /// A purge of all objects, by its method.
    All,
    /// A purge that its client may not have.
    Refused,
}

impl Purge {
    /// Whether a request is one to purge, and in which way.
    pub(in crate::cache) fn asked(&self, request: &Request) -> Option<Asked> {
        match self {
            Self::Never => None,
            Self::If(texts) => texts.any(request).then_some(Asked::Condition),
            Self::Method(ByMethod { method, .. }) if request.method_name() != method => None,
            Self::Method(ByMethod { all, from, .. }) => Some(match all {
                _ if !from.is_empty()
                    && by_address(from, request.peer()) != AccessVerdict::Allowed =>
                {
                    Asked::Refused
                }
                true => Asked::All,
                false => Asked::Method,
            }),
        }
    }
}

impl Setting for Purge {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (first, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
        let plain = nowait_http::conf::complex(first, cx)?.literal().cloned();
        match (plain.as_deref(), rest) {
            // Never, or always.
            (None | Some(b"" | b"0" | b"1"), _) => Texts::parse(node, cx).map(Self::If),
            (Some(b"off"), []) => Ok(Self::Never),
            (Some(_), [key]) if key.text != b"purge_all" => {
                location(node, first, key, cx)?;
                Ok(Self::Never)
            }
            (Some(name), _) => {
                let method = if name == b"on" { b"PURGE" } else { name };
                // As nginx reads methods.
                if !method.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b'-')) {
                    let expected = "texts with variables, \"on\", \"off\", a method in capitals, or a \
                                    zone and a key";
                    return Err(node.parameter_error(first).expected(expected));
                }
                by_method(node, Bytes::copy_from_slice(method), rest, cx).map(Self::Method)
            }
        }
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        if let Self::If(texts) = self
            && let Self::If(more) = Self::parse(node, cx)?
        {
            texts.0.extend(more.0);
            return Ok(());
        }
        cx.once(node)
    }
}

/// `on|METHOD [purge_all] [from ADDRESS ...]`
fn by_method(
    node: &Node,
    method: Bytes,
    rest: &[Word],
    cx: &mut Cx<'_>,
) -> Result<ByMethod, Diagnostic> {
    let (all, rest) = match rest {
        [word, rest @ ..] if word.text == b"purge_all" => (true, rest),
        rest => (false, rest),
    };
    let addresses = match rest {
        [] => rest,
        [word, addresses @ ..] if word.text == b"from" && !addresses.is_empty() => addresses,
        [word, ..] => {
            let expected = "\"from\" with addresses, networks or \"all\"";
            return Err(node.parameter_error(word).expected(expected));
        }
    };
    let rule =
        |word| Ok(Rule { allow: true, who: AddressMatch::read(cx, node, word)?, span: node.span });
    let from = addresses.iter().map(rule).collect::<Result<_, Diagnostic>>()?;
    Ok(ByMethod { method, all, from })
}

/// `ZONE KEY`: makes the location one that purges.
fn location(node: &Node, zone: &Word, key: &Word, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
    let name = node.name.to_string();
    if cx.context() != Context::LOCATION {
        let error = format!("\"{name}\" with a zone and a key is allowed in locations only");
        let hint = format!(
            "write \"location ~ ^/purge(/.*) {{ allow 127.0.0.1; deny all; {name} {zone} {key}; }}\", \
             or a method that purges: \"{name} PURGE from 127.0.0.1;\""
        );
        return Err(Diagnostic::emerg(error).at(node.name.span).hint(hint));
    }
    let (zone, key) = (
        CacheZone::Named(zone.text.clone().into(), zone.span),
        nowait_http::conf::complex(key, cx)?,
    );
    let cache = name.trim_end_matches("_purge").to_owned();
    set_content(cx, node, move |cx, _, _| {
        let cache = match zone.clone().resolve(cx, &cache) {
            Some(Zone::Fixed(at)) => Some(at),
            Some(Zone::Named(_)) | None => None,
        };
        Location { cache, key: key.clone() }
    });
    Ok(())
}
