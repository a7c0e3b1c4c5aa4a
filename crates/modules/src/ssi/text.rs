//! Parameters of commands: variables and backslashes. nginx: `ngx_http_ssi_evaluate_string`.

use nowait_http::log::Level;
use nowait_http::request::Request;

use super::{COMMON, CommandError};

/// Longest text after the expansion of variables, in bytes. nginx has no limit.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The text with its variables expanded. A literal dollar sign or quote has a backslash before it.
///
/// # Errors
/// A malformed name, which was logged.
pub(super) fn evaluate(request: &Request, text: &[u8]) -> Result<Vec<u8>, CommandError> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'$' => at = variable(request, text, at, &mut out)?,
            b'\\' => {
                // As in nginx, a backslash at the end is dropped.
                let Some(&escaped) = text.get(at) else { break };
                at += 1;
                if !matches!(escaped, b'\\' | b'\'' | b'"' | b'$') {
                    out.push(b'\\');
                }
                out.push(escaped);
            }
            _ => out.push(byte),
        }
        if out.len() > TEXT_BYTES_MAX {
            request.log(
                Level::Error,
                format_args!(
                    "the value of \"{}\" is longer than {TEXT_BYTES_MAX} bytes",
                    String::from_utf8_lossy(text)
                ),
            );
            return Err(CommandError);
        }
    }
    Ok(out)
}

/// Appends the value of the variable whose name begins at `from`; returns the end of the name.
fn variable(
    request: &Request,
    text: &[u8],
    from: usize,
    out: &mut Vec<u8>,
) -> Result<usize, CommandError> {
    let bracket = text.get(from) == Some(&b'{');
    let start = from + usize::from(bracket);
    let rest = text.get(start..).unwrap_or_default();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    let name = &rest[..len];
    if bracket && rest.get(len) != Some(&b'}') {
        request.log(
            Level::Error,
            format_args!(
                "the closing bracket in \"{}\" variable is missing",
                String::from_utf8_lossy(name)
            ),
        );
        return Err(CommandError);
    }
    if name.is_empty() {
        request.log(
            Level::Error,
            format_args!("invalid variable name in \"{}\"", String::from_utf8_lossy(text)),
        );
        return Err(CommandError);
    }
    append(request, name, out);
    Ok(start + len + usize::from(bracket))
}

/// Appends the value of a variable of the pages or, if there is none, of the request; false if
/// neither exists.
pub(super) fn append(request: &Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let name = name.to_ascii_lowercase();
    if request.shared().state.get(&COMMON).is_some_and(|common| common.borrow().append(&name, out))
    {
        return true;
    }
    std::str::from_utf8(&name)
        .is_ok_and(|name| request.current().conf.variables.append_named(name, request, out))
}
