//! The directives of OpenResty's set-misc module, which are steps of the rewrite module's programs like `set`.
//!
//! Each sets a variable to the result of a [`Function`]. With the variable alone, most of them apply it to the
//! variable's own value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Scope, Value, ValueError, Word};
use nowait_http::conf::complex;
use nowait_http::log::Level;
use nowait_http::module::LocationBuilder;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::complex::{Complex, Groups, SetTarget, Table};
use nowait_variables::{Subject, variable_name};

use super::Op;
use super::conf::push;
use super::functions::{Base32, CallTime, Function, NameList};

nowait_conf::directives! {
    /// Settings of `set_encode_base32` and `set_decode_base32`.
    #[derive(Debug)]
    module "set_misc";
    pub struct SetMiscConf with SetMiscConfLayer;

    /// The 32 characters of `set_encode_base32` and `set_decode_base32`. RFC 4648 has
    /// `ABCDEFGHIJKLMNOPQRSTUVWXYZ234567`.
    set_base32_alphabet: Alphabet = "0123456789abcdefghijklmnopqrstuv", in HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF, args "characters";
    /// Controls whether `set_encode_base32` pads its result with `=`.
    set_base32_padding: bool = "on", in HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF, args "on | off";
    /// The former name of `set_base32_padding`.
    set_misc_base32_padding: bool = "on", in HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF, args "on | off";
}

nowait_conf::rows! {
    pub static SET_MISC_ROWS, module "set_misc";

    /// Sets a variable if it is empty.
    "set_if_empty" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::IfEmpty, &[0, 1]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable value";
    /// Quotes a text as a string of MySQL, in single quotes.
    "set_quote_sql_str" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::QuoteSql), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Quotes a text as a string of PostgreSQL.
    "set_quote_pgsql_str" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::QuotePgsql), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Quotes a text as a string of JSON. An empty text becomes `null`.
    "set_quote_json_str" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::QuoteJson), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Escapes a text as a component of a URI, such as the value of an argument.
    "set_escape_uri" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::EscapeUri), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Decodes a component of a URI, such as `$arg_NAME`. Plus signs become spaces.
    "set_unescape_uri" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::UnescapeUri), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Encodes a text in Base32, by default that with digits first (base32hex, RFC 4648 section 7).
    "set_encode_base32" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::EncodeBase32), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Decodes Base32. The variable is empty if that is impossible.
    "set_decode_base32" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::DecodeBase32), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Encodes a text in Base64, with padding.
    "set_encode_base64" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::EncodeBase64), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Decodes Base64. If that is impossible, the response is 500.
    "set_decode_base64" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::DecodeBase64), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Encodes a text in Base64 for URLs, without padding.
    "set_encode_base64url" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::EncodeBase64Url), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Decodes Base64 for URLs. If that is impossible, the response is 500.
    "set_decode_base64url" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::DecodeBase64Url), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Writes the bytes of a text in hexadecimal.
    "set_encode_hex" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::EncodeHex), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// Reads bytes from hexadecimal. If that is impossible, the response is 500.
    "set_decode_hex" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::DecodeHex), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// The SHA-1 digest of a text, in hexadecimal.
    "set_sha1" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::Sha1), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// The MD5 digest of a text, in hexadecimal.
    "set_md5" => |cx: &mut Cx<'_>, node: &Node| convert(cx, node, Function::Md5), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "$variable [value]";
    /// The HMAC-SHA-1 of a text, as bytes: encode it with `set_encode_base64` or `set_encode_hex`.
    "set_hmac_sha1" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::HmacSha1, &[1, 2]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(3), args "$variable key value";
    /// The HMAC-SHA-256 of a text, as bytes: encode it with `set_encode_base64` or `set_encode_hex`.
    "set_hmac_sha256" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::HmacSha256, &[1, 2]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(3), args "$variable key value";
    /// A random number between two others, which are possible results, too. Not for secrets.
    "set_random" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::Random, &[1, 2]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(3), args "$variable from to";
    /// Up to 64 random letters and digits, fit for secrets.
    "set_secure_random_alphanum" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::SecureRandomAlphanum, &[1]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable number";
    /// Up to 64 random small letters, fit for secrets.
    "set_secure_random_lcalpha" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::SecureRandomLcalpha, &[1]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable number";
    /// The number after that in the variable, between two others; after the last one comes the first. If the variable is
    /// empty, it is the number after the result before, of any request.
    "set_rotate" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::rotate(), &[0, 1, 2]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(3), args "$variable from to";
    /// The date in local time, such as `2026-11-28`.
    "set_local_today" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::LocalToday, &[]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(1), args "$variable";
    /// The time in GMT, in a format of strftime(3).
    "set_formatted_gmt_time" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::FormattedGmtTime, &[1]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable format";
    /// The local time, in a format of strftime(3).
    "set_formatted_local_time" => |cx: &mut Cx<'_>, node: &Node| assign(cx, node, Function::FormattedLocalTime, &[1]), in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable format";
    /// Chooses a name of an `upstream_list` by the hash of a text: the same one for the same text.
    "set_hashed_upstream" => hashed, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(3), args "$variable list value";
    /// A list of names for `set_hashed_upstream`, which must come behind it.
    "upstream_list" => list, in HTTP, take at_least(2), args "name upstream ...";
}

/// The alphabet of Base32.
#[derive(Debug, Clone)]
pub struct Alphabet(String);

impl Value for Alphabet {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let expected =
            || ValueError::value().expected("32 different characters of ASCII, without \"=\"");
        let text = std::str::from_utf8(text).map_err(|_| expected())?;
        Base32::new(text, true).ok_or_else(expected)?;
        Ok(Alphabet(text.to_owned()))
    }
}

