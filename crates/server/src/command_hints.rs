//! Hints for a command line that was refused: an unknown option, or a word that is no command.
//!
//! Called by `main`. A signal that ends the server is suggested only for the very word: whoever mistypes
//! another command must not be led to it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use nowait_conf::nearest;

use crate::{commands, tools};

/// The values of `-s`.
pub const SIGNALS: [&str; 4] = ["stop", "quit", "reopen", "reload"];

/// The signals that may be suggested for a similar word.
const HARMLESS: [&str; 2] = ["reopen", "reload"];

/// Words that other servers and habits suggest, with what does the same here.
const HABITS: [(&[&str], &str); 7] = [
    (&["test", "check", "configtest", "validate"], "\"nowait -t\" tests the configuration"),
    (&["version"], "\"nowait -v\" shows the version"),
    (
        &["start", "run"],
        "\"nowait\" without arguments starts the server with its configuration; \"nowait serve\" serves a directory",
    ),
    (
        &["restart"],
        "\"nowait -s reload\" applies a changed configuration, and keeps every connection",
    ),
    (
        &["status", "ps", "ping", "health"],
        "\"nowait check-health\" asks whether a server answers; the directives \"status_api\" and \"stub_status\" \
         publish its numbers",
    ),
    (&["reverse-proxy"], "\"nowait proxy URL\" passes requests to a server"),
    (&["file-server", "http"], "\"nowait serve\" serves a directory"),
];

/// A hint for arguments refused with this message: an unknown option, or an unknown command.
pub fn hint(mut arguments: impl Iterator<Item = OsString>, message: &str) -> Option<String> {
    let refused = message.strip_prefix("invalid option: \"")?;
    let first = arguments.next()?;
    let word = first.to_str()?;
    if word.starts_with('-') {
        return Some(option_hint(word, refused));
    }
    if tools::is_missing(word) {
        return Some(format!("this program was built without the Cargo feature \"{word}\""));
    }
    if SIGNALS.contains(&word) {
        return Some(format!("did you mean \"-s {word}\"?"));
    }
    if let Some((_, answer)) = HABITS.iter().find(|(words, _)| words.contains(&word)) {
        return Some((*answer).to_owned());
    }
    if is_directory(&first) {
        return Some(format!("\"nowait serve {word}\" serves this directory"));
    }
    if word.starts_with("http://") || word.starts_with("https://") {
        return Some(format!("\"nowait proxy {word}\" passes requests to this server"));
    }
    let names = commands::names();
    Some(match nearest(word, names.iter().map(String::as_str).chain(HARMLESS)) {
        Some(near) if HARMLESS.contains(&near) => format!("did you mean \"-s {near}\"?"),
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "\"nowait help\" lists the commands, \"nowait -h\" the options".to_owned(),
    })
}

fn option_hint(word: &str, refused: &str) -> String {
    if refused.starts_with("-s ") {
        return format!("\"-s\" takes one of {}", SIGNALS.join(", "));
    }
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    match word.starts_with("--") && commands::serve_has(name) {
        true => format!("\"--{name}\" is an option of \"nowait serve\""),
        false => "\"nowait -h\" lists the options".to_owned(),
    }
}

/// Whether the word names a directory, and looks like a path.
fn is_directory(word: &OsStr) -> bool {
    let path = Path::new(word);
    (path.components().count() > 1 || path.has_root() || word == "." || word == "..")
        && path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint_for(arguments: &[&str], refused: &str) -> String {
        let message = format!("invalid option: \"{refused}\"");
        hint(arguments.iter().map(OsString::from), &message).unwrap()
    }

    #[test]
    fn signals_that_end_the_server_are_not_suggested_for_other_words() {
        for word in ["top", "stpo", "sto", "quiet", "qiut", "shop"] {
            let said = hint_for(&[word], word);
            assert!(!said.contains("stop") && !said.contains("quit"), "{word}: {said}");
        }
        assert_eq!(hint_for(&["stop"], "stop"), "did you mean \"-s stop\"?");
        assert_eq!(hint_for(&["relod"], "relod"), "did you mean \"-s reload\"?");
    }

    #[test]
    fn habits_have_answers() {
        assert!(hint_for(&["status"], "status").contains("check-health"));
        assert!(hint_for(&["version"], "version").contains("nowait -v"));
        assert!(hint_for(&["test"], "test").contains("nowait -t"));
        assert_eq!(hint_for(&["/"], "/"), "\"nowait serve /\" serves this directory");
        assert_eq!(hint_for(&["--port", "80"], "-"), "\"--port\" is an option of \"nowait serve\"");
        assert_eq!(hint_for(&["--porto"], "-"), "\"nowait -h\" lists the options");
        assert_eq!(
            hint_for(&["-s", "halt"], "-s halt"),
            "\"-s\" takes one of stop, quit, reopen, reload"
        );
    }

    #[test]
    fn every_answer_is_for_a_word_that_is_no_command() {
        let names = commands::names();
        for word in HABITS.iter().flat_map(|(words, _)| words.iter()) {
            assert!(!names.iter().any(|name| name == word), "{word}");
        }
    }
}
