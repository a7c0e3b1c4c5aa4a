//! Settings of changed header fields.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Word};
use nowait_http::variables::complex::Complex;
use nowait_message::scan::is_token;

nowait_conf::rows! {
    pub static ROWS, module "more_headers";

    /// Sets fields of response headers, for every status: a field that exists is replaced, others are
    /// added. A field without a value is removed. `-s` restricts the change to statuses, `-t` to content
    /// types (several in one word, separated by blanks); `-a` adds lines and replaces none. Applies before
    /// `add_header`, to fields of files and upstream servers alike. Lines of outer blocks apply first.
    /// Fields that frame the response, such as `Content-Length`, can't be set.
    "more_set_headers" => set_output, in HTTP | SERVER | LOCATION | LOCATION_IF, take at_least(1), inheritance List,
        args "[-t types] ... [-s statuses] ... [-a] 'name: value' ...";
    /// Removes fields of response headers; `*` at the end of a name stands for any rest. The options
    /// are those of `more_set_headers`.
    "more_clear_headers" => clear_output, in HTTP | SERVER | LOCATION | LOCATION_IF, take at_least(1), inheritance List,
        args "[-t types] ... [-s statuses] ... name ...";
    /// Sets fields of request headers after rewriting; `Host` changes `$host`, too, but not the
    /// server. A field without a value is removed. `-r`: only fields that the client has sent; `-t`:
    /// only of requests with these content types. Lines of outer blocks apply first.
    "more_set_input_headers" => set_input, in HTTP | SERVER | LOCATION | LOCATION_IF,
        take at_least(1), inheritance List, args "[-r] [-t types] ... 'name: value' ...";
    /// Removes fields of request headers; `*` at the end of a name stands for any rest.
    "more_clear_input_headers" => clear_input, in HTTP | SERVER | LOCATION | LOCATION_IF,
        take at_least(1), inheritance List, args "[-t types] ... name ...";
}

/// The lines of a block, in their order.
#[derive(Default)]
struct Lines {
    output: Vec<HeaderChange>,
    input: Vec<HeaderChange>,
}

fn set_output(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let change = parse(node, cx, Kind::SetOutput)?;
    cx.layer::<Lines>().output.push(change);
    Ok(())
}

fn clear_output(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let change = parse(node, cx, Kind::ClearOutput)?;
    cx.layer::<Lines>().output.push(change);
    Ok(())
}

fn set_input(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let change = parse(node, cx, Kind::SetInput)?;
    cx.layer::<Lines>().input.push(change);
    Ok(())
}

fn clear_input(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let change = parse(node, cx, Kind::ClearInput)?;
    cx.layer::<Lines>().input.push(change);
    Ok(())
}

/// One directive: the fields to change, and the conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChange {
    /// The fields.
    pub fields: Vec<FieldChange>,
    /// Only with these statuses, if there are any.
    pub statuses: Vec<u16>,
    /// Only with these content types, if there are any; in lower case, without parameters.
    pub types: Vec<Bytes>,
    /// `-a`
    pub adds: bool,
    /// `-r`
    pub replaces: bool,
}

/// The change of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// The name, or a prefix of names.
    pub name: Bytes,
    /// Whether the name had an asterisk at its end.
    pub prefix: bool,
    /// The value; `None`: the field is removed.
    pub value: Option<Complex>,
}

impl FieldChange {
    /// Whether the name matches a field.
    pub fn is_about(&self, name: &[u8]) -> bool {
        match self.prefix {
            true => {
                let start = name.get(..self.name.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(&self.name))
            }
            false => name.eq_ignore_ascii_case(&self.name),
        }
    }
}

impl HeaderChange {
    /// Whether it applies to content of this type.
    pub fn suits_type(&self, content_type: Option<&[u8]>) -> bool {
        if self.types.is_empty() {
            return true;
        }
        let Some(whole) = content_type else { return false };
        let kind = whole.split(|&c| c == b';').next().unwrap_or_default().trim_ascii();
        self.types.iter().any(|one| one.eq_ignore_ascii_case(kind))
    }

    /// Whether it applies to a response with this status.
    pub fn suits_status(&self, status: u16) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }
}

/// The directive of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    SetOutput,
    ClearOutput,
    SetInput,
    ClearInput,
}

