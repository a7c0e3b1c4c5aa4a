//! `sticky`: which requests are bound to a server, and by what.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Msec, Node, Seconds, Size, Template, Value, Word};

use super::{UpstreamLayer, ZONE_BYTES_MIN};

/// The time that a learnt session is kept after its last use.
const LEARN_TIMEOUT: Msec = Msec(600_000);

/// The method of binding requests.
#[derive(Clone, Debug)]
pub enum Sticky {
    /// By a cookie that the response sets.
    Cookie(StickyCookie),
    /// By the `route` of a server.
    Route {
        /// The first non-empty value counts.
        lookup: Vec<Template>,
    },
    /// By sessions created by the servers.
    Learn(LearnConf),
}

/// `sticky cookie`
#[derive(Clone, Debug)]
pub struct StickyCookie {
    /// The name.
    pub name: Bytes,
    /// The text that has its value: `$cookie_NAME`.
    pub lookup: Template,
    /// `domain`
    pub domain: Option<Template>,
    /// `path`
    pub path: Option<Bytes>,
    /// `expires`
    pub expires: Option<Expires>,
    /// `samesite`: `strict`, `lax`, `none`, or a text with variables. Other values of variables count as
    /// `strict`; an empty value omits the attribute.
    pub samesite: Option<Template>,
    /// `httponly`
    pub httponly: bool,
    /// `secure`
    pub secure: bool,
}

/// The lifetime of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// `max`: until the end of 2037.
    Max,
    /// This long from now on.
    After(Seconds),
}

/// `sticky learn`
#[derive(Clone, Debug)]
pub struct LearnConf {
    /// The first non-empty value in a response is a session created by its server.
    pub create: Vec<Template>,
    /// The first non-empty value in a request is its session.
    pub lookup: Vec<Template>,
    /// Name of the zone.
    pub zone: Bytes,
    /// Size of the zone in bytes: about 8000 sessions per megabyte.
    pub size: u64,
    /// The time that a session is kept after its last use.
    pub timeout: Msec,
    /// Whether a session is known once the response header has arrived, not only at the end.
    pub header: bool,
}

impl Sticky {
    /// The texts of which the first non-empty one is passed in [`BalanceInput::sticky`](crate::BalanceInput).
    pub fn lookup(&self) -> &[Template] {
        match self {
            Sticky::Cookie(cookie) => std::slice::from_ref(&cookie.lookup),
            Sticky::Route { lookup } => lookup,
            Sticky::Learn(learn) => &learn.lookup,
        }
    }
}