/// The Base32 of a location, unless it is that of the defaults.
static BASE32: Key<Base32> = Key::new();

/// Keeps the settings of a location that has any.
pub fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let is_set = |scope: &&Scope| scope.get::<SetMiscConfLayer>().is_some();
    if chain.iter().any(is_set) {
        let conf = SetMiscConf::resolve(cx, chain);
        let padded = conf.set_base32_padding && conf.set_misc_base32_padding;
        if let Some(base32) = Base32::new(&conf.set_base32_alphabet.0, padded) {
            parts.settings.set(&BASE32, base32);
        }
    }
}

/// The lists of `upstream_list`.
#[derive(Default)]
struct UpstreamLists(BTreeMap<Box<[u8]>, NameList>);

fn list(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, upstreams @ ..] = &node.args[..] else { return Err(node.arity_error()) };
    let upstreams = upstreams.iter().map(|word| Box::from(&*word.text)).collect();
    let UpstreamLists(lists) = cx.global::<UpstreamLists>();
    match lists.insert(name.text.as_slice().into(), upstreams) {
        None => Ok(()),
        Some(_) => Err(name.error(format!("duplicate upstream_list \"{name}\""))),
    }
}

fn hashed(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.get(1).ok_or_else(|| node.arity_error())?;
    if name.text.contains(&b'$') {
        let UpstreamLists(lists) = cx.global::<UpstreamLists>();
        let function = Function::HashedIn(lists.clone());
        return assign(cx, node, function, &[2, 1]);
    }
    let list = cx.global::<UpstreamLists>().0.get(&*name.text).cloned();
    let list = list.ok_or_else(|| {
        let hint = format!("put \"upstream_list {name} UPSTREAM ...;\" before it, in \"http\"");
        name.error(format!("upstream list \"{name}\" not defined yet")).hint(hint)
    })?;
    assign(cx, node, Function::Hashed(list), &[2])
}

/// A function of one value: that of the second argument, or of the variable itself.
fn convert(cx: &mut Cx<'_>, node: &Node, function: Function) -> Result<(), Diagnostic> {
    assign(cx, node, function, &[node.args.len() - 1])
}

/// A function of the arguments at these positions.
fn assign(
    cx: &mut Cx<'_>,
    node: &Node,
    function: Function,
    positions: &[usize],
) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let variable = variable_name(name)?;
    let place =
        cx.global::<Table>().define_set(variable).map_err(|error| name.error(error.to_string()))?;
    let words: Vec<&Word> = positions.iter().filter_map(|&at| node.args.get(at)).collect();
    let mut args = Vec::new();
    for (word, &position) in words.into_iter().zip(positions) {
        // Its own value may never have been set.
        args.push(match (position, place) {
            (0, SetTarget::Slot(_)) => Argument::Own,
            _ => Argument::Text(complex(word, cx)?),
        });
        if let Some(Argument::Text(value)) = args.last() {
            cx.global::<Table>().note_assigned(variable, value);
        }
    }
    let name = String::from_utf8_lossy(&node.name.text).into_owned().into();
    push(cx, node, Op::Call(Arc::new(Call { name, place, function, args: args.into() })));
    Ok(())
}

/// An argument of a call.
#[derive(Debug)]
enum Argument {
    /// The value of the variable that is set.
    Own,
    Text(Complex),
}

/// A step that sets a variable to the result of a function.
#[derive(Debug)]
pub struct Call {
    /// The name of the directive.
    pub name: Box<str>,
    /// The variable.
    pub place: SetTarget,
    function: Function,
    args: Box<[Argument]>,
}

impl Call {
    /// Calls the function, and sets the variable.
    ///
    /// # Errors
    /// An argument is wrong: the response is 500, and the log says why.
    pub fn run(&self, request: &mut Request, groups: Groups) -> Result<(), Outcome> {
        let texts: Vec<Vec<u8>> = self
            .args
            .iter()
            .map(|argument| match (argument, self.place) {
                (Argument::Own, SetTarget::Slot(slot)) => {
                    request.slot(slot).unwrap_or_default().to_vec()
                }
                (Argument::Own, SetTarget::Builtin(_)) => Vec::new(),
                (Argument::Text(value), _) => {
                    let mut text = Vec::new();
                    value.append_with(request, groups, &mut text);
                    text
                }
            })
            .collect();
        match self.call(request, &texts) {
            Ok(value) => {
                match self.place {
                    SetTarget::Slot(slot) => request.set_slot(slot, Some(value.into())),
                    SetTarget::Builtin(set) => set(request, value.into()),
                }
                Ok(())
            }
            Err(error) => {
                request.log(Level::Error, format_args!("{}: {error}", self.name));
                Err(Outcome::status(500))
            }
        }
    }

    fn call(&self, request: &Request, texts: &[Vec<u8>]) -> Result<Vec<u8>, Cow<'static, str>> {
        let clock = nowait_runtime::clock();
        let unix_seconds = i64::try_from(clock.unix_seconds()).unwrap_or(i64::MAX);
        let zone = match self.function.needs_zone() {
            true => nowait_sys::localtime::zone_name(unix_seconds),
            false => Default::default(),
        };
        let utc_offset_seconds = clock.utc_offset_seconds();
        let time = CallTime { unix_seconds, utc_offset_seconds, zone: &zone };
        match request.location().settings.get(&BASE32) {
            Some(base32) => self.function.call(texts, base32, time),
            None => self.function.call(texts, Base32::standard(), time),
        }
    }

    /// Whether an argument depends on content that has not been received.
    pub fn is_late(&self, request: &Request) -> bool {
        self.args.iter().any(|argument| match argument {
            Argument::Own => false,
            Argument::Text(value) => request.variables().late_in(value).is_late(),
        })
    }
}
