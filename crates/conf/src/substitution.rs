//! Reports variables in directives that evaluate none: `resolver $NAMESERVER;`. Usually a template was not
//! filled in, and the server would resolve a host of that name on the first request.
//!
//! Called for every directive. Texts that may have variables are checked by their own parser.

use crate::diagnostic::Diagnostic;
use crate::tree::{Node, Word};

/// Directives that take any text, but evaluate no variables in it, and in whose arguments a dollar sign in
/// front of a name makes no sense.
const WITHOUT: &[&str] = &[
    "add_after_body",
    "add_before_body",
    "auth_request",
    "default_type",
    "env",
    "error_log",
    "fastcgi_index",
    "include",
    "listen",
    "lock_file",
    "mirror",
    "pid",
    "quic_host_key",
    "real_ip_header",
    "resolver",
    "server",
    "server_name",
    "ssl_alpn",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_dhparam",
    "ssl_ech_file",
    "ssl_key_log",
    "ssl_ocsp_responder",
    "ssl_session_ticket_key",
    "ssl_stapling_file",
    "ssl_stapling_responder",
    "ssl_trusted_certificate",
    "upstream",
    "user",
    "userid_domain",
    "userid_name",
    "userid_path",
    "working_directory",
    "zone",
];

/// The ends of names of others.
const ENDS_WITHOUT: &[&str] = &[
    "_cache_path",
    "_hide_header",
    "_pass_header",
    "_ssl_crl",
    "_ssl_trusted_certificate",
    "_temp_path",
    "_types",
];

/// Parameters whose values never have variables.
const PARAMETERS: &[&str] = &["zone=", "keys_zone="];

/// The variables that `server_name` knows.
const HOSTNAME: &[u8] = b"$hostname";

const ADVICE: &str = "a name of the environment must be replaced before the file is read, for example by \
                      envsubst";

/// Refuses variables in the arguments of a directive that takes none.
pub(crate) fn check(name: &str, node: &Node) -> Result<(), Diagnostic> {
    // Most arguments have none.
    if !node.args.iter().any(|word| word.text.contains(&b'$')) {
        return Ok(());
    }
    let all =
        WITHOUT.binary_search(&name).is_ok() || ENDS_WITHOUT.iter().any(|end| name.ends_with(end));
    for word in &node.args {
        let checked = all || PARAMETERS.iter().any(|start| word.text.starts_with(start.as_bytes()));
        // Regular expressions and the own host name of `server_name`.
        let other = name == "server_name"
            && (word.text.starts_with(b"~") || word.text.eq_ignore_ascii_case(HOSTNAME));
        if checked
            && !other
            && let Some(variable) = variable(word)
        {
            let variable = String::from_utf8_lossy(variable);
            let text = format!("\"{name}\" takes no variables, but there is \"{variable}\"");
            return Err(word.error(text).hint(ADVICE));
        }
    }
    Ok(())
}

/// Advice on an error of a directive whose arguments have a name of the environment.
pub(crate) fn advice(node: &Node) -> Option<&'static str> {
    let is_upper = |octet: &u8| !octet.is_ascii_lowercase();
    let from_environment = |word: &Word| variable(word).is_some_and(|v| v.iter().all(is_upper));
    node.args.iter().any(from_environment).then_some(ADVICE)
}

/// The first `$name` or `${name}` in a word.
fn variable(word: &Word) -> Option<&[u8]> {
    let text = &word.text[..];
    let dollars = text.iter().enumerate().filter(|(_, octet)| **octet == b'$');
    for (at, _) in dollars {
        let (open, close) = match text.get(at + 1) {
            Some(b'{') => (2, 1),
            _ => (1, 0),
        };
        let name = &text[(at + open).min(text.len())..];
        let length = name.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == b'_').count();
        let begins = name.first().is_some_and(|c| c.is_ascii_alphabetic() || *c == b'_');
        let closed = close == 0 || name.get(length) == Some(&b'}');
        if begins && closed {
            return text.get(at..at + open + length + close);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(WITHOUT.is_sorted());
    }

    #[test]
    fn variables_are_found() {
        let found = |text: &str| {
            let word = Word::built_in(text);
            variable(&word).map(|name| String::from_utf8_lossy(name).into_owned())
        };
        for (text, name) in [
            ("$NAME", Some("$NAME")),
            ("${NAME}:80", Some("${NAME}")),
            ("a$ b$c-d", Some("$c")),
            ("$1$_a", Some("$_a")),
            ("", None),
            ("$", None),
            ("a$1", None),
            ("${", None),
            ("${a", None),
            ("${}", None),
            ("^/a$", None),
        ] {
            assert_eq!(found(text).as_deref(), name, "{text}");
        }
    }
}
