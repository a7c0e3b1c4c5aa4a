//! Cipher lists in OpenSSL's syntax, mapped to the available suites.
//!
//! Exist: the suites of TLS 1.3, and those of TLS 1.2 with ephemeral elliptic curves and
//! authenticated encryption. Other names of OpenSSL select no suites and are reported, so that the
//! caller can warn; names that OpenSSL does not know are reported apart, because OpenSSL ignores
//! them in silence. As with nginx, lists say nothing about TLS 1.3.

use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{CipherSuite, SupportedCipherSuite};

/// A suite of TLS 1.2, and the words of OpenSSL's language that select it.
struct SuiteWords {
    name: &'static str,
    suite: SupportedCipherSuite,
    /// Besides those that select all.
    words: &'static [&'static str],
    bits: u16,
}

/// Words that select every suite of TLS 1.2 that exists here.
const WORDS_OF_ALL: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH", "FIPS"];

/// In OpenSSL's order of preference.
static TABLE: [SuiteWords; 6] = [
    SuiteWords {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        words: &["aECDSA", "ECDSA", "AES", "AES256", "AESGCM", "SHA384", "SUITEB192"],
        bits: 256,
    },
    SuiteWords {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        suite: suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        words: &["aRSA", "RSA", "AES", "AES256", "AESGCM", "SHA384"],
        bits: 256,
    },
    SuiteWords {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite: suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["aECDSA", "ECDSA", "CHACHA20"],
        bits: 256,
    },
    SuiteWords {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        suite: suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["aRSA", "RSA", "CHACHA20"],
        bits: 256,
    },
    SuiteWords {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        words: &["aECDSA", "ECDSA", "AES", "AES128", "AESGCM", "SHA256", "SUITEB128"],
        bits: 128,
    },
    SuiteWords {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        suite: suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        words: &["aRSA", "RSA", "AES", "AES128", "AESGCM", "SHA256"],
        bits: 128,
    },
];

/// The suites of TLS 1.3, in OpenSSL's order of preference.
static TLS13: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suites::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", suites::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_128_GCM_SHA256", suites::TLS13_AES_128_GCM_SHA256),
];

/// Every suite that exists here.
pub(crate) fn all() -> impl Iterator<Item = SupportedCipherSuite> {
    TLS13.iter().map(|(_, suite)| *suite).chain(TABLE.iter().map(|row| row.suite))
}

/// Words of OpenSSL's syntax that select no suites here.
const ABSENT_WORDS: &[&str] = &[
    "3DES",
    "ADH",
    "AECDH",
    "AESCCM",
    "AESCCM8",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "ARIAGCM",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "CBC",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "DH",
    "DHE",
    "DSS",
    "ECDH",
    "EDH",
    "EXP",
    "EXPORT",
    "EXPORT40",
    "EXPORT56",
    "GOST",
    "GOST2012",
    "GOST89MAC",
    "GOST94",
    "IDEA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "SEED",
    "SHA",
    "SHA1",
    "SRP",
    "SSLv2",
    "SSLv3",
    "TLSv1",
    "TLSv1.0",
    "aDSS",
    "aGOST",
    "aGOST01",
    "aNULL",
    "aPSK",
    "aSRP",
    "eNULL",
    "kDHE",
    "kDHEPSK",
    "kDHd",
    "kDHr",
    "kECDHEPSK",
    "kEDH",
    "kGOST",
    "kPSK",
    "kRSA",
    "kRSAPSK",
    "kSRP",
];

