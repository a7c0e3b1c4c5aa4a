//! Live properties, computed from the file, and dead properties, set by clients (RFC 4918 section 4.1).
//!
//! Dead properties are stored as XML in one extended attribute of the file. The attribute is set as a
//! whole, so a PROPPATCH succeeds or fails as a whole, and it moves with the file.

use std::ffi::CStr;

use bytes::Bytes;
use nowait_message::{escape, etag, http_date};
use nowait_runtime::fs::Metadata;

use super::lock_table::Lock;
use super::xml::{DAV, Element, Name, Node, parse, push_text};

/// The extended attribute.
pub const ATTRIBUTE: &CStr = c"user.dav.properties";

/// The properties in a value of the attribute; none if it is not ours.
pub fn load(value: &[u8]) -> Vec<Element> {
    let Ok(root) = parse(value) else { return Vec::new() };
    let nodes = root.content.into_iter();
    nodes
        .filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
        .collect()
}

/// The value of the attribute for these properties; empty if there are none.
pub fn save(properties: &[Element]) -> Vec<u8> {
    if properties.is_empty() {
        return Vec::new();
    }
    let mut text = String::from("<properties>");
    properties.iter().for_each(|property| property.write("", &mut text));
    text.push_str("</properties>");
    text.into_bytes()
}

/// The properties that follow from the file, in the order in which they are written.
pub const LIVE: &[&str] = &[
    "creationdate",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "resourcetype",
    "supportedlock",
];

/// Whether clients can't change a property.
pub fn is_live(name: &Name) -> bool {
    name.namespace == DAV && LIVE.contains(&&name.local[..])
}

/// The properties that a PROPFIND requests.
#[derive(Debug, PartialEq, Eq)]
pub enum PropertySelection {
    /// All of them with their values.
    All,
    /// All of them without values.
    Names,
    /// These.
    Some(Vec<Name>),
}

/// Maximum number of properties that a request may name.
const NAMES_MAX: usize = 256;

impl PropertySelection {
    /// Reads the body of a PROPFIND; `None`: it is malformed.
    pub fn parse(body: &[u8]) -> Option<PropertySelection> {
        if body.trim_ascii().is_empty() {
            return Some(PropertySelection::All);
        }
        let root = parse(body).ok().filter(|root| root.name.is_dav("propfind"))?;
        if let Some(list) = root.dav("prop") {
            let names: Vec<_> = list.elements().map(|element| element.name.clone()).collect();
            return (names.len() <= NAMES_MAX).then_some(PropertySelection::Some(names));
        }
        match (root.dav("propname"), root.dav("allprop")) {
            (Some(_), _) => Some(PropertySelection::Names),
            (None, Some(_)) => Some(PropertySelection::All),
            (None, None) => None,
        }
    }

    /// Whether dead properties may be requested.
    pub fn wants_set(&self) -> bool {
        match self {
            PropertySelection::All | PropertySelection::Names => true,
            PropertySelection::Some(names) => names.iter().any(|name| !is_live(name)),
        }
    }
}

/// A change requested by a PROPPATCH.
#[derive(Debug, PartialEq, Eq)]
pub enum PropertyChange {
    Set(Element),
    Remove(Name),
}

impl PropertyChange {
    /// The property.
    pub fn name(&self) -> &Name {
        match self {
            PropertyChange::Set(element) => &element.name,
            PropertyChange::Remove(name) => name,
        }
    }

    /// Reads the body of a PROPPATCH; `None` if it is malformed or empty.
    pub fn parse(body: &[u8]) -> Option<Vec<PropertyChange>> {
        let root = parse(body).ok().filter(|root| root.name.is_dav("propertyupdate"))?;
        let mut all = Vec::new();
        for action in root.elements() {
            let set = action.name.is_dav("set");
            if !set && !action.name.is_dav("remove") {
                continue;
            }
            for property in action.dav("prop")?.elements() {
                all.push(match set {
                    true => PropertyChange::Set(property.clone()),
                    false => PropertyChange::Remove(property.name.clone()),
                });
            }
        }
        (!all.is_empty() && all.len() <= NAMES_MAX).then_some(all)
    }

