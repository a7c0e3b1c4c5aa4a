//! `state`: a file with the servers of a group that APIs change.
//!
//! It is read with the configuration, and written by whoever changes servers ([`crate::Group::state_text`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Word, parse_text};

use super::{UpstreamLayer, server};

/// Maximum number of servers of a group to which servers are added.
pub const SERVERS_MAX: usize = 4096;

/// The file of a group, as it was when the configuration was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Its path.
    pub path: Vec<u8>,
    /// Its text; empty if there is no file yet.
    pub text: Arc<[u8]>,
}

/// `state file;`
pub(super) fn state(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    if word.text.is_empty() || word.text.contains(&0) {
        return Err(word.error("invalid file name").expected("the path of a file"));
    }
    if !cx.layer::<UpstreamLayer>().servers.is_empty() {
        return Err(exclusive(word));
    }
    let path = cx.paths().full(&word.text);
    let text: Arc<[u8]> =
        cx.read_state(&path, word)?.map_or_else(Arc::default, |text| text.as_slice().into());
    for line in servers(&path, &text, word)? {
        server::server(cx, &line)?;
    }
    cx.layer::<UpstreamLayer>().state = Some(StateFile { path, text });
    Ok(())
}

/// The error of a block with both `server` and `state`.
pub(super) fn exclusive(word: &Word) -> Diagnostic {
    word.error("\"state\" cannot be used along with \"server\"")
        .hint("move the servers to the state file, one \"server …;\" per line")
}

/// The directives of the file. Errors point at the directive that names it.
fn servers(path: &[u8], text: &[u8], word: &Word) -> Result<Vec<Node>, Diagnostic> {
    let name = Path::new(OsStr::from_bytes(path));
    let (tree, diagnostics) = parse_text(name, text);
    let refuse = |problem: &str| word.error(format!("{problem} in state file \"{}\"", shown(path)));
    if let Some(error) = diagnostics.iter().next() {
        return Err(refuse(error.message()));
    }
    if tree.nodes.len() > SERVERS_MAX {
        return Err(refuse(&format!("more than {SERVERS_MAX} servers")));
    }
    let mut nodes = tree.nodes;
    for node in &mut nodes {
        if node.name != "server" || node.block.is_some() {
            return Err(refuse(&format!("unexpected directive \"{}\"", node.name))
                .expected("only \"server …;\""));
        }
        if node.args.is_empty() {
            return Err(refuse("\"server\" without an address"));
        }
        // They belong to another text.
        node.span = word.span;
        node.name.span = word.span;
        node.args.iter_mut().for_each(|arg| arg.span = word.span);
    }
    Ok(nodes)
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