/// Suites that OpenSSL knows and that do not exist here.
const ABSENT_SUITES: &[&str] = &[
    "ADH-AES128-GCM-SHA256",
    "ADH-AES128-SHA",
    "ADH-AES128-SHA256",
    "ADH-AES256-GCM-SHA384",
    "ADH-AES256-SHA",
    "ADH-AES256-SHA256",
    "ADH-CAMELLIA128-SHA",
    "ADH-CAMELLIA128-SHA256",
    "ADH-CAMELLIA256-SHA",
    "ADH-CAMELLIA256-SHA256",
    "AECDH-AES128-SHA",
    "AECDH-AES256-SHA",
    "AECDH-NULL-SHA",
    "AES128-CCM",
    "AES128-CCM8",
    "AES128-GCM-SHA256",
    "AES128-SHA",
    "AES128-SHA256",
    "AES256-CCM",
    "AES256-CCM8",
    "AES256-GCM-SHA384",
    "AES256-SHA",
    "AES256-SHA256",
    "ARIA128-GCM-SHA256",
    "ARIA256-GCM-SHA384",
    "CAMELLIA128-SHA",
    "CAMELLIA128-SHA256",
    "CAMELLIA256-SHA",
    "CAMELLIA256-SHA256",
    "DHE-DSS-AES128-GCM-SHA256",
    "DHE-DSS-AES128-SHA",
    "DHE-DSS-AES128-SHA256",
    "DHE-DSS-AES256-GCM-SHA384",
    "DHE-DSS-AES256-SHA",
    "DHE-DSS-AES256-SHA256",
    "DHE-DSS-ARIA128-GCM-SHA256",
    "DHE-DSS-ARIA256-GCM-SHA384",
    "DHE-DSS-CAMELLIA128-SHA",
    "DHE-DSS-CAMELLIA128-SHA256",
    "DHE-DSS-CAMELLIA256-SHA",
    "DHE-DSS-CAMELLIA256-SHA256",
    "DHE-PSK-AES128-CBC-SHA",
    "DHE-PSK-AES128-CBC-SHA256",
    "DHE-PSK-AES128-CCM",
    "DHE-PSK-AES128-CCM8",
    "DHE-PSK-AES128-GCM-SHA256",
    "DHE-PSK-AES256-CBC-SHA",
    "DHE-PSK-AES256-CBC-SHA384",
    "DHE-PSK-AES256-CCM",
    "DHE-PSK-AES256-CCM8",
    "DHE-PSK-AES256-GCM-SHA384",
    "DHE-PSK-ARIA128-GCM-SHA256",
    "DHE-PSK-ARIA256-GCM-SHA384",
    "DHE-PSK-CAMELLIA128-SHA256",
    "DHE-PSK-CAMELLIA256-SHA384",
    "DHE-PSK-CHACHA20-POLY1305",
    "DHE-PSK-NULL-SHA",
    "DHE-PSK-NULL-SHA256",
    "DHE-PSK-NULL-SHA384",
    "DHE-RSA-AES128-CCM",
    "DHE-RSA-AES128-CCM8",
    "DHE-RSA-AES128-GCM-SHA256",
    "DHE-RSA-AES128-SHA",
    "DHE-RSA-AES128-SHA256",
    "DHE-RSA-AES256-CCM",
    "DHE-RSA-AES256-CCM8",
    "DHE-RSA-AES256-GCM-SHA384",
    "DHE-RSA-AES256-SHA",
    "DHE-RSA-AES256-SHA256",
    "DHE-RSA-ARIA128-GCM-SHA256",
    "DHE-RSA-ARIA256-GCM-SHA384",
    "DHE-RSA-CAMELLIA128-SHA",
    "DHE-RSA-CAMELLIA128-SHA256",
    "DHE-RSA-CAMELLIA256-SHA",
    "DHE-RSA-CAMELLIA256-SHA256",
    "DHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ARIA128-GCM-SHA256",
    "ECDHE-ARIA256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-CCM",
    "ECDHE-ECDSA-AES128-CCM8",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-ECDSA-AES256-CCM",
    "ECDHE-ECDSA-AES256-CCM8",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-ECDSA-ARIA128-GCM-SHA256",
    "ECDHE-ECDSA-ARIA256-GCM-SHA384",
    "ECDHE-ECDSA-CAMELLIA128-SHA256",
    "ECDHE-ECDSA-CAMELLIA256-SHA384",
    "ECDHE-ECDSA-NULL-SHA",
    "ECDHE-PSK-AES128-CBC-SHA",
    "ECDHE-PSK-AES128-CBC-SHA256",
    "ECDHE-PSK-AES256-CBC-SHA",
    "ECDHE-PSK-AES256-CBC-SHA384",
    "ECDHE-PSK-CAMELLIA128-SHA256",
    "ECDHE-PSK-CAMELLIA256-SHA384",
    "ECDHE-PSK-CHACHA20-POLY1305",
    "ECDHE-PSK-NULL-SHA",
    "ECDHE-PSK-NULL-SHA256",
    "ECDHE-PSK-NULL-SHA384",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-RSA-CAMELLIA128-SHA256",
    "ECDHE-RSA-CAMELLIA256-SHA384",
    "ECDHE-RSA-NULL-SHA",
    "NULL-MD5",
    "NULL-SHA",
    "NULL-SHA256",
    "PSK-AES128-CBC-SHA",
    "PSK-AES128-CBC-SHA256",
    "PSK-AES128-CCM",
    "PSK-AES128-CCM8",
    "PSK-AES128-GCM-SHA256",
    "PSK-AES256-CBC-SHA",
    "PSK-AES256-CBC-SHA384",
    "PSK-AES256-CCM",
    "PSK-AES256-CCM8",
    "PSK-AES256-GCM-SHA384",
    "PSK-ARIA128-GCM-SHA256",
    "PSK-ARIA256-GCM-SHA384",
    "PSK-CAMELLIA128-SHA256",
    "PSK-CAMELLIA256-SHA384",
    "PSK-CHACHA20-POLY1305",
    "PSK-NULL-SHA",
    "PSK-NULL-SHA256",
    "PSK-NULL-SHA384",
    "RSA-PSK-AES128-CBC-SHA",
    "RSA-PSK-AES128-CBC-SHA256",
    "RSA-PSK-AES128-GCM-SHA256",
    "RSA-PSK-AES256-CBC-SHA",
    "RSA-PSK-AES256-CBC-SHA384",
    "RSA-PSK-AES256-GCM-SHA384",
    "RSA-PSK-ARIA128-GCM-SHA256",
    "RSA-PSK-ARIA256-GCM-SHA384",
    "RSA-PSK-CAMELLIA128-SHA256",
    "RSA-PSK-CAMELLIA256-SHA384",
    "RSA-PSK-CHACHA20-POLY1305",
    "RSA-PSK-NULL-SHA",
    "RSA-PSK-NULL-SHA256",
    "RSA-PSK-NULL-SHA384",
    "SRP-AES-128-CBC-SHA",
    "SRP-AES-256-CBC-SHA",
    "SRP-DSS-AES-128-CBC-SHA",
    "SRP-DSS-AES-256-CBC-SHA",
    "SRP-RSA-AES-128-CBC-SHA",
    "SRP-RSA-AES-256-CBC-SHA",
];