    /// Makes the change.
    pub fn apply(self, properties: &mut Vec<Element>) {
        properties.retain(|property| property.name != *self.name());
        if let PropertyChange::Set(element) = self {
            properties.push(element);
        }
    }
}

/// A file or directory, as PROPFIND describes it.
pub struct Resource<'a> {
    /// The URI's path, decoded; that of a directory ends with a slash.
    pub uri: &'a [u8],
    pub metadata: &'a Metadata,
    pub content_type: Option<Bytes>,
    /// Whether it has an entity tag.
    pub has_tag: bool,
    /// The dead properties.
    pub properties: &'a [Element],
    /// The locks that cover it; `None`: it can't be locked.
    pub locks: Option<&'a [Lock]>,
    /// The time, as that of the locks, in seconds.
    pub now: u64,
}

/// The beginning of a response with several statuses.
pub const BEGIN: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";

/// The end.
pub const END: &str = "</D:multistatus>\n";

/// Appends a path, escaped as a URI in XML.
pub fn push_uri(out: &mut String, uri: &[u8]) {
    let escaped = escape::uri(escape::Set::Uri, uri);
    push_text(out, &String::from_utf8_lossy(&escaped));
}

/// Appends `<D:propstat>` around names or values.
pub fn push_status(out: &mut String, status: &str, write: impl FnOnce(&mut String)) {
    out.push_str("<D:propstat><D:prop>");
    write(out);
    out.push_str("</D:prop><D:status>HTTP/1.1 ");
    out.push_str(status);
    out.push_str("</D:status></D:propstat>\n");
}

/// Appends an element without content.
pub fn push_name(out: &mut String, name: &Name) {
    Element::new(name.clone()).write("", out);
}

impl Resource<'_> {
    /// Appends the answer to a PROPFIND.
    pub fn write(&self, find: &PropertySelection, out: &mut String) {
        out.push_str("<D:response><D:href>");
        push_uri(out, self.uri);
        out.push_str("</D:href>\n");
        match find {
            PropertySelection::All => push_status(out, "200 OK", |out| {
                for name in LIVE {
                    self.push_live(name, out);
                }
                self.properties.iter().for_each(|property| property.write("", out));
            }),
            PropertySelection::Names => push_status(out, "200 OK", |out| {
                let mut unused = String::new();
                for name in LIVE.iter().filter(|name| self.push_live(name, &mut unused)) {
                    out.push_str(&format!("<D:{name}/>"));
                }
                self.properties.iter().for_each(|property| push_name(out, &property.name));
            }),
            PropertySelection::Some(names) => {
                let mut found = String::new();
                let missing: Vec<_> =
                    names.iter().filter(|name| !self.push(name, &mut found)).collect();
                if !found.is_empty() || missing.is_empty() {
                    push_status(out, "200 OK", |out| out.push_str(&found));
                }
                if !missing.is_empty() {
                    push_status(out, "404 Not Found", |out| {
                        missing.iter().for_each(|name| push_name(out, name));
                    });
                }
            }
        }
        out.push_str("</D:response>\n");
    }

    /// Appends a property with its value; false: it has none.
    fn push(&self, name: &Name, out: &mut String) -> bool {
        if name.namespace == DAV && self.push_live(&name.local, out) {
            return true;
        }
        match self.properties.iter().find(|property| property.name == *name) {
            Some(property) => {
                property.write("", out);
                true
            }
            None => false,
        }
    }

    fn push_live(&self, name: &str, out: &mut String) -> bool {
        let is_dir = self.metadata.is_dir();
        let mut text = String::new();
        match name {
            "creationdate" => {
                // Some file systems have no creation time: use the older of the two times that all have.
                let time = self.metadata.mtime.min(self.metadata.ctime);
                let at = http_date::Civil::from_unix(time);
                text = format!(
                    "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                    at.year, at.month, at.day, at.hour, at.minute, at.second
                );
            }
            "displayname" => {
                let path = self.uri.strip_suffix(b"/").unwrap_or(self.uri);
                let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                push_text(&mut text, &String::from_utf8_lossy(last));
            }
            "getcontentlength" if !is_dir => text = self.metadata.size.to_string(),
            "getcontenttype" if !is_dir => {
                let Some(kind) = &self.content_type else { return false };
                push_text(&mut text, &String::from_utf8_lossy(kind));
            }
            "getetag" if !is_dir && self.has_tag => {
                let tag = etag::of_file(self.metadata.mtime, self.metadata.size);
                push_text(&mut text, &String::from_utf8_lossy(&tag));
            }
            "getlastmodified" => {
                text = String::from_utf8_lossy(&http_date::format(self.metadata.mtime)).into();
            }
            "lockdiscovery" => match self.locks {
                None => return false,
                Some(locks) => {
                    locks.iter().for_each(|lock| push_lock(&mut text, lock, self.now));
                }
            },
            "resourcetype" if is_dir => text.push_str("<D:collection/>"),
            "resourcetype" => {}
            "supportedlock" if self.locks.is_some() => {
                for scope in ["exclusive", "shared"] {
                    text.push_str(&format!(
                        "<D:lockentry><D:lockscope><D:{scope}/></D:lockscope><D:locktype><D:write/>\
                         </D:locktype></D:lockentry>"
                    ));
                }
            }
            _ => return false,
        }
        out.push_str(&format!("<D:{name}>{text}</D:{name}>"));
        true
    }
}

