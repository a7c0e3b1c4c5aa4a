//! The header field `If` (RFC 4918 section 10.4): conditions on locks and entity tags.

/// Maximum number of conditions in a field.
const CONDITIONS_MAX: usize = 128;

/// The lists of a field. One of them must be true.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct If<'a>(pub Vec<List<'a>>);

/// Conditions of which all must be true.
#[derive(Debug, PartialEq, Eq)]
pub struct List<'a> {
    /// The URI that they are about; none: that of the request.
    pub resource: Option<&'a [u8]>,
    pub conditions: Vec<Condition<'a>>,
}

/// A condition.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Whether the condition is negated (`Not`).
    pub not: bool,
    pub test: Test<'a>,
}

/// The value that a condition compares.
#[derive(Debug, PartialEq, Eq)]
pub enum Test<'a> {
    /// The resource is locked with this token.
    Token(&'a [u8]),
    /// The resource has this entity tag, quotes included.
    Tag(&'a [u8]),
}

impl<'a> If<'a> {
    /// Reads a field; `None`: it is malformed, or has too many conditions.
    pub fn parse(text: &'a [u8]) -> Option<If<'a>> {
        let mut lists = Vec::new();
        let mut left = CONDITIONS_MAX;
        let mut resource = None;
        let mut rest = text.trim_ascii();
        // A resource must be followed by a list.
        let mut pending = true;
        while let Some((&first, after)) = rest.split_first() {
            match first {
                b'<' if resource.is_some() || lists.is_empty() => {
                    if resource.is_some() && pending {
                        return None;
                    }
                    let (uri, after) = until(after, b'>')?;
                    (resource, rest, pending) = (Some(uri), after, true);
                }
                b'(' => {
                    let (conditions, after) = list(after, &mut left)?;
                    lists.push(List { resource, conditions });
                    (rest, pending) = (after, false);
                }
                _ => return None,
            }
            rest = rest.trim_ascii_start();
        }
        (!pending).then_some(If(lists))
    }

    /// All tokens in the field, which the client thereby submits.
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> {
        let conditions = self.0.iter().flat_map(|list| &list.conditions);
        conditions.filter_map(|condition| match condition.test {
            Test::Token(token) => Some(token),
            Test::Tag(_) => None,
        })
    }
}

/// The text before a byte, and the text after it.
fn until(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == end)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The conditions before `)`, and the text after it.
fn list<'a>(mut rest: &'a [u8], left: &mut usize) -> Option<(Vec<Condition<'a>>, &'a [u8])> {
    let mut conditions = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(b")") {
            return (!conditions.is_empty()).then_some((conditions, after));
        }
        let not = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"not"));
        if not {
            rest = rest[3..].trim_ascii_start();
        }
        let (&first, after) = rest.split_first()?;
        let (test, after) = match first {
            b'<' => until(after, b'>').map(|(token, after)| (Test::Token(token), after))?,
            b'[' => until(after, b']').map(|(tag, after)| (Test::Tag(tag), after))?,
            _ => return None,
        };
        *left = left.checked_sub(1)?;
        conditions.push(Condition { not, test });
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let token = |not, token| Condition { not, test: Test::Token(token) };
        let tag = |not, tag| Condition { not, test: Test::Tag(tag) };
        let field = If::parse(b"(<t> [\"e\"])\t(Not <DAV:no-lock>)").expect("it is well-formed");
        let list = |resource, conditions| List { resource, conditions };
        let expected = [
            list(None, vec![token(false, b"t"), tag(false, b"\"e\"")]),
            list(None, vec![token(true, b"DAV:no-lock")]),
        ];
        assert_eq!(field.0, expected);
        let tokens: Vec<_> = field.tokens().collect();
        assert_eq!(tokens, [&b"t"[..], b"DAV:no-lock"]);
        let field = If::parse(b"</a> (<t>)(not[W/\"e\"]) <http://h/b>(<u>)").expect("tagged");
        let expected = [
            list(Some(b"/a"), vec![token(false, b"t")]),
            list(Some(b"/a"), vec![tag(true, b"W/\"e\"")]),
            list(Some(b"http://h/b"), vec![token(false, b"u")]),
        ];
        assert_eq!(field.0, expected);
    }

    #[test]
    fn malformed_fields() {
        for text in [
            "",
            " ",
            "t",
            "()",
            "(<t>",
            "(<t)",
            "(t)",
            "(Not)",
            "</a>",
            "</a> </b> (<t>)",
            "(<t>) </a> (<t>)",
            "</a> (<t>) </b>",
            "(<t>) x",
            "([\"e\")",
            "((<t>))",
        ] {
            assert_eq!(If::parse(text.as_bytes()), None, "{text}");
        }
        let many = "(<t>)".repeat(CONDITIONS_MAX + 1);
        assert_eq!(If::parse(many.as_bytes()), None);
    }
}
