//! `map`: a variable whose value depends on the value of a text. nginx: `ngx_http_map_module`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

use super::Regex;
use super::blocks::compile_regex;
use super::rewrite::variable_name;
use crate::log::Level;
use crate::request::Request;
use crate::server_name::{Inserted, Names};
use crate::variables::complex::Complex;
use crate::variables::{Compute, Table};

nowait_conf::rows! {
    pub static MAP_ROWS, module "map";

    /// Defines a variable by a table: the value of the first text is looked up there. Keys are
    /// texts in any case, regular expressions (`~`, `~*`) or, after `hostnames`, host names with a
    /// wildcard. `default` gives the value for everything else; with `volatile` the variable is
    /// computed at every use. A backslash before a key takes the special meaning from it.
    block "map" => map, in HTTP, take exactly(2), args "string $variable { ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_max_size" => accepted, in HTTP, take exactly(1), default "2048", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "map_hash_bucket_size" => accepted, in HTTP, take exactly(1), default "64", args "size";
}

/// A table of `map`.
struct Map {
    source: Complex,
    hostnames: bool,
    /// Keys in lower case; the values are numbers of `values`.
    keys: Names<u32, Regex>,
    values: Vec<Complex>,
    default: Complex,
}

fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    super::value::<u32>(node, 0).map(drop)
}

fn map(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [source, name] = &node.args[..] else { return Err(node.arity_error()) };
    let source = super::complex(source, cx)?;
    let variable = variable_name(name)?.to_owned();
    let mut map = Map {
        source,
        hostnames: false,
        keys: Names::new(),
        values: Vec::new(),
        default: Complex::from_literal(""),
    };
    let mut volatile = false;
    let mut default = false;
    for entry in cx.entries(node) {
        match (&entry.name.text[..], &entry.args[..]) {
            (b"hostnames", []) => map.hostnames = true,
            (b"volatile", []) => volatile = true,
            (b"default", [_]) if default => {
                cx.report(entry.error("duplicate default map parameter"));
            }
            (b"default", [value]) => {
                default = true;
                let value = super::complex(value, cx);
                map.default = cx.accept(value).unwrap_or_else(|| Complex::from_literal(""));
            }
            (_, [value]) => {
                let added = map.add(cx, &entry.name, value);
                cx.accept(added);
            }
            _ => cx.report(
                entry.error("invalid number of the map parameters").expected("a key and a value"),
            ),
        }
    }
    cx.global::<Table>()
        .define_computed(&variable, Arc::new(map), volatile)
        .map_err(|error| name.error(error.to_string()))
}

impl Map {
    fn add(&mut self, cx: &mut Cx<'_>, key: &Word, value: &Word) -> Result<(), Diagnostic> {
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(super::complex(value, cx)?);
        if let Some(pattern) = key.text.strip_prefix(b"~") {
            let caseless = pattern.strip_prefix(b"*");
            let regex = compile_regex(cx, key, caseless.unwrap_or(pattern), caseless.is_some())?;
            self.keys.insert_regex(regex, number);
            return Ok(());
        }
        let text = key.text.strip_prefix(b"\\").unwrap_or(&key.text).to_ascii_lowercase();
        let inserted = if self.hostnames {
            self.keys.insert(&text, number)
        } else {
            Ok(self.keys.insert_exact(&text, number))
        };
        let shown = String::from_utf8_lossy(&text);
        match inserted {
            Ok(Inserted::New) => Ok(()),
            Ok(Inserted::Conflict) => Err(key.error(format!("conflicting parameter \"{shown}\""))),
            Err(_) => Err(key.error(format!("invalid hostname or wildcard \"{shown}\""))),
        }
    }
}

impl Compute for Map {
    fn compute(&self, request: &Request) -> Option<Bytes> {
        let text = request.evaluate(&self.source);
        let mut text = &text[..];
        if self.hostnames {
            text = text.strip_suffix(b".").unwrap_or(text);
        }
        let lower = match text.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
        // Expressions see the text as it is.
        let found = self.keys.lookup(&lower, |regex| regex.search_in(request, text));
        let value = match found {
            Ok(number) => number.and_then(|number| self.values.get(*number as usize)),
            Err(error) => {
                request.log(Level::Alert, format_args!("{error}"));
                None
            }
        };
        Some(request.evaluate(value.unwrap_or(&self.default)))
    }
}
