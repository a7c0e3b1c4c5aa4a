//! `log_format`: from its text to a line.
//!
//! A format is parsed and compiled once ([`LogFormat::compile`]); a request renders it into a
//! buffer that it reuses. Values are appended by the caller and escaped in place, so that a value
//! without special bytes is copied once.

use nowait_conf::{CompiledTemplate, Diagnostic, Part, Template, VariableNames};

use super::escape;

/// `escape=` of `log_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// `"`, `\` and bytes other than printable ASCII as `\xXX`; a missing value is `-`.
    #[default]
    Default,
    /// As the inside of a JSON string; a missing value is empty.
    Json,
    /// Unescaped; a missing value is empty.
    None,
}

/// A format with the names of its variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFormat {
    /// As in `log_format NAME`.
    pub name: String,
    /// The escaping of values.
    pub escape: Escape,
    /// The strings, which are written without separators.
    pub texts: Vec<Template>,
}

/// A format ready for rendering.
#[derive(Debug, Clone, Default)]
pub struct CompiledFormat {
    escape: Escape,
    parts: Box<[Part]>,
}

impl LogFormat {
    /// Replaces names of variables by numbers.
    pub fn compile(&self, names: &mut dyn VariableNames) -> Result<CompiledFormat, Diagnostic> {
        let texts: Result<Vec<CompiledTemplate>, _> =
            self.texts.iter().map(|text| text.compile(names)).collect();
        Ok(CompiledFormat::new(self.escape, &texts?))
    }
}

impl CompiledFormat {
    /// A format from compiled texts.
    pub fn new(escape: Escape, texts: &[CompiledTemplate]) -> CompiledFormat {
        let mut parts: Vec<Part> = Vec::new();
        for part in texts.iter().flat_map(|text| text.parts()) {
            match (parts.last_mut(), part) {
                (Some(Part::Literal(last)), Part::Literal(next)) => {
                    *last = [&last[..], &next[..]].concat().into();
                }
                _ => parts.push(part.clone()),
            }
        }
        CompiledFormat { escape, parts: parts.into() }
    }

    /// Appends a line without line feed. `value` appends the raw value of a variable or capture,
    /// or returns false and appends nothing if there is none.
    pub fn render(&self, out: &mut Vec<u8>, mut value: impl FnMut(&Part, &mut Vec<u8>) -> bool) {
        for part in &self.parts {
            if let Part::Literal(text) = part {
                out.extend_from_slice(text);
                continue;
            }
            let from = out.len();
            match (value(part, out), self.escape) {
                (true, Escape::None) | (false, Escape::None | Escape::Json) => {}
                (true, Escape::Default) => {
                    escape_from(out, from, escape::needs_log, escape::push_log);
                }
                (true, Escape::Json) => {
                    escape_from(out, from, escape::needs_json, escape::push_json);
                }
                (false, Escape::Default) => out.push(b'-'),
            }
        }
    }
}

/// Escapes the end of a buffer, which usually needs no change.
fn escape_from(
    out: &mut Vec<u8>,
    from: usize,
    needs: fn(&[u8]) -> bool,
    push: fn(&mut Vec<u8>, &[u8]),
) {
    if needs(&out[from..]) {
        let raw = out.split_off(from);
        push(out, &raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_conf::Word;

    struct FormatNamespace(Vec<Vec<u8>>);

    impl VariableNames for FormatNamespace {
        fn index(&mut self, name: &[u8]) -> Option<u32> {
            if name == b"unknown" {
                return None;
            }
            self.0.push(name.to_vec());
            Some(self.0.len() as u32 - 1)
        }
    }

    fn render(escape: Escape, texts: &[&str]) -> String {
        let texts = texts.iter().map(|text| Template::parse(&Word::built_in(*text)).unwrap());
        let format = LogFormat { name: "x".into(), escape, texts: texts.collect() };
        let mut names = FormatNamespace(Vec::new());
        let format = format.compile(&mut names).unwrap();
        let mut out = b"before ".to_vec();
        format.render(&mut out, |part, out| match part {
            Part::Variable(index) => match &names.0[*index as usize][..] {
                b"missing" => false,
                b"empty" => true,
                b"special" => {
                    out.extend_from_slice(b"a\"\\\n\xc3\xa4");
                    true
                }
                name => {
                    out.extend_from_slice(name);
                    true
                }
            },
            _ => false,
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escaping_is_of_values_only() {
        let texts = ["\"$plain\" ", "$missing$empty|", "$special\\"];
        assert_eq!(
            render(Escape::Default, &texts),
            "before \"plain\" -|a\\x22\\x5C\\x0A\\xC3\\xA4\\"
        );
        assert_eq!(render(Escape::Json, &texts), "before \"plain\" |a\\\"\\\\\\nä\\");
        assert_eq!(render(Escape::None, &texts), "before \"plain\" |a\"\\\nä\\");
    }

    #[test]
    fn literals_are_joined() {
        let texts: Vec<CompiledTemplate> =
            ["a", "b"].map(|text| CompiledTemplate::literal(text.as_bytes())).into();
        assert_eq!(CompiledFormat::new(Escape::Default, &texts).parts.len(), 1);
    }

    #[test]
    fn unknown_variables_are_errors() {
        let texts = vec![Template::parse(&Word::built_in("$unknown")).unwrap()];
        let format = LogFormat { name: "x".into(), escape: Escape::Default, texts };
        let error = format.compile(&mut FormatNamespace(Vec::new())).unwrap_err();
        assert_eq!(error.message(), "unknown \"unknown\" variable");
    }
}