/// The result of reading a list.
#[derive(Clone, Debug)]
pub struct Ciphers {
    /// In order of preference, those of TLS 1.3 first.
    pub(crate) suites: Vec<SupportedCipherSuite>,
    /// Suites and words of OpenSSL in the list that select no suites here.
    pub absent: Vec<String>,
    /// Names in the list that OpenSSL does not know either.
    pub unknown: Vec<String>,
}

impl Default for Ciphers {
    /// All, in OpenSSL's order.
    fn default() -> Ciphers {
        let tls13 = TLS13.iter().map(|(_, suite)| *suite);
        let suites = tls13.chain(TABLE.iter().map(|row| row.suite)).collect();
        Ciphers { suites, absent: Vec::new(), unknown: Vec::new() }
    }
}

impl Ciphers {
    /// Reads a list, such as `HIGH:!aNULL:!MD5`.
    pub fn parse(list: &str) -> Ciphers {
        let mut chosen: Vec<usize> = Vec::new();
        let mut killed = [false; TABLE.len()];
        let (mut absent, mut unknown) = (Vec::new(), Vec::new());
        for item in list.split([':', ',', ' ', ';']).filter(|item| !item.is_empty()) {
            if let Some(command) = item.strip_prefix('@') {
                match command {
                    // The sort is stable, as OpenSSL's.
                    "STRENGTH" => chosen.sort_by_key(|row| std::cmp::Reverse(TABLE[*row].bits)),
                    // All that exists satisfies each level that OpenSSL's default permits.
                    _ if command.starts_with("SECLEVEL=") => {}
                    _ => unknown.push(item.to_owned()),
                }
                continue;
            }
            let (action, words) = match item.as_bytes()[0] {
                b @ (b'!' | b'-' | b'+') => (b, &item[1..]),
                _ => (0, item),
            };
            let rows = match select(words) {
                Selected::Rows(rows) => rows,
                Selected::Absent => {
                    // Excluding what does not exist is what every list does.
                    if action == 0 {
                        absent.push(words.to_owned());
                    }
                    continue;
                }
                Selected::Unknown => {
                    unknown.push(words.to_owned());
                    continue;
                }
            };
            match action {
                b'!' => {
                    rows.iter().for_each(|row| killed[*row] = true);
                    chosen.retain(|row| !rows.contains(row));
                }
                b'-' => chosen.retain(|row| !rows.contains(row)),
                b'+' => chosen.sort_by_key(|row| rows.contains(row)),
                _ => {
                    for row in rows {
                        if !killed[row] && !chosen.contains(&row) {
                            chosen.push(row);
                        }
                    }
                }
            }
        }
        let tls13 = TLS13.iter().map(|(_, suite)| *suite);
        let suites = tls13.chain(chosen.into_iter().map(|row| TABLE[row].suite)).collect();
        Ciphers { suites, absent, unknown }
    }

