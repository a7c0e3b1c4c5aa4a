//! The functions of the set-misc module: from texts to a text. They know neither requests nor variables.
//!
//! Called by [`set_misc`](super::set_misc). Facts about them: the documentation of OpenResty's module of this name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use data_encoding::{Encoding, HEXLOWER, HEXLOWER_PERMISSIVE, Specification};
use md5::{Digest, Md5};
use nowait_http::base64 as padded;
use nowait_message::escape::{Unescape, unescape};
use nowait_message::strftime;
use sha1::Sha1;

/// Most characters of a random text.
const RANDOM_CHARS_MAX: i64 = 64;

/// Bytes of a formatted time; longer ones are refused.
const TIME_BYTES_MAX: usize = 256;

/// Base64 for URLs, without padding, whose last bits are not looked at.
static URL: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Base32 with an alphabet of one's own.
#[derive(Debug, Clone)]
pub struct Base32 {
    /// Without padding.
    encoding: Encoding,
    /// The end is padded with `=`.
    padded: bool,
}

impl Base32 {
    /// The alphabet of base32hex in lower case, padded.
    pub fn standard() -> &'static Base32 {
        static STANDARD: LazyLock<Base32> = LazyLock::new(|| {
            Base32::new("0123456789abcdefghijklmnopqrstuv", true).expect("32 different letters")
        });
        &STANDARD
    }

    /// Base32 with 32 different characters of ASCII, but not `=`; `padded` with that. `None`: they are none.
    pub fn new(alphabet: &str, padded: bool) -> Option<Base32> {
        if alphabet.len() != 32 || alphabet.contains('=') {
            return None;
        }
        let mut specification = Specification::new();
        specification.symbols.push_str(alphabet);
        specification.check_trailing_bits = false;
        let encoding = specification.encoding().ok()?;
        Some(Base32 { encoding, padded })
    }

    fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let mut text = self.encoding.encode(bytes).into_bytes();
        if self.padded {
            text.resize(text.len().next_multiple_of(8), b'=');
        }
        text
    }

    /// Of a text that is not in the alphabet, or whose length is impossible, nothing.
    fn decode(&self, text: &[u8]) -> Vec<u8> {
        let end = text.iter().position(|&byte| byte == b'=').unwrap_or(text.len());
        self.encoding.decode(&text[..end]).unwrap_or_default()
    }
}

/// The time of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallTime<'a> {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// Seconds by which local time is ahead of UTC.
    pub utc_offset_seconds: i32,
    /// The name of the time zone.
    pub zone: &'a str,
}

/// A function.
#[derive(Debug)]
pub enum Function {
    /// The first argument, or the second if that is empty.
    IfEmpty,
    /// A string of MySQL.
    QuoteSql,
    /// A string of PostgreSQL.
    QuotePgsql,
    /// A string of JSON.
    QuoteJson,
    /// A component of a URI.
    EscapeUri,
    /// The text of a component of a URI; plus signs are spaces.
    UnescapeUri,
    EncodeBase32,
    DecodeBase32,
    EncodeBase64,
    DecodeBase64,
    EncodeBase64Url,
    DecodeBase64Url,
    EncodeHex,
    DecodeHex,
    /// In hexadecimal.
    Sha1,
    /// In hexadecimal.
    Md5,
    /// Of a key and a text; not encoded.
    HmacSha1,
    /// The same.
    HmacSha256,
    /// A number between two others.
    Random,
    /// So many letters and digits.
    SecureRandomAlphanum,
    /// So many small letters.
    SecureRandomLcalpha,
    /// The number after the first argument, or after the result before, between two others.
    Rotate(AtomicI64),
    LocalToday,
    FormattedGmtTime,
    FormattedLocalTime,
    /// A name of a list, by the hash of a text.
    Hashed(NameList),
    /// The same, of the list that the second argument names.
    HashedIn(BTreeMap<Box<[u8]>, NameList>),
}

/// Names of upstream servers.
pub type NameList = Box<[Box<[u8]>]>;

impl Function {
    /// The function of `set_rotate`, which has not been called.
    pub fn rotate() -> Function {
        Function::Rotate(AtomicI64::new(NEVER))
    }

