//! Settings of added headers. nginx: `ngx_http_headers_filter_module`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::http_date;

nowait_conf::directives! {
    /// Headers added to responses.
    #[derive(Debug)]
    module "headers";
    pub struct HeadersConf with HeadersConfLayer;

    /// Adds a field to the header of responses with status 200, 201, 204, 206, 301, 302, 303, 304,
    /// 307 or 308; with `always`, of every response. An empty value adds nothing. When a requested range is
    /// not in a response, the resulting 416 has the fields that the response would have had.
    add_header: Vec<AddHeader>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "name value [always]";
    /// Adds a field to the trailer of chunked responses, by the rules of `add_header`.
    add_trailer: Vec<AddHeader>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "name value [always]";
    /// Controls the `add_header` directives of outer blocks: `on` inherits them unless the block
    /// has its own, `merge` appends them to its own, `off` drops them. The setting itself is
    /// inherited.
    add_header_inherit: Inherit = "on", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off | merge";
    /// Controls the `add_trailer` directives of outer blocks, as `add_header_inherit` does for
    /// headers.
    add_trailer_inherit: Inherit = "on", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off | merge";
    /// Adds `Expires` and `Cache-Control` to responses with the statuses of `add_header`: a time
    /// from now, from the modification time of the file (`modified`), a time of day (`@15h30m`),
    /// the distant past (`epoch`) or future (`max`). Times in the past produce `no-cache`.
    /// Variables are allowed.
    expires: Expires = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "[modified] time | @time | epoch | max | off";
}

nowait_conf::setting_enum! {
    /// `add_header_inherit` and `add_trailer_inherit`
    pub enum Inherit {
        /// `on`
        On = "on",
        /// `off`
        Off = "off",
        /// `merge`
        Merge = "merge",
    }
}

impl HeadersConf {
    /// Resolves a chain of blocks according to their inheritance settings.
    pub fn inherit(cx: &mut Cx<'_>, chain: &[&Scope]) -> Arc<Self> {
        let resolved = Self::resolve(cx, chain);
        let layers: Vec<&HeadersConfLayer> = chain.iter().filter_map(|scope| scope.get()).collect();
        let rules =
            |l: &&HeadersConfLayer| l.add_header_inherit.or(l.add_trailer_inherit).is_some();
        if !layers.iter().any(rules) {
            return resolved;
        }
        let headers = layers.iter().map(|l| (l.add_header_inherit, l.add_header.as_deref()));
        let trailers = layers.iter().map(|l| (l.add_trailer_inherit, l.add_trailer.as_deref()));
        let (add_header, add_trailer) = (inherited(headers), inherited(trailers));
        Arc::new(Self { add_header, add_trailer, ..Self::clone(&resolved) })
    }

    /// Whether no fields are added.
    pub fn is_empty(&self) -> bool {
        self.add_header.is_empty() && self.add_trailer.is_empty() && self.expires == Expires::Off
    }
}

/// The lines in effect in the innermost block. `blocks` are the rule and the lines of each block,
/// the outermost first. nginx: `ngx_http_headers_merge_conf`.
fn inherited<'a>(
    blocks: impl Iterator<Item = (Option<Inherit>, Option<&'a [AddHeader]>)>,
) -> Vec<AddHeader> {
    let mut rule = Inherit::On;
    blocks.fold(Vec::new(), |outer, (own_rule, own)| {
        rule = own_rule.unwrap_or(rule);
        match (own, rule) {
            (None, Inherit::Off) => Vec::new(),
            (None, Inherit::On | Inherit::Merge) => outer,
            (Some(own), Inherit::Merge) => [own, &outer].concat(),
            (Some(own), Inherit::On | Inherit::Off) => own.to_vec(),
        }
    })
}

/// One `add_header` or `add_trailer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddHeader {
    /// Name as sent.
    pub name: Bytes,
    /// Value.
    pub value: Complex,
    /// Whether it is added for every status.
    pub always: bool,
}

impl Setting for AddHeader {
    const ARITY: arity::Arity = arity::between(2, 3);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, value, rest @ ..] = &node.args[..] else { return Err(node.arity_error()) };
        if let Some(word) = rest.first()
            && *word != *"always"
        {
            return Err(word.error(format!("invalid parameter \"{word}\"")).expected("always"));
        }
        if let Some(bad) = name.text.iter().find(|b| matches!(b, b'\r' | b'\n' | 0 | b':' | b' ')) {
            return Err(name
                .error(format!("invalid header name \"{name}\""))
                .hint(format!("a header name can't hold the byte 0x{bad:02x}")));
        }
        Ok(Self {
            name: Bytes::copy_from_slice(&name.text),
            value: nowait_http::conf::complex(value, cx)?,
            always: !rest.is_empty(),
        })
    }
}

/// `expires`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expires {
    /// Nothing is added.
    Off,
    /// 1 January 1970: already expired.
    Epoch,
    /// 31 December 2037; in `Cache-Control` ten years.
    Max,
    /// This many seconds after now; negative values are in the past.
    Access(i64),
    /// This many seconds after the last change of the file.
    Modified(i64),
    /// At this second of the day, local time.
    Daily(i64),
    /// A text with variables that evaluates to one of the others.
    Variable {
        /// The text.
        text: Complex,
        /// Whether times count from the last change of the file.
        modified: bool,
    },
}

/// The two headers of `expires`.
pub struct ExpiresLine {
    /// `Expires`
    pub expires: Bytes,
    /// `Cache-Control`
    pub cache_control: Bytes,
}

