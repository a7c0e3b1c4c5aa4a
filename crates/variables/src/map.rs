//! `map`: a variable whose value depends on the value of a text. nginx: `ngx_http_map_module`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

use crate::names::{InsertResult, Names};
use crate::{
    Complex, Compute, Index, Namespace, Regex, Subject, Table, assigned_urls, interned, text,
    variable_name,
};

/// A table of `map`.
struct Map<N> {
    source: Complex<N>,
    hostnames: bool,
    /// Keys in lower case; the values are numbers of `values`.
    keys: Names<u32, Regex>,
    values: Vec<Value<N>>,
    /// Those of the values that have no text of their own.
    packed: Vec<u8>,
    default: Complex<N>,
}

/// The value of a key. Most have no variables.
enum Value<N> {
    /// Costs nothing to send.
    Literal(Box<Bytes>),
    /// In a large table: a part of its text, which is copied when it is sent.
    Packed {
        start: u32,
        length: u32,
    },
    Text(Box<Complex<N>>),
}

/// Values beyond this number are packed.
const LITERALS_MAX: usize = 1024;

/// Reads a `map` block and defines its variable.
///
/// # Errors
/// An invalid argument; errors in its lines go to `cx`.
pub fn map<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [source, name] = &node.args[..] else { return Err(node.arity_error()) };
    let source = text(source, cx)?;
    let variable = variable_name(name)?.to_owned();
    let mut map = Map::<N> {
        source,
        hostnames: false,
        keys: Names::new(),
        values: Vec::new(),
        packed: Vec::new(),
        default: Complex::from_literal(""),
    };
    let mut volatile = false;
    let mut default = false;
    cx.each_entry(node, |cx, entry| match (&entry.name.text[..], &entry.args[..]) {
        (b"hostnames", []) => map.hostnames = true,
        (b"volatile", []) => volatile = true,
        (b"default", [_]) if default => {
            cx.report(entry.error("duplicate default map parameter"));
        }
        (b"default", [value]) => {
            default = true;
            assigned_urls::note(cx, &variable, value);
            let value = text(value, cx);
            map.default = cx.accept(value).unwrap_or_else(|| Complex::from_literal(""));
        }
        (_, [value]) => {
            assigned_urls::note(cx, &variable, value);
            let added = map.add(cx, &entry.name, value);
            cx.accept(added);
        }
        _ => cx.report(
            entry.error("invalid number of the map parameters").expected("a key and a value"),
        ),
    });
    map.keys.seal(Regex::pattern);
    map.keys.frequent().for_each(Regex::prepare);
    map.values.shrink_to_fit();
    map.packed.shrink_to_fit();
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(map), volatile)
        .map_err(|error| name.error(error.to_string()))
}

impl<N: Namespace> Map<N> {
    fn value(&mut self, cx: &mut Cx<'_>, value: &Word) -> Result<Value<N>, Diagnostic> {
        if value.text.contains(&b'$') {
            return Ok(Value::Text(Box::new(text(value, cx)?)));
        }
        let (start, length) = (self.packed.len(), value.text.len());
        Ok(match (u32::try_from(start), u32::try_from(length)) {
            (Ok(start), Ok(length)) if self.values.len() >= LITERALS_MAX => {
                self.packed.extend_from_slice(&value.text);
                Value::Packed { start, length }
            }
            _ => Value::Literal(Box::new(interned(&value.text))),
        })
    }

    fn add(&mut self, cx: &mut Cx<'_>, key: &Word, value: &Word) -> Result<(), Diagnostic> {
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let value = self.value(cx, value)?;
        self.values.push(value);
        if let Some(pattern) = key.text.strip_prefix(b"~") {
            let caseless = pattern.strip_prefix(b"*");
            let regex =
                Regex::compile::<N>(cx, key, caseless.unwrap_or(pattern), caseless.is_some())?;
            self.keys.insert_regex(regex, number);
            return Ok(());
        }
        let text = lower(key.text.strip_prefix(b"\\").unwrap_or(&key.text));
        let inserted = if self.hostnames {
            self.keys.insert(&text, number)
        } else {
            Ok(self.keys.insert_exact(&text, number))
        };
        let shown = || String::from_utf8_lossy(&text);
        match inserted {
            Ok(InsertResult::New) => Ok(()),
            Ok(InsertResult::Conflict) => {
                Err(key.error(format!("conflicting parameter \"{}\"", shown())))
            }
            Err(_) => Err(key.error(format!("invalid hostname or wildcard \"{}\"", shown()))),
        }
    }
}

impl<N: Namespace<Subject = S>, S: Subject<Namespace = N>> Compute<S> for Map<N> {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        self.source.each_variable(add);
        self.default.each_variable(add);
        for value in &self.values {
            if let Value::Text(text) = value {
                text.each_variable(add);
            }
        }
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let text = subject.evaluate(&self.source);
        let mut text = &text[..];
        if self.hostnames {
            text = text.strip_suffix(b".").unwrap_or(text);
        }
        // Expressions match the text with its original case.
        let found = self.keys.lookup(&lower(text), |regex| regex.search_in(subject, text));
        let value = match found {
            Ok(number) => number.and_then(|number| self.values.get(*number as usize)),
            Err(error) => {
                subject.fault(format_args!("{error}"));
                None
            }
        };
        Some(match value {
            Some(Value::Literal(text)) => Bytes::clone(text),
            Some(Value::Packed { start, length }) => {
                let text = &self.packed[*start as usize..][..*length as usize];
                Bytes::copy_from_slice(text)
            }
            Some(Value::Text(text)) => subject.evaluate(text),
            None => subject.evaluate(&self.default),
        })
    }
}

fn lower(text: &[u8]) -> Cow<'_, [u8]> {
    match text.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}
