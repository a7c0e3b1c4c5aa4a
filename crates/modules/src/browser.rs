//! `$modern_browser`, `$ancient_browser` and `$msie`: properties of the browser, from `User-Agent`. nginx:
//! `ngx_http_browser_module`.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_http::module::{LocationBuilder, Module};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;
use nowait_message::Known;

/// This module.
pub static MODULE: Module = Module {
    rows: &[ROWS],
    build: Some(build),
    variables: BUILTINS,
    replaceable: |_| true,
    ..Module::EMPTY
};

nowait_conf::rows! {
    static ROWS, module "browser";

    /// The version from which on a browser is modern: `msie`, `gecko`, `opera`, `safari` or
    /// `konqueror`. `unlisted`: browsers are modern that no directive mentions. Inherited unless the
    /// block has its own.
    "modern_browser" => modern_browser, in HTTP | SERVER | LOCATION, take between(1, 2), inheritance List,
        args "browser version | unlisted";
    /// Texts in `User-Agent` that make a browser ancient; `netscape4` stands for versions before 5 of
    /// Mozilla. Inherited unless the block has its own.
    "ancient_browser" => ancient_browser, in HTTP | SERVER | LOCATION, take at_least(1), inheritance List,
        args "string ...";
    /// The value of `$modern_browser` for modern browsers.
    "modern_browser_value" => modern_browser_value, in HTTP | SERVER | LOCATION, take exactly(1), inheritance Value,
        default "1", args "string";
    /// The value of `$ancient_browser` for ancient browsers.
    "ancient_browser_value" => ancient_browser_value, in HTTP | SERVER | LOCATION, take exactly(1), inheritance Value,
        default "1", args "string";
}

/// A known browser.
#[derive(Debug, PartialEq, Eq)]
struct Browser {
    name: &'static str,
    /// Minimum number of bytes before the mark in `User-Agent`.
    skip: usize,
    /// The mark, a substring of `User-Agent`.
    mark: &'static str,
    /// The offset of the version from the mark.
    version: usize,
}

/// In the order of the search: Opera may claim to be another browser.
static BROWSERS: [Browser; 5] = [
    Browser { name: "opera", skip: 0, mark: "Opera", version: 6 },
    Browser { name: "msie", skip: "Mozilla/4.0 (compatible; ".len(), mark: "MSIE ", version: 5 },
    Browser { name: "gecko", skip: "Mozilla/5.0 (".len(), mark: "rv:", version: 3 },
    Browser { name: "safari", skip: "Mozilla/5.0 (".len(), mark: "Safari/", version: 7 },
    Browser {
        name: "konqueror",
        skip: "Mozilla/5.0 (compatible; ".len(),
        mark: "Konqueror/",
        version: 10,
    },
];

/// A version as one number: two digits for each part after the first.
type Version = u64;

/// The value of the first part of a version.
const MAJOR: Version = 1_000_000;

/// Longer versions are cut.
const VERSION_BYTES_MAX: usize = 32;

/// The settings of a block.
#[derive(Clone, Debug, Default)]
struct Layer {
    modern: Vec<(usize, Version)>,
    modern_unlisted: bool,
    ancient: Vec<Bytes>,
    netscape4: bool,
    modern_value: Option<Bytes>,
    ancient_value: Option<Bytes>,
}

/// The settings of locations that have any.
static CONF: Key<Arc<Layer>> = Key::new();

fn build(_: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let mut layers = chain.iter().filter_map(|scope| scope.get::<Layer>()).peekable();
    if layers.peek().is_none() {
        return;
    }
    let mut conf = Layer::default();
    for layer in layers {
        if !layer.modern.is_empty() || layer.modern_unlisted {
            conf.modern.clone_from(&layer.modern);
            conf.modern_unlisted = layer.modern_unlisted;
        }
        if !layer.ancient.is_empty() || layer.netscape4 {
            conf.ancient.clone_from(&layer.ancient);
            conf.netscape4 = layer.netscape4;
        }
        conf.modern_value = layer.modern_value.clone().or(conf.modern_value);
        conf.ancient_value = layer.ancient_value.clone().or(conf.ancient_value);
    }
    if !conf.modern.is_empty() && conf.modern.iter().all(|(browser, _)| *browser != 0) {
        // Opera claims to be another browser; it isn't modern for that.
        conf.modern.push((0, Version::MAX));
    }
    conf.modern.sort_by_key(|(browser, _)| *browser);
    parts.settings.set(&CONF, Arc::new(conf));
}

fn modern_browser(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let browser = match &node.args[..] {
        [word] if *word == *"unlisted" => {
            cx.layer::<Layer>().modern_unlisted = true;
            return Ok(());
        }
        [word] => {
            let text = format!("a version is missing after \"{word}\"");
            return Err(word.error(text).expected("browser version | unlisted"));
        }
        [name, version] => {
            let at = BROWSERS
                .iter()
                .position(|known| known.name.as_bytes().eq_ignore_ascii_case(&name.text));
            let at = at.ok_or_else(|| {
                let names = "msie, gecko, opera, safari or konqueror";
                name.error(format!("unknown browser name \"{name}\"")).expected(names)
            })?;
            let digits = version.text.iter().all(|c| c.is_ascii_digit() || *c == b'.');
            if !digits || version.text.len() > VERSION_BYTES_MAX {
                return Err(version.error(format!("invalid browser version \"{version}\"")));
            }
            (at, self::version(&version.text))
        }
        _ => return Err(node.arity_error()),
    };
    cx.layer::<Layer>().modern.push(browser);
    Ok(())
}

