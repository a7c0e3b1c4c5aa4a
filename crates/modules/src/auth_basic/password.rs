//! Verification of a password against its hash.
//!
//! Called in the thread pool, and on the loop for formats that are not [slow](is_slow). The cost of an
//! entry and the length of a password are bounded; comparisons take constant time.

use argon2::{Algorithm, Argon2, Params, Version};
use nowait_http::base64;
use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;

use super::{des_crypt, md5_crypt};

/// Longest valid password, as for crypt(3): the cost of most forms grows with its length.
const PASSWORD_BYTES_MAX: usize = 512;

/// Highest cost of bcrypt: about four seconds.
const BCRYPT_COST_MAX: u32 = 16;

/// Maximum number of rounds of SHA-crypt.
const SHA_ROUNDS_MAX: u32 = 5_000_000;

/// Largest memory of Argon2, in KiB.
const ARGON2_MEMORY_MAX: u32 = 256 << 10;

/// Maximum number of passes of Argon2.
const ARGON2_PASSES_MAX: u32 = 64;

/// Maximum number of lanes of Argon2.
const ARGON2_LANES_MAX: u32 = 64;

/// Longest result of Argon2, in bytes.
const ARGON2_BYTES_MAX: usize = 128;

/// The alphabet of crypt(3)'s own base 64.
pub(super) const DIGITS: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Length of a SHA-1 digest.
const SHA1_BYTES: usize = 20;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The password is correct.
    Right,
    /// The password is wrong.
    Wrong,
    /// The user does not exist.
    Unknown,
    /// The entry is malformed, too costly or of an unknown kind: the operator's fault.
    Unusable,
}

/// Whether checking an entry takes too long for the loop.
pub(super) fn is_slow(entry: &[u8]) -> bool {
    !entry.starts_with(b"{")
}

/// Whether an entry has a form that [`check`] knows, as far as its beginning tells: not a password that was left
/// unhashed.
pub(super) fn is_known(entry: &[u8]) -> bool {
    const FORMS: [&[u8]; 10] = [
        b"{PLAIN}", b"{SHA}", b"{SSHA}", b"$1$", b"$apr1$", b"$2a$", b"$2b$", b"$2y$", b"$5$",
        b"$6$",
    ];
    FORMS.iter().any(|form| entry.starts_with(form)) || entry.starts_with(b"$argon2id$")
}

/// The format of an entry with its cost parameters: verification takes equally long for equal ones.
pub(super) fn kind(entry: &[u8]) -> &[u8] {
    let end = if entry.starts_with(b"{") {
        entry.iter().position(|&b| b == b'}')
    } else if entry.starts_with(b"$argon2id$") {
        // The version and the costs precede the salt.
        dollars(entry, if entry.starts_with(b"$argon2id$v=") { 4 } else { 3 })
    } else if entry.starts_with(b"$2")
        || [&b"$5$rounds="[..], b"$6$rounds="].iter().any(|rounds| entry.starts_with(rounds))
    {
        dollars(entry, 3)
    } else if entry.starts_with(b"$") {
        dollars(entry, 2)
    } else {
        Some(0)
    };
    &entry[..end.unwrap_or(entry.len())]
}

/// The position of the n-th dollar sign.
fn dollars(entry: &[u8], number: usize) -> Option<usize> {
    entry.iter().enumerate().filter(|(_, b)| **b == b'$').nth(number - 1).map(|(at, _)| at)
}

