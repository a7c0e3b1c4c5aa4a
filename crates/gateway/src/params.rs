//! The list of parameters with which a request to an application begins, whatever its form.
//!
//! Implemented for FastCGI, SCGI and uwsgi. Names and values are appended where they belong, so that
//! nothing is copied on its way.

/// A list of names and values.
pub trait ParamList {
    /// Adds what `name` and `value` append to the bytes that they get, and must not touch. With
    /// `if_not_empty`, nothing is added if the value is empty.
    fn add(
        &mut self,
        if_not_empty: bool,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    );

    /// Adds a parameter.
    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.add(false, |out| out.extend_from_slice(name), |out| out.extend_from_slice(value));
    }
}