    /// Applies it. There are as many arguments as its directive takes.
    ///
    /// # Errors
    /// What is wrong with the arguments, after the name of the directive and a colon.
    pub fn call(
        &self,
        args: &[Vec<u8>],
        base32: &Base32,
        time: CallTime<'_>,
    ) -> Result<Vec<u8>, Cow<'static, str>> {
        let [first, second, third] = [0, 1, 2].map(|at| args.get(at).map_or(&b""[..], |arg| arg));
        Ok(match self {
            Function::IfEmpty if first.is_empty() => second.to_vec(),
            Function::IfEmpty => first.to_vec(),
            Function::QuoteSql => quote_sql(first),
            Function::QuotePgsql => quote_pgsql(first),
            Function::QuoteJson => quote_json(first),
            Function::EscapeUri => escape_uri(first),
            Function::UnescapeUri => {
                let spaced: Vec<u8> =
                    first.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
                unescape(&spaced, Unescape::All).0
            }
            Function::EncodeBase32 => base32.encode(first),
            Function::DecodeBase32 => base32.decode(first),
            Function::EncodeBase64 => padded::encode(first),
            Function::DecodeBase64 => padded::decode(first).ok_or(INVALID)?,
            Function::EncodeBase64Url => URL.encode(first).into_bytes(),
            Function::DecodeBase64Url => {
                let digits = first.iter().rposition(|&byte| byte != b'=').map_or(0, |at| at + 1);
                URL.decode(&first[..digits]).map_err(|_| INVALID)?
            }
            Function::EncodeHex => HEXLOWER.encode(first).into_bytes(),
            Function::DecodeHex => HEXLOWER_PERMISSIVE.decode(first).map_err(|_| INVALID)?,
            Function::Sha1 => HEXLOWER.encode(&Sha1::digest(first)).into_bytes(),
            Function::Md5 => HEXLOWER.encode(&Md5::digest(first)).into_bytes(),
            Function::HmacSha1 => mac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, first, second),
            Function::HmacSha256 => mac(hmac::HMAC_SHA256, first, second),
            Function::Random => {
                let (from, to) = bounds(first, second)?;
                let count = u128::from(to.abs_diff(from)) + 1;
                let random = u128::from_le_bytes(nowait_http::random::bytes()) % count;
                decimal(from.saturating_add_unsigned(random as u64))
            }
            Function::SecureRandomAlphanum => random_text(first, ALPHANUM)?,
            Function::SecureRandomLcalpha => random_text(first, &ALPHANUM[..26])?,
            Function::Rotate(before) => {
                let (from, to) = bounds(second, third)?;
                rotate(before, number(first), from, to)
            }
            Function::LocalToday => {
                let (now, offset) = (time.unix_seconds, time.utc_offset_seconds);
                strftime::format(b"%Y-%m-%d", now, offset, time.zone)
            }
            Function::FormattedGmtTime => {
                bounded(strftime::format(first, time.unix_seconds, 0, "GMT"))?
            }
            Function::FormattedLocalTime => {
                let (now, offset) = (time.unix_seconds, time.utc_offset_seconds);
                bounded(strftime::format(first, now, offset, time.zone))?
            }
            Function::Hashed(names) => chosen(names, first),
            Function::HashedIn(lists) => {
                let unknown =
                    || format!("no upstream list \"{}\"", String::from_utf8_lossy(second));
                chosen(lists.get(second).ok_or_else(unknown)?, first)
            }
        })
    }

    /// Whether it looks at the time zone.
    pub fn needs_zone(&self) -> bool {
        matches!(self, Function::LocalToday | Function::FormattedLocalTime)
    }
}

/// Before the first call.
const NEVER: i64 = i64::MIN;

const INVALID: Cow<'static, str> = Cow::Borrowed("invalid value");

const ALPHANUM: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

fn quote_sql(text: &[u8]) -> Vec<u8> {
    quoted(b'\'', text, |byte| match byte {
        0 => Some(b'0'),
        8 => Some(b'b'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        26 => Some(b'Z'),
        b'\\' | b'\'' | b'"' | b'$' => Some(byte),
        _ => None,
    })
}

/// Bytes that are no UTF-8 are written as octal escapes of `bytea`.
fn quote_pgsql(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"''".to_vec();
    }
    let quoted = [b"E".to_vec(), quote_sql(text)].concat();
    if std::str::from_utf8(&quoted).is_ok() {
        return quoted;
    }
    let mut out = Vec::with_capacity(quoted.len() + 16);
    for byte in quoted {
        match byte {
            0x80.. => out.extend_from_slice(&[
                b'\\',
                b'\\',
                b'0' + (byte >> 6),
                b'0' + (byte >> 3 & 7),
                b'0' + (byte & 7),
            ]),
            _ => out.push(byte),
        }
    }
    out
}

