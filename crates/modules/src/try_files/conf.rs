//! `try_files`. nginx: `ngx_http_try_files_module`.

use nowait_conf::{Cx, Diagnostic, LocalSetting, Node, Setting, arity};
use nowait_http::variables::complex::Complex;

nowait_conf::directives! {
    /// Files to try before the content handler runs.
    #[derive(Debug)]
    module "try_files";
    pub struct TryFilesConf with TryFilesConfLayer;

    /// Uses the first of these files that exists (directories end with a slash). If none does,
    /// redirects internally to the last parameter, or responds with `=CODE`.
    try_files: LocalSetting<TryFiles>, in SERVER | LOCATION, args "file ... uri | file ... =code";
}

/// A `try_files` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TryFiles {
    /// The candidates, in this order.
    pub candidates: Box<[Candidate]>,
    /// The fallback if no candidate exists.
    pub fallback: Fallback,
}

/// One file to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The name below the root, without the final slash of a directory; empty for the root itself.
    pub name: Complex,
    /// Whether the candidate is a directory.
    pub directory: bool,
}

/// The last parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fallback {
    /// A status.
    Status(u16),
    /// A URI or a named location.
    Target(Complex),
}

impl Setting for TryFiles {
    const ARITY: arity::Arity = arity::at_least(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (last, files) = node.args.split_last().ok_or_else(|| node.arity_error())?;
        let mut candidates = Vec::with_capacity(files.len());
        for word in files {
            let mut word = word.clone();
            let directory = word.text.last() == Some(&b'/');
            if directory {
                word.text.pop();
            }
            candidates.push(Candidate { name: nowait_http::conf::complex(&word, cx)?, directory });
        }
        let fallback = match last.text.strip_prefix(b"=") {
            Some(code) => {
                let status = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
                match status {
                    Some(status) if status <= 999 => Fallback::Status(status),
                    _ => return Err(last.error(format!("invalid code \"{last}\""))),
                }
            }
            None => Fallback::Target(nowait_http::conf::complex(last, cx)?),
        };
        Ok(Self { candidates: candidates.into(), fallback })
    }
}
