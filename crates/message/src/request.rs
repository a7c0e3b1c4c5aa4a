//! The head of a request, of any version, validated: handlers may rely on it without further checks.
//!
//! Filled by the reader of a protocol: the text first or last, then [`RequestHead::set_control`],
//! [`RequestHead::add`] for each field, and [`RequestHead::finish`]. Names and values are spans of the
//! text, so nothing is copied twice. The head owns its text, and the receive buffer returns to the
//! runtime at once; [`RequestHead::recycle`] prepares the head for the next request without freeing
//! memory, unless an unusually large head grew it.
//!
//! The requests of a connection often differ in nothing but their targets. [`RequestHead::recycle_for_next`]
//! therefore keeps the field section, and [`RequestHead::reuse_fields`] takes it over if the next head has
//! the same one, byte by byte: a comparison instead of parsing.

use std::borrow::Cow;

use crate::escape::{self, Set};
use crate::fields::{FieldPosition, FieldTable, Fields, Span};
use crate::host::{self, HostParts};
use crate::name::Known;
use crate::scan::decimal;
use crate::uri::{self, Normalized, Shape, UriError};
use crate::{Method, Version};

/// A recycled head keeps at most this many bytes and fields of capacity.
const RECYCLED_BYTES_MAX: usize = 8192;
const RECYCLED_FIELDS_MAX: usize = 128;

/// The longest host that a head remembers for the next request, in bytes.
const REMEMBERED_HOST_MAX: usize = 255;

/// The form of a request target (RFC 9112 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TargetForm {
    /// `/path?query`.
    #[default]
    Origin,
    /// `scheme://host/path?query`.
    Absolute,
    /// `host:port`, CONNECT only.
    Authority,
    /// `*`, OPTIONS only.
    Asterisk,
}

/// The control data of a request (RFC 9110 section 6.2), as spans of the head's text. HTTP/1.1 has it in
/// the request line, later versions in pseudo-header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlData {
    /// The method.
    pub method: Method,
    /// The name.
    pub method_name: Span,
    /// The target as it was sent.
    pub target: Span,
    /// The form of the target.
    pub form: TargetForm,
    /// The scheme; empty in HTTP/1.1, except in absolute-form.
    pub scheme: Span,
    /// `host[:port]`; empty if `Host` has it.
    pub authority: Span,
    /// Path and query; empty if the target has none.
    pub uri: Span,
    /// Of path and query.
    pub shape: Shape,
    /// The version.
    pub version: Version,
    /// The name of the version as it was sent; empty if versions have no name in this protocol.
    pub protocol: Span,
    /// The request line without its terminator; empty if the protocol has none.
    pub line: Span,
}

/// The reason why a field can't be part of a request; the client's fault: 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldError {
    /// A second `Host`.
    DuplicateHost,
    /// A second field of a name that may occur once.
    Duplicate(Known),
    /// `Host` is malformed.
    InvalidHost,
    /// `Content-Length` is not a number.
    InvalidContentLength,
}

/// A request head. Before it is complete, and after an error, the accessors return the part read so
/// far.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The head as it was sent, then everything that had to be changed: the host name in lower case, joined
    /// fields.
    text: Vec<u8>,
    fields: FieldTable,
    read: Read,
    /// The last valid `host[:port]`: most requests of a connection name the same one.
    last_host: Vec<u8>,
    last_parts: HostParts,
    /// Boxed, since heads of most protocols never [keep any](Self::recycle_for_next).
    previous: Option<Box<Previous>>,
}

/// The fields of the previous request.
#[derive(Debug, Default)]
struct Previous {
    /// The text of its head.
    text: Vec<u8>,
    /// The part of the text that holds the fields and the empty line after them; empty if none are kept.
    section: Span,
    places: Vec<FieldPosition>,
}

impl Clone for RequestHead {
    /// The copy has no previous request.
    fn clone(&self) -> Self {
        RequestHead {
            text: self.text.clone(),
            fields: self.fields.clone(),
            read: self.read,
            last_host: self.last_host.clone(),
            last_parts: self.last_parts.clone(),
            previous: None,
        }
    }
}