/// An empty text is `null`, as in OpenResty.
fn quote_json(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"null".to_vec();
    }
    quoted(b'"', text, |byte| match byte {
        8 => Some(b'b'),
        12 => Some(b'f'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        b'\\' | b'"' => Some(byte),
        0..32 => Some(b'u'),
        _ => None,
    })
}

/// A text between quotes. `escape` tells which letter after a backslash stands for a byte; after a `u`, the number of
/// the byte follows in hexadecimal.
fn quoted(quote: u8, text: &[u8], escape: impl Fn(u8) -> Option<u8>) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| HEX[usize::from(number)];
    let mut out = Vec::with_capacity(text.len() + 16);
    out.push(quote);
    for &byte in text {
        match escape(byte) {
            Some(b'u') => {
                out.extend_from_slice(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    digit(byte >> 4),
                    digit(byte & 15),
                ]);
            }
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => out.push(byte),
        }
    }
    out.push(quote);
    out
}

/// Fewer bytes are escaped than in nginx's own components.
fn escape_uri(text: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |number: u8| HEX[usize::from(number)];
    let mut out = Vec::with_capacity(text.len() + 16);
    for &byte in text {
        match byte {
            0..=b' ' | b'"' | b'#' | b'%' | b'&' | b'+' | b'/' | b':'..=b'?' | b'['..=b'^' => {}
            b'{' | b'}' | 0x7f.. => {}
            _ => {
                out.push(byte);
                continue;
            }
        }
        out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
    }
    out
}

fn mac(algorithm: hmac::Algorithm, key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, key), text).as_ref().to_vec()
}

/// A number without a sign.
fn number(text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The smaller one first.
fn bounds(from: &[u8], to: &[u8]) -> Result<(i64, i64), Cow<'static, str>> {
    let read = |what, text: &[u8]| {
        let invalid = || format!("bad \"{what}\" argument: \"{}\"", String::from_utf8_lossy(text));
        number(text).ok_or_else(invalid)
    };
    let (from, to) = (read("from", from)?, read("to", to)?);
    Ok((from.min(to), from.max(to)))
}

fn random_text(length: &[u8], alphabet: &[u8]) -> Result<Vec<u8>, Cow<'static, str>> {
    let invalid = || format!("bad \"length\" argument: \"{}\"", String::from_utf8_lossy(length));
    let length = number(length).filter(|length| (1..=RANDOM_CHARS_MAX).contains(length));
    let length = length.ok_or_else(invalid)? as usize;
    let mut out = Vec::with_capacity(length);
    let mut bytes = [0; 64];
    // Bytes above the largest multiple are dropped: each character is as likely as the others.
    let fair = 256 - 256 % alphabet.len();
    while out.len() < length {
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "no random numbers")?;
        let fair = bytes.iter().map(|&byte| usize::from(byte)).filter(|&byte| byte < fair);
        out.extend(fair.take(length - out.len()).map(|byte| alphabet[byte % alphabet.len()]));
    }
    Ok(out)
}

fn rotate(before: &AtomicI64, current: Option<i64>, from: i64, to: i64) -> Vec<u8> {
    let next = |number: i64| match number.checked_add(1) {
        Some(next) if (from..=to).contains(&next) => next,
        _ => from,
    };
    let result = match current {
        Some(current) => {
            before.store(next(current), Ordering::Relaxed);
            next(current)
        }
        // Workers share it.
        None => {
            let updated = before.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                Some(if before == NEVER { from } else { next(before) })
            });
            match updated {
                Ok(NEVER) | Err(_) => from,
                Ok(before) => next(before),
            }
        }
    };
    decimal(result)
}

fn bounded(text: Vec<u8>) -> Result<Vec<u8>, Cow<'static, str>> {
    match text.len() {
        TIME_BYTES_MAX.. => Err("the time is longer than 255 bytes".into()),
        _ => Ok(text),
    }
}

fn chosen(names: &NameList, text: &[u8]) -> Vec<u8> {
    match names.len() {
        0 => Vec::new(),
        count => names[hash(text) as usize % count].to_vec(),
    }
}

