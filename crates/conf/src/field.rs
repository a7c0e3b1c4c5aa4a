//! From words to typed values: the traits of the types of table fields.
//!
//! * [`Value`]: one word is the value (`60s`, `on`, `8k`).
//! * [`Setting`]: a directive with its arguments is the value. Every `Value` is one.
//! * [`Field`]: how a field of a table takes directives and inherits. Every `Setting` is one, and
//!   so are `Option<Setting>`, `Vec<Setting>` and [`LocalSetting<Setting>`].

use std::borrow::Cow;
use std::ops::Deref;

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::registry::Inheritance;
use crate::tree::{Node, Word};

/// The reason why a word is not a valid value of a type. The directive completes the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    wording: Wording,
    expected: Option<Cow<'static, str>>,
    hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wording {
    /// `"NAME" directive PROBLEM`
    Directive(&'static str),
    /// `invalid value "WORD" in "NAME" directive, REST`
    InDirective(&'static str),
    /// The text as it is.
    Whole(String),
}

impl ValueError {
    /// `"NAME" directive invalid value`.
    pub fn value() -> ValueError {
        ValueError::directive("invalid value")
    }

    /// `"NAME" directive PROBLEM`.
    pub fn directive(problem: &'static str) -> ValueError {
        ValueError { wording: Wording::Directive(problem), expected: None, hint: None }
    }

    /// `invalid value "WORD" in "NAME" directive, REST`.
    pub fn in_directive(rest: &'static str) -> ValueError {
        ValueError { wording: Wording::InDirective(rest), expected: None, hint: None }
    }

    /// A custom message.
    pub fn message(message: impl Into<String>) -> ValueError {
        ValueError { wording: Wording::Whole(message.into()), expected: None, hint: None }
    }

    /// The expected form.
    pub fn expected(mut self, expected: impl Into<Cow<'static, str>>) -> ValueError {
        self.expected = Some(expected.into());
        self
    }

    /// A hint for the operator.
    pub fn hint(mut self, hint: impl Into<String>) -> ValueError {
        self.hint = Some(hint.into());
        self
    }

    /// The diagnostic for `word` as an argument of `node`.
    pub fn in_node(self, node: &Node, word: &Word) -> Diagnostic {
        let name = &node.name;
        let message = match &self.wording {
            Wording::Directive(problem) => format!("\"{name}\" directive {problem}"),
            Wording::InDirective(rest) => {
                format!("invalid value \"{word}\" in \"{name}\" directive, {rest}")
            }
            Wording::Whole(message) => message.clone(),
        };
        self.refine(word.error(message))
    }

    /// The diagnostic for a value within a parameter: `invalid parameter "max=x"`.
    pub fn in_parameter(self, parameter: &Word) -> Diagnostic {
        self.refine(parameter.error(format!("invalid parameter \"{parameter}\"")))
    }

    fn refine(self, mut error: Diagnostic) -> Diagnostic {
        if let Some(expected) = self.expected {
            error = error.expected(expected);
        }
        if let Some(hint) = self.hint {
            error = error.hint(hint);
        }
        error
    }
}

/// A type whose values are written as one word.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type for a directive",
    note = "implement `nowait_conf::Value` (one word) or `nowait_conf::Setting` (a directive with its arguments), or use `setting_enum!`"
)]
pub trait Value: Sized {
    /// Reads the word.
    fn from_word(text: &[u8]) -> Result<Self, ValueError>;
}

/// A type whose values are written as the arguments of a directive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type for a directive",
    note = "implement `nowait_conf::Setting` (a directive with its arguments) or `nowait_conf::Value` (one word), or use `setting_enum!`"
)]
pub trait Setting: Sized + Clone + 'static {
    /// The number of arguments of the directive.
    const ARITY: Arity;

    /// Reads the arguments; their number is within [`Setting::ARITY`].
    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic>;

    /// Combines the value of an inner block with that of the enclosing one. By default the inner
    /// value replaces the outer one.
    fn merge(self, outer: &Self) -> Self {
        let _ = outer;
        self
    }

    /// A second use in the same block. By default it is refused as duplicate.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        cx.once(node)?;
        *self = Self::parse(node, cx)?;
        Ok(())
    }
}

impl<T: Value + Clone + 'static> Setting for T {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        T::from_word(&word.text).map_err(|invalid| invalid.in_node(node, word))
    }
}

