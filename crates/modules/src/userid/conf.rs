//! Settings of `userid`. nginx: `ngx_http_userid_filter_module`.

use nowait_conf::{Cx, Diagnostic, Node, Seconds, Setting, Value, ValueError, arity};

nowait_conf::directives! {
    /// Cookies that identify clients.
    #[derive(Debug)]
    module "userid";
    pub struct UserIdConf with UserIdConfLayer;

    /// Controls whether clients without a cookie receive one: of version 2 (`on`) or version 1
    /// (`v1`). `log` only evaluates cookies that clients send.
    userid: UserId = "off", in HTTP | SERVER | LOCATION, args "on | v1 | log | off";
    /// A number that identifies the server within a site; by default 0 in version 1, and the last
    /// four bytes of the server's address in version 2.
    userid_service: Option<Service>, in HTTP | SERVER | LOCATION, args "number";
    /// Name of the cookie.
    userid_name: Text = "uid", in HTTP | SERVER | LOCATION, args "name";
    /// Domain of the cookie.
    userid_domain: TextOrNone = "none", in HTTP | SERVER | LOCATION, args "name | none";
    /// Path of the cookie.
    userid_path: Text = "/", in HTTP | SERVER | LOCATION, args "path";
    /// How long browsers keep the cookie: a time, the distant future (`max`: until the end of
    /// 2037), or the browser session (`off`).
    userid_expires: CookieExpires = "off", in HTTP | SERVER | LOCATION, args "time | max | off";
    /// Attributes of the cookie.
    userid_flags: Flags = "off", in HTTP | SERVER | LOCATION, args "off | secure | httponly | samesite=strict | samesite=lax | samesite=none ...";
    /// Value of the `P3P` field that accompanies the cookie.
    userid_p3p: TextOrNone = "none", in HTTP | SERVER | LOCATION, args "string | none";
    /// A letter, digit or `=` that replaces the first padding character of the cookie. Cookies
    /// without it are sent again, which is a way to change their other attributes.
    userid_mark: Mark = "off", in HTTP | SERVER | LOCATION, args "letter | digit | = | off";
}

nowait_conf::setting_enum! {
    /// `userid`
    pub enum UserId {
        /// `off`
        Off = "off",
        /// `log`
        Log = "log",
        /// `v1`
        V1 = "v1",
        /// `on`
        V2 = "on",
    }
}

nowait_conf::setting_flags! {
    /// `userid_flags`
    pub struct Flags {
        /// None.
        OFF = "off",
        /// `Secure`
        SECURE = "secure",
        /// `HttpOnly`
        HTTPONLY = "httponly",
        /// `SameSite=Strict`
        STRICT = "samesite=strict",
        /// `SameSite=Lax`
        LAX = "samesite=lax",
        /// `SameSite=None`
        NONE = "samesite=none",
    }
}

/// A string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub Box<[u8]>);

impl Setting for Text {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text[..].into()))
    }
}

/// A string, empty for `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOrNone(pub Box<[u8]>);

impl Setting for TextOrNone {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let Text(text) = Text::parse(node, cx)?;
        Ok(Self(if *text == *b"none" { Box::default() } else { text }))
    }
}

/// `userid_service`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service(pub u32);

impl Value for Service {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let digits = std::str::from_utf8(text).ok();
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|text| text.parse::<u64>().ok());
        // nginx: the upper bits of a large number are dropped.
        let number = number.and_then(|number| u32::try_from(number & 0xffff_ffff).ok());
        number.map(Self).ok_or_else(|| ValueError::message("invalid number"))
    }
}

/// `userid_expires`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieExpires {
    /// With the session.
    Off,
    /// At the end of 2037.
    Max,
    /// This many seconds from now.
    After(u64),
}

impl Value for CookieExpires {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match text {
            b"off" => Ok(Self::Off),
            b"max" => Ok(Self::Max),
            _ => Seconds::from_word(text).map(|seconds| match seconds.0 {
                0 => Self::Off,
                seconds => Self::After(seconds),
            }),
        }
    }
}

/// `userid_mark`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub Option<u8>);

impl Value for Mark {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match text {
            b"off" => Ok(Self(None)),
            [mark] if mark.is_ascii_alphanumeric() || *mark == b'=' => Ok(Self(Some(*mark))),
            _ => Err(ValueError::directive(
                "value must be \"off\" or a single letter, digit or \"=\"",
            )),
        }
    }
}
