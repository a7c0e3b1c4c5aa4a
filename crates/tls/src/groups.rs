//! Groups for the key exchange (`ssl_ecdh_curve`), by OpenSSL's names.

use rustls::NamedGroup;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group;

use crate::p521::P521;

/// A group, and its names; the first is that of `$ssl_curve`.
struct GroupNames {
    group: &'static dyn SupportedKxGroup,
    names: &'static [&'static str],
}

/// In the default order: hybrid post-quantum first, then the groups that nearly every client offers.
static TABLE: [GroupNames; 8] = [
    GroupNames { group: kx_group::X25519MLKEM768, names: &["X25519MLKEM768"] },
    GroupNames { group: kx_group::X25519, names: &["X25519"] },
    GroupNames { group: kx_group::SECP256R1, names: &["prime256v1", "secp256r1", "P-256"] },
    GroupNames { group: kx_group::SECP384R1, names: &["secp384r1", "P-384"] },
    GroupNames { group: kx_group::SECP256R1MLKEM768, names: &["SecP256r1MLKEM768"] },
    GroupNames { group: kx_group::MLKEM768, names: &["MLKEM768"] },
    GroupNames { group: kx_group::MLKEM1024, names: &["MLKEM1024"] },
    // Slow, and preferred by few clients.
    GroupNames { group: &P521, names: &["secp521r1", "P-521"] },
];

/// Number of groups in use by default.
const DEFAULTS: usize = 4;

/// Groups that OpenSSL knows and that do not exist here.
const ABSENT: &[&str] = &[
    "X448",
    "ffdhe2048",
    "ffdhe3072",
    "ffdhe4096",
    "ffdhe6144",
    "ffdhe8192",
    "secp224r1",
    "P-224",
    "secp256k1",
    "brainpoolP256r1",
    "brainpoolP384r1",
    "brainpoolP512r1",
    "brainpoolP256r1tls13",
    "brainpoolP384r1tls13",
    "brainpoolP512r1tls13",
    "MLKEM512",
    "SecP384r1MLKEM1024",
];

/// The result of reading a list.
#[derive(Clone, Debug)]
pub struct Groups {
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    /// Groups that OpenSSL knows, and that do not exist here.
    pub absent: Vec<String>,
    /// Names that OpenSSL does not know either.
    pub unknown: Vec<String>,
}

impl Default for Groups {
    fn default() -> Groups {
        let groups = TABLE[..DEFAULTS].iter().map(|row| row.group).collect();
        Groups { groups, absent: Vec::new(), unknown: Vec::new() }
    }
}

impl Groups {
    /// Reads `auto`, or names separated by colons. A name after `?` may be unknown.
    pub fn parse(list: &str) -> Groups {
        if list == "auto" {
            return Groups::default();
        }
        let (mut groups, mut absent, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for item in list.split([':', '/']).filter(|item| !item.is_empty()) {
            // `*` requests a key share; the first group's is always sent.
            let item = item.trim_start_matches('*');
            let name = item.trim_start_matches('?');
            let is = |other: &&str| other.eq_ignore_ascii_case(name);
            if let Some(row) = TABLE.iter().find(|row| row.names.iter().any(is)) {
                groups.push(row.group);
            } else if ABSENT.iter().any(is) {
                absent.push(name.to_owned());
            } else if name == item {
                unknown.push(name.to_owned());
            }
        }
        Groups { groups, absent, unknown }
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

/// OpenSSL's name of a group.
pub(crate) fn name(group: NamedGroup) -> &'static str {
    let row = TABLE.iter().find(|row| row.group.name() == group);
    row.map_or("UNKNOWN", |row| row.names[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_openssl() {
        let names = |groups: &Groups| -> Vec<_> {
            groups.groups.iter().map(|group| name(group.name())).collect()
        };
        let defaults = ["X25519MLKEM768", "X25519", "prime256v1", "secp384r1"];
        assert_eq!(names(&Groups::parse("auto")), defaults);
        let some = Groups::parse("P-384:x25519:P-521:X448:?foo:bar");
        assert_eq!(names(&some), ["secp384r1", "X25519", "secp521r1"]);
        assert_eq!(
            (&some.absent[..], &some.unknown[..]),
            (&["X448".into()][..], &["bar".into()][..])
        );
        assert!(Groups::parse("X448").is_empty());
    }
}