/// The parsed part, apart from the memory that is reused.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    control: ControlData,
    has_control: bool,
    /// The target can't be normalised.
    refused: bool,
    length: usize,
    /// The fields and the empty line after them, if the next request may reuse them.
    section: Span,
    host: Span,
    host_has_upper: bool,
    host_port: u16,
    content_length: Option<u64>,
}

impl RequestHead {
    /// An empty head; allocates nothing.
    pub fn new() -> Self {
        RequestHead::default()
    }

    /// Empties the head for the next request and keeps its memory.
    pub fn recycle(&mut self) {
        self.text.clear();
        if self.text.capacity() > RECYCLED_BYTES_MAX {
            self.text = Vec::new();
        }
        self.fields.clear();
        self.fields.shrink(RECYCLED_FIELDS_MAX);
        self.read = Read::default();
        if let Some(previous) = &mut self.previous {
            previous.section = Span::default();
        }
    }

    /// Like [`recycle`](Self::recycle), before the next request of the same connection: keeps the fields for
    /// [`reuse_fields`](Self::reuse_fields), if [`allow_reuse`](Self::allow_reuse) was called and nothing has
    /// changed them since. At most 8 KB and 128 fields are kept.
    pub fn recycle_for_next(&mut self) {
        let is_kept = !self.read.section.is_empty()
            && self.text.capacity() <= RECYCLED_BYTES_MAX
            && self.fields.len() <= RECYCLED_FIELDS_MAX;
        if !is_kept {
            return self.recycle();
        }
        let previous = self.previous.get_or_insert_default();
        previous.section = self.read.section;
        std::mem::swap(&mut self.text, &mut previous.text);
        self.text.clear();
        self.fields.save_to(&mut previous.places);
        self.read = Read::default();
    }

    /// The method; [`RequestHead::method_bytes`] has the token of an unknown one. Of a malformed
    /// request line, what it begins with.
    pub fn method(&self) -> Method {
        if !self.is_malformed() {
            return self.read.control.method;
        }
        let token = self.text.split(|&c| c == b' ').next().unwrap_or_default();
        Method::from_bytes(token)
    }

    /// Whether data has arrived that is not, or not yet, a well-formed beginning of a request. There is no
    /// URI then.
    pub fn is_malformed(&self) -> bool {
        !self.read.has_control && !self.text.is_empty()
    }

    /// Whether no data has arrived yet.
    pub fn is_empty(&self) -> bool {
        !self.read.has_control && self.text.is_empty()
    }

    /// The target turned out to be malformed: as if the request line were.
    pub fn refuse_target(&mut self) {
        self.read.control.uri = Span::default();
        self.read.control.form = TargetForm::Origin;
        self.read.refused = true;
    }

    /// `$request_method`.
    pub fn method_bytes(&self) -> &[u8] {
        self.read.control.method_name.of(&self.text)
    }

    /// The target as sent, in any form.
    pub fn target(&self) -> &[u8] {
        self.read.control.target.of(&self.text)
    }

    /// The form of the target.
    pub fn target_form(&self) -> TargetForm {
        self.read.control.form
    }

    /// The raw path and query, `$request_uri`: `/` if the target has none; begins with `?` if
    /// only the path is missing; `*` in asterisk-form. Empty after a malformed request line.
    pub fn uri(&self) -> &[u8] {
        match self.read.control.form {
            _ if self.is_malformed() || self.read.refused => b"",
            TargetForm::Asterisk => b"*",
            _ if self.read.control.uri.is_empty() => b"/",
            _ => self.read.control.uri.of(&self.text),
        }
    }

    /// Whether the path of [`uri`](Self::uri) may have escapes.
    pub fn may_be_escaped(&self) -> bool {
        self.read.control.shape.may_be_escaped()
    }