impl Kind {
    fn is_output(self) -> bool {
        matches!(self, Self::SetOutput | Self::ClearOutput)
    }

    fn clears(self) -> bool {
        matches!(self, Self::ClearOutput | Self::ClearInput)
    }
}

/// Fields that the server computes from the message.
const FRAMING: &[&str] =
    &["connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade"];

/// Request fields that frame the content.
const INPUT_FRAMING: &[&str] = &["content-length", "transfer-encoding"];

fn parse(node: &Node, cx: &mut Cx<'_>, kind: Kind) -> Result<HeaderChange, Diagnostic> {
    let mut change = HeaderChange::default();
    let mut words = node.args.iter();
    while let Some(word) = words.next() {
        let option = match word.quoted {
            true => None,
            false => word.text.strip_prefix(b"-"),
        };
        let mut list = || {
            let missing = || word.error(format!("\"{word}\" needs a value"));
            words.next().ok_or_else(missing).map(|word| (word, split(word)))
        };
        match option {
            None => change.fields.push(field(word, cx, kind)?),
            Some(b"t") => {
                let (_, parts) = list()?;
                change.types.extend(parts.map(|part| part.to_ascii_lowercase().into()));
            }
            Some(b"s") if kind.is_output() => {
                let (word, parts) = list()?;
                for part in parts {
                    let status = std::str::from_utf8(part).ok().and_then(|text| text.parse().ok());
                    let status = status.filter(|status| (100..1000).contains(status));
                    let wrong = || word.error(format!("invalid status in \"{word}\""));
                    change.statuses.push(status.ok_or_else(wrong)?);
                }
            }
            Some(b"a") if kind == Kind::SetOutput => change.adds = true,
            Some(b"r") if kind == Kind::SetInput => change.replaces = true,
            Some(_) => {
                let known = match kind {
                    Kind::SetOutput => "-t, -s or -a",
                    Kind::ClearOutput => "-t or -s",
                    Kind::SetInput => "-t or -r",
                    Kind::ClearInput => "-t",
                };
                return Err(word.error(format!("invalid option \"{word}\"")).expected(known));
            }
        }
    }
    match change.fields.is_empty() {
        true => Err(node.directive_error("no header field is named")),
        false => Ok(change),
    }
}

/// The parts of a word that are separated by blanks.
fn split(word: &Word) -> impl Iterator<Item = &[u8]> {
    word.text.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty())
}

fn field(word: &Word, cx: &mut Cx<'_>, kind: Kind) -> Result<FieldChange, Diagnostic> {
    let colon = word.text.iter().position(|&c| c == b':');
    let (name, value) = word.text.split_at(colon.unwrap_or(word.text.len()));
    let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii();
    let name = name.trim_ascii();
    let (start, prefix) = match name.strip_suffix(b"*") {
        Some(start) if kind.clears() => (start, true),
        _ => (name, false),
    };
    if !is_token(name) || name.is_empty() {
        let text = format!("invalid header field \"{word}\"");
        let expected = if kind.clears() { "a name" } else { "\"name: value\"" };
        return Err(word.error(text).expected(expected));
    }
    let framing = if kind.is_output() { FRAMING } else { INPUT_FRAMING };
    if !prefix && framing.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name)) {
        let name = String::from_utf8_lossy(name);
        return Err(word
            .error(format!("\"{name}\" can't be changed"))
            .hint("it follows from what is sent: see \"chunked_transfer_encoding\" and \"keepalive_timeout\""));
    }
    let value = match value {
        _ if kind.clears() => None,
        b"" => None,
        value => {
            let word = Word { text: value.to_vec(), ..word.clone() };
            Some(nowait_http::conf::complex(&word, cx)?)
        }
    };
    Ok(FieldChange { name: Bytes::copy_from_slice(start), prefix, value })
}

/// The lines in effect for a chain of blocks, those of the outermost first: of responses, and of
/// requests.
pub fn in_effect(chain: &[&Scope]) -> (Vec<HeaderChange>, Vec<HeaderChange>) {
    let (mut output, mut input) = (Vec::new(), Vec::new());
    for lines in chain.iter().filter_map(|scope| scope.get::<Lines>()) {
        output.extend_from_slice(&lines.output);
        input.extend_from_slice(&lines.input);
    }
    (output, input)
}