    /// Uses only the listed suites of TLS 1.3, in this order.
    ///
    /// # Errors
    /// The first name of the list that does not exist here.
    pub fn with_tls13(mut self, list: &str) -> Result<Ciphers, String> {
        let mut chosen = Vec::new();
        for name in list.split(':').filter(|name| !name.is_empty()) {
            let row = TLS13.iter().find(|(known, _)| *known == name);
            let (_, suite) = row.ok_or_else(|| name.to_owned())?;
            if !chosen.contains(suite) {
                chosen.push(*suite);
            }
        }
        self.suites.retain(|suite| suite.tls13().is_none());
        self.suites.splice(..0, chosen);
        Ok(self)
    }

    /// Whether no suite of TLS 1.2 is left.
    pub fn lacks_tls12(&self) -> bool {
        self.suites.iter().all(|suite| suite.tls13().is_some())
    }
}

enum Selected {
    /// Indices into the table.
    Rows(Vec<usize>),
    Absent,
    Unknown,
}

/// The selection of words joined by `+`: the suites that have all of them.
fn select(words: &str) -> Selected {
    if let Some(row) = TABLE.iter().position(|row| row.name == words) {
        return Selected::Rows(vec![row]);
    }
    if ABSENT_SUITES.contains(&words) {
        return Selected::Absent;
    }
    let mut rows: Vec<usize> = (0..TABLE.len()).collect();
    for word in words.split('+') {
        if WORDS_OF_ALL.contains(&word) {
            continue;
        }
        let is_known = TABLE.iter().any(|row| row.words.contains(&word));
        if !is_known && !ABSENT_WORDS.contains(&word) {
            return Selected::Unknown;
        }
        rows.retain(|row| TABLE[*row].words.contains(&word));
    }
    if rows.is_empty() { Selected::Absent } else { Selected::Rows(rows) }
}

/// OpenSSL's name of a suite.
pub(crate) fn name(suite: SupportedCipherSuite) -> &'static str {
    known(suite.suite()).unwrap_or("UNKNOWN")
}

/// The name of a suite, if it exists here.
pub(crate) fn known(suite: CipherSuite) -> Option<&'static str> {
    let tls13 = TLS13.iter().map(|(name, suite)| (*name, *suite));
    let mut all = tls13.chain(TABLE.iter().map(|row| (row.name, row.suite)));
    all.find(|(_, other)| other.suite() == suite).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        Ciphers::parse(list).suites.into_iter().skip(TLS13.len()).map(name).collect()
    }

    #[test]
    fn lists_select_what_exists() {
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 6);
        assert_eq!(names("EECDH+ECDSA+AESGCM:!AES128"), ["ECDHE-ECDSA-AES256-GCM-SHA384"]);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(names("AES128:AES256:@STRENGTH")[0], "ECDHE-ECDSA-AES256-GCM-SHA384");
        assert_eq!(names("ALL:+CHACHA20")[5], "ECDHE-RSA-CHACHA20-POLY1305");
        assert_eq!(names("ALL:-RSA:ECDHE-RSA-AES128-GCM-SHA256").len(), 4);
        assert_eq!(names("!RSA:ALL").len(), 3);
    }

    #[test]
    fn what_is_missing_is_named() {
        let list = "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:AES256-SHA:kEDH+AESGCM:\
                    !DSS:FOO:@BAR:!ECDHE-FOO";
        let ciphers = Ciphers::parse(list);
        assert_eq!(ciphers.absent, ["DHE-RSA-AES128-GCM-SHA256", "AES256-SHA", "kEDH+AESGCM"]);
        assert_eq!(ciphers.unknown, ["FOO", "@BAR", "ECDHE-FOO"]);
        assert!(!ciphers.lacks_tls12());
        assert!(Ciphers::parse("AES256-SHA").lacks_tls12());
        let narrowed = ciphers.with_tls13("TLS_AES_128_GCM_SHA256").unwrap();
        assert_eq!(narrowed.suites.len(), 2);
        assert_eq!(narrowed.with_tls13("TLS_X").unwrap_err(), "TLS_X");
    }
}