    /// The path that locations see; respond to an error with 400.
    ///
    /// # Errors
    /// The fault of the target.
    pub fn normalize(&self, merge_slashes: bool) -> Result<Normalized<'_>, UriError> {
        if self.read.control.uri.is_empty() {
            return uri::normalize(self.uri(), merge_slashes);
        }
        uri::normalize_scanned(self.uri(), self.read.control.shape, merge_slashes)
    }

    /// The scheme, if the client states it; empty otherwise.
    pub fn scheme(&self) -> &[u8] {
        self.read.control.scheme.of(&self.text)
    }

    /// The version, [`Version::Http11`] for all later minor versions; after a malformed request line
    /// [`Version::Http10`], which its sender may understand.
    pub fn version(&self) -> Version {
        if self.is_malformed() { Version::Http10 } else { self.read.control.version }
    }

    /// `$server_protocol`: the version as it was sent, empty in HTTP/0.9.
    pub fn protocol(&self) -> &[u8] {
        match self.read.control.protocol {
            _ if !self.read.has_control => b"",
            sent if sent.is_empty() => self.read.control.version.as_str().as_bytes(),
            sent => sent.of(&self.text),
        }
    }

    /// `$request`: the request line without terminator; of a malformed one, the part received. Made
    /// up if the protocol has no such line.
    pub fn request_line(&self) -> Cow<'_, [u8]> {
        let line = self.read.control.line;
        if !self.read.has_control {
            let end = self.text.iter().position(|&c| c == b'\r' || c == b'\n');
            Cow::Borrowed(&self.text[..end.unwrap_or(self.text.len())])
        } else if !line.is_empty() {
            Cow::Borrowed(line.of(&self.text))
        } else {
            Cow::Owned([self.method_bytes(), self.target(), self.protocol()].join(&b' '))
        }
    }

    /// The length of the head in bytes as it was sent; for `$request_length`. After an error, that of
    /// its complete part.
    pub fn length(&self) -> usize {
        self.read.length
    }

    /// The memory of the head, in bytes.
    pub fn memory(&self) -> usize {
        self.text.len() + self.fields.memory()
    }

    /// The validated host name, in lower case, without port and trailing dot: from the target,
    /// else from `Host`. `None` if there is neither.
    pub fn host(&self) -> Option<&[u8]> {
        (!self.read.host.is_empty()).then(|| self.read.host.of(&self.text))
    }

    /// The port that came with the host, 0 if none.
    pub fn host_port(&self) -> u16 {
        self.read.host_port
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn header(&self, name: Known) -> Option<&[u8]> {
        self.fields().first(name)
    }

    /// The fields in the order received.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        self.fields.view(&self.text)
    }

    /// The declared length; `Some(0)` differs from no declaration.
    pub fn content_length(&self) -> Option<u64> {
        self.read.content_length
    }

    /// Whether the client waits for `100 Continue` (RFC 9110 section 10.1.1). Other expectations
    /// are ignored, as nginx does.
    pub fn expects_continue(&self) -> bool {
        self.read.control.version >= Version::Http11
            && self.header(Known::Expect).is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"))
    }
}

/// For handlers that change requests.
impl RequestHead {
    /// Sets a field: the first of this name gets the value, others of this name are removed; if there
    /// is none, it is appended. Octets that no value may have (CR, LF, NUL) become spaces. Fields that
    /// frame the content keep the meaning that they had when they were received.
    ///
    /// # Errors
    /// [`FieldError::InvalidHost`]: the value of `Host` is malformed; the head is unchanged.
    pub fn set_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        self.read.section = Span::default();
        let known = Known::from_bytes(name);
        let start = self.text.len();
        let clean = value.iter().map(|&c| if matches!(c, b'\r' | b'\n' | 0) { b' ' } else { c });
        self.text.extend(clean);
        let value = Span::new(start, self.text.len());
        if known == Some(Known::Host) {
            let Ok(parts) = host::validate(value.of(&self.text)) else {
                self.text.truncate(start);
                return Err(FieldError::InvalidHost);
            };
            self.set_host(value, parts);
            self.lower_host();
        }
        let text = &self.text;
        if !self.fields.replace(value, |place| place.name.of(text).eq_ignore_ascii_case(name)) {
            let start = self.text.len();
            self.text.extend_from_slice(name);
            self.fields.push(Span::new(start, self.text.len()), value, known);
        }
        Ok(())
    }

    /// Removes the fields that are `unwanted`. Without `Host`, there is no host name.
    pub fn remove_fields(&mut self, unwanted: impl Fn(&[u8]) -> bool) {
        self.read.section = Span::default();
        let text = &self.text;
        self.fields.retain(|place| !unwanted(place.name.of(text)));
        if unwanted(b"host") {
            (self.read.host, self.read.host_port) = (Span::default(), 0);
        }
    }
}

