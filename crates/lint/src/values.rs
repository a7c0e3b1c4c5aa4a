//! The origin of values in texts with variables.
//!
//! Follows `set`, `map` and the groups of regular expressions within one configuration; unknown values stay
//! variables.

use std::collections::{HashMap, HashSet};

use nowait_conf::{Span, Word};

use crate::model::{BlockKind, BlockRef};
use crate::pattern;

/// Maximum number of steps from variable to variable.
const STEPS_MAX: usize = 6;

/// Maximum number of values considered for one text.
const VALUES_MAX: usize = 200;

/// A non-constant part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// A variable of the server.
    Variable(String),
    /// What a group of a regular expression matched: its name or number, and the texts of the groups
    /// that it may be.
    Capture(String, Vec<String>),
}

impl Leaf {
    /// The name for messages.
    pub fn shown(&self) -> String {
        match self {
            Leaf::Variable(name) | Leaf::Capture(name, _) => format!("${name}"),
        }
    }
}

/// The variables of a text, in order, without `$` and braces.
pub(crate) fn variables(text: &[u8]) -> Vec<String> {
    pieces(text).into_iter().filter_map(ValuePart::variable).collect()
}

enum ValuePart {
    Text(String),
    Variable(String),
}

impl ValuePart {
    fn variable(self) -> Option<String> {
        match self {
            ValuePart::Variable(name) => Some(name),
            ValuePart::Text(_) => None,
        }
    }
}

fn pieces(text: &[u8]) -> Vec<ValuePart> {
    let text = String::from_utf8_lossy(text);
    let mut pieces = Vec::new();
    let mut parts = text.split('$');
    if let Some(first) = parts.next().filter(|first| !first.is_empty()) {
        pieces.push(ValuePart::Text(first.to_owned()));
    }
    for part in parts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match part.strip_prefix('{') {
            Some(braced) => braced.split_once('}').unwrap_or((braced, "")),
            // "$12" is "$1" and "2".
            None if part.starts_with(|c: char| c.is_ascii_digit()) => part.split_at(1),
            None => part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len())),
        };
        match name.is_empty() {
            true => pieces.push(ValuePart::Text(format!("${rest}"))),
            false => {
                pieces.push(ValuePart::Variable(name.to_owned()));
                if !rest.is_empty() {
                    pieces.push(ValuePart::Text(rest.to_owned()));
                }
            }
        }
    }
    pieces
}

/// Where a variable gets its values: texts, and the expression whose groups they may use.
fn values<'m>(
    block: BlockRef<'m>,
    name: &str,
) -> impl Iterator<Item = (&'m Word, Option<&'m Word>)> + use<'m> {
    let sets = block.sets(name);
    let tables = if sets.is_empty() { block.model.tables(name) } else { &[] };
    let tables = tables.iter().map(|(key, value)| (*value, Some(*key)));
    sets.iter().map(|value| (*value, None)).chain(tables).take(VALUES_MAX)
}

/// What a text in a block consists of.
pub(crate) fn leaves(block: BlockRef<'_>, text: &[u8]) -> Vec<Leaf> {
    let mut walk = ValueWalk { block, found: Vec::new(), seen: HashSet::new(), values: 0 };
    walk.follow(text, None, STEPS_MAX);
    walk.found
}

/// A walk from a text through the variables that it consists of.
struct ValueWalk<'m> {
    block: BlockRef<'m>,
    found: Vec<Leaf>,
    /// Variables that were looked at, with the expression whose groups they may be.
    seen: HashSet<(String, Option<Span>)>,
    /// The values that were looked at.
    values: usize,
}

impl ValueWalk<'_> {
    fn follow(&mut self, text: &[u8], key: Option<&Word>, steps: usize) {
        for name in variables(text) {
            if !self.seen.insert((name.clone(), key.map(|key| key.span))) {
                continue;
            }
            let captures = captures(self.block, &name, key);
            if !captures.is_empty() || name.bytes().all(|b| b.is_ascii_digit()) {
                self.found.push(Leaf::Capture(name, captures));
                continue;
            }
            let mut values = values(self.block, &name).peekable();
            if values.peek().is_none() || steps == 0 {
                self.found.push(Leaf::Variable(name));
                continue;
            }
            for (value, key) in values {
                self.values += 1;
                if self.values > VALUES_MAX {
                    break;
                }
                self.follow(&value.text, key, steps - 1);
            }
        }
    }
}

/// The groups that `$1` or `$name` may refer to.
fn captures(block: BlockRef<'_>, name: &str, key: Option<&Word>) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(key) = key {
        let text = key.lossy();
        let pattern = text.trim_start_matches('~').trim_start_matches('*');
        let groups = numbered(pattern).filter(|(known, _)| known == name);
        return groups.map(|(_, body)| body.to_owned()).collect();
    }
    for outer in block.chain() {
        let groups = outer.groups().get_or_init(|| groups(outer));
        found.extend(groups.get(name).into_iter().flatten().cloned());
        if outer.kind() == BlockKind::Server || found.len() >= VALUES_MAX {
            break;
        }
    }
    found
}

