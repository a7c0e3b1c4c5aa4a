//! `ssl_session_cache` and `ssl_ocsp_cache`: the settings. The caches are made in `conf.rs`.

use nowait_conf::{Arity, Cx, Diagnostic, Node, Setting, Size, Value, Word, arity};

/// Minimum size of a session cache: nginx's, of eight pages.
const CACHE_BYTES_MIN: u64 = 8 * 4096;

/// Sessions of a cache without a size. OpenSSL's default.
pub(super) const BUILTIN_SESSIONS: usize = 20 * 1024;

/// `ssl_session_cache`
#[derive(Clone, Debug)]
pub enum SessionCaching {
    /// No cache.
    None,
    /// The server's own, for so many sessions.
    Builtin(usize),
    /// A shared one.
    Shared(ZoneSetting),
}

/// A zone: `shared:NAME:SIZE`.
#[derive(Clone, Debug)]
pub struct ZoneSetting {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) word: Word,
}

impl ZoneSetting {
    /// `None`: malformed.
    fn parse(word: &Word) -> Option<Self> {
        let rest = std::str::from_utf8(&word.text).ok()?.strip_prefix("shared:")?;
        let (name, size) = rest.split_once(':').filter(|(name, _)| !name.is_empty())?;
        let Size(bytes) = Size::from_word(size.as_bytes()).ok()?;
        Some(Self { name: name.to_owned(), bytes, word: word.clone() })
    }
}

impl Setting for SessionCaching {
    const ARITY: Arity = arity::between(1, 2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let mut caching = Self::None;
        let mut shared = None;
        for word in &node.args {
            let invalid = || {
                word.error(format!("invalid session cache \"{word}\""))
                    .expected("off, none, builtin[:sessions] or shared:name:size")
            };
            match &word.text[..] {
                b"off" | b"none" => caching = Self::None,
                b"builtin" => caching = Self::Builtin(BUILTIN_SESSIONS),
                text => match text.strip_prefix(b"builtin:") {
                    Some(number) => {
                        let sessions = usize::from_word(number).map_err(|_| invalid())?;
                        caching = Self::Builtin(sessions);
                    }
                    None => {
                        let zone = ZoneSetting::parse(word).ok_or_else(invalid)?;
                        if zone.bytes < CACHE_BYTES_MIN {
                            return Err(word
                                .error(format!("session cache \"{word}\" is too small"))
                                .expected("at least 32k; 1m holds about 2,000 sessions"));
                        }
                        shared = Some(zone);
                    }
                },
            }
        }
        Ok(shared.map_or(caching, Self::Shared))
    }
}

/// `ssl_ocsp_cache`
#[derive(Clone, Debug)]
pub struct OcspCaching(pub(super) Option<ZoneSetting>);

impl Setting for OcspCaching {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match ZoneSetting::parse(word) {
            _ if *word == "off" => Ok(Self(None)),
            Some(zone) if zone.bytes >= CACHE_BYTES_MIN => Ok(Self(Some(zone))),
            Some(_) => Err(word.error(format!("OCSP cache \"{word}\" is too small"))),
            None => Err(word.error(format!("invalid OCSP cache \"{word}\""))),
        }
    }
}
