//! The name and the password of an `Authorization` header, or of `Proxy-Authorization` with CONNECT.
//! nginx: `ngx_http_auth_basic_user`.

use nowait_message::Method;

use super::base64;
use crate::request::Request;
use crate::slots::Key;

/// The password of the request was verified.
pub static VERIFIED: Key<()> = Key::new();

/// User name and password sent by a client. RFC 7617 section 2.
#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Never empty; has no colon.
    pub user: Vec<u8>,
    pub password: Vec<u8>,
}

impl Credentials {
    /// The credentials of a request; `None` if they are missing or malformed.
    pub fn of(request: &Request) -> Option<Self> {
        let fields = request.head().fields();
        // CONNECT is for a proxy (RFC 9110 section 11.7.2).
        let name: &[u8] = match request.method() {
            Method::Connect => b"proxy-authorization",
            _ => b"authorization",
        };
        let line = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Self::parse(line.value)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let spaces = encoded.iter().take_while(|&&b| b == b' ').count();
        let mut user = base64::decode(&encoded[spaces..])?;
        let colon = user.iter().position(|&b| b == b':').filter(|&at| at > 0)?;
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        Some(Self { user, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Credentials::parse(value.as_bytes()).map(|c| (text(c.user), text(c.password)))
    }

    #[test]
    fn the_first_colon_divides() {
        let expected = Some(("user".into(), "a:b".into()));
        assert_eq!(parsed("Basic dXNlcjphOmI="), expected);
        assert_eq!(parsed("bASIC    dXNlcjphOmI"), expected);
        assert_eq!(parsed("Basic dTo="), Some(("u".into(), String::new())));
    }

    #[test]
    fn malformed_credentials_are_ignored() {
        for value in [
            "",
            "Basic",
            "Basic ",
            "Basic   ",
            "Basic =",
            "Basic ====",
            "Basic !",
            "Basic dXNlcg==",
            "Basic OnBhc3M=",
            "Basic Og==",
            "Basicd XNlcjphOmI=",
            "Bearer dXNlcjphOmI=",
            "Basic d",
            "B\u{e4}sic dXNlcjphOmI=",
        ] {
            assert_eq!(parsed(value), None, "{value}");
        }
    }
}
