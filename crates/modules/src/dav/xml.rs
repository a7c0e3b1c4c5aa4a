//! XML of request bodies and property values, as a small tree of namespaced names.
//!
//! Bounded in bytes, elements and depth. Document types are rejected, so there are only the predefined
//! entities. Never panics on any input.

use quick_xml::XmlVersion;
use quick_xml::events::Event;
use quick_xml::name::{Namespace, PrefixDeclaration, ResolveResult};
use quick_xml::reader::NsReader;

/// Longest document, in bytes.
pub const XML_BYTES_MAX: usize = 64 * 1024;

/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;

/// Maximum memory of a tree, in bytes: a namespace counts for each name in it.
const TREE_BYTES_MAX: usize = 512 * 1024;

/// Memory of an element or an attribute besides its texts, in bytes.
const FIXED: usize = 128;

/// The namespace of WebDAV.
pub const DAV: &str = "DAV:";

/// A name in a namespace, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub namespace: String,
    pub local: String,
}

impl Name {
    /// Whether it is this one of WebDAV's own.
    pub fn is_dav(&self, local: &str) -> bool {
        self.namespace == DAV && self.local == local
    }
}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub name: Name,
    pub attributes: Vec<(Name, String)>,
    pub content: Vec<Node>,
}

/// A part of an element's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Element(Element),
    Text(String),
}

/// The document is malformed, too large, or contains a forbidden construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XmlError;

impl<E: std::error::Error> From<E> for XmlError {
    fn from(_: E) -> Self {
        XmlError
    }
}

impl Element {
    /// Makes an empty element.
    pub fn new(name: Name) -> Element {
        Element { name, attributes: Vec::new(), content: Vec::new() }
    }

    /// The elements in it.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.content.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first element in it with this name of WebDAV's own.
    pub fn dav(&self, local: &str) -> Option<&Element> {
        self.elements().find(|element| element.name.is_dav(local))
    }

    fn text(&mut self, text: &str) -> Result<(), XmlError> {
        if !text.chars().all(is_char) {
            return Err(XmlError);
        }
        match self.content.last_mut() {
            Some(Node::Text(last)) => last.push_str(text),
            _ => self.content.push(Node::Text(text.to_owned())),
        }
        Ok(())
    }

    /// Writes it as part of a document in which `default` is the default namespace.
    pub fn write(&self, default: &str, out: &mut String) {
        out.push('<');
        out.push_str(&self.name.local);
        if self.name.namespace != default {
            out.push_str(" xmlns=\"");
            push_text(out, &self.name.namespace);
            out.push('"');
        }
        for (number, (name, value)) in self.attributes.iter().enumerate() {
            match &name.namespace[..] {
                "" => out.push_str(&format!(" {}=\"", name.local)),
                XML => out.push_str(&format!(" xml:{}=\"", name.local)),
                namespace => {
                    out.push_str(&format!(" xmlns:a{number}=\""));
                    push_text(out, namespace);
                    out.push_str(&format!("\" a{number}:{}=\"", name.local));
                }
            }
            push_text(out, value);
            out.push('"');
        }
        if self.content.is_empty() {
            return out.push_str("/>");
        }
        out.push('>');
        self.write_content(&self.name.namespace, out);
        out.push_str("</");
        out.push_str(&self.name.local);
        out.push('>');
    }

    /// Writes the content.
    pub fn write_content(&self, default: &str, out: &mut String) {
        for node in &self.content {
            match node {
                Node::Text(text) => push_text(out, text),
                Node::Element(element) => element.write(default, out),
            }
        }
    }
}

/// The namespace of the prefix `xml`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// Appends text, escaped for contents and attributes.
pub fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if is_char(c) => out.push(c),
            _ => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
}

/// XML 1.0, `Char`.
fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// A name that can be written as it is.
fn local(text: &str) -> Result<String, XmlError> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let is_rest = |c: char| is_start(c) || c.is_ascii_digit() || matches!(c, '-' | '.');
    let valid = text.starts_with(is_start)
        && text.chars().all(|c| is_rest(c) && is_char(c) && !c.is_whitespace());
    if valid { Ok(text.to_owned()) } else { Err(XmlError) }
}

fn namespace(resolved: ResolveResult<'_>) -> Result<String, XmlError> {
    match resolved {
        ResolveResult::Unbound => Ok(String::new()),
        ResolveResult::Bound(Namespace(name)) => {
            // The name as written: the library resolves prefixes, but no entities in names.
            let name = name.replace(['\t', '\n', '\r'], " ");
            let name = quick_xml::escape::unescape(&name).map_err(|_| XmlError)?;
            if name.chars().all(is_char) { Ok(name.into_owned()) } else { Err(XmlError) }
        }
        ResolveResult::Unknown(_) => Err(XmlError),
    }
}

