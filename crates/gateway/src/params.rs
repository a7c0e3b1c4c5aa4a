//! The list of parameters with which a request to an application begins, regardless of its form.
//!
//! Implemented for FastCGI, SCGI and uwsgi. Names and values are appended where they are sent from, so
//! that nothing is copied on its way. What [`ParamForm::open`] and [`ParamForm::close`] write depends on
//! nothing but the parameter: what is known before the request can be written before it.

/// The form of a list of names and values.
///
/// A parameter is written in three steps: [`open`](Self::open), the value, [`close`](Self::close). If it
/// is dropped after all, its bytes are truncated.
pub trait ParamForm {
    /// The reason why a parameter cannot be sent.
    type Error;

    /// Appends what precedes the value of a parameter. `name` appends its name, which has `name_bytes`.
    fn open(list: &mut Vec<u8>, name_bytes: usize, name: impl FnOnce(&mut Vec<u8>));

    /// Completes the last parameter of the list, which was opened at `start`, and whose value begins at
    /// `value`.
    ///
    /// # Errors
    /// It cannot be sent; the list is unchanged.
    fn close(list: &mut Vec<u8>, start: usize, value: usize) -> Result<(), Self::Error>;

    /// Appends a parameter.
    ///
    /// # Errors
    /// It cannot be sent.
    fn push(list: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        let start = list.len();
        Self::open(list, name.len(), |list| list.extend_from_slice(name));
        let at = list.len();
        list.extend_from_slice(value);
        Self::close(list, start, at)
    }
}
