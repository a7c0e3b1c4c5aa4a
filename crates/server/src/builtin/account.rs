//! The users of a built-in site: `--auth NAME[:PASSWORD]`.
//!
//! Made by [`super::arguments`], used by [`super::site`]. Only a hash of a password reaches the configuration.
//! It is a fast one: it exists in the memory of this process alone, and every request is checked.

use data_encoding::BASE64;
use rustix::rand::{GetRandomFlags, getrandom};
use sha1::{Digest, Sha1};

use super::domain::quoted;

/// The environment variable for a password that the command line leaves out.
pub const VARIABLE: &str = "NOWAIT_PASSWORD";

/// Characters of generated passwords, 32 of them: none that looks like another.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Length of generated passwords: 80 random bits.
const GENERATED_CHARS: usize = 16;

/// Longest password (`auth_basic` refuses longer ones).
const PASSWORD_BYTES_MAX: usize = 512;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: String,
    /// The salted hash of the password.
    entry: String,
    /// The password, if it was generated: nobody knows it yet.
    pub generated: Option<String>,
}

impl Account {
    /// The user of the argument `NAME[:PASSWORD]`. `given` is the password of the environment.
    ///
    /// # Errors
    /// The reason why the argument is invalid.
    pub fn new(text: &str, given: Option<String>) -> Result<Account, String> {
        let (name, password) = match text.split_once(':') {
            Some((name, password)) => (name, Some(password.to_owned())),
            None => (text, given),
        };
        if name.is_empty() || name.starts_with('#') || name.contains(char::is_control) {
            return Err("expected NAME or NAME:PASSWORD".to_owned());
        }
        if password.as_ref().is_some_and(|password| password.is_empty()) {
            return Err("the password is empty; without one, it is generated".to_owned());
        }
        if password.as_ref().is_some_and(|password| password.len() > PASSWORD_BYTES_MAX) {
            return Err(format!("a password has {PASSWORD_BYTES_MAX} bytes at most"));
        }
        let generated = match password {
            None => Some(generate()?),
            Some(_) => None,
        };
        let password = password.as_ref().or(generated.as_ref()).expect("it was given or generated");
        let salt = random::<8>()?;
        let mut hashed = Sha1::digest([password.as_bytes(), &salt].concat()).to_vec();
        hashed.extend_from_slice(&salt);
        let entry = format!("{{SSHA}}{}", BASE64.encode(&hashed));
        Ok(Account { name: name.to_owned(), entry, generated })
    }

    /// The directive.
    pub fn directive(&self) -> String {
        format!("        auth_basic_user {} {};\n", quoted(&self.name), quoted(&self.entry))
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], String> {
    let mut bytes = [0; BYTES];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(got) if got == BYTES => Ok(bytes),
        _ => Err("the system has no random numbers".to_owned()),
    }
}

/// A password for people to type, in groups of four.
fn generate() -> Result<String, String> {
    let bytes = random::<GENERATED_CHARS>()?;
    let mut text = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        if n > 0 && n % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(ALPHABET[usize::from(byte % 32)]));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_given_or_generated() {
        let anna = Account::new("anna:a:b", Some("other".into())).unwrap();
        assert_eq!((anna.name.as_str(), &anna.generated), ("anna", &None));
        assert!(anna.directive().contains("auth_basic_user \"anna\" \"{SSHA}"), "{anna:?}");
        assert!(!anna.directive().contains("a:b"));
        assert_eq!(Account::new("anna", Some("other".into())).unwrap().generated, None);
        let [one, two] = [(); 2].map(|()| Account::new("anna", None).unwrap().generated.unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), GENERATED_CHARS + 3);
        for wrong in ["", ":x", "a:", "#a:b", "a\nb"] {
            assert!(Account::new(wrong, None).is_err(), "{wrong}");
        }
        assert!(Account::new("a", Some("x".repeat(513))).is_err());
    }
}
