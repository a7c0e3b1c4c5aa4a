//! `$fastcgi_script_name` and `$fastcgi_path_info`: which part of a URI names a script. nginx:
//! `ngx_http_fastcgi_split`.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Regex, Scope, Setting, arity};
use nowait_http::log::Level;
use nowait_http::module::LocationBuilder;
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;

nowait_conf::directives! {
    /// The names of scripts.
    #[derive(Debug)]
    module "fastcgi", prefix "fastcgi_";
    pub struct SplitConf with SplitLayer;

    /// Appended to `$fastcgi_script_name` if the URI ends with a slash.
    index: Option<IndexName>, in HTTP | SERVER | LOCATION, args "name";
    /// A regular expression with two captures, of which the first becomes `$fastcgi_script_name` and the
    /// second `$fastcgi_path_info`; for example `^(.+?\.php)(/.*)$`.
    split_path_info: Option<SplitPattern>, in HTTP | SERVER | LOCATION, args "regex";
}

/// `fastcgi_index`
#[derive(Clone, Debug)]
pub(super) struct IndexName(Box<[u8]>);

impl Setting for IndexName {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(word.text.as_slice().into()))
    }
}

/// `fastcgi_split_path_info`
#[derive(Clone, Debug)]
pub(super) struct SplitPattern(Regex);

impl Setting for SplitPattern {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let regex = Regex::parse(word, false)?;
        if regex.groups() != 2 {
            return Err(word.error(format!("pattern \"{word}\" must have 2 captures")));
        }
        Ok(Self(regex))
    }
}

/// The settings by which a location finds the name of a script, if there are any.
static SPLIT: Key<Arc<SplitConf>> = Key::new();

/// Notes how a location finds the name of a script.
pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = SplitConf::resolve(cx, chain);
    if conf.index.is_some() || conf.split_path_info.is_some() {
        parts.settings.set(&SPLIT, conf);
    }
}

/// The script's name and the rest of the URI.
fn split<'a>(request: &'a Request, conf: Option<&SplitConf>) -> (&'a [u8], &'a [u8]) {
    let path = &request.uri().path[..];
    let Some(SplitPattern(regex)) = conf.and_then(|conf| conf.split_path_info.as_ref()) else {
        return (path, &[]);
    };
    match regex.captures(path) {
        Ok(Some(captures)) => {
            (captures.text(1, path).unwrap_or_default(), captures.text(2, path).unwrap_or_default())
        }
        Ok(None) => (path, &[]),
        Err(error) => {
            let (path, pattern) = (String::from_utf8_lossy(path), regex.pattern());
            let pattern = String::from_utf8_lossy(pattern);
            request.log(Level::Alert, format_args!("{error} on \"{path}\" using \"{pattern}\""));
            (&request.uri().path, &[])
        }
    }
}

fn conf(request: &Request) -> Option<&SplitConf> {
    request.location().settings.get(&SPLIT).map(|conf| &**conf)
}

/// The variables of this module.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "fastcgi_script_name",
        doc: "The part of the URI that names a script, as `fastcgi_split_path_info` says; with \
              `fastcgi_index` if it ends with a slash.",
        get: |request, out| {
            let conf = conf(request);
            let (name, _) = split(request, conf);
            out.extend_from_slice(name);
            if name.last() == Some(&b'/')
                && let Some(IndexName(index)) = conf.and_then(|conf| conf.index.as_ref())
            {
                out.extend_from_slice(index);
            }
            true
        },
    },
    Builtin {
        name: "fastcgi_path_info",
        doc: "The part of the URI after the script's name, as `fastcgi_split_path_info` says.",
        get: |request, out| {
            out.extend_from_slice(split(request, conf(request)).1);
            true
        },
    },
];
