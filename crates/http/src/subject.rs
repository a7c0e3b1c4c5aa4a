//! The request as the subject of variables: the tables of all modules, and the request's own state.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use nowait_variables::cidr::Cidr;
use nowait_variables::{Captures, Late, Namespace, Slots, Subject};

use crate::forwarded;
use crate::log::Level;
use crate::request::{Request, RequestBody};
use crate::variables::UNINITIALIZED_ALLOWED;
use crate::variables::complex::{HttpVariables, Resolved};

/// The content of a request that is in memory.
pub const IN_MEMORY: Late = Late(1);
/// The file with the content of a request.
pub const IN_FILE: Late = Late(2);

impl Namespace for HttpVariables {
    type Subject = Request;
}

impl Subject for Request {
    type Namespace = HttpVariables;

    const HAS_PROXIES: bool = true;

    fn late() -> impl Iterator<Item = (&'static str, Late)> {
        [("request_body", IN_MEMORY), ("request_body_file", IN_FILE)].into_iter()
    }

    fn awaits_content(&self) -> bool {
        matches!(self.body(), RequestBody::Unread(_))
    }

    fn variables(&self) -> &Resolved {
        &self.current().conf.variables
    }

    fn slots(&self) -> &Slots {
        &self.shared().slots
    }

    fn captures(&self) -> &RefCell<Captures> {
        self.last_captures()
    }

    fn depth(&self) -> &Cell<u8> {
        self.variable_depth()
    }

    fn uninitialized(&self, name: &str) {
        if self.location().settings.get(&UNINITIALIZED_ALLOWED).is_none() {
            self.log(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
        }
    }

    fn fault(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Error, message);
    }

    /// Captures of an escaped path are escaped again. nginx: `r->quoted_uri || r->plus_in_uri`.
    fn push_group(&self, group: &[u8], out: &mut Vec<u8>) {
        if self.path_was_escaped() {
            nowait_message::escape::push_uri(out, nowait_message::escape::Set::Args, group);
        } else {
            out.extend_from_slice(group);
        }
    }

    fn peer_ip(&self) -> Option<IpAddr> {
        Some(self.peer().inet()?.ip())
    }

    fn forwarded(&self, address: IpAddr, proxies: &[Cidr], recursive: bool) -> IpAddr {
        let values: Vec<&[u8]> = self
            .head()
            .fields()
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(b"x-forwarded-for"))
            .map(|field| field.value)
            .collect();
        forwarded::client_of(address, values.into_iter(), proxies, recursive)
    }
}