/// Appends `<D:activelock>`.
pub fn push_lock(out: &mut String, lock: &Lock, now: u64) {
    let scope = if lock.exclusive { "exclusive" } else { "shared" };
    let depth = if lock.infinite { "infinity" } else { "0" };
    out.push_str(&format!(
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>"
    ));
    if !lock.owner.is_empty() {
        out.push_str(&format!("<D:owner>{}</D:owner>", lock.owner));
    }
    out.push_str(&format!(
        "<D:timeout>Second-{}</D:timeout><D:locktoken><D:href>{}</D:href></D:locktoken>\
         <D:lockroot><D:href>",
        lock.expires.saturating_sub(now),
        lock.token
    ));
    push_text(out, &lock.root);
    out.push_str("</D:href></D:lockroot></D:activelock>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_propfind() {
        let find = |body: &str| PropertySelection::parse(body.as_bytes());
        assert_eq!(find(" "), Some(PropertySelection::All));
        assert_eq!(
            find("<propfind xmlns='DAV:'><allprop/></propfind>"),
            Some(PropertySelection::All)
        );
        assert_eq!(
            find("<propfind xmlns='DAV:'><propname/></propfind>"),
            Some(PropertySelection::Names)
        );
        let names = vec![Name { namespace: "u".to_owned(), local: "a".to_owned() }];
        let some = "<d:propfind xmlns:d='DAV:'><d:prop><a xmlns='u'/></d:prop></d:propfind>";
        assert_eq!(find(some), Some(PropertySelection::Some(names)));
        for wrong in ["x", "<propfind/>", "<prop xmlns='DAV:'/>", "<propfind xmlns='DAV:'/>"] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
        let many = "<a/>".repeat(NAMES_MAX + 1);
        assert_eq!(find(&format!("<propfind xmlns='DAV:'><prop>{many}</prop></propfind>")), None);
    }

    #[test]
    fn properties_are_set_and_removed_in_order() {
        let body = "<propertyupdate xmlns='DAV:'><set><prop><a xmlns='u'>1</a></prop></set>\
                    <remove><prop><a xmlns='u'/></prop></remove>\
                    <set><prop><a xmlns='u'>2</a><b xmlns=''/></prop></set></propertyupdate>";
        let mut properties = Vec::new();
        for patch in PropertyChange::parse(body.as_bytes()).expect("it is well-formed") {
            patch.apply(&mut properties);
        }
        let saved = save(&properties);
        let text = "<properties><a xmlns=\"u\">2</a><b/></properties>";
        assert_eq!(String::from_utf8_lossy(&saved), text);
        assert_eq!(load(&saved), properties);
        assert!(save(&[]).is_empty());
        assert!(load(b"something else").is_empty());
        assert_eq!(PropertyChange::parse(b"<propertyupdate xmlns='DAV:'/>"), None);
        assert_eq!(PropertyChange::parse(b""), None);
    }
}
