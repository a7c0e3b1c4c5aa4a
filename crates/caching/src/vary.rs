//! The variant of a response for a request: encodes the fields named by `Vary` as bytes that are equal if
//! they select the same variant.
//!
//! nginx's form joins the lines of a field and removes spaces from three lists
//! (`ngx_http_file_cache_vary`); the strict form (RFC 9111 section 4.1) normalizes more, so that
//! more requests share a variant. The caller makes the key of a variant from it.

/// The longest list whose members are sorted; in longer ones the order matters.
const MEMBERS_MAX: usize = 32;

/// The comparison of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As nginx does.
    Nginx,
    /// "The header fields from two requests are defined to match if and only if those in the first
    /// request can be transformed to those in the second request by" white space, joined lines, and
    /// "normalizing both header field values in a way that is known to have identical semantics".
    Strict,
}

/// Distinguishes the variant for a request: `vary` is the field of the response, `fields` those of
/// the request.
pub fn distinction<'a>(
    vary: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    form: Form,
) -> Vec<u8> {
    let mut names: Vec<Vec<u8>> = vary
        .split(|b| b" ,\t".contains(b))
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    if form == Form::Strict {
        names.sort_unstable();
        names.dedup();
    }
    let mut out = Vec::new();
    for name in names {
        let lines =
            fields.clone().filter(|(n, _)| n.eq_ignore_ascii_case(&name)).map(|(_, value)| value);
        out.extend_from_slice(&name);
        out.push(b':');
        match form {
            Form::Nginx if is_plain_list(&name) => words(lines, &mut out),
            Form::Nginx => join(lines, &mut out),
            Form::Strict if is_weighted_list(&name) => sorted(lines, &mut out),
            Form::Strict => {
                // An absent field matches only an absent field.
                if lines.clone().next().is_some() {
                    out.push(b'=');
                }
                spaced(lines, &mut out);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Fields from which nginx removes spaces.
fn is_plain_list(name: &[u8]) -> bool {
    matches!(name, b"accept-charset" | b"accept-encoding" | b"accept-language")
}

/// Lists whose members may come in any order (RFC 9110 section 12.5), in any case.
fn is_weighted_list(name: &[u8]) -> bool {
    matches!(name, b"accept" | b"accept-charset" | b"accept-encoding" | b"accept-language")
}

fn join<'a>(lines: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    for (n, line) in lines.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(line);
    }
}

/// Joins lines without the white space that is insignificant in the syntax of lists and parameters:
/// at the ends, and beside `,` and `;`. Elsewhere any white space becomes one space; quoted text is
/// unchanged.
fn spaced<'a>(lines: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let mut quotes = Quotes::default();
    for (n, line) in lines.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        let mut space = false;
        let mut start = out.len();
        for &byte in line {
            let is_quoted = quotes.takes(byte);
            if !is_quoted && matches!(byte, b' ' | b'\t') {
                space = true;
                continue;
            }
            let separates = !is_quoted && matches!(byte, b',' | b';');
            if std::mem::take(&mut space) && !separates && out.len() > start {
                out.push(b' ');
            }
            out.push(byte);
            if separates {
                start = out.len();
            }
        }
        // A quoted string ends with its line.
        quotes = Quotes::default();
    }
}

/// Whether bytes are within a quoted string (RFC 9110 section 5.6.4).
#[derive(Default)]
struct Quotes {
    open: bool,
    escaped: bool,
}

impl Quotes {
    /// Whether the next byte is a part of a quoted string, its quotes included.
    fn takes(&mut self, byte: u8) -> bool {
        let was_open = self.open;
        if std::mem::take(&mut self.escaped) {
            return true;
        }
        match byte {
            b'"' => self.open = !self.open,
            b'\\' => self.escaped = was_open,
            _ => {}
        }
        was_open || byte == b'"'
    }
}

fn words<'a>(lines: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let words = lines.flat_map(|line| line.split(|b| b" ,".contains(b)));
    join(words.filter(|word| !word.is_empty()), out);
}