/// For readers of protocols.
impl RequestHead {
    /// The memory of the text, to which readers append. Spans count from its start.
    pub fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether the control data are known.
    pub fn has_control(&self) -> bool {
        self.read.has_control
    }

    /// Sets the control data. `text` is the head's text so far, which may be appended later.
    ///
    /// # Errors
    /// The host in the authority is malformed.
    pub fn set_control(
        &mut self,
        text: &[u8],
        control: ControlData,
    ) -> Result<(), host::InvalidHost> {
        self.read.control = control;
        self.accept_control(text)
    }

    /// Makes it the head of another request with the same fields: with this method, for this path and query.
    pub fn replace_target(&mut self, method: Method, uri: &[u8]) {
        let mut put = |bytes: &[u8]| {
            let start = self.text.len();
            self.text.extend_from_slice(bytes);
            Span::new(start, self.text.len())
        };
        let (method_name, target) = (put(method.as_str().as_bytes()), put(uri));
        let control = &mut self.read.control;
        (control.method, control.method_name) = (method, method_name);
        (control.target, control.uri, control.line) = (target, target, Span::default());
        (control.form, control.shape) = (TargetForm::Origin, Shape::scan(uri).0);
        self.read.has_control = true;
        self.read.section = Span::default();
    }

    /// The control data, to be set in place before [`accept_control`](Self::accept_control). They remain
    /// as they are by default if that is not called.
    pub fn control_mut(&mut self) -> &mut ControlData {
        &mut self.read.control
    }

    /// Like [`set_control`](Self::set_control), with the control data that were set in place.
    ///
    /// # Errors
    /// The host in the authority is malformed.
    pub fn accept_control(&mut self, text: &[u8]) -> Result<(), host::InvalidHost> {
        let authority = self.read.control.authority;
        self.read.has_control = true;
        if !authority.is_empty() {
            let parts = self.validate_host(authority.of(text))?;
            self.set_host(authority, parts);
        }
        Ok(())
    }

    /// Like [`host::validate`], which is called once for hosts that are repeated.
    fn validate_host(&mut self, host: &[u8]) -> Result<HostParts, host::InvalidHost> {
        if host == self.last_host && !host.is_empty() {
            return Ok(self.last_parts.clone());
        }
        let parts = host::validate(host)?;
        if host.len() <= REMEMBERED_HOST_MAX {
            self.last_host.clear();
            self.last_host.extend_from_slice(host);
            self.last_parts = parts.clone();
        }
        Ok(parts)
    }

    /// Adds the authority as `Host`, whose name is at `name`, unless it is malformed. There is no such
    /// field yet.
    pub fn repeat_authority(&mut self, name: Span) {
        if !self.read.host.is_empty() {
            self.fields.push(name, self.read.control.authority, Some(Known::Host));
        }
    }

    /// Adds a field. `text` is the head's text so far, which may be appended later.
    ///
    /// # Errors
    /// [`FieldError`].
    #[inline]
    pub fn add(&mut self, text: &[u8], field: FieldPosition) -> Result<(), FieldError> {
        if let Some(known) = field.known {
            self.interpret(known, text, field.value)?;
        }
        self.fields.push(field.name, field.value, field.known);
        Ok(())
    }

