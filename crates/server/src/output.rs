//! Writes to standard output and standard error that don't fail when the reader is gone.
//!
//! Called by `main` and the commands. `print!` and `eprint!` panic if the other end of a pipe is
//! closed (`nowait reference directives | head -1`), so nothing here uses them.

use std::io::{self, Write};

/// Writes to standard output. A closed reader is no error.
///
/// # Errors
/// Any other error: a full disk, for example.
pub fn print(text: &str) -> Result<(), String> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Like [`print()`], for output that is written in pieces.
///
/// # Errors
/// Like [`print()`].
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("write() to standard output failed {}", crate::log::OsErrorText(&error)))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error; failures are ignored.
pub fn print_error(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
