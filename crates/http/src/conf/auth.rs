//! Settings of HTTP Basic authentication. nginx: `ngx_http_auth_basic_module`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use crate::request::Request;
use crate::variables::complex::Complex;

nowait_conf::directives! {
    /// Names and passwords.
    #[derive(Debug)]
    module "auth_basic";
    pub struct AuthConf with AuthConfLayer;

    /// Asks for a name and a password; the string tells the user for what. `off` asks for nothing,
    /// whatever an outer block says. Variables are allowed.
    ///
    /// Passwords are checked on a thread of the default pool, those that take no time at once.
    auth_basic: Option<Complex>, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, args "string | off";
    /// The file with names and passwords, one `name:password` per line, comments after `#`; a
    /// relative name starts at the directory of the configuration. At most 16 MB. Variables are
    /// allowed. It is read again when it has changed.
    ///
    /// Passwords are encrypted as by crypt(3): bcrypt (`$2a$`, `$2b$`, `$2y$`), SHA-512 (`$6$`),
    /// SHA-256 (`$5$`), MD5 (`$1$`) and DES; as by Apache (`$apr1$`); or as `$argon2id$`, `{SSHA}`,
    /// `{SHA}` and `{PLAIN}`. Those that would take many seconds (bcrypt above cost 16, SHA above five
    /// million rounds, Argon2 above 256 MB or 64 passes) are refused.
    auth_basic_user_file: Option<UserFile>, in HTTP | SERVER | LOCATION | LIMIT_EXCEPT, args "file";
}

/// `auth_basic_user_file`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFile {
    name: Complex,
    /// Where relative names start.
    prefix: Bytes,
}

impl Setting for UserFile {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let mut name = super::complex(word, cx)?;
        if let Some(path) = name.literal() {
            name = Complex::from_literal(cx.paths().conf_full(path));
        }
        Ok(Self { name, prefix: Bytes::copy_from_slice(cx.paths().conf_prefix()) })
    }
}

impl UserFile {
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
