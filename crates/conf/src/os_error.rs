//! Errors of the operating system in nginx's form, for messages of all crates.

use std::{fmt, io};

/// An error of the operating system as nginx shows it: `2: No such file or directory`. Others are shown as they
/// are.
#[derive(Debug)]
pub struct Errno<'a>(pub &'a io::Error);

impl fmt::Display for Errno<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match self.0.raw_os_error() {
            Some(code) => {
                let text = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
                write!(f, "{code}: {text}")
            }
            None => f.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_first() {
        assert_eq!(
            Errno(&io::Error::from_raw_os_error(2)).to_string(),
            "2: No such file or directory"
        );
        assert_eq!(Errno(&io::Error::other("why")).to_string(), "why");
    }
}