/// nginx: `ngx_hash_key_lc`, of which 32 bits are used.
fn hash(text: &[u8]) -> u32 {
    text.iter().fold(0u32, |key, byte| {
        key.wrapping_mul(31).wrapping_add(u32::from(byte.to_ascii_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: CallTime<'static> =
        CallTime { unix_seconds: 86_399, utc_offset_seconds: 3600, zone: "CET" };

    fn called(function: &Function, args: &[&[u8]]) -> Result<Vec<u8>, Cow<'static, str>> {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
        function.call(&args, Base32::standard(), TIME)
    }

    fn text(function: &Function, args: &[&[u8]]) -> String {
        String::from_utf8_lossy(&called(function, args).unwrap()).into_owned()
    }

    #[test]
    fn strings_are_quoted() {
        let all = b"hello\n\r'\"\\$\t\0\x08\x1a\xc3\xa4";
        let sql = "'hello\\n\\r\\'\\\"\\\\\\$\\t\\0\\b\\Zä'";
        assert_eq!(text(&Function::QuoteSql, &[all]), sql);
        assert_eq!(text(&Function::QuotePgsql, &[all]), format!("E{sql}"));
        assert_eq!(text(&Function::QuoteSql, &[b""]), "''");
        assert_eq!(text(&Function::QuotePgsql, &[b""]), "''");
        assert_eq!(text(&Function::QuotePgsql, &[b"a\xff"]), "E'a\\\\377'");
        let json = b"hello\n\r'\"\\/\t\0\x0c\x1f\xc3\xa4";
        let quoted = "\"hello\\n\\r'\\\"\\\\/\\t\\u0000\\f\\u001fä\"";
        assert_eq!(text(&Function::QuoteJson, &[json]), quoted);
        assert_eq!(text(&Function::QuoteJson, &[b""]), "null");
        let parsed: String = serde_json::from_str(quoted).unwrap();
        assert_eq!(parsed.as_bytes(), json);
    }

    #[test]
    fn components_of_uris() {
        assert_eq!(
            text(&Function::EscapeUri, &[b"a b/?&=+:@!~\xc3"]),
            "a%20b%2F%3F%26%3D%2B%3A@!~%C3"
        );
        assert_eq!(text(&Function::UnescapeUri, &[b"hello+world%21%2B"]), "hello world!+");
        assert_eq!(text(&Function::UnescapeUri, &[b"%zz%4"]), "zz");
        for byte in 0..=255 {
            let escaped = called(&Function::EscapeUri, &[&[byte]]).unwrap();
            assert_eq!(called(&Function::UnescapeUri, &[&escaped]).unwrap(), [byte]);
        }
    }

    #[test]
    fn encodings_and_back() {
        for (encode, decode, encoded) in [
            (Function::EncodeBase32, Function::DecodeBase32, "c5h66p35"),
            (Function::EncodeBase64, Function::DecodeBase64, "YWJjZGU="),
            (Function::EncodeBase64Url, Function::DecodeBase64Url, "YWJjZGU"),
            (Function::EncodeHex, Function::DecodeHex, "6162636465"),
        ] {
            assert_eq!(text(&encode, &[b"abcde"]), encoded);
            assert_eq!(text(&decode, &[encoded.as_bytes()]), "abcde");
            for length in 0..20 {
                let bytes: Vec<u8> = (0..length).map(|at| 255 - at).collect();
                let there = called(&encode, &[&bytes]).unwrap();
                assert_eq!(called(&decode, &[&there]).unwrap(), bytes, "{encode:?} {length}");
            }
        }
        assert_eq!(text(&Function::EncodeBase32, &[b"ab"]), "c5h0====");
        assert_eq!(text(&Function::DecodeBase64Url, &[b"YWJjZGU="]), "abcde");
        // As in OpenResty's module, of which the others end the request.
        assert_eq!(text(&Function::DecodeBase32, &[b"c5h66p3!"]), "");
        for (function, wrong) in [
            (Function::DecodeBase64, "YWJj!GU="),
            (Function::DecodeBase64Url, "YW+j"),
            (Function::DecodeHex, "616"),
            (Function::DecodeHex, "6g"),
        ] {
            assert_eq!(called(&function, &[wrong.as_bytes()]), Err(INVALID), "{wrong}");
        }
    }

    #[test]
    fn alphabets_of_base32() {
        let standard = Base32::new("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", false).unwrap();
        assert_eq!(standard.encode(b"ab"), b"MFRA");
        assert_eq!(standard.decode(b"MFRA===="), b"ab");
        for wrong in ["abc", "aBCDEFGHIJKLMNOPQRSTUVWXYZ2345aa", "=BCDEFGHIJKLMNOPQRSTUVWXYZ234567"]
        {
            assert!(Base32::new(wrong, true).is_none(), "{wrong}");
        }
    }

    #[test]
    fn digests() {
        let sha1 = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
        assert_eq!(text(&Function::Sha1, &[b"hello"]), sha1);
        assert_eq!(text(&Function::Md5, &[b"hello"]), "5d41402abc4b2a76b9719d911017c592");
        let mac = called(&Function::HmacSha1, &[b"secret-key", b"some-string-to-sign"]).unwrap();
        assert_eq!(padded::encode(&mac), b"HkADYytcoQQzqbjQX33k/ZBB/DQ=");
        // RFC 4231 section 4.3.
        let mac =
            called(&Function::HmacSha256, &[b"Jefe", b"what do ya want for nothing?"]).unwrap();
        assert!(HEXLOWER.encode(&mac).starts_with("5bdcc146bf60754e6a042426089575c7"));
    }

    #[test]
    fn random_numbers_and_texts() {
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let number: usize = text(&Function::Random, &[b"7", b"3"]).parse().unwrap();
            seen[number - 3] = true;
        }
        assert_eq!(seen, [true; 5]);
        let widest = text(&Function::Random, &[b"0", b"9223372036854775807"]);
        assert!(widest.parse::<i64>().is_ok(), "{widest}");
        let wrong = called(&Function::Random, &[b"1", b"x"]).unwrap_err();
        assert_eq!(wrong, "bad \"to\" argument: \"x\"");
        let letters = text(&Function::SecureRandomLcalpha, &[b"64"]);
        assert!(
            letters.len() == 64 && letters.bytes().all(|b| b.is_ascii_lowercase()),
            "{letters}"
        );
        let both = text(&Function::SecureRandomAlphanum, &[b"32"]);
        assert!(both.len() == 32 && both.bytes().all(|b| b.is_ascii_alphanumeric()), "{both}");
        assert_ne!(both, text(&Function::SecureRandomAlphanum, &[b"32"]));
        for wrong in ["0", "65", "", "-1", "1e3"] {
            assert!(
                called(&Function::SecureRandomAlphanum, &[wrong.as_bytes()]).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn numbers_go_round() {
        let function = Function::rotate();
        let turn = |current: &str| text(&function, &[current.as_bytes(), b"1", b"3"]);
        assert_eq!([(); 4].map(|()| turn("")), ["1", "2", "3", "1"]);
        assert_eq!(turn("2"), "3");
        assert_eq!(turn("9"), "1");
        assert_eq!(turn("x"), "2");
        assert!(called(&function, &[b"", b"a", b"3"]).is_err());
    }

    #[test]
    fn times() {
        assert_eq!(text(&Function::LocalToday, &[]), "1970-01-02");
        assert_eq!(text(&Function::FormattedGmtTime, &[b"%H:%M %Z"]), "23:59 GMT");
        assert_eq!(text(&Function::FormattedLocalTime, &[b"%d %H:%M %Z"]), "02 00:59 CET");
        assert_eq!(text(&Function::FormattedGmtTime, &[b""]), "");
        assert!(called(&Function::FormattedGmtTime, &[&[b'x'; 256]]).is_err());
    }

    #[test]
    fn names_by_hash() {
        let names = ["moon", "sun", "earth"].map(|name| name.as_bytes().into());
        let function = Function::Hashed(Box::new(names));
        // 'b', 'l', 'a', 'h' by nginx's hash: 3026417, which is 2 more than a multiple of 3.
        assert_eq!(hash(b"BLAH"), 3_026_417);
        assert_eq!(text(&function, &[b"blah"]), "earth");
        assert_eq!(text(&Function::Hashed(Box::default()), &[b"blah"]), "");
        let Function::Hashed(names) = function else { return };
        let lists = Function::HashedIn(BTreeMap::from([(Box::from(&b"sky"[..]), names)]));
        assert_eq!(text(&lists, &[b"blah", b"sky"]), "earth");
        assert_eq!(called(&lists, &[b"blah", b"sea"]).unwrap_err(), "no upstream list \"sea\"");
    }
}
