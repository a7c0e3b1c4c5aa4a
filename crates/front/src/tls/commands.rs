//! `ssl_conf_command`: the supported commands of OpenSSL's configuration (`SSL_CONF_cmd`).

use nowait_conf::{Arity, Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_tls::{Ciphers, Groups, Identity, Versions};

use super::files::{self, Passwords};
use super::kernel::KernelUse;

/// A command with its value.
#[derive(Clone, Debug)]
pub struct Command {
    name: Word,
    value: Word,
}

impl Setting for Command {
    const ARITY: Arity = arity::exactly(2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        match &node.args[..] {
            [name, value] => Ok(Self { name: name.clone(), value: value.clone() }),
            _ => Err(node.arity_error()),
        }
    }
}

/// The settings that commands change.
pub struct CommandTarget<'a> {
    /// Protocol versions.
    pub versions: &'a mut Versions,
    /// Cipher suites.
    pub ciphers: &'a mut Ciphers,
    /// Groups for key exchange.
    pub groups: &'a mut Groups,
    /// The server's order of suites counts.
    pub prefers_own_ciphers: &'a mut bool,
    /// Session tickets.
    pub tickets: &'a mut bool,
    /// Files that replace the certificate of the same type, and its key.
    pub pair: &'a mut (Option<Word>, Option<Word>),
    /// The records that the kernel seals; `None` for connections to upstream servers.
    pub kernel: Option<&'a mut KernelUse>,
}

/// The certificate that commands name, with its key.
///
/// # Errors
/// One of the two is missing, or can't be used.
pub fn identity(
    cx: &mut Cx<'_>,
    pair: &(Option<Word>, Option<Word>),
    passwords: &Passwords,
) -> Result<Option<Identity>, Diagnostic> {
    match pair {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            files::identity(cx, certificate, key, passwords, None).map(Some)
        }
        (Some(one), None) | (None, Some(one)) => Err(one
            .error("SSL_CONF_cmd() names a certificate without a key, or a key without one")
            .hint("write two lines: Certificate and PrivateKey")),
    }
}

impl Command {
    /// Changes the settings.
    ///
    /// # Errors
    /// The command does not exist here, or its value is wrong.
    pub fn apply(&self, cx: &mut Cx<'_>, mut target: CommandTarget<'_>) -> Result<(), Diagnostic> {
        let value = self.value.to_str()?;
        let failed = |hint: &str| {
            let text = format!("SSL_CONF_cmd(\"{}\", \"{}\") failed", self.name, self.value);
            self.name.error(text).hint(hint)
        };
        let is = |name: &str| self.name.text.eq_ignore_ascii_case(name.as_bytes());
        if is("Ciphersuites") {
            let narrowed = target.ciphers.clone().with_tls13(value);
            let narrowed = narrowed.map_err(|unknown| {
                failed(&format!("\"{unknown}\" does not exist here; the suites of TLS 1.3 are TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 and TLS_AES_128_GCM_SHA256"))
            })?;
            *target.ciphers = narrowed;
        } else if is("CipherString") {
            let ciphers = Ciphers::parse(value);
            if ciphers.lacks_tls12() {
                return Err(failed("ECDHE suites with GCM or CHACHA20 exist here"));
            }
            *target.ciphers = ciphers;
        } else if is("Certificate") {
            target.pair.0 = Some(self.value.clone());
        } else if is("PrivateKey") {
            target.pair.1 = Some(self.value.clone());
        } else if is("Curves") || is("Groups") {
            let groups = Groups::parse(value);
            if groups.is_empty() || !groups.unknown.is_empty() {
                return Err(failed("X25519MLKEM768, X25519, prime256v1 and secp384r1 exist here"));
            }
            *target.groups = groups;
        } else if is("MinProtocol") || is("MaxProtocol") {
            let number = version(value).ok_or_else(|| failed("name TLSv1.2 or TLSv1.3"))?;
            let Versions { tls12, tls13 } = target.versions;
            match is("MinProtocol") {
                true => (*tls12, *tls13) = (*tls12 && number <= 2, *tls13 && number <= 3),
                false => (*tls12, *tls13) = (*tls12 && number >= 2, *tls13 && number >= 3),
            }
        } else if is("Protocol") {
            for item in value.split(',') {
                let (on, name) = match item.strip_prefix('-') {
                    Some(name) => (false, name),
                    None => (true, item.trim_start_matches('+')),
                };
                let Versions { tls12, tls13 } = target.versions;
                match name {
                    "ALL" => (*tls12, *tls13) = (on, on),
                    _ => match version(name).ok_or_else(|| failed("name TLSv1.2 or TLSv1.3"))? {
                        2 => *tls12 = on,
                        3 => *tls13 = on,
                        _ => {}
                    },
                }
            }
        } else if is("Options") {
            for item in value.split(',') {
                self.option(cx, item.trim(), &mut target)
                    .map_err(|()| failed(&format!("no option \"{item}\" exists here")))?;
            }
        } else {
            return Err(failed("this command does not exist here"));
        }
        match target.versions.tls12 || target.versions.tls13 {
            true => Ok(()),
            false => Err(failed("no protocol version is left: TLS 1.2 and 1.3 exist here")),
        }
    }

    fn option(
        &self,
        cx: &mut Cx<'_>,
        item: &str,
        target: &mut CommandTarget<'_>,
    ) -> Result<(), ()> {
        let (on, name) = match item.strip_prefix('-') {
            Some(name) => (false, name),
            None => (true, item.trim_start_matches('+')),
        };
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // Options that are always on.
        const ALWAYS: &[&str] =
            &["NoRenegotiation", "NoEncryptThenMac", "DHSingle", "ECDHSingle", "AntiReplay"];
        // Options that never apply here, and can be accepted without effect.
        const NEVER: &[&str] = &[
            "Bugs",
            "Compression",
            "UnsafeLegacyRenegotiation",
            "UnsafeLegacyServerConnect",
            "EncryptThenMac",
            "ExtendedMasterSecret",
            "CANames",
            "PrioritizeChaCha",
            "MiddleboxCompat",
            "AllowNoDHEKEX",
            "PreferNoDHEKEX",
            "KTLS",
            "KTLSTxZerocopySendfile",
            "StrictCertCheck",
            "TxCertificateCompression",
            "RxCertificateCompression",
            "ClientRenegotiation",
        ];
        if is("SessionTicket") {
            *target.tickets = on;
        } else if is("ServerPreference") {
            *target.prefers_own_ciphers = on;
        } else if let Some(kernel) = target.kernel.as_deref_mut().filter(|_| is("KTLS")) {
            *kernel = if on { KernelUse::Always } else { KernelUse::Never };
        } else if ALWAYS.iter().any(|other| is(other)) && on {
        } else if ALWAYS.iter().chain(NEVER).any(|other| is(other)) {
            let has_effect = matches!(name, "PrioritizeChaCha" | "KTLS") && on;
            if has_effect {
                let text = format!("\"{item}\" in \"ssl_conf_command\" ignored");
                cx.report(Diagnostic::warn(text).at(self.value.span));
            }
        } else {
            return Err(());
        }
        Ok(())
    }
}

/// The minor number of a version: 2 of TLS 1.2.
fn version(name: &str) -> Option<u8> {
    match name {
        "SSLv3" | "TLSv1" => Some(0),
        "TLSv1.1" => Some(1),
        "TLSv1.2" => Some(2),
        "TLSv1.3" => Some(3),
        _ => None,
    }
}
