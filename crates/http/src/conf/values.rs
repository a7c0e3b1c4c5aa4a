//! Values that directives of several modules have in common.

use nowait_conf::{Arity, Cx, Diagnostic, Node, Setting, Size, Template, Value, Word, arity};
pub use nowait_variables::Regex;

use crate::variables::complex::{Complex, HttpVariables};

/// Number of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocationId(pub u32);

/// Pools named by `aio`, with their positions: the program checks that they are defined.
#[derive(Default)]
pub struct PoolsWanted(pub Vec<(String, Word)>);

/// Compiles text with variables.
///
/// # Errors
/// Malformed variables.
pub fn complex(word: &Word, cx: &mut Cx<'_>) -> Result<Complex, Diagnostic> {
    nowait_variables::text(word, cx)
}

/// A size that may contain variables; without any it is a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeText(Complex);

impl std::ops::Deref for SizeText {
    type Target = Complex;

    fn deref(&self) -> &Complex {
        &self.0
    }
}

impl Setting for SizeText {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let text = complex(word, cx)?;
        if text.literal().is_some() {
            value::<Size>(node, 0)?;
        }
        Ok(Self(text))
    }
}

/// A URI of the same server, or the name of a location; empty cancels the setting of an outer block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUri(pub Box<[u8]>);

impl Setting for LocalUri {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text[..].into()))
    }
}

/// Compiles parsed text with variables.
///
/// # Errors
/// Malformed variables.
pub fn compile(template: &Template, cx: &mut Cx<'_>) -> Result<Complex, Diagnostic> {
    nowait_variables::compile(template, cx)
}

/// Records the positions of variables.
pub fn mention(template: &Template, cx: &mut Cx<'_>) {
    nowait_variables::mention::<HttpVariables>(template, cx);
}

/// The value of argument `n`.
///
/// # Errors
/// The fault of the argument, in nginx's words.
pub fn value<T: Value>(node: &Node, n: usize) -> Result<T, Diagnostic> {
    let word = node.args.get(n).ok_or_else(|| node.arity_error())?;
    T::from_word(&word.text).map_err(|invalid| invalid.in_node(node, word))
}

/// The value of a parameter such as `max=10`.
///
/// # Errors
/// The fault of the value.
pub fn word_value<T: Value>(value: &Word, parameter: &Word) -> Result<T, Diagnostic> {
    T::from_word(&value.text).map_err(|invalid| invalid.in_parameter(parameter))
}

/// Compiles an expression; its named groups become variables.
///
/// # Errors
/// The fault of the expression.
pub fn compile_regex(
    cx: &mut Cx<'_>,
    word: &Word,
    pattern: &[u8],
    caseless: bool,
) -> Result<Regex, Diagnostic> {
    Regex::compile::<HttpVariables>(cx, word, pattern, caseless)
}