    /// Reuses the fields of the previous request if the same section begins at `start` of `text`; returns its
    /// end. The control data are set, and there are no fields yet. The text may be appended later, as for
    /// [`add`](Self::add).
    #[inline]
    pub fn reuse_fields(&mut self, text: &[u8], start: usize) -> Option<usize> {
        let previous = self.previous.as_mut()?;
        let section = previous.section;
        let same = section.of(&previous.text);
        if section.is_empty() || !text.get(start..)?.starts_with(same) {
            return None;
        }
        let end = start + same.len();
        self.fields.restore_from(&mut previous.places, section.range().start, start);
        previous.section = Span::default();
        // A host in the target takes precedence.
        if self.read.host.is_empty()
            && let Some(&FieldPosition { value, .. }) = self.fields.place(Known::Host)
        {
            let Ok(parts) = self.validate_host(value.of(text)) else {
                self.fields.clear();
                return None;
            };
            self.set_host(value, parts);
        }
        Some(end)
    }

    /// Allows the next request to reuse the fields, which extend from `start` to the end of the head. For
    /// readers that can derive everything they keep of a request from its control data and fields.
    pub fn allow_reuse(&mut self, start: usize) {
        self.read.section = Span::new(start, self.read.length);
    }

    /// Joins all fields of this name in the first one: the values of `Cookie` may come one by one in
    /// HTTP/2 (RFC 9113 section 8.2.3).
    pub fn join(&mut self, known: Known, separator: &[u8]) {
        if !self.fields().is_repeated(known) {
            return;
        }
        self.read.section = Span::default();
        let joined = self.fields().all(known).collect::<Vec<_>>().join(separator);
        let start = self.text.len();
        self.text.extend_from_slice(&joined);
        let value = Span::new(start, self.text.len());
        self.fields.replace(value, |place| place.known == Some(known));
    }

    /// Ends the head, which had this many bytes and whose text is there as a whole.
    ///
    /// # Errors
    /// [`FieldError::InvalidContentLength`].
    pub fn finish(&mut self, length: usize) -> Result<(), FieldError> {
        self.read.length = length;
        if let Some(value) = self.header(Known::ContentLength) {
            let length = decimal(value).ok_or(FieldError::InvalidContentLength)?;
            self.read.content_length = Some(length);
        }
        self.lower_host();
        self.escape_uri();
        Ok(())
    }

    /// Makes the path and the query what they should have been: "a URI is composed from a limited set of
    /// characters" (RFC 3986 section 2), all of them ASCII. The target and the line stay as they were sent.
    //
    // nginx differs: it forwards other octets unchanged, and upstream servers interpret them differently.
    fn escape_uri(&mut self) {
        let ControlData { uri, .. } = self.read.control;
        if uri.of(&self.text).is_ascii() {
            return;
        }
        let start = self.text.len();
        let escaped = escape::uri(Set::Foreign, uri.of(&self.text)).into_owned();
        self.text.extend_from_slice(&escaped);
        let uri = Span::new(start, self.text.len());
        self.read.control.uri = uri;
        self.read.control.shape = Shape::scan(uri.of(&self.text)).0;
    }

    /// Ends a head with an error, after this many bytes. Its text is there.
    pub fn give_up(&mut self, length: usize) {
        self.read.length = length;
        self.lower_host();
    }

    /// Acts on a field that has meaning for every protocol.
    #[inline]
    fn interpret(&mut self, known: Known, text: &[u8], value: Span) -> Result<(), FieldError> {
        match known {
            Known::Host => {
                if self.fields.has(known) {
                    return Err(FieldError::DuplicateHost);
                }
                let parts =
                    self.validate_host(value.of(text)).map_err(|_| FieldError::InvalidHost)?;
                // "When an origin server receives a request with an absolute-form of
                // request-target, the origin server MUST ignore the received Host header field"
                // (RFC 9112 section 3.2.2).
                if self.read.host.is_empty() {
                    self.set_host(value, parts);
                }
            }
            Known::ContentLength
            | Known::TransferEncoding
            | Known::IfModifiedSince
            | Known::IfUnmodifiedSince
            | Known::IfMatch
            | Known::IfNoneMatch
            | Known::IfRange
            | Known::ContentRange
            | Known::Expect
            | Known::Authorization
            | Known::ProxyAuthorization
                if self.fields.has(known) =>
            {
                return Err(FieldError::Duplicate(known));
            }
            _ => {}
        }
        Ok(())
    }