/// The root of a document.
///
/// # Errors
/// [`XmlError`].
pub fn parse(text: &[u8]) -> Result<Element, XmlError> {
    if text.len() > XML_BYTES_MAX {
        return Err(XmlError);
    }
    let text = std::str::from_utf8(text)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut budget = TREE_BYTES_MAX;
    loop {
        match reader.read_event()? {
            Event::Start(start) => {
                if open.len() >= DEPTH_MAX || (open.is_empty() && root.is_some()) {
                    return Err(XmlError);
                }
                let (of, name) = reader.resolver().resolve_element(start.name());
                let name = Name { namespace: namespace(of)?, local: local(name.into_inner())? };
                let mut cost = FIXED + name.namespace.len() + name.local.len();
                let mut element = Element::new(name);
                for attribute in start.attributes() {
                    let attribute = attribute?;
                    let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
                    match attribute.key.as_namespace_binding() {
                        Some(PrefixDeclaration::Named(_)) if value.is_empty() => {
                            return Err(XmlError);
                        }
                        Some(_) => continue,
                        None => {}
                    }
                    if !value.chars().all(is_char) {
                        return Err(XmlError);
                    }
                    let (of, name) = reader.resolver().resolve_attribute(attribute.key);
                    let name = Name { namespace: namespace(of)?, local: local(name.into_inner())? };
                    cost += FIXED + name.namespace.len() + name.local.len() + value.len();
                    element.attributes.push((name, value.into_owned()));
                }
                budget = budget.checked_sub(cost).ok_or(XmlError)?;
                open.push(element);
            }
            Event::End(_) => {
                let element = open.pop().ok_or(XmlError)?;
                match open.last_mut() {
                    Some(outer) => outer.content.push(Node::Element(element)),
                    None => root = Some(element),
                }
            }
            Event::Text(text) => {
                let text = text.xml10_content();
                match open.last_mut() {
                    Some(element) => element.text(&text)?,
                    None if text.trim().is_empty() => {}
                    None => return Err(XmlError),
                }
            }
            Event::CData(text) => {
                open.last_mut().ok_or(XmlError)?.text(&text.xml10_content())?;
            }
            Event::GeneralRef(reference) => {
                let element = open.last_mut().ok_or(XmlError)?;
                match reference.resolve_char_ref()? {
                    Some(c) => element.text(c.encode_utf8(&mut [0; 4]))?,
                    None => {
                        let name = reference.xml10_content();
                        let text = quick_xml::escape::resolve_predefined_entity(&name);
                        element.text(text.ok_or(XmlError)?)?;
                    }
                }
            }
            Event::DocType(_) => return Err(XmlError),
            Event::Eof => break,
            _ => {}
        }
    }
    if open.is_empty() { root.ok_or(XmlError) } else { Err(XmlError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        let mut out = String::new();
        parse(text.as_bytes()).expect(text).write("", &mut out);
        assert_eq!(parse(out.as_bytes()), parse(text.as_bytes()), "{out}");
        out
    }

    #[test]
    fn namespaces_survive() {
        for (text, expected) in [
            ("<a/>", "<a/>"),
            ("<x:a xmlns:x='u'>t&amp;<b/></x:a>", "<a xmlns=\"u\">t&amp;<b xmlns=\"\"/></a>"),
            ("<a xmlns='u'><b c='&lt;'/></a>", "<a xmlns=\"u\"><b c=\"&lt;\"/></a>"),
            ("<x:a xmlns:x='\"&#117;&amp;\n'/>", "<a xmlns=\"&quot;u&amp; \"/>"),
            (
                "<a xmlns:y='v' y:b='1' xml:lang='en'/>",
                "<a xmlns:a0=\"v\" a0:b=\"1\" xml:lang=\"en\"/>",
            ),
            (
                "<?xml version='1.0'?>\n<a><![CDATA[<&]]>&#x10000;</a>\n",
                "<a>&lt;&amp;\u{10000}</a>",
            ),
        ] {
            assert_eq!(again(text), expected);
        }
    }

    #[test]
    fn what_is_not_well_formed_or_too_large_is_refused() {
        let deep = "<a>".repeat(40) + &"</a>".repeat(40);
        let many = format!("<a xmlns='{}'>{}</a>", "n".repeat(30_000), "<b/>".repeat(100));
        let long = format!("<a>{}</a>", "x".repeat(XML_BYTES_MAX));
        for text in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<x:a/>",
            "<x:a xmlns:x=''/>",
            "<a>&unknown;</a>",
            "<a>&#0;</a>",
            "<a>\u{1}</a>",
            "<a b='1' b='2'/>",
            "<1/>",
            "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>",
            "<!DOCTYPE a><a/>",
            &deep,
            &many,
            &long,
        ] {
            assert_eq!(parse(text.as_bytes()), Err(XmlError), "{text:.100}");
        }
        assert_eq!(parse(b"<a>\xff</a>"), Err(XmlError));
    }
}
