//! Settings of HTTP Basic authentication. nginx: `ngx_http_auth_basic_module`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, Span, arity};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;

use super::password;

nowait_conf::directives! {
    /// User names and passwords.
    #[derive(Debug)]
    module "auth_basic";
    pub struct AuthConf with AuthConfLayer;

    /// Requires a user name and password; the string is the realm that browsers display. `off`
    /// cancels the setting of an outer block. Variables are allowed. Without `auth_basic_user_file`
    /// and `auth_basic_user` everyone is admitted, with a warning when the configuration is read.
    ///
    /// Passwords are verified by the thread pool `compute`, except for formats that take no time.
    auth_basic: Option<Realm>, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, args "string | off";
    /// The file with user names and passwords: one `name:password` per line, comments after `#`.
    /// Relative names are resolved against the directory of the configuration file. The limit is 16
    /// MB. Variables are allowed. A changed file is read again.
    ///
    /// Passwords are hashed as by crypt(3): bcrypt (`$2a$`, `$2b$`, `$2y$`), SHA-512 (`$6$`),
    /// SHA-256 (`$5$`), MD5 (`$1$`) and DES; as by Apache (`$apr1$`); or as `$argon2id$`, `{SSHA}`,
    /// `{SHA}` and `{PLAIN}`. Hashes that would take many seconds to verify (bcrypt above cost 16,
    /// SHA above five million rounds, Argon2 above 256 MB or 64 passes) are refused.
    auth_basic_user_file: Option<UserFileSetting>, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, args "file";
    /// A user with a password, hashed as in `auth_basic_user_file`, without a file; may be repeated. It
    /// precedes a user of the same name in the file. Hashes with braces are quoted: `"{SSHA}..."`. DES is
    /// refused, because it looks like any text. Whoever may read the configuration reads the hash.
    auth_basic_user: Vec<InlineUser>, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, args "name password";
}

/// `auth_basic_user`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineUser {
    /// A line of a user file.
    pub line: Bytes,
}

impl Setting for InlineUser {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, entry] = &node.args[..] else { return Err(node.arity_error()) };
        // What would end the name or the line of a file.
        let ends = |byte: &u8| matches!(byte, b':' | b'\r' | b'\n');
        if name.text.is_empty() || name.text.starts_with(b"#") || name.text.iter().any(ends) {
            let invalid = name.error(format!("invalid user name \"{name}\""));
            return Err(invalid.expected("a name without colon"));
        }
        if !password::is_known(&entry.text) || entry.text.iter().any(ends) {
            return Err(entry
                .error("the password is not hashed in a known way")
                .expected("a hash such as $6$salt$..., or {PLAIN}password"));
        }
        Ok(Self { line: [&name.text[..], b":", &entry.text, b"\n"].concat().into() })
    }
}

/// `auth_basic`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realm {
    /// The realm that browsers display.
    pub text: Complex,
    /// Position in the configuration.
    span: Span,
}

impl Setting for Realm {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self { text: nowait_http::conf::complex(word, cx)?, span: node.name.span })
    }
}

/// Directives already reported, because many locations may inherit the same one.
#[derive(Default)]
struct ReportedRealms(Vec<Span>);

impl AuthConf {
    /// Whether there are any users.
    pub fn has_users(&self) -> bool {
        self.auth_basic_user_file.is_some() || !self.auth_basic_user.is_empty()
    }

    /// Warns about a location that looks protected but is not. nginx has no such warning.
    pub fn warn_if_open(&self, cx: &mut Cx<'_>) {
        let Some(realm) = &self.auth_basic else { return };
        let is_off = realm.text.literal().is_some_and(|text| *text == b"off"[..]);
        if is_off || self.has_users() {
            return;
        }
        let warned = &mut cx.global::<ReportedRealms>().0;
        if warned.contains(&realm.span) {
            return;
        }
        warned.push(realm.span);
        cx.report(
            Diagnostic::warn("\"auth_basic\" has no effect without \"auth_basic_user_file\"")
                .at(realm.span)
                .hint("no password is required; name the file, or remove the line"),
        );
    }
}

/// `auth_basic_user_file`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFileSetting {
    name: Complex,
    /// Base of relative names.
    prefix: Bytes,
}

impl Setting for UserFileSetting {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let mut name = nowait_http::conf::complex(word, cx)?;
        if let Some(path) = name.literal() {
            name = Complex::from_literal(cx.paths().conf_full(path));
        }
        Ok(Self { name, prefix: Bytes::copy_from_slice(cx.paths().conf_prefix()) })
    }
}

impl UserFileSetting {
    /// The path for a request.
    pub fn path(&self, request: &Request) -> Bytes {
        let name = request.evaluate(&self.name);
        if name.first() == Some(&b'/') {
            return name;
        }
        let mut path = self.prefix.to_vec();
        path.extend_from_slice(&name);
        path.into()
    }
}
