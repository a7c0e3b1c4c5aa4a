//! `pass`: the session ends, and its connection starts over at another listening socket. nginx:
//! `ngx_stream_pass_module`.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_front::handover::PASSES_MAX;
use nowait_front::log::Level;
use nowait_runtime::buf::RECV_BUF_BYTES;
use nowait_runtime::net::Address;
use nowait_upstream::conf::{ServerLocation, target};
use nowait_variables::Subject;

use crate::conf::Complex;
use crate::module::{Content, ContentLayer, Module, Step};
use crate::session::Session;
use crate::status::Status;

/// This module.
pub static MODULE: Module = Module { rows: &[PASS_ROWS], handler: None, variables: &[] };

nowait_conf::rows! {
    pub static PASS_ROWS, module "stream_pass";

    /// Hands connections to another listening socket of this server, in `http` or `stream`, where
    /// they are served as if they had been accepted there: an address with a port, or `unix:` and a
    /// path. Variables are allowed. Such a connection has no line in the access log of this server
    /// block.
    "pass" => pass, in STREAM_SERVER, take exactly(1), args "address";
}

/// The destination of `pass`.
enum PassTo {
    /// To one address.
    Static(Address),
    /// Text with variables, evaluated per session.
    Variable(Complex),
}

/// Reads an address.
///
/// # Errors
/// The error in nginx's words, to be followed by the text.
fn address(text: &[u8]) -> Result<Address, &'static str> {
    match target(text, 0)? {
        ServerLocation::Addresses(mut all) => match all.pop().ok_or("no addresses")? {
            Address::Inet(inet) if inet.port() == 0 => Err("no port"),
            address => Ok(address),
        },
        ServerLocation::Name { .. } => Err("no addresses"),
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
    cx.layer::<ContentLayer>().set(|_, _| to);
    Ok(())
}

impl Content for PassTo {
    fn serve<'s>(&'s self, session: &'s Session) -> Step<'s, Status> {
        Step::Done(run(session, self))
    }
}

/// The content phase: determines the destination of the connection. The worker hands it over once
/// the session is finished.
fn run(session: &Session, to: &PassTo) -> Status {
    session.set_action(Some("passing connection to port"));
    let refuse = |text: &str| {
        session.log(Level::Error, format_args!("{text}"));
        Status::InternalServerError
    };
    if session.is_udp() {
        return refuse("cannot pass udp connection");
    }
    // The next owner takes a single buffer of received data.
    if session.input.borrow().len() > RECV_BUF_BYTES {
        return refuse("cannot pass connection with preread data");
    }
    if session.passes >= PASSES_MAX {
        return refuse("stream pass cycle");
    }
    let to = match to {
        PassTo::Static(to) => to.clone(),
        PassTo::Variable(text) => {
            let text = session.evaluate(text);
            match address(&text) {
                Ok(to) => to,
                Err(problem) => {
                    let text = String::from_utf8_lossy(&text);
                    return refuse(&format!("{problem} in pass \"{text}\""));
                }
            }
        }
    };
    session.pass_to.replace(Some(Box::new(to)));
    Status::Ok
}
