//! Texts with variables: `$name`, `${name}`, `$1`.
//!
//! Parsed when the configuration is read, compiled once against the variables' numbers, evaluated
//! per request without looking up a name.

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::field::Setting;
use crate::source::Span;
use crate::tree::{Node, Word};

/// Assigns numbers to variables.
pub trait VariableNames {
    /// The number of a variable, also of one that is defined later in the file. `None` if no such
    /// variable can exist.
    fn index(&mut self, name: &[u8]) -> Option<u32>;
}

/// A parsed text with the names of its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<NamedPart>,
    span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamedPart {
    Literal(Vec<u8>),
    Variable(Vec<u8>),
    Capture(u8),
}

/// A text ready for evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CompiledTemplate {
    parts: Box<[Part]>,
}

/// A piece of a [`CompiledTemplate`] text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Literal(Box<[u8]>),
    /// The number that [`VariableNames`] gave.
    Variable(u32),
    /// A group of the last regular expression, 1 to 9.
    Capture(u8),
}

impl Template {
    /// Parses a word. Errors are nginx's: `invalid variable name`, `the closing bracket in "NAME"
    /// variable is missing`.
    pub fn parse(word: &Word) -> Result<Template, Diagnostic> {
        let parts = parts(&word.text).map_err(|error| match error {
            Error::Name => word
                .error("invalid variable name")
                .expected("a name of letters, digits and \"_\" after \"$\"")
                .hint("a literal \"$\" can't be written here, except as the value of a variable"),
            Error::Bracket(name) => {
                let name = String::from_utf8_lossy(&name);
                word.error(format!("the closing bracket in \"{name}\" variable is missing"))
            }
        })?;
        Ok(Template { parts, span: word.span })
    }

    /// A text without variables.
    pub fn literal(text: impl Into<Vec<u8>>) -> Template {
        let text = text.into();
        let parts = if text.is_empty() { vec![] } else { vec![NamedPart::Literal(text)] };
        Template { parts, span: Span::BUILT_IN }
    }

    /// The value of one variable, whose name may have bytes that `$name` in a text cannot have (nginx: a
    /// parameter such as `create=$name`, `cookie_` and the name of a cookie).
    pub fn variable(name: impl Into<Vec<u8>>, span: Span) -> Template {
        Template { parts: vec![NamedPart::Variable(name.into())], span }
    }

    /// Whether it has no variables and no captures.
    pub fn is_constant(&self) -> bool {
        self.constant().is_some()
    }

    /// The text, if it has no variables and no captures.
    pub fn constant(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [NamedPart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The names of the variables.
    pub fn variables(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().filter_map(|part| match part {
            NamedPart::Variable(name) => Some(name.as_slice()),
            _ => None,
        })
    }

    /// Whether it uses `$1` to `$9`.
    pub fn has_captures(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, NamedPart::Capture(_)))
    }

    /// Position in the configuration in the configuration.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Completes a relative file name: a text that starts with neither `/` nor a variable gets
    /// `prefix` in front (nginx: `ngx_http_compile_complex_value` with `root_prefix`).
    pub fn with_prefix(mut self, prefix: &[u8]) -> Template {
        match self.parts.first_mut() {
            Some(NamedPart::Literal(text)) if text.first() != Some(&b'/') => {
                text.splice(0..0, prefix.iter().copied());
            }
            None => self.parts.push(NamedPart::Literal(prefix.to_vec())),
            _ => {}
        }
        self
    }

    /// Replaces names by numbers. The error is nginx's `unknown "NAME" variable`.
    pub fn compile(&self, names: &mut dyn VariableNames) -> Result<CompiledTemplate, Diagnostic> {
        let parts = self.parts.iter().map(|part| match part {
            NamedPart::Literal(text) => Ok(Part::Literal(text.as_slice().into())),
            NamedPart::Capture(n) => Ok(Part::Capture(*n)),
            NamedPart::Variable(name) => names.index(name).map(Part::Variable).ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                Diagnostic::emerg(format!("unknown \"{name}\" variable")).at(self.span)
            }),
        });
        Ok(CompiledTemplate { parts: parts.collect::<Result<_, _>>()? })
    }
}

impl Setting for Template {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Template, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Template::parse(word)
    }
}

impl CompiledTemplate {
    /// A text without variables.
    pub fn literal(text: &[u8]) -> CompiledTemplate {
        if text.is_empty() {
            return CompiledTemplate::default();
        }
        CompiledTemplate { parts: Box::new([Part::Literal(text.into())]) }
    }

    /// The pieces in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The same.
    pub fn into_parts(self) -> Box<[Part]> {
        self.parts
    }

