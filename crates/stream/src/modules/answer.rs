//! `return`: a text for the client. nginx: `ngx_stream_return_module`.

use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_front::log::{Level, OsError};
use nowait_runtime::net::SendOptions;
use nowait_variables::Subject;

use crate::conf::Complex;
use crate::module::{Content, ContentLayer, Module, Step};
use crate::session::{Session, SessionTransport};
use crate::status::Status;

/// Maximum time for a client to receive the text.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// This module.
pub static MODULE: Module = Module { rows: &[RETURN_ROWS], handler: None, variables: &[] };

nowait_conf::rows! {
    pub static RETURN_ROWS, module "stream_return";

    /// Sends a text to the client and closes the connection; each datagram is answered with one
    /// datagram.
    "return" => answer, in STREAM_SERVER, take exactly(1), args "text";
}

/// The text.
struct ReturnText(Complex);

fn answer(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let text = nowait_variables::text(word, cx)?;
    cx.layer::<ContentLayer>().set(|_, _| ReturnText(text));
    Ok(())
}

impl Content for ReturnText {
    fn serve<'s>(&'s self, session: &'s Session) -> Step<'s, Status> {
        Step::Wait(Box::pin(send(session, &self.0)))
    }
}

/// nginx: `ngx_stream_return_handler`.
async fn send(session: &Session, text: &Complex) -> Status {
    session.set_action(Some("returning text"));
    let text = session.evaluate(text);
    if text.is_empty() {
        return Status::Ok;
    }
    let length = text.len() as u64;
    let sent = match &session.transport {
        SessionTransport::Tcp(stream) => stream.send(text, SendOptions::new(ANSWER_TIMEOUT)).await,
        SessionTransport::Udp(client) => client.send(&text),
        SessionTransport::Gone => return Status::InternalServerError,
    };
    match sent {
        Ok(()) => session.count_sent(length),
        Err(error) => session.log(Level::Info, format_args!("send() failed{}", OsError(&error))),
    }
    Status::Ok
}
