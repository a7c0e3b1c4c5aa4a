//! `keyval_zone` and `keyval`: variables whose values requests to an API set while the server runs. NGINX Plus:
//! `ngx_http_keyval_module`, `ngx_stream_keyval_module`.
//!
//! Protocols have the rows. A zone may be named before it is defined, so all are looked up when the configuration
//! was read. Pairs ([`table`]) survive reloads, and with `state` restarts; APIs write that file.

pub mod table;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Msec, NAMED_BYTES_MAX, Node, Size, Span, Value, Word};
use nowait_runtime::clock;
use nowait_variables::{Complex, Compute, Index, Namespace, Subject, Table, variable_name};

use table::{Match, Pairs};

/// The smallest zone, in bytes. nginx: eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

/// A zone.
#[derive(Debug)]
pub struct KeyvalZone {
    /// Its name.
    pub name: String,
    /// The pairs, which all generations share.
    pub pairs: Arc<Pairs>,
    /// `timeout`, in milliseconds: after this time a pair is removed.
    pub timeout_ms: Option<u64>,
    /// `state`: the path of the file.
    pub state: Option<Vec<u8>>,
}

/// The pairs of all zones in use, by protocol, name and kind.
type Tables = BTreeMap<(&'static str, String, Match), Weak<Pairs>>;

static TABLES: Mutex<Tables> = Mutex::new(BTreeMap::new());

/// The zones that were named so far.
struct Zones<N> {
    named: Vec<Arc<NamedZone>>,
    of: PhantomData<fn(N)>,
}

// A derive would require the same of the namespace.
impl<N> Default for Zones<N> {
    fn default() -> Self {
        Self { named: Vec::new(), of: PhantomData }
    }
}

/// A zone that was named, with its definition once there is one.
#[derive(Debug)]
struct NamedZone {
    name: String,
    span: Span,
    zone: OnceLock<Arc<KeyvalZone>>,
}

impl<N> Zones<N> {
    fn named(&mut self, name: &str, span: Span) -> Arc<NamedZone> {
        if let Some(known) = self.named.iter().find(|zone| zone.name == name) {
            return known.clone();
        }
        let zone = Arc::new(NamedZone { name: name.to_owned(), span, zone: OnceLock::new() });
        self.named.push(zone.clone());
        zone
    }
}

/// `keyval_zone zone=name:size [state=file] [timeout=time] [type=string|ip|prefix] [sync];` of a protocol.
///
/// # Errors
/// An invalid parameter; the state file can't be read.
pub fn keyval_zone<N: Namespace>(
    cx: &mut Cx<'_>,
    node: &Node,
    protocol: &'static str,
) -> Result<(), Diagnostic> {
    let mut sized = None;
    let (mut state, mut timeout, mut kind) = (None, None, Match::Exact);
    for word in &node.args {
        let text = &word.text[..];
        if let Some(text) = text.strip_prefix(b"zone=") {
            sized = Some((zone_size(text, word)?, word));
        } else if let Some(path) = text.strip_prefix(b"state=").filter(|path| !path.is_empty()) {
            state = Some((cx.paths().full(path), word));
        } else if let Some(time) = text.strip_prefix(b"timeout=") {
            let time = Msec::from_word(time).map_err(|invalid| invalid.in_parameter(word))?;
            timeout = Some(time.0).filter(|time| *time > 0);
        } else if let Some(name) = text.strip_prefix(b"type=") {
            kind = match name {
                b"string" => Match::Exact,
                b"ip" => Match::Network,
                b"prefix" => Match::Prefix,
                _ => {
                    return Err(word
                        .error(format!("invalid parameter \"{word}\""))
                        .expected("type=string, type=ip or type=prefix"));
                }
            };
        } else if text == b"sync" {
            let note = Diagnostic::warn("\"sync\" has no effect: zones are not synchronised");
            cx.report(note.at(word.span).hint("write the pairs to the API of each server"));
        } else {
            return Err(node.parameter_error(word));
        }
    }
    let Some(((name, mut size), word)) = sized else {
        return Err(node.error("\"keyval_zone\" must have \"zone\" parameter"));
    };
    let named = cx.global::<Zones<N>>().named(&name, word.span);
    if named.zone.get().is_some() {
        return Err(word
            .error(format!("keyval zone \"{name}\" is already defined"))
            .note(named.span, "first named here"));
    }
    let text = state.as_ref().and_then(|(path, word)| {
        // The zone is defined nevertheless: the variables that name it are right.
        cx.read_state(path, word).unwrap_or_else(|problem| {
            cx.report(problem);
            None
        })
    });
    if let Some((_, word)) = &state
        && size > NAMED_BYTES_MAX
    {
        let text = format!(
            "pairs of keyval zone \"{name}\" may take {}m: state files are not larger",
            NAMED_BYTES_MAX >> 20
        );
        cx.report(Diagnostic::warn(text).at(word.span));
        size = NAMED_BYTES_MAX;
    }
    let pairs = pairs(protocol, &name, kind);
    pairs.set_size(size);
    if let (Some(text), Some((_, word))) = (text, &state) {
        // They are put to use the first time only: else the pairs are newer.
        if let Err(problem) = pairs.load(text.as_slice(), clock().unix_ms()) {
            let text = format!("{problem} in state file of keyval zone \"{name}\"");
            cx.report(word.error(text));
        }
    }
    let state = state.map(|(path, _)| path);
    let zone = KeyvalZone { name, pairs, timeout_ms: timeout, state };
    let _ = named.zone.set(Arc::new(zone));
    Ok(())
}

/// Name and size of a zone.
fn zone_size(text: &[u8], word: &Word) -> Result<(String, u64), Diagnostic> {
    let invalid = || word.error(format!("invalid zone size \"{word}\"")).expected("zone=NAME:SIZE");
    let colon = text.iter().position(|byte| *byte == b':').ok_or_else(invalid)?;
    let name = std::str::from_utf8(&text[..colon]).ok().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| word.error(format!("invalid zone name \"{word}\"")))?;
    let Size(size) = Size::from_word(&text[colon + 1..]).map_err(|_| invalid())?;
    if size < ZONE_BYTES_MIN {
        return Err(word
            .error(format!("zone \"{name}\" is too small"))
            .expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
    }
    Ok((name.to_owned(), size))
}

/// The pairs of a zone: those of the generation in use, if it has the zone.
fn pairs(protocol: &'static str, name: &str, kind: Match) -> Arc<Pairs> {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|_, pairs| pairs.strong_count() > 0);
    let slot = tables.entry((protocol, name.to_owned(), kind)).or_default();
    slot.upgrade().unwrap_or_else(|| {
        let pairs = Arc::new(Pairs::new(kind));
        *slot = Arc::downgrade(&pairs);
        pairs
    })
}

/// `keyval key $variable zone=name;`
///
/// # Errors
/// An invalid argument.
pub fn keyval<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [key, name, zone] = &node.args[..] else { return Err(node.arity_error()) };
    let key = nowait_variables::text(key, cx)?;
    let variable = variable_name(name)?.to_owned();
    let Some(zone_name) = zone.text.strip_prefix(b"zone=").filter(|name| !name.is_empty()) else {
        return Err(node.parameter_error(zone));
    };
    let zone_name = std::str::from_utf8(zone_name)
        .map_err(|_| zone.error(format!("invalid zone name \"{zone}\"")))?;
    let zone = cx.global::<Zones<N>>().named(zone_name, zone.span);
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(Lookup { key, zone }), false)
        .map_err(|error| name.error(error.to_string()))
}

/// The zones of a configuration, once it was read; all that were named must be defined.
pub fn finish<N: Namespace>(cx: &mut Cx<'_>) -> Vec<Arc<KeyvalZone>> {
    let mut zones = Vec::new();
    for named in cx.take_global::<Zones<N>>().named {
        match named.zone.get() {
            Some(zone) => zones.push(zone.clone()),
            None => cx.report(
                Diagnostic::emerg(format!("zero size shared memory zone \"{}\"", named.name))
                    .at(named.span)
                    .hint("define it with keyval_zone"),
            ),
        }
    }
    zones
}

/// The variable of a `keyval`.
struct Lookup<N> {
    key: Complex<N>,
    zone: Arc<NamedZone>,
}

impl<N: Namespace<Subject = S>, S: Subject<Namespace = N>> Compute<S> for Lookup<N> {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        self.key.each_variable(add);
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let zone = self.zone.zone.get()?;
        zone.pairs.find(&subject.evaluate(&self.key), clock().unix_ms())
    }
}
