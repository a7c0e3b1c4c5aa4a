//! The head of a request while its field section is decoded.
//!
//! The core of the protocol has checked each field by itself; here they become a [`RequestHead`], and
//! checks that need two fields are made: `:authority` against `Host`.

use nowait_fields::{FieldLine, Token};
use nowait_http::conf::client::HeadConf;
use nowait_message::scan::is_token;
use nowait_message::uri::{Shape, is_served_scheme};
use nowait_message::{
    ControlData, FieldError, FieldPosition, Known, Method, RequestHead, Span, TargetForm, Version,
};

use super::tunnel;

/// Number of dropped fields that are kept for the log.
const IGNORED_MAX: usize = 16;

/// The rules for heads (`max_headers`, `ignore_invalid_headers`, `underscores_in_headers`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) version: Version,
    pub(crate) fields_max: usize,
    pub(crate) ignore_invalid: bool,
    pub(crate) underscores: bool,
}

impl Rules {
    /// Those of a server.
    pub(crate) fn of(head: &HeadConf, version: Version) -> Self {
        Self {
            version,
            fields_max: usize::try_from(head.max_headers).unwrap_or(usize::MAX),
            ignore_invalid: head.ignore_invalid_headers,
            underscores: head.underscores_in_headers,
        }
    }
}

/// The error in a complete head; the client's fault: 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    Field(FieldError),
    InvalidAuthority,
    /// Neither `:authority` nor `Host`.
    NoHost,
    /// CONNECT to a host without a port.
    NoPort,
    /// Both, with different values.
    TwoHosts,
    /// An invalid path.
    InvalidPath,
    /// A scheme other than HTTP's.
    InvalidScheme,
    /// A name that is no token.
    InvalidName,
    /// A method that HTTP/1.1 would not take either.
    InvalidMethod,
    /// More fields than `max_headers`, cookies not counted.
    TooManyFields,
}

impl std::fmt::Display for HeadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Field(FieldError::DuplicateHost) => "client sent duplicate host header",
            Self::Field(FieldError::Duplicate(_)) => "client sent duplicate header line",
            Self::Field(FieldError::InvalidHost) => "client sent invalid host header",
            Self::Field(FieldError::InvalidContentLength) => {
                "client sent invalid \"Content-Length\" header"
            }
            Self::InvalidAuthority => "client sent invalid \":authority\" header",
            Self::NoHost => "client sent neither \":authority\" nor \"Host\" header",
            Self::NoPort => "client sent CONNECT request without port",
            Self::TwoHosts => {
                "client sent \":authority\" and \"Host\" headers with different values"
            }
            Self::InvalidMethod => "client sent invalid method",
            Self::TooManyFields => "client sent too many header lines",
            Self::InvalidScheme => "client sent invalid \":scheme\" header",
            Self::InvalidName => "client sent invalid header line",
            Self::InvalidPath => "client sent invalid \":path\" header",
        })
    }
}

/// Collects the fields of one section at a time.
#[derive(Debug)]
pub(crate) struct Heads {
    rules: Rules,
    /// The last head.
    head: RequestHead,
    /// The section has trailers.
    has_trailers: bool,
    control: ControlData,
    length: usize,
    /// Fields so far, without cookies.
    count: usize,
    error: Option<HeadError>,
    ignored: Vec<Vec<u8>>,
    /// `:protocol`, or CONNECT without it.
    tunnel: Option<TunnelKind>,
}

/// The tunnel requested by a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelKind {
    /// A connection to `:authority`.
    Connection,
    /// Extended CONNECT.
    WebSocket,
    /// An unsupported protocol.
    Other,
}

/// A complete head.
#[derive(Debug)]
pub(crate) struct DecodedHead {
    pub(crate) error: Option<HeadError>,
    /// Names of dropped fields.
    pub(crate) ignored: Vec<Vec<u8>>,
    /// A CONNECT.
    pub(crate) tunnel: Option<TunnelKind>,
}

