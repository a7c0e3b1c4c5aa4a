//! Settings of `secure_link`. nginx: `ngx_http_secure_link_module`.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_http::variables::complex::Complex;

nowait_conf::directives! {
    /// Links protected by a checksum.
    #[derive(Debug)]
    module "secure_link";
    pub struct SecureLinkConf with SecureLinkConfLayer;

    /// The checksum of a link and, after a comma, its expiry time in seconds since 1970: usually
    /// `$arg_md5,$arg_expires`. `$secure_link` is `1` if the checksum is correct, `0` if the link
    /// has expired, and empty otherwise.
    secure_link: Option<Complex>, in HTTP | SERVER | LOCATION, args "expression";
    /// The text whose MD5 in base64url must equal the checksum. It should contain the expiry time,
    /// the URI and a secret.
    secure_link_md5: Option<Complex>, in HTTP | SERVER | LOCATION, args "expression";
    /// A secret for links of the form `/prefix/hash/link`, where `hash` is the MD5 of `link` and
    /// the secret in hexadecimal. `$secure_link` is `link` if the hash is correct. Such links do
    /// not expire; prefer `secure_link` and `secure_link_md5`.
    secure_link_secret: Option<Secret>, in HTTP | SERVER | LOCATION, args "word";
}

/// `secure_link_secret`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret(pub Box<[u8]>);

impl Setting for Secret {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text[..].into()))
    }
}

impl SecureLinkConf {
    /// Resolves a chain of blocks. Links of one kind cancel links of the other kind that an outer
    /// block configures.
    pub fn inherit(cx: &mut Cx<'_>, chain: &[&Scope]) -> Arc<Self> {
        let mut conf = Self::resolve(cx, chain);
        let layers: Vec<&SecureLinkConfLayer> =
            chain.iter().filter_map(|scope| scope.get()).collect();
        let old = |layer: &&SecureLinkConfLayer| layer.secure_link_secret.is_some();
        let new = |layer: &&SecureLinkConfLayer| {
            layer.secure_link.is_some() || layer.secure_link_md5.is_some()
        };
        let (last_old, last_new) = (layers.iter().rposition(old), layers.iter().rposition(new));
        match (last_old, last_new) {
            (Some(old), Some(new)) if old == new => cx.report(Diagnostic::emerg(
                "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \
                 \"secure_link_md5\"",
            )),
            (Some(old), Some(new)) if old < new => {
                Arc::make_mut(&mut conf).secure_link_secret = None
            }
            (Some(_), Some(_)) => {
                let conf = Arc::make_mut(&mut conf);
                (conf.secure_link, conf.secure_link_md5) = (None, None);
            }
            _ => {}
        }
        conf
    }
}
