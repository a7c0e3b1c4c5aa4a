//! Validation of host names, from `Host` and from request targets (nginx: ngx_http_validate_host).
//!
//! Used by the head parser; the http crate uses it for hosts of other origins (HTTP/2, SNI).

use std::ops::Range;

/// The reason why a host is refused; the client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidHost;

/// The parts of a valid `host[:port]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostParts {
    /// The name without port and without one trailing dot; brackets of an IP literal included.
    /// Never empty.
    pub name: Range<usize>,
    /// The port; 0 when there is none or it is empty.
    pub port: u16,
    /// Whether the name has upper-case letters: names are compared in lower case.
    pub has_upper: bool,
}

/// May be anywhere in a host.
const PLAIN: u8 = 0;
const UPPER: u8 = 1;
/// Allowed depending on context.
const OTHER: u8 = 2;

static CLASS: [u8; 256] = {
    let mut class = [OTHER; 256];
    let mut c = 0u8;
    while c < 0x80 {
        class[c as usize] = match c {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => PLAIN,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=' => PLAIN,
            b'A'..=b'Z' => UPPER,
            _ => OTHER,
        };
        c += 1;
    }
    class
};

/// Checks `host[:port]` and finds its parts.
///
/// Allows the `reg-name` and `IP-literal` of RFC 3986 section 3.2.2, except two consecutive dots and commas;
/// in particular nothing that could act as a separator in a file system.
//
// nginx differs: it takes commas. `Host: a,b` is what some make of two fields, of which others take the
// first or the last.
pub fn validate(host: &[u8]) -> Result<HostParts, InvalidHost> {
    let literal = host.first() == Some(&b'[');
    let mut has_upper = false;
    let mut last_dot = None;
    let mut end = host.len();
    let mut port = None;

    let mut i = 0;
    loop {
        i += host[i..].iter().take_while(|&&c| CLASS[usize::from(c)] == PLAIN).count();
        let Some(&c) = host.get(i) else { break };
        match CLASS[usize::from(c)] {
            UPPER => has_upper = true,
            _ => match c {
                b'.' => {
                    if i > 0 && last_dot == Some(i - 1) {
                        return Err(InvalidHost);
                    }
                    last_dot = Some(i);
                }
                b':' if !literal => {
                    (end, port) = (i, Some(&host[i + 1..]));
                    break;
                }
                b']' if literal => {
                    end = i + 1;
                    port = match host.get(end) {
                        None => Some(&[][..]),
                        Some(b':') => Some(&host[end + 1..]),
                        Some(_) => return Err(InvalidHost),
                    };
                    break;
                }
                b':' => {}
                b'[' if i == 0 => {}
                // nginx differs: it takes any `%`.
                b'%' if !literal && is_escape(&host[i..]) => {}
                _ => return Err(InvalidHost),
            },
        }
        i += 1;
    }
    if literal && port.is_none() {
        return Err(InvalidHost); // no closing bracket
    }
    if last_dot.is_some_and(|dot| dot + 1 == end) {
        end -= 1;
    }
    if end == 0 {
        return Err(InvalidHost);
    }
    Ok(HostParts { name: 0..end, port: parse_port(port.unwrap_or_default())?, has_upper })
}

/// Whether `bytes` begins with a `%` and two hexadecimal digits.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Digits up to 65535; empty is 0, as nginx reads `example.com:`.
fn parse_port(digits: &[u8]) -> Result<u16, InvalidHost> {
    let mut port = 0u16;
    for &c in digits {
        if !c.is_ascii_digit() {
            return Err(InvalidHost);
        }
        port = port
            .checked_mul(10)
            .and_then(|p| p.checked_add(u16::from(c - b'0')))
            .ok_or(InvalidHost)?;
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str) -> Option<(&str, u16)> {
        validate(host.as_bytes()).ok().map(|parts| (&host[parts.name], parts.port))
    }

    #[test]
    fn valid() {
        for (host, expected) in [
            ("l", ("l", 0)),
            ("Example.COM", ("Example.COM", 0)),
            ("example.com:", ("example.com", 0)),
            ("example.com:8080", ("example.com", 8080)),
            ("example.com.", ("example.com", 0)),
            ("example.com.:88", ("example.com", 88)),
            (".example.com", (".example.com", 0)),
            ("a:65535", ("a", 65535)),
            ("a:00080", ("a", 80)),
            ("[::1]", ("[::1]", 0)),
            ("[::1]:5", ("[::1]", 5)),
            ("[::ffff:12.30.67.89]:", ("[::ffff:12.30.67.89]", 0)),
            ("a_b~c!d%20", ("a_b~c!d%20", 0)),
        ] {
            assert_eq!(name(host), Some(expected), "{host}");
        }
        assert!(validate(b"Example.com").unwrap().has_upper);
        assert!(!validate(b"example.com").unwrap().has_upper);
    }

    #[test]
    fn invalid() {
        for host in [
            "",
            ".",
            ":",
            ":80",
            "a..b",
            "a/b",
            "a\\b",
            "a b",
            "a\0",
            "..",
            "a:65536",
            "a:99999",
            "a:1.2",
            "a:9000:80",
            "a:-1",
            "[",
            "[::1",
            "[::1]x",
            "[::1].",
            "[a..b]",
            "[%25]",
            "%zz",
            "a%",
            "a%4",
            "a%:80",
            "a%4:80",
            "%%41",
            "]",
            "a[",
            "a@b",
            "a#b",
            "a?b",
            "\u{e9}",
            "a\t",
            "[::1]:x",
            "[[::1]]",
        ] {
            assert_eq!(name(host), None, "{host}");
        }
    }
}