    /// Whether it has no variables and no captures.
    pub fn is_constant(&self) -> bool {
        self.constant().is_some()
    }

    /// The text, if it has no variables and no captures.
    pub fn constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends the text to `out`. `resolve` appends the value of a variable or a capture; it is
    /// never called with a literal.
    pub fn evaluate(&self, out: &mut Vec<u8>, mut resolve: impl FnMut(&Part, &mut Vec<u8>)) {
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                part => resolve(part, out),
            }
        }
    }
}

enum Error {
    Name,
    Bracket(Vec<u8>),
}

fn parts(text: &[u8]) -> Result<Vec<NamedPart>, Error> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.iter().position(|&b| b == b'$') {
        if dollar > 0 {
            parts.push(NamedPart::Literal(rest[..dollar].to_vec()));
        }
        let (part, length) = variable(&rest[dollar + 1..])?;
        parts.push(part);
        rest = &rest[dollar + 1 + length..];
    }
    if !rest.is_empty() {
        parts.push(NamedPart::Literal(rest.to_vec()));
    }
    Ok(parts)
}

/// The variable that follows a `$`, and its length.
fn variable(rest: &[u8]) -> Result<(NamedPart, usize), Error> {
    let bracket = match rest.first() {
        Some(&digit @ b'1'..=b'9') => return Ok((NamedPart::Capture(digit - b'0'), 1)),
        Some(b'{') => 1,
        _ => 0,
    };
    let name = &rest[bracket..];
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let length = name.iter().take_while(|b| is_name(b)).count();
    let name = &name[..length];
    if bracket == 1 && rest.len() == 1 {
        return Err(Error::Name);
    }
    if bracket == 1 && rest.get(1 + length) != Some(&b'}') {
        return Err(Error::Bracket(name.to_vec()));
    }
    if name.is_empty() {
        return Err(Error::Name);
    }
    Ok((NamedPart::Variable(name.to_vec()), length + 2 * bracket))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names(Vec<Vec<u8>>);

    impl VariableNames for Names {
        fn index(&mut self, name: &[u8]) -> Option<u32> {
            if name == b"unknown" {
                return None;
            }
            let at = self.0.iter().position(|n| n == name).unwrap_or_else(|| {
                self.0.push(name.to_vec());
                self.0.len() - 1
            });
            Some(at as u32)
        }
    }

    fn evaluated(text: &str) -> String {
        let mut names = Names(Vec::new());
        let template = Template::parse(&Word::built_in(text)).unwrap();
        let compiled = template.compile(&mut names).unwrap();
        let mut out = Vec::new();
        compiled.evaluate(&mut out, |part, out| match part {
            Part::Variable(n) => out.extend([b"<", names.0[*n as usize].as_slice(), b">"].concat()),
            Part::Capture(n) => out.extend(format!("({n})").bytes()),
            Part::Literal(_) => unreachable!(),
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn evaluates() {
        assert_eq!(evaluated(""), "");
        assert_eq!(evaluated("plain"), "plain");
        assert_eq!(evaluated("$host$uri"), "<host><uri>");
        assert_eq!(evaluated("a${host}b$1c$12"), "a<host>b(1)c(1)2");
        assert_eq!(evaluated("$arg_x-y"), "<arg_x>-y");
        assert_eq!(evaluated("$0a"), "<0a>");
    }

    #[test]
    fn errors() {
        let error =
            |text: &str| Template::parse(&Word::built_in(text)).unwrap_err().message().to_owned();
        for text in ["$", "a$", "$-", "${", "$$", "${}"] {
            assert_eq!(error(text), "invalid variable name", "{text}");
        }
        assert_eq!(error("${host"), "the closing bracket in \"host\" variable is missing");
        assert_eq!(error("${ho-st}"), "the closing bracket in \"ho\" variable is missing");
        let template = Template::parse(&Word::built_in("$unknown")).unwrap();
        let error = template.compile(&mut Names(Vec::new())).unwrap_err();
        assert_eq!(error.message(), "unknown \"unknown\" variable");
    }

    #[test]
    fn constants_and_prefixes() {
        let parse = |text: &str| Template::parse(&Word::built_in(text)).unwrap();
        assert_eq!(parse("html").with_prefix(b"/p/").constant(), Some(&b"/p/html"[..]));
        assert_eq!(parse("/html").with_prefix(b"/p/").constant(), Some(&b"/html"[..]));
        assert!(!parse("$x").with_prefix(b"/p/").is_constant());
        assert_eq!(parse("$x/a").with_prefix(b"/p/").parts.len(), 2);
        assert_eq!(parse("").constant(), Some(&b""[..]));
        assert_eq!(parse("$a$b").variables().collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
