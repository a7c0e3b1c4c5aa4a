//! Settings of charsets. nginx: `ngx_http_charset_filter_module`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER_PERMISSIVE;
use nowait_conf::{Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_http::conf::content_types::ContentTypes;
use nowait_http::variables::complex::Complex;

use super::maps::{Map, Maps};

nowait_conf::directives! {
    /// The charset of responses.
    #[derive(Debug)]
    module "charset";
    pub struct CharsetConf with CharsetConfLayer;

    /// The charset to declare in `Content-Type`. If it differs from the charset of the source, the
    /// text is converted with a `charset_map`.
    charset: Charset = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "charset | off";
    /// The charset of the source texts.
    source_charset: Option<Charset>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "charset";
    /// Enables or disables the conversion of responses that declare a charset themselves.
    override_charset: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Content types that `charset` applies to, in addition to `text/html`; `*` means all.
    charset_types: ContentTypes = "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml", in HTTP | SERVER | LOCATION, args "mime-type ...";
}

nowait_conf::rows! {
    pub static CHARSET_ROWS, module "charset";

    /// Maps the characters of two charsets, in hexadecimal: a byte of the first, then a byte of the
    /// second, or several bytes if the second is UTF-8. ASCII needs no entries.
    block "charset_map" => charset_map, in HTTP, take exactly(2), args "charset1 charset2 { ... }";
}

/// `charset` and `source_charset`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charset {
    /// `off`
    Off,
    /// A name; variables are allowed.
    Name(Complex),
}

impl Setting for Charset {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match &word.text[..] {
            b"off" => Ok(Self::Off),
            _ => Ok(Self::Name(nowait_http::conf::complex(word, cx)?)),
        }
    }
}

impl CharsetConf {
    /// The charset, if it is the same for every request.
    pub fn constant(&self) -> Option<&Bytes> {
        literal(&self.charset)
    }
}

fn literal(charset: &Charset) -> Option<&Bytes> {
    match charset {
        Charset::Off => None,
        Charset::Name(name) => name.literal(),
    }
}

/// The maps of the configuration.
#[derive(Default)]
struct MapTable {
    maps: Arc<Maps>,
    /// Errors about maps that are missing.
    reported: BTreeSet<String>,
}

/// The maps for a location, after a check that the required one exists. All maps are read before locations
/// are built.
pub fn maps(cx: &mut Cx<'_>, conf: &CharsetConf) -> Arc<Maps> {
    let all = cx.global::<MapTable>();
    let maps = all.maps.clone();
    let source = conf.source_charset.as_ref().and_then(literal);
    if let (Some(from), Some(to)) = (source, conf.constant())
        && !from.eq_ignore_ascii_case(to)
        && maps.conversion(from, to).is_none()
    {
        let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
        let text = format!("no \"charset_map\" between the charsets \"{from}\" and \"{to}\"");
        if all.reported.insert(text.clone()) {
            cx.report(Diagnostic::emerg(text));
        }
    }
    maps
}

fn charset_map(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [from, to] = &node.args[..] else { return Err(node.arity_error()) };
    if from.text.eq_ignore_ascii_case(&to.text) {
        return Err(node
            .error(format!("\"charset_map\" between the same charsets \"{from}\" and \"{to}\"")));
    }
    if cx.global::<MapTable>().maps.conversion(&from.text, &to.text).is_some() {
        return Err(
            node.error(format!("duplicate \"charset_map\" between \"{from}\" and \"{to}\""))
        );
    }
    let utf8 = to.text.eq_ignore_ascii_case(b"utf-8");
    let mut bytes = Vec::new();
    let mut characters = Vec::new();
    for entry in cx.entries(node) {
        let [value] = &entry.args[..] else {
            return Err(entry.error("invalid parameters number"));
        };
        let key = byte(&entry.name)?;
        if utf8 {
            characters.push((key, character(value)?));
        } else {
            bytes.push((key, byte(value)?));
        }
    }
    let map = if utf8 {
        Map::of_characters(&from.text, &to.text, &characters)
    } else {
        Map::of_bytes(&from.text, &to.text, &bytes)
    };
    Arc::make_mut(&mut cx.global::<MapTable>().maps).0.push(map);
    Ok(())
}

fn byte(word: &Word) -> Result<u8, Diagnostic> {
    let digits = std::str::from_utf8(&word.text).ok().filter(|text| text.len() <= 2);
    digits
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .ok_or_else(|| word.error(format!("invalid value \"{word}\"")).expected("such as 7F"))
}

/// The bytes of one character in UTF-8.
fn character(word: &Word) -> Result<Box<[u8]>, Diagnostic> {
    let invalid = || {
        word.error(format!("invalid value \"{word}\""))
            .expected("a character's bytes in UTF-8, such as D0B0")
    };
    let bytes = HEXLOWER_PERMISSIVE.decode(&word.text).map_err(|_| invalid())?;
    match std::str::from_utf8(&bytes).map(|text| text.chars().count()) {
        Ok(1) => Ok(bytes.into()),
        _ => Err(invalid()),
    }
}
