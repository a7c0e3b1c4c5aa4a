//! `pass`: the session ends, and its connection starts over at another listening socket. nginx:
//! `ngx_stream_pass_handler`.

use nowait_front::handover::{Doors, Handover, PASSES_MAX};
use nowait_front::log::Level;
use nowait_runtime::buf::RECV_BUF_BYTES;
use nowait_runtime::net::Address;
use nowait_variables::Subject;

use crate::conf::pass::{PassTo, address};
use crate::session::{Session, Transport};
use crate::status::Status;

/// The content phase: determines the destination of the connection, which is handed over once the
/// session is finished ([`hand_over`]).
pub(crate) fn run(session: &Session, to: &PassTo) -> Status {
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
    session.pass_to.replace(Some(to));
    Status::Ok
}

/// Hands the connection over, if a listening socket has this address.
pub(crate) fn hand_over(mut session: Session, to: Address, doors: &dyn Doors) {
    let Some(listen) = doors.find(&to) else {
        session.log(Level::Error, format_args!("port not found for \"{to}\""));
        return;
    };
    let passes = session.passes + 1;
    let peer = session.peer().clone();
    let transport = std::mem::replace(&mut session.transport, Transport::Gone);
    let Transport::Tcp(stream) = transport else { return };
    session.passed = true;
    let input = session.input.take();
    let proxy_protocol = session.proxy_protocol.take();
    // It no longer counts for limits here.
    drop(session);
    doors.enter(Handover { stream, peer, local: to, listen, input, proxy_protocol, passes });
}
