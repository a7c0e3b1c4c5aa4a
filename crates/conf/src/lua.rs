//! Finds the end of a block of Lua code.
//!
//! The lexer skips the code of `*_by_lua_block` directives with this, so that Lua is not read as
//! configuration. Checks no Lua syntax: only braces outside of strings and comments count.

/// Whether the block of a directive is Lua code rather than directives.
pub fn is_block(name: &[u8]) -> bool {
    name.ends_with(b"_by_lua_block")
}

/// Bytes before the `}` that closes the block whose `{` precedes `text`; all of them if none does.
pub(crate) fn body_len(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at + 1..];
        at += 1;
        match byte {
            b'{' => depth += 1,
            b'}' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return at - 1,
            },
            b'"' | b'\'' => at += string_len(rest, byte),
            b'[' => at += long_bracket_len(rest).unwrap_or(0),
            b'-' if rest.first() == Some(&b'-') => at += comment_len(rest),
            _ => {}
        }
    }
    at
}

/// The rest of a string after its opening quote. A line end closes it too, because Lua allows none
/// there: a forgotten quote hides no more than its line.
fn string_len(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            // An escaped line end continues the string; so does "\r\n".
            b'\\' if text[at..].starts_with(b"\r\n") => at += 2,
            b'\\' => at += 1,
            b'\n' => return at,
            _ if byte == quote => return at,
            _ => {}
        }
    }
    text.len()
}

/// The rest of a comment after its first `-`.
fn comment_len(text: &[u8]) -> usize {
    let block = text.get(1).filter(|&&byte| byte == b'[');
    match block.and_then(|_| long_bracket_len(&text[2..])) {
        Some(len) => 2 + len,
        None => text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len()),
    }
}

/// The rest of `[[ ... ]]` or `[==[ ... ]==]` after its first `[`; `None` if it is a plain `[`.
fn long_bracket_len(text: &[u8]) -> Option<usize> {
    let level = text.iter().take_while(|&&byte| byte == b'=').count();
    if text.get(level) != Some(&b'[') {
        return None;
    }
    // Bytes of the closing bracket so far, counting its first "]".
    let mut closing = 0;
    for (n, &byte) in text.iter().enumerate().skip(level + 1) {
        closing = match byte {
            b']' if closing == level + 1 => return Some(n + 1),
            b']' => 1,
            b'=' if closing > 0 => closing + 1,
            _ => 0,
        };
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_count_outside_of_strings_and_comments() {
        for body in [
            "",
            " ngx.say(1) ",
            "{ a = { } }",
            "\"}\"",
            "'}'",
            "'\"}'",
            r#""\"}""#,
            r#""\\" {} "#,
            "\"a\\\n}\"",
            "\"a\\\r\n}\"",
            "-- }\n",
            "--[ }\n",
            "--[[ }\n } ]] ",
            "--[==[ } ]] ]=] ]==] ",
            "[[ } ]]",
            "[=[ } ]] ]]=]",
            "[==[ ]=] } ]====] ]==]",
            "[==[ ]==]==]",
            "t[1] = {[2] = 3}",
            "t[t[1]]",
            "a - b",
            "x = \"forgotten\n {} ",
        ] {
            let text = format!("{body}}} tail }}");
            assert_eq!(body_len(text.as_bytes()), body.len(), "{text}");
        }
    }

    #[test]
    fn an_open_block_has_no_end() {
        for text in ["", "{ }", "[[ }", "[==[ ]=] }", "--[[ }", "-- }", "'}", "'\\", "[=", "--["] {
            assert_eq!(body_len(text.as_bytes()), text.len(), "{text}");
        }
    }
}