fn ancient_browser(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let layer = cx.layer::<Layer>();
    for word in &node.args {
        match *word == *"netscape4" {
            true => layer.netscape4 = true,
            false => layer.ancient.push(Bytes::copy_from_slice(&word.text)),
        }
    }
    Ok(())
}

fn modern_browser_value(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let value = node.args.first().ok_or_else(|| node.arity_error())?;
    cx.layer::<Layer>().modern_value = Some(Bytes::copy_from_slice(&value.text));
    Ok(())
}

fn ancient_browser_value(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let value = node.args.first().ok_or_else(|| node.arity_error())?;
    cx.layer::<Layer>().ancient_value = Some(Bytes::copy_from_slice(&value.text));
    Ok(())
}

/// Reads a version up to the first character that can't be part of one.
fn version(text: &[u8]) -> Version {
    let end = text.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(text.len());
    let parts = text[..end.min(VERSION_BYTES_MAX)].split(|&c| c == b'.');
    let (mut version, mut scale): (Version, Version) = (0, MAJOR);
    for part in parts {
        let number = part.iter().fold(0, |number: Version, digit| {
            number.saturating_mul(10).saturating_add((digit - b'0').into())
        });
        version = version.saturating_add(number.saturating_mul(scale));
        scale /= 100;
    }
    version
}

impl Layer {
    /// Whether a browser is modern. nginx: `ngx_http_browser`.
    fn is_modern(&self, agent: Option<&[u8]>) -> bool {
        let Some(agent) = agent else { return self.modern_unlisted };
        for (browser, wanted) in &self.modern {
            let browser = &BROWSERS[*browser];
            let Some(rest) = agent.get(browser.skip..) else { continue };
            let Some(at) = memmem::find(rest, browser.mark.as_bytes()) else { continue };
            if let Some(text @ [_, ..]) = rest.get(at + browser.version..) {
                return version(text) >= *wanted;
            }
        }
        if !self.modern.is_empty() && !self.modern_unlisted {
            return false;
        }
        let is_netscape4 = || {
            let version = agent.strip_prefix(b"Mozilla/").and_then(|rest| rest.first());
            agent.len() > "Mozilla/4.72 ".len() && matches!(version, Some(b'1'..=b'4'))
        };
        if self.netscape4 && is_netscape4() {
            return false;
        }
        let is_ancient = self.ancient.iter().any(|text| memmem::find(agent, text).is_some());
        !is_ancient && self.modern_unlisted
    }
}

/// Whether the browser is modern; what the variable for this kind is.
fn value(request: &Request, modern: bool, out: &mut Vec<u8>) -> bool {
    let none = Layer::default();
    let conf = request.location().settings.get(&CONF).map_or(&none, |conf| &**conf);
    if conf.is_modern(request.head().header(Known::UserAgent)) != modern {
        return false;
    }
    let value = if modern { &conf.modern_value } else { &conf.ancient_value };
    out.extend_from_slice(value.as_deref().unwrap_or(b"1"));
    true
}

/// The variables of this module.
const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "modern_browser",
        doc: "`modern_browser_value` if the browser is modern, as `modern_browser` says.",
        get: |request, out| value(request, true, out),
    },
    Builtin {
        name: "ancient_browser",
        doc: "`ancient_browser_value` if the browser is not modern.",
        get: |request, out| value(request, false, out),
    },
    Builtin {
        name: "msie",
        doc: "`1` if `User-Agent` names Internet Explorer of any version.",
        get: |request, out| {
            let agent = request.head().header(Known::UserAgent).unwrap_or_default();
            // nginx: `ngx_http_process_user_agent`; Opera may claim to be it.
            let is_it = memmem::find(agent, b"MSIE ").is_some_and(|at| at + 7 < agent.len())
                && memmem::find(agent, b"Opera").is_none();
            if is_it {
                out.push(b'1');
            }
            is_it
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version(b"5.5; Windows"), 5_050_000);
        assert_eq!(version(b"1.0.1) Gecko"), 1_000_100);
        assert_eq!(version(b"7"), 7_000_000);
        assert_eq!(version(b""), 0);
        assert!(version(b"99999999999999999999999999999999999") > version(b"99.99"));
        assert_eq!(version(b"1.2.3.4.5.6.7"), 1_020_304);
    }

    #[test]
    fn marks() {
        let conf = Layer {
            modern: vec![(0, 9 * MAJOR), (1, 5_050_000), (2, 1_000_001)],
            ..Layer::default()
        };
        let is_modern = |agent: &str| conf.is_modern(Some(agent.as_bytes()));
        assert!(is_modern("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"));
        assert!(!is_modern("Mozilla/4.0 (compatible; MSIE 5.0; Windows NT 5.1)"));
        assert!(!is_modern("Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50  [en]"));
        assert!(is_modern("Opera/9.01 (X11; FreeBSD 6 i386; U; en)"));
        assert!(is_modern("Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.8.0) Gecko/20020610"));
        for odd in ["", "Opera", "Mozilla/4.0 (compatible; MSIE ", "curl/8"] {
            assert!(!is_modern(odd), "{odd}");
        }
        assert!(!conf.is_modern(None));
    }
}