fn sorted<'a>(lines: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let mut members: Vec<Vec<u8>> =
        lines.flat_map(|line| line.split(|&b| b == b',')).map(normal).collect();
    members.retain(|member| !member.is_empty());
    if members.len() <= MEMBERS_MAX {
        members.sort_unstable();
        members.dedup();
    }
    if !members.is_empty() {
        out.push(b'=');
    }
    join(members.iter().map(|member| &member[..]), out);
}

/// A member in lower case, without white space and without the default weight.
fn normal(member: &[u8]) -> Vec<u8> {
    let mut member: Vec<u8> =
        member.iter().filter(|b| !b" \t".contains(b)).map(u8::to_ascii_lowercase).collect();
    for full in [&b";q=1.000"[..], b";q=1.00", b";q=1.0", b";q=1"] {
        if member.ends_with(full) {
            member.truncate(member.len() - full.len());
            break;
        }
    }
    member
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::random_cases;

    fn key(vary: &str, lines: &[(&str, &str)], form: Form) -> Vec<u8> {
        let fields = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        distinction(vary.as_bytes(), fields, form)
    }

    #[test]
    fn as_nginx() {
        let same = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            let vary = "Accept-Encoding, X-A";
            key(vary, a, Form::Nginx) == key(vary, b, Form::Nginx)
        };
        assert!(same(&[("accept-encoding", "gzip, br")], &[("Accept-Encoding", " gzip ,br ")]));
        assert!(same(
            &[("accept-encoding", "a"), ("accept-encoding", "b")],
            &[("Accept-Encoding", "a,b")]
        ));
        assert!(!same(&[("accept-encoding", "gzip, br")], &[("Accept-Encoding", "br, gzip")]));
        assert!(!same(&[("x-a", "b, c")], &[("x-a", "b,c")]));
        assert!(same(&[("x-b", "b")], &[]));
        assert!(same(&[("x-a", "")], &[]));
    }

    #[test]
    fn strict() {
        let same = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            let vary = "X-A ,Accept-Encoding";
            key(vary, a, Form::Strict) == key(vary, b, Form::Strict)
        };
        assert!(same(&[("accept-encoding", "GZIP;q=1.0, br")], &[("Accept-Encoding", "br,gzip")]));
        assert!(!same(&[("accept-encoding", "gzip;q=0.5")], &[("accept-encoding", "gzip")]));
        assert!(!same(&[("x-a", "")], &[]));
        assert!(same(&[("x-a", "a"), ("x-a", " b")], &[("X-A", "a,b")]));
        assert!(same(&[("x-a", "a , b ;  c=1, d  e ")], &[("X-A", "a,b;c=1,d e")]));
        assert!(same(&[("x-a", "a\t, \"b , c\"")], &[("X-A", "a,\"b , c\"")]));
        assert!(!same(&[("x-a", "\"b , c\"")], &[("X-A", "\"b,c\"")]));
        assert!(!same(&[("x-a", "\"b\\\" , c\"")], &[("X-A", "\"b\\\",c\"")]));
        assert!(!same(&[("x-a", "a b")], &[("X-A", "ab")]));
        assert!(!same(&[("x-a", "a b")], &[("X-A", "a,b")]));
        assert_eq!(key("a, b", &[], Form::Strict), key("B,A", &[], Form::Strict));
    }

    /// The order of the request's other fields never matters; a different value always does.
    #[test]
    fn any_requests() {
        random_cases(500, |random| {
            let names = ["accept", "accept-language", "cookie", "x-a", "other"];
            let mut lines: Vec<(&str, String)> = Vec::new();
            for name in names {
                if random.below(2) == 0 {
                    lines.push((name, format!("v{}", random.below(4))));
                }
            }
            let borrowed: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (*n, &v[..])).collect();
            let reversed: Vec<(&str, &str)> = borrowed.iter().rev().copied().collect();
            for form in [Form::Nginx, Form::Strict] {
                let vary = "x-a, cookie, accept";
                assert_eq!(key(vary, &borrowed, form), key(vary, &reversed, form));
                let mut changed = borrowed.clone();
                changed.retain(|(name, _)| *name != "x-a");
                changed.push(("x-a", "w"));
                assert_ne!(key(vary, &borrowed, form), key(vary, &changed, form));
            }
        });
    }
}