pub(super) fn sticky(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let (kind, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let sticky = match kind.as_bytes() {
        b"cookie" => Sticky::Cookie(cookie(node, rest)?),
        b"route" => {
            let lookup = rest.iter().map(|word| match word.text.first() {
                Some(b'$') => variable(word, &word.text[1..]),
                _ => Err(word.error(format!("invalid variable name \"{word}\""))),
            });
            Sticky::Route { lookup: lookup.collect::<Result<_, _>>()? }
        }
        b"learn" => Sticky::Learn(learn(cx, node, rest)?),
        _ => return Err(kind.error(format!("unknown parameter \"{kind}\""))),
    };
    cx.layer::<UpstreamLayer>().sticky = Some(sticky);
    Ok(())
}

/// The text of a single variable. As in nginx, all that follows the `$` is its name.
fn variable(word: &Word, name: &[u8]) -> Result<Template, Diagnostic> {
    if name.is_empty() {
        return Err(word.error(format!("invalid variable name \"{word}\"")));
    }
    Ok(Template::variable(name.to_ascii_lowercase(), word.span))
}

/// The rest of a parameter, as a text with variables.
fn template(word: &Word, prefix: &str) -> Result<Template, Diagnostic> {
    let rest = word.strip_prefix(prefix).unwrap_or_else(|| word.clone());
    Template::parse(&rest)
}

fn duplicate(node: &Node, name: &str) -> Diagnostic {
    node.directive_error(&format!("parameter \"{name}\" is duplicate"))
}

fn cookie(node: &Node, words: &[Word]) -> Result<StickyCookie, Diagnostic> {
    let (name, rest) = words.split_first().ok_or_else(|| node.arity_error())?;
    if name.text.is_empty() {
        return Err(node.directive_error("empty cookie name"));
    }
    let lookup = variable(name, &[b"cookie_", &name.text[..]].concat())?;
    let mut cookie = StickyCookie {
        name: Bytes::copy_from_slice(&name.text),
        lookup,
        domain: None,
        path: None,
        expires: None,
        samesite: None,
        httponly: false,
        secure: false,
    };
    for word in rest {
        let (parameter, value) = match word.text.iter().position(|b| *b == b'=') {
            Some(at) => (&word.text[..at], Some(&word.text[at + 1..])),
            None => (&word.text[..], None),
        };
        let again = match (parameter, value) {
            (b"domain", Some(_)) => cookie.domain.is_some(),
            (b"path", Some(_)) => cookie.path.is_some(),
            (b"expires", Some(_)) => cookie.expires.is_some(),
            (b"samesite", Some(_)) => cookie.samesite.is_some(),
            (b"httponly", None) => cookie.httponly,
            (b"secure", None) => cookie.secure,
            _ => return Err(word.error(format!("unknown parameter \"{word}\""))),
        };
        let name = String::from_utf8_lossy(parameter);
        if again {
            return Err(duplicate(node, &name));
        }
        match (parameter, value.unwrap_or_default()) {
            (b"domain" | b"path", b"") => {
                return Err(node.directive_error(&format!("no value for \"{name}\"")));
            }
            (b"domain", _) => cookie.domain = Some(template(word, "domain=")?),
            (b"path", path) => cookie.path = Some(Bytes::copy_from_slice(path)),
            (b"expires", b"max") => cookie.expires = Some(Expires::Max),
            (b"expires", time) => {
                let time = Seconds::from_word(time)
                    .map_err(|_| node.directive_error("invalid \"expires\" parameter value"))?;
                cookie.expires = Some(Expires::After(time));
            }
            (b"samesite", _) => {
                let value = template(word, "samesite=")?;
                if value.constant().is_some_and(|text| !is_samesite(text)) {
                    return Err(node.directive_error("invalid \"samesite\" parameter value"));
                }
                cookie.samesite = Some(value);
            }
            (b"httponly", _) => cookie.httponly = true,
            _ => cookie.secure = true,
        }
    }
    Ok(cookie)
}

/// Whether it is a value that `SameSite` has.
pub fn is_samesite(text: &[u8]) -> bool {
    [&b"strict"[..], b"lax", b"none"].iter().any(|known| text.eq_ignore_ascii_case(known))
}

/// The names of zones of sessions, and which group has them.
#[derive(Default)]
struct SessionZones(Vec<Bytes>);

fn learn(cx: &mut Cx<'_>, node: &Node, words: &[Word]) -> Result<LearnConf, Diagnostic> {
    let (mut create, mut lookup) = (Vec::new(), Vec::new());
    let (mut zone, mut timeout, mut header) = (None, None, false);
    let error = |problem: &str| node.directive_error(problem);
    for word in words {
        let text = &word.text[..];
        if let Some(value) = text.strip_prefix(b"zone=") {
            if zone.is_some() {
                return Err(error("duplicate zone"));
            }
            zone = Some(learn_zone(node, value)?);
        } else if let Some(value) = text.strip_prefix(b"timeout=") {
            if timeout.is_some() {
                return Err(error("duplicate timeout"));
            }
            let time = Msec::from_word(value).ok().filter(|time| time.0 > 0);
            timeout = Some(time.ok_or_else(|| error("invalid timeout"))?);
        } else if let Some(value) = text.strip_prefix(b"create=") {
            let name = value.strip_prefix(b"$");
            let name = name.ok_or_else(|| error("missing variable in the \"create\" parameter"))?;
            create.push(variable(word, name)?);
        } else if let Some(value) = text.strip_prefix(b"lookup=") {
            let name = value.strip_prefix(b"$");
            let name = name.ok_or_else(|| error("missing variable in the \"lookup\" parameter"))?;
            lookup.push(variable(word, name)?);
        } else if text == b"header" {
            header = true;
        } else {
            return Err(word.error(format!("unknown parameter \"{word}\"")));
        }
    }
    if lookup.is_empty() {
        return Err(error("\"lookup\" parameter is not specified"));
    }
    if create.is_empty() {
        return Err(error("\"create\" parameter is not specified"));
    }
    let (zone, size) = zone.ok_or_else(|| error("\"zone\" parameter is not specified"))?;
    let zones = &mut cx.global::<SessionZones>().0;
    if zones.contains(&zone) {
        let name = String::from_utf8_lossy(&zone);
        return Err(node.error(format!("sticky zone \"{name}\" is already used")));
    }
    zones.push(zone.clone());
    Ok(LearnConf { create, lookup, zone, size, timeout: timeout.unwrap_or(LEARN_TIMEOUT), header })
}

/// `NAME:SIZE`
fn learn_zone(node: &Node, text: &[u8]) -> Result<(Bytes, u64), Diagnostic> {
    let error = |problem: &str| node.directive_error(problem);
    let at = text.iter().position(|b| *b == b':');
    let at = at.ok_or_else(|| error("zone size is not specified"))?;
    if at == 0 {
        return Err(error("zone name is not specified"));
    }
    let Size(size) = Size::from_word(&text[at + 1..]).map_err(|_| error("invalid zone size"))?;
    if size < ZONE_BYTES_MIN {
        return Err(error("zone is too small"));
    }
    Ok((Bytes::copy_from_slice(&text[..at]), size))
}
