//! MD5-crypt of crypt(3) (`$1$`) and Apache's variant of it (`$apr1$`), which differ in the magic.

use md5::{Digest, Md5};

/// Longer salts are cut.
const SALT_BYTES_MAX: usize = 8;

/// Rounds that slow the guessing down.
const ROUNDS: u32 = 1000;

/// The order in which the bytes of the digest are written.
const ORDER: [u8; 16] = [12, 6, 0, 13, 7, 1, 14, 8, 2, 15, 9, 3, 5, 10, 4, 11];

/// The encrypted form of a password; `settings` is what follows the magic: the salt, up to a `$`.
pub(super) fn crypt(password: &[u8], magic: &[u8], settings: &[u8]) -> Vec<u8> {
    let salt = settings.split(|&b| b == b'$').next().unwrap_or_default();
    let salt = &salt[..salt.len().min(SALT_BYTES_MAX)];
    let mut out = [magic, salt, b"$"].concat();
    super::password::push_digits(&mut out, &digest(password, magic, salt), &ORDER);
    out
}

fn digest(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 16] {
    let mut digest = md5(&[password, salt, password]);
    let mut first = Md5::new();
    first.update(password);
    first.update(magic);
    first.update(salt);
    for piece in password.chunks(16) {
        first.update(&digest[..piece.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
        bits >>= 1;
    }
    digest = first.finalize().into();
    for round in 0..ROUNDS {
        let [odd, even]: [&[u8]; 2] =
            if round % 2 == 1 { [password, &digest] } else { [&digest, password] };
        let salt: &[u8] = if round % 3 == 0 { b"" } else { salt };
        let again: &[u8] = if round % 7 == 0 { b"" } else { password };
        digest = md5(&[odd, salt, again, even]);
    }
    digest
}

fn md5(pieces: &[&[u8]]) -> [u8; 16] {
    let mut md5 = Md5::new();
    pieces.iter().for_each(|piece| md5.update(piece));
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // By Apache's htpasswd and by OpenSSL's passwd -1.
        let crypt = |magic: &str, salt: &str| {
            String::from_utf8(crypt(b"password", magic.as_bytes(), salt.as_bytes())).unwrap()
        };
        assert_eq!(crypt("$apr1$", "salt$rest"), "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.");
        assert_eq!(crypt("$1$", "salt"), "$1$salt$qJH7.N4xYta3aEG/dfqo/0");
    }
}