/// A type for a field of a table.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type for a field of a directive table",
    note = "use a `Setting`, or `Option`, `Vec` or `LocalSetting` of one"
)]
pub trait Field: Sized + Clone + 'static {
    /// The value of one block: unset, or given there.
    type Slot: Default + Clone + 'static;
    /// The number of arguments of the directive.
    const ARITY: Arity;
    /// The inheritance by inner blocks.
    const INHERITANCE: Inheritance;
    /// Whether the field needs no default.
    const OPTIONAL: bool;

    /// Applies a directive to the slot of the block being read.
    fn apply<L: Default + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        slot: fn(&mut L) -> &mut Self::Slot,
    ) -> Result<(), Diagnostic>;

    /// A slot that holds the value, for defaults computed by code.
    fn given(value: Self) -> Self::Slot;

    /// Merges the slots of a chain of blocks, the outermost first; the first one may hold the
    /// default.
    fn resolve(slots: &mut dyn Iterator<Item = &Self::Slot>) -> Option<Self>;
}

/// Parses into an empty or filled slot.
fn apply_setting<T: Setting, L: Default + 'static>(
    cx: &mut Cx<'_>,
    node: &Node,
    slot: fn(&mut L) -> &mut Option<T>,
) -> Result<(), Diagnostic> {
    let value = match slot(cx.layer::<L>()).take() {
        None => T::parse(node, cx)?,
        Some(mut value) => {
            let result = value.again(node, cx);
            *slot(cx.layer::<L>()) = Some(value);
            return result;
        }
    };
    *slot(cx.layer::<L>()) = Some(value);
    Ok(())
}

fn resolve_setting<T: Setting>(slots: &mut dyn Iterator<Item = &Option<T>>) -> Option<T> {
    slots.flatten().fold(None, |outer: Option<T>, inner| match outer {
        None => Some(inner.clone()),
        Some(outer) => Some(inner.clone().merge(&outer)),
    })
}

impl<T: Setting> Field for T {
    type Slot = Option<T>;
    const ARITY: Arity = T::ARITY;
    const INHERITANCE: Inheritance = Inheritance::Value;
    const OPTIONAL: bool = false;

    fn apply<L: Default + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        slot: fn(&mut L) -> &mut Option<T>,
    ) -> Result<(), Diagnostic> {
        apply_setting(cx, node, slot)
    }

    fn given(value: T) -> Option<T> {
        Some(value)
    }

    fn resolve(slots: &mut dyn Iterator<Item = &Option<T>>) -> Option<T> {
        resolve_setting(slots)
    }
}

/// An optional directive.
impl<T: Setting> Field for Option<T> {
    type Slot = Option<T>;
    const ARITY: Arity = T::ARITY;
    const INHERITANCE: Inheritance = Inheritance::Value;
    const OPTIONAL: bool = true;

    fn apply<L: Default + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        slot: fn(&mut L) -> &mut Option<T>,
    ) -> Result<(), Diagnostic> {
        apply_setting(cx, node, slot)
    }

    fn given(value: Option<T>) -> Option<T> {
        value
    }

    fn resolve(slots: &mut dyn Iterator<Item = &Option<T>>) -> Option<Option<T>> {
        Some(resolve_setting(slots))
    }
}

/// A directive that may be repeated. The list of an inner block replaces the outer list as a whole.
impl<T: Setting> Field for Vec<T> {
    type Slot = Option<Vec<T>>;
    const ARITY: Arity = T::ARITY;
    const INHERITANCE: Inheritance = Inheritance::List;
    const OPTIONAL: bool = true;

    fn apply<L: Default + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        slot: fn(&mut L) -> &mut Option<Vec<T>>,
    ) -> Result<(), Diagnostic> {
        let value = T::parse(node, cx)?;
        slot(cx.layer::<L>()).get_or_insert_default().push(value);
        Ok(())
    }

    fn given(value: Vec<T>) -> Option<Vec<T>> {
        Some(value)
    }

    fn resolve(slots: &mut dyn Iterator<Item = &Option<Vec<T>>>) -> Option<Vec<T>> {
        Some(slots.flatten().last().cloned().unwrap_or_default())
    }
}

/// A directive that inner blocks do not inherit (`try_files`, `return`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSetting<T>(pub Option<T>);

impl<T> Deref for LocalSetting<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T: Setting> Field for LocalSetting<T> {
    type Slot = Option<T>;
    const ARITY: Arity = T::ARITY;
    const INHERITANCE: Inheritance = Inheritance::Own;
    const OPTIONAL: bool = true;

    fn apply<L: Default + 'static>(
        cx: &mut Cx<'_>,
        node: &Node,
        slot: fn(&mut L) -> &mut Option<T>,
    ) -> Result<(), Diagnostic> {
        apply_setting(cx, node, slot)
    }

    fn given(value: LocalSetting<T>) -> Option<T> {
        value.0
    }

    fn resolve(slots: &mut dyn Iterator<Item = &Option<T>>) -> Option<LocalSetting<T>> {
        Some(LocalSetting(slots.last().cloned().flatten()))
    }
}
