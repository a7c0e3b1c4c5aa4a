//! URLs that the configuration assigns to variables (`set`, `map`), kept so that a directive that
//! takes a URL from a variable can warn about a scheme that it does not support.
//!
//! Filled while the configuration is read, and dropped afterwards.

use nowait_conf::{Cx, Span, Word};

/// Maximum number of URLs kept; further ones are not checked.
const ASSIGNED_MAX: usize = 10_000;

/// The URLs that variables may have.
#[derive(Default)]
pub struct Assigned(Vec<Url>);

struct Url {
    variable: String,
    text: Vec<u8>,
    span: Span,
}

/// Notes the value of a variable if it begins with a scheme.
pub fn note(cx: &mut Cx<'_>, variable: &str, value: &Word) {
    let Some(_) = scheme(&value.text) else { return };
    let Assigned(known) = cx.global::<Assigned>();
    if known.len() < ASSIGNED_MAX {
        let (variable, text) = (variable.to_ascii_lowercase(), value.text.clone());
        known.push(Url { variable, text, span: value.span });
    }
}

impl Assigned {
    /// The URLs of a variable whose scheme is not among `supported`: text and place.
    pub fn unsupported<'a>(
        &'a self,
        variable: &str,
        supported: &'a [&str],
    ) -> impl Iterator<Item = (&'a [u8], Span)> {
        let variable = variable.to_ascii_lowercase();
        let fits = |text: &[u8]| {
            let scheme = scheme(text).unwrap_or_default();
            supported.iter().any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
        };
        self.0
            .iter()
            .filter(move |url| url.variable == variable && !fits(&url.text))
            .map(|url| (&url.text[..], url.span))
    }
}

/// The variable that a text begins with: `$name` or `${name}`.
pub fn leading_variable(text: &[u8]) -> Option<&str> {
    let rest = text.strip_prefix(b"$")?;
    let name = match rest.strip_prefix(b"{") {
        Some(braced) => braced.split(|&b| b == b'}').next()?,
        None => {
            let end = rest.iter().position(|&b| !b.is_ascii_alphanumeric() && b != b'_');
            &rest[..end.unwrap_or(rest.len())]
        }
    };
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// The part before `://`. RFC 3986, section 3.1.
fn scheme(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|&b| b == b':')?;
    let scheme = &text[..end];
    let letters = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(letters);
    (valid && text[end..].starts_with(b"://")).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        for (text, expected) in [
            ("https://a/", Some("https")),
            ("HTTP://a", Some("HTTP")),
            ("unix:/a", None),
            ("$a://", None),
            ("://a", None),
            ("a", None),
        ] {
            assert_eq!(scheme(text.as_bytes()), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn leading_variables() {
        for (text, expected) in [
            ("$url", Some("url")),
            ("$url/path", Some("url")),
            ("${url}path", Some("url")),
            ("http://$url", None),
            ("$", None),
            ("${}", None),
        ] {
            assert_eq!(leading_variable(text.as_bytes()), expected, "{text}");
        }
    }
}
