//! Settings in OpenSSL's notation that servers and clients share: protocol versions, cipher suites, groups.
//!
//! OpenSSL's values that do not exist here are reported: as a warning if other values remain, otherwise as
//! an error.

use std::fmt;

use nowait_conf::{Cx, Diagnostic, Node, Setting, Span, arity};
use nowait_tls::{Ciphers, Groups, Versions};

/// A setting, and where it stands: for errors about what it needs besides.
#[derive(Clone, Copy)]
pub struct Placed<T> {
    /// The setting.
    pub value: T,
    /// The name of its directive.
    pub span: Span,
}

/// The value alone: settings that are otherwise alike are built once, wherever they stand.
impl<T: fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Setting> Setting for Placed<T> {
    const ARITY: arity::Arity = T::ARITY;

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        Ok(Self { value: T::parse(node, cx)?, span: node.name.span })
    }
}

/// Names in a warning; further ones are counted.
const NAMED_MAX: usize = 4;

nowait_conf::setting_flags! {
    /// The words of `ssl_protocols`.
    struct Words {
        SSL2 = "SSLv2",
        SSL3 = "SSLv3",
        TLS10 = "TLSv1",
        TLS11 = "TLSv1.1",
        TLS12 = "TLSv1.2",
        TLS13 = "TLSv1.3",
    }
}

/// `ssl_protocols`: at least one version that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    words: Words,
    /// The versions.
    pub versions: Versions,
}

impl Protocols {
    fn new(words: Words, node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let versions =
            Versions { tls12: words.contains(Words::TLS12), tls13: words.contains(Words::TLS13) };
        let absent: Vec<String> = Words::WORDS[..4]
            .iter()
            .filter(|(_, flag)| words.contains(*flag))
            .map(|(word, _)| (*word).to_owned())
            .collect();
        if !versions.tls12 && !versions.tls13 {
            let text = format!("no protocol of \"{}\" exists here", node.name);
            return Err(node.error(text).hint("add TLSv1.2 or TLSv1.3"));
        }
        if !absent.is_empty() {
            let text = format!("{} in \"{}\" ignored: not secure", list(&absent), node.name);
            let hint = format!("remove {}; the others stay", absent.join(" "));
            cx.report(Diagnostic::warn(text).at(node.span).hint(hint));
        }
        Ok(Self { words, versions })
    }
}

impl Setting for Protocols {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let words = Words::parse(node, cx)?;
        Self::new(words, node, cx)
    }

    /// Several directives of one block add up.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        let words = self.words.or(Words::parse(node, cx)?);
        *self = Self::new(words, node, cx)?;
        Ok(())
    }
}

/// `ssl_ciphers`
#[derive(Clone, Debug)]
pub struct CipherList(pub Ciphers);

impl Setting for CipherList {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let ciphers = Ciphers::parse(word.to_str()?);
        let missing: Vec<String> = ciphers.absent.iter().chain(&ciphers.unknown).cloned().collect();
        if ciphers.lacks_tls12() {
            if ciphers.absent.is_empty() {
                let why = "error:0A0000B9:SSL routines::no cipher match";
                let text = format!("SSL_CTX_set_cipher_list(\"{word}\") failed (SSL: {why})");
                return Err(word.error(text).hint("ECDHE suites with GCM or CHACHA20 exist here"));
            }
            let text = format!(
                "no cipher suite of \"{}\" exists here: only TLS 1.3 can be used",
                node.name
            );
            let hint = "name ECDHE suites with GCM or CHACHA20, or use the default";
            cx.report(Diagnostic::warn(text).at(word.span).hint(hint));
        } else if !missing.is_empty() {
            let text = format!("{} in \"{}\" ignored", list(&missing), node.name);
            let hint = "ECDHE suites with GCM or CHACHA20 exist here";
            cx.report(Diagnostic::warn(text).at(word.span).hint(hint));
        }
        Ok(Self(ciphers))
    }
}

/// `ssl_ecdh_curve`
#[derive(Clone, Debug)]
pub struct CurveList(pub Groups);

impl Setting for CurveList {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        const HINT: &str = "X25519MLKEM768, X25519, prime256v1 and secp384r1 exist here";
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let groups = Groups::parse(word.to_str()?);
        if groups.is_empty() || !groups.unknown.is_empty() {
            let text = format!("SSL_CTX_set1_curves_list(\"{word}\") failed");
            return Err(word.error(text).hint(HINT));
        }
        if !groups.absent.is_empty() {
            let text = format!("{} in \"{}\" ignored", list(&groups.absent), node.name);
            cx.report(Diagnostic::warn(text).at(word.span).hint(HINT));
        }
        Ok(Self(groups))
    }
}

/// Quoted names, the first ones of many.
fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(NAMED_MAX).map(|n| format!("\"{n}\"")).collect();
    match names.len().checked_sub(NAMED_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}
