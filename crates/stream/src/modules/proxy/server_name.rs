//! The destination of `proxy_pass`, split into host and port. nginx: `ngx_parse_url`.
//!
//! Pure: used when the configuration is read, and per session if the text has variables.

use bytes::Bytes;
use nowait_conf::Span;
use nowait_front::upstreams::UpstreamServer;

/// A server as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerText {
    /// The whole text.
    pub text: Bytes,
    /// The host without its port; the path of a Unix-domain socket.
    pub host: Bytes,
    /// The port, if there is one.
    pub port: Option<u16>,
}

impl ServerText {
    /// Parses `HOST[:PORT]`, `[IPV6][:PORT]` or `unix:PATH`.
    ///
    /// # Errors
    /// The error in nginx's words, to be followed by `in upstream "TEXT"`.
    pub fn parse(text: &Bytes) -> Result<Self, &'static str> {
        // Any port will do for the check: whether one is required depends on the kind of host.
        nowait_upstream::conf::target(text, 1)?;
        let unix = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"unix:"));
        if unix {
            return Ok(Self { text: text.clone(), host: text.slice(5..), port: None });
        }
        let host_end = match text.iter().position(|&b| b == b']') {
            Some(close) if text.first() == Some(&b'[') => close + 1,
            _ => text.iter().position(|&b| b == b':').unwrap_or(text.len()),
        };
        let port = match text.get(host_end + 1..) {
            Some(digits) if host_end < text.len() => nowait_conf::number(digits),
            _ => None,
        };
        let port = port.and_then(|port| u16::try_from(port).ok());
        Ok(Self { host: text.slice(..host_end), text: text.clone(), port })
    }

    /// For the table of groups.
    pub fn server(self, span: Span) -> UpstreamServer {
        let Self { text, host, port } = self;
        UpstreamServer { text, host, port, default_port: None, span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<(String, Option<u16>), &'static str> {
        let parsed = ServerText::parse(&Bytes::from(text))?;
        assert_eq!(parsed.text, text);
        Ok((String::from_utf8_lossy(&parsed.host).into_owned(), parsed.port))
    }

    #[test]
    fn servers() {
        assert_eq!(parse("db:5432"), Ok(("db".into(), Some(5432))));
        assert_eq!(parse("db"), Ok(("db".into(), None)));
        assert_eq!(parse("127.0.0.1:1"), Ok(("127.0.0.1".into(), Some(1))));
        assert_eq!(parse("[::1]:53"), Ok(("[::1]".into(), Some(53))));
        assert_eq!(parse("[::1]"), Ok(("[::1]".into(), None)));
        assert_eq!(parse("unix:/run/db"), Ok(("/run/db".into(), None)));
        assert_eq!(parse("unix:"), Err("no path in the unix domain socket"));
        assert_eq!(parse("db:0"), Err("invalid port"));
        assert_eq!(parse("db:"), Err("invalid port"));
        assert_eq!(parse(""), Err("no host"));
        assert_eq!(parse(":1"), Err("no host"));
    }
}
