//! A subject for tests.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use nowait_variables::{Captures, Namespace, Resolved, Slots, Subject};

use crate::log::{Formats, Logged};

/// The subject.
#[derive(Default)]
pub(crate) struct SampleSubject {
    variables: Resolved<Samples>,
    slots: Slots,
    captures: RefCell<Captures>,
    depth: Cell<u8>,
}

/// The namespace of its variables.
pub(crate) enum Samples {}

impl Namespace for Samples {
    type Subject = SampleSubject;
}

impl Subject for SampleSubject {
    type Namespace = Samples;

    const HAS_PROXIES: bool = false;

    fn variables(&self) -> &Resolved<Samples> {
        &self.variables
    }

    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn captures(&self) -> &RefCell<Captures> {
        &self.captures
    }

    fn depth(&self) -> &Cell<u8> {
        &self.depth
    }

    fn uninitialized(&self, _name: &str) {}

    fn fault(&self, _message: fmt::Arguments<'_>) {}

    fn peer_ip(&self) -> Option<IpAddr> {
        None
    }
}

impl Formats for Samples {
    const FORMAT: Option<(&'static str, &'static str)> = Some(("combined", "$uri"));
}

impl Logged for SampleSubject {}