impl Heads {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            head: RequestHead::default(),
            has_trailers: false,
            control: ControlData::default(),
            length: 0,
            count: 0,
            error: None,
            ignored: Vec::new(),
            tunnel: None,
        }
    }

    /// A head begins, or trailers, which are decoded into the void.
    pub(crate) fn begin(&mut self, has_trailers: bool) {
        self.has_trailers = has_trailers;
        if has_trailers {
            return;
        }
        self.head.recycle();
        self.control = ControlData { version: self.rules.version, ..ControlData::default() };
        self.count = 0;
        self.error = None;
        self.tunnel = None;
        self.ignored.clear();
    }

    /// The size of the section that begins, as it was sent, in bytes.
    pub(crate) fn size(&mut self, bytes: usize) {
        self.length = bytes;
    }

    /// A field of the section that has begun.
    pub(crate) fn field(&mut self, field: &FieldLine<'_>) {
        if self.has_trailers {
            return;
        }
        match field.token {
            Token::METHOD => {
                let valid = |c: &u8| matches!(c, b'A'..=b'Z' | b'_' | b'-');
                self.control.method = Method::from_bytes(field.value);
                if self.control.method == Method::Other && !field.value.iter().all(valid) {
                    self.error.get_or_insert(HeadError::InvalidMethod);
                }
                self.control.method_name = self.put(field.value);
            }
            Token::SCHEME => {
                if !is_served_scheme(field.value) {
                    self.error.get_or_insert(HeadError::InvalidScheme);
                }
                self.control.scheme = self.put(field.value);
            }
            Token::AUTHORITY => self.control.authority = self.put(field.value),
            Token::PATH => self.path(field.value),
            _ if field.name == b":protocol" => {
                let is_known = field.value.eq_ignore_ascii_case(tunnel::WEBSOCKET);
                self.tunnel =
                    Some(if is_known { TunnelKind::WebSocket } else { TunnelKind::Other });
            }
            _ => self.regular(field),
        }
    }

    /// Gives memory back.
    pub(crate) fn shrink(&mut self) {
        self.head = RequestHead::default();
        self.ignored = Vec::new();
    }

    /// The head of the section that has just been decoded, in exchange for memory.
    pub(crate) fn take(&mut self, head: &mut RequestHead) -> DecodedHead {
        let complete = !self.control.method_name.is_empty();
        if !self.head.has_control() && complete {
            self.set_control();
        }
        if complete {
            if self.tunnel == Some(TunnelKind::WebSocket) {
                self.add_handshake();
            }
            self.check_host();
            self.head.join(Known::Cookie, b"; ");
            if let Err(error) = self.head.finish(self.length) {
                self.error.get_or_insert(HeadError::Field(error));
            }
            // "The :authority pseudo-header field contains the host and port to connect to" (RFC
            // 9113 section 8.5).
            if self.tunnel == Some(TunnelKind::Connection) && self.head.host_port() == 0 {
                self.error.get_or_insert(HeadError::NoPort);
            }
        } else {
            // Nothing in it could be shown.
            self.head.recycle();
        }
        std::mem::swap(head, &mut self.head);
        DecodedHead {
            error: self.error.take(),
            ignored: std::mem::take(&mut self.ignored),
            tunnel: self.tunnel.take(),
        }
    }

    /// Appends to the text of the head.
    fn put(&mut self, bytes: &[u8]) -> Span {
        let text = self.head.text_mut();
        let start = text.len();
        text.extend_from_slice(bytes);
        Span::new(start, text.len())
    }

    fn path(&mut self, value: &[u8]) {
        self.control.target = self.put(value);
        if value == b"*" {
            self.control.form = TargetForm::Asterisk;
            return;
        }
        let (shape, length) = Shape::scan(value);
        if length != value.len() || shape.has_fragment() {
            self.error.get_or_insert(HeadError::InvalidPath);
        }
        self.control.uri = self.control.target;
        self.control.shape = shape;
    }

    /// The pseudo-fields are complete.
    fn set_control(&mut self) {
        if self.tunnel == Some(TunnelKind::WebSocket) {
            self.control.method = Method::Get;
            self.control.method_name = self.put(b"GET");
        }
        if self.control.target.is_empty() {
            self.control.form = TargetForm::Authority;
            self.control.target = self.control.authority;
            // That of a CONNECT in HTTP/1.1, too.
            self.control.uri = self.put(b"/");
            self.control.shape = Shape::scan(b"/").0;
        }
        if self.control.method == Method::Connect {
            self.tunnel.get_or_insert(TunnelKind::Connection);
        }
        let text = std::mem::take(self.head.text_mut());
        if self.head.set_control(&text, self.control).is_err() {
            self.error.get_or_insert(HeadError::InvalidAuthority);
        }
        *self.head.text_mut() = text;
    }

    fn regular(&mut self, field: &FieldLine<'_>) {
        if !self.head.has_control() {
            self.set_control();
        }
        let valid = |&octet: &u8| match octet {
            b'_' => self.rules.underscores,
            octet => octet.is_ascii_alphanumeric() || octet == b'-',
        };
        // Known names are valid.
        let is_odd = || field.known.is_none() && !field.name.iter().all(valid);
        let is_odd = is_odd();
        // "HTTP/2 implementations SHOULD validate field names [...] according to their definitions in
        // Section 5.1 of [HTTP]" (RFC 9113 section 8.2.1).
        if is_odd && !is_token(field.name) {
            self.error.get_or_insert(HeadError::InvalidName);
            return;
        }
        if self.rules.ignore_invalid && is_odd {
            if self.ignored.len() < IGNORED_MAX {
                self.ignored.push(field.name.to_vec());
            }
            return;
        }
        let (name, value) = (self.put(field.name), self.put(field.value));
        let known = field.known;
        if known != Some(Known::Cookie) {
            self.count += 1;
            if self.count > self.rules.fields_max {
                self.error.get_or_insert(HeadError::TooManyFields);
                return;
            }
        }
        self.add(FieldPosition { name, value, known });
    }

    /// The fields that ask for a WebSocket in HTTP/1.1 (RFC 6455 section 4.1), which have no place in
    /// HTTP/2 and HTTP/3.
    fn add_handshake(&mut self) {
        let key = nowait_http::base64::encode(&nowait_http::random::bytes());
        let fields: [(&[u8], &[u8]); 3] =
            [(b"upgrade", tunnel::WEBSOCKET), (b"connection", b"Upgrade"), (tunnel::KEY, &key)];
        for (name, value) in fields {
            let (name, value) = (self.put(name), self.put(value));
            let known = Known::from_bytes(name.of(self.head.text()));
            self.add(FieldPosition { name, value, known });
        }
    }

    fn add(&mut self, place: FieldPosition) {
        let text = std::mem::take(self.head.text_mut());
        if let Err(error) = self.head.add(&text, place) {
            self.error.get_or_insert(HeadError::Field(error));
        }
        *self.head.text_mut() = text;
    }

    /// "A server SHOULD treat a request as malformed if it contains a Host header field that identifies
    /// an entity that differs from the entity in the ":authority" pseudo-header field" (RFC 9113
    /// section 8.3.1).
    fn check_host(&mut self) {
        let authority = self.control.authority;
        match self.head.header(Known::Host) {
            None if authority.is_empty() => {
                self.error.get_or_insert(HeadError::NoHost);
            }
            Some(host) if !authority.is_empty() => {
                if !authority.of(self.head.text()).eq_ignore_ascii_case(host) {
                    self.error.get_or_insert(HeadError::TwoHosts);
                }
            }
            Some(_) => {}
            // Handlers, `$http_host` and servers behind this one find it there.
            None => {
                let name = self.put(b"host");
                self.head.repeat_authority(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> (RequestHead, DecodedHead) {
        let mut heads = Heads::new(Rules {
            version: Version::Http2,
            fields_max: 3,
            ignore_invalid: true,
            underscores: false,
        });
        heads.begin(false);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            heads.field(&FieldLine::new(name, value));
        }
        let mut head = RequestHead::default();
        let received = heads.take(&mut head);
        (head, received)
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b")];

    fn get(more: &[(&str, &str)]) -> (RequestHead, Option<HeadError>) {
        let (head, received) = head(&[&GET[..], more].concat());
        (head, received.error)
    }

    #[test]
    fn a_head_is_made_of_fields() {
        let cookies =
            [(":authority", "X.org:81"), ("cookie", "a=1"), ("x_y", ""), ("cookie", "b=2")];
        let (head, received) = head(&[&GET[..], &cookies].concat());
        assert_eq!(received.error, None);
        assert_eq!(received.ignored, [b"x_y"]);
        assert_eq!(&head.request_line()[..], b"GET /a?b HTTP/2.0");
        assert_eq!(head.header(Known::Cookie), Some(&b"a=1; b=2"[..]));
        assert_eq!(head.header(Known::Host), Some(&b"X.org:81"[..]));
        assert_eq!((head.host(), head.host_port()), (Some(&b"x.org"[..]), 81));
    }

    #[test]
    fn hosts_must_agree() {
        assert_eq!(get(&[(":authority", "a"), ("host", "a")]).1, None);
        assert_eq!(get(&[(":authority", "a"), ("host", "b")]).1, Some(HeadError::TwoHosts));
        assert_eq!(get(&[("host", "a")]).1, None);
        assert_eq!(get(&[]).1, Some(HeadError::NoHost));
        assert_eq!(get(&[(":authority", "a/b")]).1, Some(HeadError::InvalidAuthority));
        let twice = [(":authority", "a"), ("host", "a"), ("host", "a")];
        assert_eq!(get(&twice).1, Some(HeadError::Field(FieldError::DuplicateHost)));
    }

    #[test]
    fn methods_and_the_number_of_fields_are_those_of_http_1() {
        let (_, received) =
            head(&[(":method", "get"), (":scheme", "http"), (":path", "/"), ("host", "a")]);
        assert_eq!(received.error, Some(HeadError::InvalidMethod));
        let some = [
            (":authority", "a"),
            ("cookie", "a"),
            ("cookie", "b"),
            ("x", ""),
            ("x", ""),
            ("x", ""),
        ];
        assert_eq!(get(&some).1, None);
        assert_eq!(get(&[&some[..], &[("x", "")]].concat()).1, Some(HeadError::TooManyFields));
    }

    #[test]
    fn names_schemes_and_paths_are_those_of_http() {
        for name in ["x(y", "x@y", "\"", "x/y", "{x}"] {
            let error = get(&[(":authority", "a"), (name, "")]).1;
            assert_eq!(error, Some(HeadError::InvalidName), "{name}");
        }
        let asked = |scheme, path| {
            let fields =
                [(":method", "GET"), (":scheme", scheme), (":path", path), (":authority", "a")];
            let (head, received) = head(&fields);
            (received.error, head.uri().to_vec())
        };
        assert_eq!(asked("ftp", "/").0, Some(HeadError::InvalidScheme));
        assert_eq!(asked("https", "/a#b").0, Some(HeadError::InvalidPath));
        assert_eq!(asked("https", "/a?b#c").0, Some(HeadError::InvalidPath));
        assert_eq!(asked("HTTP", "/\u{e9}"), (None, b"/%C3%A9".to_vec()));
    }

    #[test]
    fn a_websocket_is_asked_for_as_in_http_1() {
        let ask = |protocol| {
            head(&[
                (":method", "CONNECT"),
                (":protocol", protocol),
                (":scheme", "https"),
                (":path", "/chat"),
                (":authority", "a"),
                ("sec-websocket-version", "13"),
            ])
        };
        let (request, received) = ask("websocket");
        assert_eq!((received.error, received.tunnel), (None, Some(TunnelKind::WebSocket)));
        assert_eq!(&request.request_line()[..], b"GET /chat HTTP/2.0");
        assert_eq!(
            (request.method(), request.header(Known::Upgrade)),
            (Method::Get, Some(&b"websocket"[..]))
        );
        let key = request.fields().iter().find(|field| field.name == tunnel::KEY).unwrap();
        assert_eq!(key.value.len(), 24);
        let asked = |authority| {
            let (request, received) = head(&[(":method", "CONNECT"), (":authority", authority)]);
            assert_eq!((request.method(), request.uri()), (Method::Connect, &b"/"[..]));
            (request.host_port(), received.tunnel, received.error)
        };
        assert_eq!(asked("a:443"), (443, Some(TunnelKind::Connection), None));
        for malformed in ["a", "a:", "a:0"] {
            assert_eq!(asked(malformed).2, Some(HeadError::NoPort), "{malformed}");
        }
        let (request, received) = ask("connect-udp");
        assert_eq!((received.error, received.tunnel), (None, Some(TunnelKind::Other)));
        assert_eq!(request.method(), Method::Connect);
        assert_eq!(head(&GET).1.tunnel, None);
    }

    #[test]
    fn an_incomplete_head_is_empty() {
        let (head, _) = head(&[(":path", "/"), ("a", "b")]);
        assert!(head.is_empty());
    }
}
