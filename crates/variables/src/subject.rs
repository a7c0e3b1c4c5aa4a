//! The interface of things that have variables, and of their namespaces.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;

use crate::cidr::Cidr;
use crate::complex::Complex;
use crate::regex::Captures;
use crate::{Late, Resolved, Slot};

/// The variables of one kind of subject. `http` and `stream` have one each, and a name may mean
/// something else in each of them.
///
/// Settings name the namespace of their texts, and need not know the subject: it is stated where
/// this is implemented.
pub trait Namespace: Sized + 'static {
    /// What has these variables.
    type Subject: Subject<Namespace = Self>;
}

/// Something that has variables: a request, a session.
pub trait Subject: Sized + 'static {
    /// The names and meanings of its variables.
    type Namespace: Namespace<Subject = Self>;

    /// Whether a header may tell the address of a client behind proxies.
    const HAS_PROXIES: bool;

    /// The built-in variables whose value is known only when the content was read.
    fn late() -> impl Iterator<Item = (&'static str, Late)> {
        std::iter::empty()
    }

    /// Whether there is content that was not read yet.
    fn awaits_content(&self) -> bool {
        false
    }

    /// The variables of the configuration that the subject is served with.
    fn variables(&self) -> &Resolved<Self::Namespace>;

    /// Values of variables of the configuration.
    fn slots(&self) -> &Slots;

    /// Captures of the last regular expression that matched.
    fn captures(&self) -> &RefCell<Captures>;

    /// The current depth of variables that refer to other variables.
    fn depth(&self) -> &Cell<u8>;

    /// The value stored for a variable of the configuration.
    fn slot(&self, slot: Slot) -> Option<Bytes> {
        self.slots().get(slot)
    }

    /// Stores the value of a variable of the configuration.
    fn set_slot(&self, slot: Slot, value: Option<Bytes>) {
        self.slots().set(slot, value);
    }

    /// A variable was used that no `set` has assigned.
    fn uninitialized(&self, name: &str);

    /// Evaluating a variable failed: a line for the log.
    fn fault(&self, message: fmt::Arguments<'_>);

    /// Appends a group of a regular expression to a URI.
    fn push_group(&self, group: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(group);
    }

    /// The client's address, if it is an IP address.
    fn peer_ip(&self) -> Option<IpAddr>;

    /// The address of the client behind these proxies, when `address` is one of them.
    fn forwarded(&self, address: IpAddr, _proxies: &[Cidr], _recursive: bool) -> IpAddr {
        address
    }

    /// Appends the value of text with variables.
    fn append_text(&self, text: &Complex<Self::Namespace>, out: &mut Vec<u8>) {
        text.append(self, out);
    }

    /// The value of text with variables.
    fn evaluate(&self, text: &Complex<Self::Namespace>) -> Bytes {
        if let Some(text) = text.literal() {
            return text.clone();
        }
        let mut out = Vec::new();
        text.append(self, &mut out);
        out.into()
    }
}

/// Values of the variables that the configuration defines.
#[derive(Default, Debug)]
pub struct Slots(RefCell<Vec<Option<Bytes>>>);

impl Slots {
    /// The value of a slot.
    pub fn get(&self, slot: Slot) -> Option<Bytes> {
        self.0.borrow().get(usize::from(slot.0))?.clone()
    }

    /// Stores a value.
    pub fn set(&self, slot: Slot, value: Option<Bytes>) {
        let mut slots = self.0.borrow_mut();
        let at = usize::from(slot.0);
        if slots.len() <= at {
            slots.resize(at + 1, None);
        }
        slots[at] = value;
    }

    /// Forgets all values, but keeps the memory.
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }
}
