//! `pass`: connections for another listening socket. nginx: `ngx_stream_pass_module`.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_runtime::net::Address;
use nowait_upstream::conf::{Target, target};

use super::{Complex, Content};
use crate::blocks::ContentLayer;

nowait_conf::rows! {
    pub static PASS_ROWS, module "stream_pass";

    /// Hands connections to another listening socket of this server, in `http` or `stream`, where
    /// they are served as if they had been accepted there: an address with a port, or `unix:` and a
    /// path. Variables are allowed. Such a connection has no line in the access log of this server
    /// block.
    "pass" => pass, in STREAM_SERVER, take exactly(1), args "address";
}

/// The destination of `pass`.
#[derive(Clone, Debug)]
pub enum PassTo {
    /// To one address.
    Static(Address),
    /// Text with variables, evaluated per session.
    Variable(Complex),
}

/// Reads an address.
///
/// # Errors
/// The error in nginx's words, to be followed by the text.
pub fn address(text: &[u8]) -> Result<Address, &'static str> {
    match target(text, 0)? {
        Target::Addresses(mut all) => match all.pop().ok_or("no addresses")? {
            Address::Inet(inet) if inet.port() == 0 => Err("no port"),
            address => Ok(address),
        },
        Target::Name { .. } => Err("no addresses"),
    }
}

fn pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let text: Complex = nowait_variables::text(word, cx)?;
    let to = match text.literal() {
        None => PassTo::Variable(text),
        Some(literal) => PassTo::Static(address(literal).map_err(|problem| {
            word.error(format!("{problem} in \"{word}\" of the \"pass\" directive"))
                .expected("ADDRESS:PORT or unix:PATH")
        })?),
    };
    cx.layer::<ContentLayer>().0 = Some(Content::Pass(to));
    Ok(())
}