/// The groups of a pattern by their numbers, and by their names.
fn numbered(pattern: &str) -> impl Iterator<Item = (String, &str)> {
    let groups = pattern::groups(pattern).into_iter().enumerate();
    groups.flat_map(|(index, group)| {
        let number = Some(((index + 1).to_string(), group.body));
        number.into_iter().chain(group.name.map(|name| (name.to_owned(), group.body)))
    })
}

/// The groups of the expressions of a block by their numbers and names.
fn groups(block: BlockRef<'_>) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    let mut look = |pattern: &str| {
        for (name, body) in numbered(pattern) {
            let bodies = found.entry(name).or_default();
            if bodies.len() < VALUES_MAX {
                bodies.push(body.to_owned());
            }
        }
    };
    for pattern in block.own("rewrite").filter_map(|rewrite| rewrite.args.first()) {
        look(&pattern.lossy());
    }
    match block.kind() {
        BlockKind::If => {
            if let Some((_, pattern)) = condition_regex(block) {
                look(&pattern);
            }
        }
        BlockKind::Location => {
            if let Some(location) = block.location().filter(|location| location.is_regex()) {
                look(&location.lossy());
            }
        }
        BlockKind::Server => {
            for name in block.names() {
                if let Some(pattern) = name.lossy().strip_prefix('~') {
                    look(pattern);
                }
            }
        }
        _ => {}
    }
    found
}

/// The variable and the expression of `if ($variable ~ expression)`.
pub(crate) fn condition_regex(block: BlockRef<'_>) -> Option<(String, String)> {
    let words = condition(block)?;
    let [variable, operator, pattern] = words.as_slice() else { return None };
    let is_match = matches!(operator.as_str(), "~" | "~*" | "!~" | "!~*");
    is_match.then(|| (variable.trim_start_matches('$').to_owned(), pattern.clone()))
}

/// The words of the condition of an `if`, without the parentheses.
pub(crate) fn condition(block: BlockRef<'_>) -> Option<Vec<String>> {
    let node = block.node().filter(|_| block.kind() == BlockKind::If)?;
    let mut words: Vec<String> = node.args.iter().map(|word| word.lossy().into_owned()).collect();
    let first = words.first_mut()?;
    *first = first.strip_prefix('(').unwrap_or(first).to_owned();
    let last = words.last_mut()?;
    *last = last.strip_suffix(')').unwrap_or(last).to_owned();
    words.retain(|word| !word.is_empty());
    Some(words)
}

/// The texts that a text may become; variables of the server stay as they are.
pub(crate) fn expansions(block: BlockRef<'_>, text: &[u8]) -> Vec<String> {
    let mut done = Vec::new();
    let mut pending = vec![(String::from_utf8_lossy(text).into_owned(), 0)];
    while let Some((text, steps)) = pending.pop() {
        if done.len() + pending.len() > VALUES_MAX {
            break;
        }
        let mut before = String::new();
        let mut found = None;
        let pieces = pieces(text.as_bytes());
        let mut rest = String::new();
        for piece in &pieces {
            match (piece, &found) {
                (ValuePart::Variable(name), None) if steps < STEPS_MAX => {
                    let values: Vec<_> = values(block, name).collect();
                    match values.is_empty() {
                        true => before.push_str(&format!("${{{name}}}")),
                        false => found = Some(values),
                    }
                }
                (ValuePart::Variable(name), Some(_)) => rest.push_str(&format!("${{{name}}}")),
                (ValuePart::Variable(name), None) => before.push_str(&format!("${{{name}}}")),
                (ValuePart::Text(text), Some(_)) => rest.push_str(text),
                (ValuePart::Text(text), None) => before.push_str(text),
            }
        }
        match found {
            None => done.push(before),
            Some(values) => {
                for (value, _) in values {
                    pending.push((format!("{before}{}{rest}", value.lossy()), steps + 1));
                }
            }
        }
    }
    done
}

/// Variables with the path of a request.
const PATHS: &[&str] =
    &["$request_uri", "${request_uri}", "$uri", "${uri}", "$document_uri", "${document_uri}"];

/// The parts of a URL as `proxy_pass` takes it: authority, and the URI if there is one.
pub(crate) fn url(text: &str) -> (&str, Option<&str>) {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    if let Some(socket) = rest.strip_prefix("unix:") {
        return match socket.split_once(':') {
            Some((path, uri)) => {
                let end = "unix:".len() + path.len();
                (&rest[..end], Some(uri).filter(|uri| !uri.is_empty()))
            }
            None => (rest, None),
        };
    }
    // These variables begin with a slash.
    let starts = PATHS.iter().filter_map(|path| rest.find(path)).chain(rest.find('/'));
    match starts.min().filter(|at| *at > 0) {
        Some(at) => (&rest[..at], Some(&rest[at..])),
        None => (rest, None),
    }
}

/// The host of an authority.
pub(crate) fn host(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority
            .split_once(']')
            .map_or(authority, |(host, _)| host.trim_start_matches('['));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Whether a client chooses the value.
pub(crate) fn is_from_client(name: &str) -> bool {
    const NAMES: &[&str] =
        &["uri", "document_uri", "request_uri", "args", "query_string", "request_body", "is_args"];
    let prefixes = ["http_", "arg_", "cookie_"];
    name != "is_args" && NAMES.contains(&name)
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}