    fn set_host(&mut self, whole: Span, parts: HostParts) {
        self.read.host = whole.part(parts.name);
        self.read.host_port = parts.port;
        self.read.host_has_upper = parts.has_upper;
    }

    /// Host names are compared in lower case; the field keeps its own.
    fn lower_host(&mut self) {
        if std::mem::take(&mut self.read.host_has_upper) {
            let start = self.text.len();
            self.text.extend_from_within(self.read.host.range());
            self.text[start..].make_ascii_lowercase();
            self.read.host = Span::new(start, self.text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a part of the text, as a decoder of field blocks does.
    fn put(head: &mut RequestHead, part: &str) -> Span {
        let start = head.text().len();
        head.text_mut().extend_from_slice(part.as_bytes());
        Span::new(start, head.text().len())
    }

    fn add(head: &mut RequestHead, name: &str, value: &str) -> Result<(), FieldError> {
        let (name, value) = (put(head, name), put(head, value));
        let known = Known::from_bytes(name.of(head.text()));
        let text = std::mem::take(head.text_mut());
        let result = head.add(&text, FieldPosition { name, value, known });
        *head.text_mut() = text;
        result
    }

    /// A head whose control data came in pseudo-header fields.
    fn begin(authority: &str, path: &str) -> RequestHead {
        let mut head = RequestHead::new();
        let method_name = put(&mut head, "GET");
        let target = put(&mut head, path);
        let (shape, length) = Shape::scan(path.as_bytes());
        assert_eq!(length, path.len());
        let control = ControlData {
            method: Method::Get,
            method_name,
            target,
            scheme: put(&mut head, "https"),
            authority: put(&mut head, authority),
            uri: target,
            shape,
            version: Version::Http2,
            ..ControlData::default()
        };
        let text = std::mem::take(head.text_mut());
        head.set_control(&text, control).unwrap();
        *head.text_mut() = text;
        head
    }

    #[test]
    fn a_head_without_a_request_line() {
        let mut head = begin("WWW.Example.org:8443", "/a/../b?c=d");
        add(&mut head, "cookie", "a=1").unwrap();
        add(&mut head, "user-agent", "x").unwrap();
        add(&mut head, "cookie", "b=2").unwrap();
        add(&mut head, "accept", "*/*").unwrap();
        add(&mut head, "cookie", "c=3").unwrap();
        head.join(Known::Cookie, b"; ");
        head.finish(123).unwrap();
        assert_eq!(&head.request_line()[..], b"GET /a/../b?c=d HTTP/2.0");
        assert_eq!(head.protocol(), b"HTTP/2.0");
        assert_eq!((head.scheme(), head.length()), (&b"https"[..], 123));
        assert_eq!(head.host(), Some(&b"www.example.org"[..]));
        assert_eq!(head.host_port(), 8443);
        assert_eq!(&*head.normalize(true).unwrap().path, b"/b");
        let cookies: Vec<_> = head.fields().all(Known::Cookie).collect();
        assert_eq!(cookies, [b"a=1; b=2; c=3"]);
        let names: Vec<_> = head.fields().iter().map(|field| field.name).collect();
        assert_eq!(names, [&b"cookie"[..], b"user-agent", b"accept"]);
        assert_eq!(head.header(Known::UserAgent), Some(&b"x"[..]));
        assert_eq!(head.header(Known::Accept), Some(&b"*/*"[..]));
    }

    #[test]
    fn fields_can_be_changed() {
        let mut head = begin("a.org", "/");
        for (name, value) in [("Accept", "1"), ("X-A", "2"), ("accept", "3"), ("Cookie", "c")] {
            add(&mut head, name, value).unwrap();
        }
        head.finish(1).unwrap();
        head.set_field(b"ACCEPT", b"new\r\nX: y").unwrap();
        head.set_field(b"Range", b"bytes=0-1").unwrap();
        let fields = |head: &RequestHead| {
            let text = |field: crate::fields::Field<'_>| {
                let (name, value) = (field.name.escape_ascii(), field.value.escape_ascii());
                format!("{name}={value}")
            };
            head.fields().iter().map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(fields(&head), "Accept=new  X: y, X-A=2, Cookie=c, Range=bytes=0-1");
        assert!(!head.fields().is_repeated(Known::Accept));
        assert_eq!(head.header(Known::Cookie), Some(&b"c"[..]));
        head.set_field(b"Host", b"B.org:81").unwrap();
        assert_eq!((head.host(), head.host_port()), (Some(&b"b.org"[..]), 81));
        assert_eq!(head.set_field(b"host", b"no host"), Err(FieldError::InvalidHost));
        assert_eq!(head.header(Known::Host), Some(&b"B.org:81"[..]));
        head.remove_fields(|name| name.to_ascii_lowercase().starts_with(b"x-"));
        head.remove_fields(|name| name.eq_ignore_ascii_case(b"accept"));
        assert_eq!(fields(&head), "Cookie=c, Range=bytes=0-1, Host=B.org:81");
        assert_eq!(head.header(Known::Range), Some(&b"bytes=0-1"[..]));
        head.remove_fields(|name| name.eq_ignore_ascii_case(b"host"));
        assert_eq!((head.host(), head.header(Known::Host)), (None, None));
    }

    #[test]
    fn the_rules_of_fields_hold_for_every_protocol() {
        let mut head = begin("a", "/");
        assert_eq!(add(&mut head, "host", "b c"), Err(FieldError::InvalidHost));
        assert_eq!(add(&mut head, "host", "b"), Ok(()));
        assert_eq!(add(&mut head, "host", "b"), Err(FieldError::DuplicateHost));
        assert_eq!(add(&mut head, "content-length", "x"), Ok(()));
        let duplicate = FieldError::Duplicate(Known::ContentLength);
        assert_eq!(add(&mut head, "content-length", "1"), Err(duplicate));
        assert_eq!(head.finish(0), Err(FieldError::InvalidContentLength));
        assert_eq!(head.host(), Some(&b"a"[..]));
    }

    #[test]
    fn joined_fields_take_no_memory() {
        let mut head = begin("a", "/");
        for _ in 0..1000 {
            add(&mut head, "cookie", "").unwrap();
        }
        assert!(head.memory() > 1000 * size_of::<FieldPosition>());
        head.join(Known::Cookie, b"; ");
        assert_eq!(head.header(Known::Cookie).map(<[u8]>::len), Some(2 * 999));
        assert!(head.memory() <= head.text().len() + 64 * size_of::<FieldPosition>());
    }

    #[test]
    fn hosts_that_are_repeated_have_the_same_parts() {
        let mut head = RequestHead::default();
        let long = "x".repeat(REMEMBERED_HOST_MAX + 1);
        for host in ["A.org:81", "A.org:81", "a b", "A.org:81", "", "[::1]", &long, &long, "[::1]"]
        {
            head.recycle();
            let text = host.as_bytes();
            let authority = Span::new(0, text.len());
            let value =
                FieldPosition { name: Span::default(), value: authority, known: Some(Known::Host) };
            assert_eq!(head.add(text, value).is_ok(), host::validate(text).is_ok(), "{host}");
            head.text_mut().extend_from_slice(text);
            head.finish(text.len()).unwrap();
            let parts = host::validate(text).ok();
            let name = parts.clone().map(|parts| text[parts.name].to_ascii_lowercase());
            assert_eq!(head.host().map(<[u8]>::to_vec), name, "{host}");
            assert_eq!(head.host_port(), parts.map_or(0, |parts| parts.port), "{host}");
        }
    }

    #[test]
    fn an_empty_head_has_no_line() {
        let mut head = begin("a", "/");
        assert!(!head.is_empty() && !head.is_malformed());
        head.recycle();
        assert!(head.is_empty());
        assert_eq!((&head.request_line()[..], head.protocol()), (&b""[..], &b""[..]));
    }
}