#[cfg(test)]
thread_local! {
    static CHECKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of passwords verified by this thread.
#[cfg(test)]
pub(super) fn checked() -> usize {
    CHECKED.get()
}

/// Checks a password. nginx: `ngx_crypt`.
pub(super) fn check(entry: &[u8], password: &[u8]) -> Check {
    #[cfg(test)]
    CHECKED.set(CHECKED.get() + 1);
    if password.len() > PASSWORD_BYTES_MAX {
        return Check::Wrong;
    }
    match check_entry(entry, password) {
        Some(true) => Check::Right,
        Some(false) => Check::Wrong,
        None => Check::Unusable,
    }
}

fn check_entry(entry: &[u8], password: &[u8]) -> Option<bool> {
    if let Some(plain) = entry.strip_prefix(b"{PLAIN}") {
        return Some(equal(plain, password));
    }
    if let Some(encoded) = entry.strip_prefix(b"{SHA}") {
        let digest = base64::decode(encoded).filter(|digest| digest.len() == SHA1_BYTES)?;
        return Some(equal(&digest, &Sha1::digest(password)));
    }
    if let Some(encoded) = entry.strip_prefix(b"{SSHA}") {
        let decoded = base64::decode(encoded)?;
        let (digest, salt) = decoded.split_at_checked(SHA1_BYTES)?;
        return Some(equal(digest, &Sha1::digest([password, salt].concat())));
    }
    for magic in [&b"$apr1$"[..], b"$1$"] {
        if let Some(settings) = entry.strip_prefix(magic) {
            // The result has 22 digits: a shorter one is invalid.
            let result = settings.rsplit(|&b| b == b'$').next()?;
            return (result.len() == 22)
                .then(|| equal(entry, &md5_crypt::crypt(password, magic, settings)));
        }
    }
    if let Some(settings) = entry.strip_prefix(b"$5$") {
        let order = sha256_order();
        return sha_crypt(entry, settings, |salt, params| {
            let digest = sha_crypt::sha256_crypt(password, salt, params);
            let mut out = Vec::new();
            push_digits(&mut out, &digest, &order);
            out
        });
    }
    if let Some(settings) = entry.strip_prefix(b"$6$") {
        let order = sha512_order();
        return sha_crypt(entry, settings, |salt, params| {
            let digest = sha_crypt::sha512_crypt(password, salt, params);
            let mut out = Vec::new();
            push_digits(&mut out, &digest, &order);
            out
        });
    }
    if [&b"$2a$"[..], b"$2b$", b"$2y$"].iter().any(|magic| entry.starts_with(magic)) {
        let text = str::from_utf8(entry).ok()?;
        let cost: u32 = text.get(4..6)?.parse().ok()?;
        return (cost <= BCRYPT_COST_MAX).then(|| bcrypt::verify(password, text).ok())?;
    }
    if let Some(settings) = entry.strip_prefix(b"$argon2id$") {
        return argon2(settings, password);
    }
    if entry.len() == 13 {
        return Some(equal(entry, &des_crypt::crypt(password, [entry[0], entry[1]])?));
    }
    None
}

/// Compares two texts in a time that depends only on their lengths.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// `[rounds=N$]salt$digits`
fn sha_crypt(
    entry: &[u8],
    settings: &[u8],
    compute: impl Fn(&[u8], sha_crypt::Params) -> Vec<u8>,
) -> Option<bool> {
    let (rounds, rest) = match settings.strip_prefix(b"rounds=") {
        None => (sha_crypt::Params::RECOMMENDED_ROUNDS, settings),
        Some(rest) => {
            let at = rest.iter().position(|&b| b == b'$')?;
            (number(&rest[..at])?, &rest[at + 1..])
        }
    };
    let params = sha_crypt::Params::new(rounds).ok().filter(|_| rounds <= SHA_ROUNDS_MAX)?;
    let at = rest.iter().position(|&b| b == b'$').filter(|at| *at <= 16)?;
    let expected = &rest[at + 1..];
    debug_assert!(entry.ends_with(expected));
    Some(equal(expected, &compute(&rest[..at], params)))
}

/// `v=19$m=65536,t=3,p=4$salt$digest`; the form of the PHC.
fn argon2(settings: &[u8], password: &[u8]) -> Option<bool> {
    let mut parts = settings.split(|&b| b == b'$');
    let (version, costs) = match parts.next()? {
        b"v=19" => (Version::V0x13, parts.next()?),
        b"v=16" => (Version::V0x10, parts.next()?),
        // The first version did not state it.
        costs => (Version::V0x10, costs),
    };
    let mut costs = costs.split(|&b| b == b',');
    let mut cost = |name: &[u8], max: u32| {
        number(costs.next()?.strip_prefix(name)?).filter(|cost| *cost <= max)
    };
    let memory = cost(b"m=", ARGON2_MEMORY_MAX)?;
    let passes = cost(b"t=", ARGON2_PASSES_MAX)?;
    let lanes = cost(b"p=", ARGON2_LANES_MAX)?;
    if costs.next().is_some() {
        return None;
    }
    let salt = base64::decode(parts.next()?)?;
    let digest = base64::decode(parts.next()?).filter(|digest| digest.len() <= ARGON2_BYTES_MAX)?;
    if parts.next().is_some() {
        return None;
    }
    let params = Params::new(memory, passes, lanes, Some(digest.len())).ok()?;
    let mut computed = vec![0; digest.len()];
    let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
    argon2.hash_password_into(password, &salt, &mut computed).ok()?;
    Some(equal(&digest, &computed))
}

fn number(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Writes bytes of a digest, three at a time in the given order, as digits, the low ones first.
pub(super) fn push_digits(out: &mut Vec<u8>, digest: &[u8], order: &[u8]) {
    for group in order.chunks(3) {
        let bytes = group.iter().map(|&at| u32::from(digest[usize::from(at)]));
        let bits = bytes.enumerate().fold(0, |bits, (n, byte)| bits | byte << (8 * n));
        for digit in 0..=group.len() {
            out.push(DIGITS[(bits >> (6 * digit) & 63) as usize]);
        }
    }
}

/// The order of the bytes of a SHA-256: three interleaved thirds in rotation, and the last two.
fn sha256_order() -> [u8; 32] {
    let mut order = [0; 32];
    let mut group = [20, 10, 0];
    for three in order[..30].chunks_mut(3) {
        three.copy_from_slice(&group);
        group = [group[1] + 1, group[2] + 1, group[0] + 1];
    }
    [order[30], order[31]] = [30, 31];
    order
}

/// The order of the bytes of a SHA-512.
fn sha512_order() -> [u8; 64] {
    let mut order = [0; 64];
    let mut group = [42, 21, 0];
    for three in order[..63].chunks_mut(3) {
        three.copy_from_slice(&group);
        group = [group[2] + 1, group[0] + 1, group[1] + 1];
    }
    order[63] = 63;
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_accepts_only_its_password() {
        // Generated by crypt(3), Apache's htpasswd and the reference implementation of Argon2.
        for (entry, password) in [
            ("{PLAIN}password", "password"),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "password"),
            ("{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0", "password"),
            ("$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.", "password"),
            ("$1$salt$qJH7.N4xYta3aEG/dfqo/0", "password"),
            ("$1$salt$UsdFqFVB.FsuinRDK5eE..", ""),
            ("$5$saltstring$OH4IDuTlsuTYPdED1gsuiRMyTAwNlRWyA6Xr3I4/dQ5", "password"),
            (
                "$6$rounds=10000$saltstringsaltst$DnM2Jm3V1mf0hWR8z5llqCiY0T8yQkajZ3XqSMPqCQM7nOl\
                 Q2vNLw67R4dig.xMBoe7fqfsstTJp8WAno99rl0",
                "Hello",
            ),
            (
                "$6$x$r39k5JD7gq4TL1cbIvXhiANv3.KUJxnTZfrlpZGUTcMqtXY1OU00ux2BzFw.1q8FUFoF4EvGK38\
                 2pcmMfVQG01",
                "p",
            ),
            ("$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm", "password"),
            ("$2y$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm", "password"),
            (
                "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
                "password",
            ),
            ("sa3tHJ3/KuYvI", "password"),
        ] {
            assert_eq!(check(entry.as_bytes(), password.as_bytes()), Check::Right, "{entry}");
            assert_eq!(check(entry.as_bytes(), b"passworD"), Check::Wrong, "{entry}");
            let longer = password.repeat(600 / password.len().max(1));
            assert_ne!(check(entry.as_bytes(), longer.as_bytes()), Check::Unusable, "{entry}");
            // A truncated entry (other than by padding) is never correct, and never causes a panic.
            for at in 0..entry.len() - 1 {
                if entry.starts_with("{PLAIN}") || entry.starts_with("$2") {
                    break;
                }
                let cut = check(&entry.as_bytes()[..at], password.as_bytes());
                assert_ne!(cut, Check::Right, "{entry} cut at {at}");
            }
        }
    }

    #[test]
    fn entries_of_a_kind_cost_the_same() {
        for (entry, expected) in [
            ("{PLAIN}a", "{PLAIN"),
            ("{SSHA}yI6cZ", "{SSHA"),
            ("$apr1$salt$Xxd1", "$apr1"),
            ("$5$salt$OH4", "$5"),
            ("$6$rounds=10000$salt$DnM", "$6$rounds=10000"),
            ("$2b$04$abcd", "$2b$04"),
            ("$argon2id$v=19$m=256,t=2,p=1$c29t$nf65", "$argon2id$v=19$m=256,t=2,p=1"),
            ("$argon2id$m=256,t=2,p=1$c29t$nf65", "$argon2id$m=256,t=2,p=1"),
            ("sa3tHJ3/KuYvI", ""),
            ("$", "$"),
            ("", ""),
        ] {
            assert_eq!(kind(entry.as_bytes()), expected.as_bytes(), "{entry}");
        }
    }

    #[test]
    fn unusable_entries() {
        for entry in [
            "",
            "password",
            "$1$",
            "$apr1$",
            "$5$",
            "$6$rounds=$a$b",
            "$6$rounds=999999999$a$b",
            "$6$rounds=1$a$b",
            "$6$thissaltistoolongforit$b",
            "$2b$",
            "$2b$31$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm",
            "$2b$\u{e4}\u{e4}$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm",
            "$argon2id$v=19$m=4294967295,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1b",
            "$argon2id$v=19$m=256,t=2,p=0$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1b",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$",
            "$y$j9T$abc$def",
            "{SHA}Zm9vCg==",
            "{SHA}_____Mm5Pz8GgiULbPgzG37mj9g=",
            "{SSHA}Zm9vCg==",
            "{MD5}x",
        ] {
            assert_eq!(check(entry.as_bytes(), b"password"), Check::Unusable, "{entry}");
        }
    }
}
