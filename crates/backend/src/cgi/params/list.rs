//! The parameters of directives, prepared in the form in which they are sent.
//!
//! Between two values that depend on the request, there is one text: the end of any number of parameters,
//! and the beginning of the one with the next value.

use nowait_gateway::ParamForm;
use nowait_http::variables::complex::{Complex, Part};
use nowait_variables::Index;

use super::Param;

/// The parameter with the method of the request.
const METHOD: &[u8] = b"REQUEST_METHOD";

/// The parameter that a client's `Host` is, whether it has sent one or not.
const HOST: &[u8] = b"HTTP_HOST";

/// The parameters.
#[derive(Debug, Default)]
pub(super) struct List {
    /// The texts before the values, and the one after the last.
    text: Vec<u8>,
    slots: Vec<Slot>,
}

/// A parameter whose value depends on the request.
#[derive(Debug)]
struct Slot {
    /// The end of the text before the value.
    end: usize,
    /// Bytes of it that belong to this parameter.
    opening: usize,
    value: Value,
    if_not_empty: bool,
}

/// The source of a value.
#[derive(Debug)]
pub(super) enum Value {
    /// One variable, as most are.
    Variable(Index),
    /// Any text.
    Text(Complex),
    /// The text for the method, which a cache may replace.
    Method(Complex),
    /// The requested host.
    Host,
}

impl List {
    /// Adds that of a directive.
    pub(super) fn add<F: ParamForm>(&mut self, param: &Param) {
        let Param { name, value, if_not_empty } = param;
        let start = self.open::<F>(name);
        let at = self.text.len();
        let value = match (value.literal(), value.parts()) {
            _ if name == METHOD => Value::Method(value.clone()),
            (Some(text), _) if text.is_empty() && *if_not_empty => {
                self.text.truncate(start);
                return;
            }
            (Some(text), _) => {
                self.text.extend_from_slice(text);
                if F::close(&mut self.text, start, at).is_ok() {
                    return;
                }
                // Requests fail with the same error.
                self.text.truncate(at);
                Value::Text(value.clone())
            }
            (None, [Part::Variable(index)]) => Value::Variable(*index),
            (None, _) => Value::Text(value.clone()),
        };
        self.add_slot(start, value, *if_not_empty);
    }

    /// Adds the requested host.
    pub(super) fn add_host<F: ParamForm>(&mut self) {
        let start = self.open::<F>(HOST);
        self.add_slot(start, Value::Host, true);
    }

    fn open<F: ParamForm>(&mut self, name: &[u8]) -> usize {
        let start = self.text.len();
        F::open(&mut self.text, name.len(), |list| list.extend_from_slice(name));
        start
    }

    fn add_slot(&mut self, start: usize, value: Value, if_not_empty: bool) {
        let end = self.text.len();
        self.slots.push(Slot { end, opening: end - start, value, if_not_empty });
    }

    /// Appends the parameters of a request, whose values `append` appends.
    ///
    /// # Errors
    /// One of them cannot be sent in this form.
    #[inline]
    pub(super) fn write<F: ParamForm>(
        &self,
        out: &mut Vec<u8>,
        append: impl Fn(&Value, &mut Vec<u8>),
    ) -> Result<(), F::Error> {
        let mut at = 0;
        for Slot { end, opening, value, if_not_empty } in &self.slots {
            copy(&self.text[at..], end - at, out);
            at = *end;
            let start = out.len();
            append(value, out);
            match *if_not_empty && out.len() == start {
                true => out.truncate(start - opening),
                false => F::close(out, start - opening, start)?,
            }
        }
        out.extend_from_slice(&self.text[at..]);
        Ok(())
    }
}

/// Texts up to this size are copied without a call, together with what follows them. Most are shorter.
const SHORT: usize = 32;

/// Appends so many bytes of a text.
#[inline]
fn copy(text: &[u8], bytes: usize, out: &mut Vec<u8>) {
    match text.first_chunk::<SHORT>() {
        Some(chunk) if bytes <= SHORT => {
            let end = out.len() + bytes;
            out.extend_from_slice(chunk);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&text[..bytes]),
    }
}