impl Setting for Expires {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let modified = match &node.args[..] {
            [first, _] if *first == *"modified" => true,
            [_] => false,
            _ => {
                return Err(node.directive_error("invalid value").expected("[modified] time"));
            }
        };
        let word = node.args.last().ok_or_else(|| node.arity_error())?;
        let text = nowait_http::conf::complex(word, cx)?;
        if text.literal().is_none() {
            return Ok(Self::Variable { text, modified });
        }
        Self::read(&word.text, modified).map_err(|wrong| {
            node.directive_error(wrong)
                .expected("off, epoch, max, a time such as 1h or -1, or @ and a time of the day")
        })
    }
}

impl Expires {
    /// Reads a value. nginx: `ngx_http_parse_expires`.
    ///
    /// # Errors
    /// The fault of the value, in nginx's words.
    fn read(text: &[u8], modified: bool) -> Result<Self, &'static str> {
        match text {
            b"off" if !modified => return Ok(Self::Off),
            b"epoch" if !modified => return Ok(Self::Epoch),
            b"max" if !modified => return Ok(Self::Max),
            _ => {}
        }
        if let Some(at) = text.strip_prefix(b"@") {
            if modified {
                return Err("daily time cannot be used with \"modified\" parameter");
            }
            return match seconds(at)? {
                seconds if seconds <= 86_400 => Ok(Self::Daily(seconds)),
                _ => Err("daily time value must be less than 24 hours"),
            };
        }
        let (sign, rest) = match text {
            [b'-', rest @ ..] => (-1, rest),
            [b'+', rest @ ..] => (1, rest),
            rest => (1, rest),
        };
        let seconds = sign * seconds(rest)?;
        Ok(if modified { Self::Modified(seconds) } else { Self::Access(seconds) })
    }

    /// The headers for a response sent at `now` (Unix seconds).
    pub fn evaluate(
        &self,
        request: &Request,
        now: i64,
        last_modified: Option<i64>,
    ) -> Option<ExpiresLine> {
        let line = |at: i64, cache_control: String| ExpiresLine {
            expires: Bytes::copy_from_slice(&http_date::format(at)),
            cache_control: cache_control.into(),
        };
        let relative = |at: i64| {
            let age = at - now;
            let control = if age < 0 { "no-cache".into() } else { format!("max-age={age}") };
            line(at, control)
        };
        Some(match self {
            Self::Off => return None,
            Self::Epoch => ExpiresLine {
                expires: Bytes::from_static(b"Thu, 01 Jan 1970 00:00:01 GMT"),
                cache_control: Bytes::from_static(b"no-cache"),
            },
            Self::Max => ExpiresLine {
                expires: Bytes::from_static(b"Thu, 31 Dec 2037 23:55:55 GMT"),
                cache_control: Bytes::from_static(b"max-age=315360000"),
            },
            Self::Access(seconds) => relative(now.saturating_add(*seconds)),
            Self::Modified(seconds) => match last_modified {
                Some(time) => relative(time.saturating_add(*seconds)),
                None => relative(now.saturating_add(*seconds)),
            },
            Self::Daily(second) => {
                let offset = i64::from(nowait_runtime::clock().utc_offset_seconds());
                let midnight = (now + offset).div_euclid(86_400) * 86_400 - offset;
                let at = midnight + second;
                relative(if at > now { at } else { at + 86_400 })
            }
            Self::Variable { text, modified } => {
                let value = request.evaluate(text);
                return Self::read(&value, *modified).ok()?.evaluate(request, now, last_modified);
            }
        })
    }
}

fn seconds(text: &[u8]) -> Result<i64, &'static str> {
    let seconds = <nowait_conf::Seconds as nowait_conf::Value>::from_word(text).ok();
    seconds.and_then(|seconds| i64::try_from(seconds.0).ok()).ok_or("invalid value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_inheritance_rules_of_their_blocks() {
        let line = |name: &'static str| AddHeader {
            name: Bytes::from_static(name.as_bytes()),
            value: Complex::from_literal("x"),
            always: false,
        };
        let names = |blocks: &[(Option<Inherit>, Option<Vec<AddHeader>>)]| {
            let lines = inherited(blocks.iter().map(|(rule, own)| (*rule, own.as_deref())));
            let names: Vec<_> = lines.iter().map(|l| l.name.clone()).collect();
            String::from_utf8(names.concat()).unwrap()
        };
        let a = || Some(vec![line("a")]);
        let b = || Some(vec![line("b")]);
        assert_eq!(names(&[(None, a()), (None, None)]), "a");
        assert_eq!(names(&[(None, a()), (None, b())]), "b");
        assert_eq!(names(&[(None, a()), (Some(Inherit::Merge), b())]), "ba");
        assert_eq!(names(&[(Some(Inherit::Merge), a()), (None, b()), (None, None)]), "ba");
        assert_eq!(names(&[(None, a()), (Some(Inherit::Off), None)]), "");
        assert_eq!(names(&[(Some(Inherit::Off), a()), (None, b()), (None, None)]), "");
        assert_eq!(names(&[(Some(Inherit::Merge), a()), (Some(Inherit::On), b())]), "b");
    }

    #[test]
    fn times() {
        assert_eq!(Expires::read(b"1h", false), Ok(Expires::Access(3600)));
        assert_eq!(Expires::read(b"-1", false), Ok(Expires::Access(-1)));
        assert_eq!(Expires::read(b"30d", true), Ok(Expires::Modified(2_592_000)));
        assert_eq!(Expires::read(b"@15h", false), Ok(Expires::Daily(54_000)));
        assert!(Expires::read(b"@25h", false).is_err());
        assert!(Expires::read(b"@1h", true).is_err());
        assert!(Expires::read(b"epoch", true).is_err());
        assert!(Expires::read(b"off", true).is_err());
        assert_eq!(Expires::read(b"soon", false), Err("invalid value"));
    }
}
