//! `json_set`: variables with values of a JSON document that another variable has. nginx: `ngx_http_json_module`.
//!
//! The document is read once per request, whatever the number of variables: a hidden variable has all values of one
//! document, and each variable takes its own from there.

mod path;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

pub use path::Paths;
pub use scan::extract;

use crate::{
    Compute, DuplicateVariable, Index, Mentions, Namespace, Slot, Subject, Table, variable_name,
};

/// The nesting of documents unless `json_max_depth` says otherwise, and at most.
const DEPTH_DEFAULT: usize = 32;
const DEPTH_MAX: u64 = 256;

/// The documents of a configuration, by the names of the variables that have them.
struct Documents<N> {
    documents: BTreeMap<String, Document>,
    /// The variables of `json_set`.
    variables: BTreeSet<String>,
    depth_max: usize,
    of: std::marker::PhantomData<fn(N)>,
}

impl<N> Default for Documents<N> {
    fn default() -> Self {
        Documents {
            documents: BTreeMap::new(),
            variables: BTreeSet::new(),
            depth_max: DEPTH_DEFAULT,
            of: std::marker::PhantomData,
        }
    }
}

/// The hidden variable of a document: its values in the form of [`pack`].
#[derive(Clone)]
struct Document {
    source: Index,
    paths: Paths,
    depth_max: usize,
}

/// A variable of `json_set`.
struct JsonValue {
    /// The hidden variable.
    document: Index,
    slot: Slot,
    /// The position of its path.
    number: usize,
}

/// `json_set $variable $source path;`
///
/// # Errors
/// An invalid argument.
pub fn json_set<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, source, path] = &node.args[..] else { return Err(node.arity_error()) };
    let variable = variable_name(name)?.to_ascii_lowercase();
    if !cx.global::<Documents<N>>().variables.insert(variable.clone()) {
        let error = name.error(format!("json_set variable \"{variable}\" is already defined"));
        return Err(error.hint("give each path a variable of its own"));
    }
    let text = variable_name(source)?.to_ascii_lowercase();
    cx.global::<Mentions<N>>().note(text.as_bytes(), source.span);
    let index = cx.global::<Table<N>>().index(&text);
    let documents = cx.global::<Documents<N>>();
    let depth_max = documents.depth_max;
    let document = documents.documents.entry(text.clone());
    let document =
        document.or_insert_with(|| Document { source: index, paths: Paths::default(), depth_max });
    let number = document.paths.add(&path.text).ok_or_else(|| path_error(path))?;
    let document = document.clone();
    let (document, slot) = define::<N>(cx, &text, document, name)?;
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(JsonValue { document, slot, number }), false)
        .map_err(|error| name.error(error.to_string()))
}

impl<N: Namespace> Table<N> {
    /// Defines a variable for other computed variables, whose name no text can mention: it has a space. The last
    /// definition of a name counts.
    ///
    /// # Errors
    /// A built-in variable has this name.
    fn define_hidden(
        &mut self,
        name: &str,
        by: Arc<dyn Compute<N::Subject>>,
    ) -> Result<Slot, DuplicateVariable> {
        self.define_computed(name, by, false)?;
        Ok(self.user(name)?.slot)
    }
}

/// Defines the hidden variable of a document, or replaces it.
fn define<N: Namespace>(
    cx: &mut Cx<'_>,
    source: &str,
    document: Document,
    at: &Word,
) -> Result<(Index, Slot), Diagnostic> {
    let table = cx.global::<Table<N>>();
    // No text can mention a name with a space.
    let hidden = format!("json_set {source}");
    let slot = table.define_hidden(&hidden, Arc::new(document));
    let slot = slot.map_err(|error| at.error(error.to_string()))?;
    Ok((table.index(&hidden), slot))
}

fn path_error(path: &Word) -> Diagnostic {
    if path.text.is_empty() {
        return path.error("empty json_set path").expected("a path such as user.name");
    }
    path.error(format!("invalid json_set path \"{path}\""))
        .expected("names with dots between them, [0] for elements, [\"any name\"]: user.tags[0]")
}

/// `json_max_depth number;`
///
/// # Errors
/// An invalid argument, or the second one.
pub fn json_max_depth<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let [word] = &node.args[..] else { return Err(node.arity_error()) };
    let depth = nowait_conf::number(&word.text)
        .ok_or_else(|| word.error("invalid number").expected("a number from 1 to 256"))?;
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(word.error(format!("value must be between 1 and {DEPTH_MAX}")));
    }
    let depth = usize::try_from(depth).unwrap_or(DEPTH_DEFAULT);
    let documents = cx.global::<Documents<N>>();
    documents.depth_max = depth;
    // Those of lines before this one.
    documents.documents.values_mut().for_each(|document| document.depth_max = depth);
    let all: Vec<_> =
        documents.documents.iter().map(|(name, one)| (name.clone(), one.clone())).collect();
    for (source, document) in all {
        define::<N>(cx, &source, document, word)?;
    }
    Ok(())
}

impl<S: Subject> Compute<S> for Document {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        add(self.source);
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let mut text = Vec::new();
        subject.variables().append(self.source, subject, &mut text);
        Some(match extract(&text, &self.paths, self.depth_max) {
            Some(values) => pack(&values),
            None => Bytes::new(),
        })
    }
}

impl<S: Subject> Compute<S> for JsonValue {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        add(self.document);
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let packed = subject.slot(self.slot).unwrap_or_else(|| {
            let mut packed = Vec::new();
            subject.variables().append(self.document, subject, &mut packed);
            packed.into()
        });
        unpack(&packed, self.number)
    }
}

/// Bytes of a value's place: where it begins and ends.
const PLACE_BYTES: usize = 16;

/// All values of a document: their places, then their texts one after the other.
fn pack(values: &[Option<impl AsRef<[u8]>>]) -> Bytes {
    let mut packed = Vec::new();
    let mut at = values.len() * PLACE_BYTES;
    for value in values {
        // One that ends before it begins is missing.
        let (first, end) = match value {
            Some(value) => (at, at + value.as_ref().len()),
            None => (1, 0),
        };
        packed.extend_from_slice(&(first as u64).to_le_bytes());
        packed.extend_from_slice(&(end as u64).to_le_bytes());
        at = at.max(end);
    }
    values.iter().flatten().for_each(|value| packed.extend_from_slice(value.as_ref()));
    packed.into()
}

/// A value of [`pack`]. Of an invalid document, which is empty, there is none.
fn unpack(packed: &Bytes, number: usize) -> Option<Bytes> {
    let place = packed.get(number * PLACE_BYTES..)?.first_chunk::<PLACE_BYTES>()?;
    let (first, end) = place.split_at(PLACE_BYTES / 2);
    let position = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok();
    let (first, end) = (position(first)?, position(end)?);
    (first <= end && end <= packed.len()).then(|| packed.slice(first..end))
}
