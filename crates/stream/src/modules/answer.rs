//! `return`: a text for the client. nginx: `ngx_stream_return_module`.

use nowait_conf::{Cx, Diagnostic, Node};

use crate::blocks::ContentLayer;
use crate::conf::Content;

nowait_conf::rows! {
    pub static RETURN_ROWS, module "stream_return";

    /// Sends a text to the client and closes the connection; each datagram is answered with one
    /// datagram.
    "return" => answer, in STREAM_SERVER, take exactly(1), args "text";
}

fn answer(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let text = nowait_variables::text(word, cx)?;
    cx.layer::<ContentLayer>().0 = Some(Content::Return(text));
    Ok(())
}
