//! The macros that write directive tables: one row in one place for each directive.

use crate::cx::Cx;
use crate::lexer::{Lexer, Token};
use crate::registry::Row;
use crate::source::FileId;
use crate::tree::{Node, Word};

/// A table of typed directives: a resolved struct, its layer and its rows.
///
/// ```
/// use nowait_conf::{directives, Cx, Msec, Size, Words};
///
/// directives! {
///     /// Static files.
///     #[derive(Debug)]
///     module "core";
///     pub struct FileConf with FileConfLayer;
///
///     /// Enables `sendfile()`.
///     sendfile: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
///     /// May be missing: no default.
///     limit_rate_after: Option<Size>, in HTTP | SERVER | LOCATION, args "size";
///     /// May be repeated; an inner list replaces the outer one.
///     index: Vec<Words>, in HTTP | SERVER | LOCATION, args "file ...";
///     /// The name of the directive, where it is no good name for a field.
///     return_text("return"): Option<Words>, in SERVER | LOCATION, args "text";
///     /// A default that code computes; the text is for the reference only.
///     timeout: Msec = "60s or so" => default_timeout, in HTTP, args "time";
/// }
///
/// fn default_timeout(_cx: &mut Cx<'_>) -> Msec {
///     Msec(60_000)
/// }
/// ```
///
/// generates `FileConf` (resolved values, plain fields), `FileConfLayer` (what one block gives, each
/// field optional), `FileConf::ROWS` for the [`Registry`](crate::Registry), and
/// `FileConf::resolve(cx, &[&http_scope, &server_scope, &location_scope])`.
///
/// The type of a field decides how the directive behaves, see [`Field`](crate::Field): a
/// [`Setting`](crate::Setting) `T` (needs a default), `Option<T>`, `Vec<T>`, [`LocalSetting<T>`](crate::LocalSetting).
/// Defaults are configuration text and go through the same parser, so the reference can't lie.
///
/// `module "proxy", prefix "proxy_";` puts a prefix before all names, so that a macro can write the
/// same rows for several modules (`proxy_buffering`, `fastcgi_buffering`).
#[macro_export]
macro_rules! directives {
    (
        $(#[$meta:meta])*
        module $module:literal;
        $vis:vis struct $($rest:tt)*
    ) => {
        $crate::directives! {
            @table
            $(#[$meta])*
            module $module, prefix "";
            $vis struct $($rest)*
        }
    };
    (
        $(#[$meta:meta])*
        module $module:literal, prefix $prefix:literal;
        $vis:vis struct $($rest:tt)*
    ) => {
        $crate::directives! {
            @table
            $(#[$meta])*
            module $module, prefix $prefix;
            $vis struct $($rest)*
        }
    };
    (
        @table
        $(#[$meta:meta])*
        module $module:literal, prefix $prefix:literal;
        $vis:vis struct $conf:ident with $layer:ident;
        $(
            $(#[doc = $doc:literal])*
            $field:ident $(($name:literal))? : $type:ty $(= $default:literal $(=> $computed:path)?)?,
            in $($context:ident)|+,
            args $args:literal;
        )*
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        $vis struct $conf {
            $($(#[doc = $doc])* pub $field: $type,)*
        }

        /// The values set in one block.
        #[derive(Clone, Default)]
        $vis struct $layer {
            $($(#[doc = $doc])* pub $field: <$type as $crate::Field>::Slot,)*
        }

        impl $conf {
            /// The rows of the table.
            $vis const ROWS: &'static [$crate::Row] = &[$($crate::Row {
                name: $crate::__row!(@name $prefix, $field $($name)?),
                module: $module,
                doc: &[$($doc),*],
                contexts: $crate::Context::NONE$(.or($crate::Context::$context))+,
                args: $args,
                default: $crate::__row!(@default $($default)?),
                arity: <$type as $crate::Field>::ARITY,
                inheritance: <$type as $crate::Field>::INHERITANCE,
                block: false,
                apply: |cx, node| {
                    <$type as $crate::Field>::apply::<$layer>(cx, node, |layer| &mut layer.$field)
                },
            }),*];

            /// Merges a chain of blocks, the outermost first: the innermost value wins, the default applies
            /// if no block has one. Blocks that inherit all values share the result.
            #[allow(dead_code)]
            $vis fn resolve(
                cx: &mut $crate::Cx<'_>,
                scopes: &[&$crate::Scope],
            ) -> ::std::sync::Arc<$conf> {
                const HAS_OWN: bool = false $(|| matches!(
                    <$type as $crate::Field>::INHERITANCE,
                    $crate::Inheritance::Own
                ))*;
                $crate::__private::resolved::<$layer, $conf>(cx, scopes, HAS_OWN, |cx| {
                    $($crate::__row!(@apply cx, $conf, $layer, $field, $type,
                        [$crate::__row!(@name $prefix, $field $($name)?)] $($default $(=> $computed)?)?);)*
                    cx.layer::<$layer>().clone()
                }, |layers| $conf {
                    $($field: <$type as $crate::Field>::resolve(
                        &mut layers.iter().map(|layer| &layer.$field),
                    ).expect("a field without default is optional: asserted above"),)*
                })
            }
        }

        $(const _: () = assert!(
            <$type as $crate::Field>::OPTIONAL || $crate::__row!(@given $($default)?),
            concat!("directive `", stringify!($field), "` needs a default: write `= \"...\"`, or use Option"),
        );)*
    };
}

/// A table of directives with hand-written functions: structural blocks, and directives stored in special
/// ways.
///
/// ```
/// use nowait_conf::{rows, Context, Cx, Diagnostic, Node};
///
/// rows! {
///     pub static SERVER_ROWS, module "core";
///
///     /// Sets the configuration of a virtual server.
///     block "server" => server, in HTTP, take none(), args "{ ... }";
///     /// Sets the address.
///     "listen" => listen, in SERVER, take at_least(1), default "*:80", args "address[:port] ...";
/// }
///
/// fn server(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
///     let scope = cx.block(Context::SERVER, node.children());
///     // keep `scope`, for example in cx.layer::<Http>().servers
///     drop(scope);
///     Ok(())
/// }
///
/// fn listen(_cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
///     match node.args[0] == "nowhere" {
///         true => Err(node.args[0].error("host not found in \"nowhere\" of the \"listen\" directive")),
///         false => Ok(()),
///     }
/// }
/// ```
///
/// `take` is an expression over the functions of [`arity`](crate::arity). `inheritance`, after it, says how
/// inner blocks inherit the directive, for tools: see [`Inheritance`](crate::Inheritance).
#[macro_export]
macro_rules! rows {
    (
        $vis:vis static $rows:ident, module $module:literal;
        $(
            $(#[doc = $doc:literal])*
            $($block:ident)? $name:literal => $function:expr,
            in $($context:ident)|+,
            take $arity:expr,
            $(inheritance $inheritance:ident,)?
            $(default $default:literal,)?
            args $args:literal;
        )*
    ) => {
        /// The rows of the table.
        $vis static $rows: &[$crate::Row] = &[$($crate::Row {
            name: $name,
            module: $module,
            doc: &[$($doc),*],
            contexts: $crate::Context::NONE$(.or($crate::Context::$context))+,
            args: $args,
            default: $crate::__row!(@default $($default)?),
            arity: {
                #[allow(unused_imports)]
                use $crate::arity::*;
                $arity
            },
            inheritance: $crate::__row!(@inheritance $($inheritance)?),
            block: $crate::__row!(@block $($block)?),
            apply: |cx, node| $function(cx, node),
        }),*];
    };
}

/// A setting that is one of several words. Case does not matter, as in nginx.
///
/// ```
/// nowait_conf::setting_enum! {
///     /// Which access checks have to pass.
///     pub enum Satisfy { All = "all", Any = "any" }
/// }
/// ```
#[macro_export]
macro_rules! setting_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $type { $($(#[$vmeta])* $variant),+ }

        impl $type {
            /// The words and their meanings.
            #[allow(dead_code)]
            $vis const WORDS: &'static [(&'static str, $type)] = &[$(($word, $type::$variant)),+];
        }

        impl $crate::Value for $type {
            fn from_word(text: &[u8]) -> Result<Self, $crate::ValueError> {
                $crate::__private::word_of(text, Self::WORDS)
            }
        }
    };
}

/// A setting that is a set of words, all arguments of one directive.
///
/// ```
/// nowait_conf::setting_flags! {
///     /// When a proxied response may be compressed.
///     pub struct GzipProxied { EXPIRED = "expired", NO_CACHE = "no-cache" }
/// }
/// ```
#[macro_export]
macro_rules! setting_flags {
    (
        $(#[$meta:meta])*
        $vis:vis struct $type:ident { $($(#[$vmeta:meta])* $flag:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $type(u32);

        #[allow(dead_code)]
        impl $type {
            $crate::__row!(@flags $vis $type 0u32; $($(#[$vmeta])* $flag)+);

            /// The words and their meanings.
            $vis const WORDS: &'static [(&'static str, $type)] = &[$(($word, $type::$flag)),+];

            /// Whether all flags of `other` are set.
            $vis const fn contains(self, other: $type) -> bool {
                self.0 & other.0 == other.0
            }

            /// The flags of both.
            $vis const fn or(self, other: $type) -> $type {
                $type(self.0 | other.0)
            }
        }

        impl $crate::Setting for $type {
            const ARITY: $crate::Arity = $crate::arity::at_least(1);

            fn parse(
                node: &$crate::Node,
                cx: &mut $crate::Cx<'_>,
            ) -> Result<Self, $crate::Diagnostic> {
                let mut all = $type(0);
                for word in &node.args {
                    let flag = $crate::__private::word_of(&word.text, Self::WORDS)
                        .map_err(|invalid| invalid.in_node(node, word))?;
                    if all.contains(flag) {
                        let text = format!("duplicate value \"{word}\"");
                        cx.report($crate::Diagnostic::warn(text).at(word.span));
                    }
                    all = all.or(flag);
                }
                Ok(all)
            }

            /// Several directives of one block add up.
            fn again(
                &mut self,
                node: &$crate::Node,
                cx: &mut $crate::Cx<'_>,
            ) -> Result<(), $crate::Diagnostic> {
                *self = self.or(<Self as $crate::Setting>::parse(node, cx)?);
                Ok(())
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __row {
    (@name $prefix:literal, $field:ident) => { concat!($prefix, stringify!($field)) };
    (@name $prefix:literal, $field:ident $name:literal) => { concat!($prefix, $name) };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@given) => { false };
    (@given $default:literal) => { true };
    (@inheritance) => { $crate::Inheritance::Unknown };
    (@inheritance $inheritance:ident) => { $crate::Inheritance::$inheritance };
    (@block) => { false };
    (@block block) => { true };
    (@apply $cx:ident, $conf:ident, $layer:ident, $field:ident, $type:ty, [$name:expr]) => {};
    (@apply $cx:ident, $conf:ident, $layer:ident, $field:ident, $type:ty, [$name:expr] $default:literal) => {
        $crate::__private::default_from_text($cx, $conf::ROWS, $name, $default);
    };
    (@apply $cx:ident, $conf:ident, $layer:ident, $field:ident, $type:ty, [$name:expr] $default:literal => $computed:path) => {
        let value: $type = $computed($cx);
        $cx.layer::<$layer>().$field = <$type as $crate::Field>::given(value);
    };
    (@flags $vis:vis $type:ident $bit:expr;) => {};
    (@flags $vis:vis $type:ident $bit:expr; $(#[$meta:meta])* $flag:ident $($rest:tt)*) => {
        $(#[$meta])*
        $vis const $flag: $type = $type(1 << ($bit));
        $crate::__row!(@flags $vis $type $bit + 1; $($rest)*);
    };
}

/// Functions called by the macros.
#[doc(hidden)]
pub mod private {
    use super::*;
    use crate::cx::Scope;
    use crate::field::ValueError;
    use crate::nearest::nearest;
    use std::sync::Arc;

    /// The settings of a table for a chain of blocks.
    pub fn resolved<L: Default + 'static, C: 'static>(
        cx: &mut Cx<'_>,
        scopes: &[&Scope],
        has_own: bool,
        defaults: fn(&mut Cx<'_>) -> L,
        merge: fn(&[&L]) -> C,
    ) -> Arc<C> {
        cx.resolved(scopes, has_own, defaults, merge)
    }

    /// Applies the default text of a row.
    ///
    /// # Panics
    /// If the text is not valid for the directive: a mistake in the table that every test which
    /// resolves the table shows.
    pub fn default_from_text(cx: &mut Cx<'_>, rows: &[Row], name: &str, text: &str) {
        let row = rows.iter().find(|row| row.name == name).expect("the row is of this table");
        let node = Node {
            name: Word::built_in(name),
            args: words(text),
            block: None,
            span: crate::Span::BUILT_IN,
            close: None,
            entries: None,
        };
        assert!(row.arity.allows(node.args.len()), "default of \"{name}\": number of arguments");
        if let Err(error) = (row.apply)(cx, &node) {
            panic!("default of \"{name}\": {}", error.message());
        }
    }

    fn words(text: &str) -> Vec<Word> {
        let text = format!("{text};");
        let mut lexer = Lexer::new(FileId::BUILT_IN, text.as_bytes());
        let mut words = Vec::new();
        while let Ok(Token::Word(word)) = lexer.next() {
            words.push(Word { span: crate::Span::BUILT_IN, ..word.word() });
        }
        words
    }

    /// The meaning of a word, without regard to case.
    pub fn word_of<T: Copy>(text: &[u8], words: &[(&'static str, T)]) -> Result<T, ValueError> {
        if let Some((_, value)) =
            words.iter().find(|(w, _)| w.as_bytes().eq_ignore_ascii_case(text))
        {
            return Ok(*value);
        }
        let text = String::from_utf8_lossy(text);
        let list: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let invalid = ValueError::message(format!("invalid value \"{text}\""))
            .expected(format!("one of {}", list.join(", ")));
        Err(match nearest(&text, words.iter().map(|(word, _)| *word)) {
            Some(near) => invalid.hint(format!("did you mean \"{near}\"?")),
            None => invalid,
        })
    }
}
