//! Finds commands in a text that arrives in pieces. nginx: `ngx_http_ssi_parse`.
//!
//! Sans-IO: takes bytes; returns text to pass on, commands with their parameters, and errors of malformed
//! commands. Keeps no more of the text than the beginning of a command.

use bytes::{Buf, Bytes};
use memchr::memmem;

/// The beginning of a command.
const OPEN: &[u8] = b"<!--#";

/// Longest name of a command, in bytes. nginx: `NGX_HTTP_SSI_COMMAND_LEN`.
const NAME_BYTES_MAX: usize = 32;

/// Longest name of a parameter, in bytes. nginx: `NGX_HTTP_SSI_PARAM_LEN`.
const PARAMETER_BYTES_MAX: usize = 32;

/// Maximum number of parameters of a command. nginx: `NGX_HTTP_SSI_MAX_PARAMS`.
pub const PARAMETERS_MAX: usize = 16;

/// A command as written in the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The name.
    pub name: Vec<u8>,
    /// Names and values of its parameters, without quotes, but with backslashes.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether it has more parameters than these.
    pub too_many: bool,
}

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub enum ScanItem {
    /// Text between commands.
    Text(Bytes),
    /// A command.
    Command(Command),
    /// A malformed command with its end. The string is the message for the log.
    Broken(String),
}

/// The state of a search.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// Bytes of [`OPEN`] at the end of the piece before.
    held: usize,
    command: Command,
    value_bytes_max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Text,
    BeforeName,
    Name,
    BeforeParameter,
    Parameter,
    BeforeEquals,
    BeforeValue,
    Value { quote: u8, escaped: bool },
    AfterValue,
    End0,
    End1,
    Broken(String),
    BrokenEnd0(String),
    BrokenEnd1(String),
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\r' | b'\n' | b'\t')
}

impl Scanner {
    /// For a new text; parameter values are limited to this many bytes.
    pub fn new(value_bytes_max: usize) -> Self {
        Self { state: State::Text, held: 0, command: Command::default(), value_bytes_max }
    }

    /// The next find, which is removed from the piece; `None`: another piece is needed.
    pub fn next(&mut self, input: &mut Bytes) -> Option<ScanItem> {
        if self.state == State::Text {
            let text = self.text(input);
            if text.is_some() || self.state == State::Text {
                return text.map(ScanItem::Text);
            }
        }
        while let Some(&byte) = input.first() {
            input.advance(1);
            let state = std::mem::replace(&mut self.state, State::Text);
            match self.step(state, byte) {
                Ok(state) => self.state = state,
                Err(found) => return Some(found),
            }
        }
        None
    }

    /// The rest at the end of the text: the beginning of a possible command.
    ///
    /// nginx differs: it loses these bytes.
    pub fn finish(&mut self) -> Bytes {
        Bytes::from_static(&OPEN[..std::mem::take(&mut self.held)])
    }

    /// The text before the next command. If there is none, the state shows whether a command begins
    /// here.
    fn text(&mut self, input: &mut Bytes) -> Option<Bytes> {
        if self.held > 0 {
            let wanted = &OPEN[self.held..];
            let len = wanted.len().min(input.len());
            if input[..len] != wanted[..len] {
                return Some(self.finish());
            }
            input.advance(len);
            self.held += len;
            if self.held == OPEN.len() {
                self.held = 0;
                self.state = State::BeforeName;
            }
            return None;
        }
        let at = match memmem::find(input, OPEN) {
            Some(0) => {
                input.advance(OPEN.len());
                self.state = State::BeforeName;
                return None;
            }
            Some(at) => at,
            None => {
                let tail = input.len().saturating_sub(OPEN.len() - 1);
                let held = (tail..input.len()).find(|at| OPEN.starts_with(&input[*at..]));
                let at = held.unwrap_or(input.len());
                self.held = input.len() - at;
                let text = input.split_to(at);
                input.clear();
                return Some(text).filter(|text| !text.is_empty());
            }
        };
        Some(input.split_to(at))
    }

    /// Processes one byte of a command.
    fn step(&mut self, state: State, byte: u8) -> Result<State, ScanItem> {
        let blank = is_blank(byte);
        Ok(match state {
            State::Text => State::Text,
            State::BeforeName if blank => State::BeforeName,
            State::BeforeName => {
                self.command = Command { name: vec![byte], ..Command::default() };
                State::Name
            }
            State::Name if blank => State::BeforeParameter,
            State::Name | State::BeforeParameter | State::AfterValue if byte == b'-' => State::End0,
            State::Name if self.command.name.len() == NAME_BYTES_MAX => {
                State::Broken(format!("the \"{}...\" SSI command is too long", self.with(byte)))
            }
            State::Name => {
                self.command.name.push(byte);
                State::Name
            }
            State::BeforeParameter | State::AfterValue if blank => State::BeforeParameter,
            State::BeforeParameter => {
                if self.command.parameters.len() == PARAMETERS_MAX {
                    self.command.too_many = true;
                    self.command.parameters.pop();
                }
                self.command.parameters.push((vec![byte], Vec::new()));
                State::Parameter
            }
            State::Parameter if blank => State::BeforeEquals,
            State::BeforeEquals | State::BeforeValue if blank => state,
            State::Parameter | State::BeforeEquals if byte == b'=' => State::BeforeValue,
            State::Parameter if byte != b'-' => {
                if self.parameter().0.len() == PARAMETER_BYTES_MAX {
                    let (name, _) = self.parameter();
                    let name = String::from_utf8_lossy(name);
                    let what = format!("too long \"{name}{}...\" parameter in ", char::from(byte));
                    return Ok(State::Broken(what + &self.shown()));
                }
                self.parameter().0.push(byte);
                State::Parameter
            }
            State::Parameter | State::BeforeEquals => {
                self.unexpected(byte, "after \"", "\" parameter in ")
            }
            State::BeforeValue => match byte {
                b'"' | b'\'' => State::Value { quote: byte, escaped: false },
                _ => self.unexpected(byte, "before value of \"", "\" parameter in "),
            },
            State::Value { quote, escaped: false } if byte == quote => State::AfterValue,
            State::Value { quote, escaped } => {
                if self.parameter().1.len() >= self.value_bytes_max {
                    let (name, value) = self.parameter();
                    let what = format!(
                        "too long \"{}{}...\" value of \"{}\" parameter in ",
                        String::from_utf8_lossy(value),
                        char::from(byte),
                        String::from_utf8_lossy(name),
                    );
                    return Ok(State::Broken(what + &self.shown()));
                }
                self.parameter().1.push(byte);
                State::Value { quote, escaped: byte == b'\\' && !escaped }
            }
            State::AfterValue => {
                let (name, value) = self.parameter();
                let what = format!(
                    "unexpected \"{}\" symbol after \"{}\" value of \"{}\" parameter in ",
                    char::from(byte),
                    String::from_utf8_lossy(value),
                    String::from_utf8_lossy(name),
                );
                State::Broken(what + &self.shown())
            }
            State::End0 if byte == b'-' => State::End1,
            State::End1 if byte == b'>' => {
                return Err(ScanItem::Command(std::mem::take(&mut self.command)));
            }
            State::End0 | State::End1 => {
                let byte = char::from(byte);
                State::Broken(format!("unexpected \"{byte}\" symbol in {}", self.shown()))
            }
            State::Broken(what) if byte == b'-' => State::BrokenEnd0(what),
            State::BrokenEnd0(what) if byte == b'-' => State::BrokenEnd1(what),
            State::BrokenEnd1(what) if byte == b'>' => return Err(ScanItem::Broken(what)),
            State::Broken(what) | State::BrokenEnd0(what) | State::BrokenEnd1(what) => {
                State::Broken(what)
            }
        })
    }

    /// The parameter that is being read.
    fn parameter(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let last = self.command.parameters.last_mut();
        let (name, value) = last.expect("these states follow one that began a parameter");
        (name, value)
    }

    fn unexpected(&mut self, byte: u8, before: &str, behind: &str) -> State {
        let command = self.shown();
        let (name, _) = self.parameter();
        let name = String::from_utf8_lossy(name);
        let shown = char::from(byte);
        let what = format!("unexpected \"{shown}\" symbol {before}{name}{behind}{command}");
        if byte == b'-' { State::BrokenEnd0(what) } else { State::Broken(what) }
    }

    fn shown(&self) -> String {
        format!("\"{}\" SSI command", String::from_utf8_lossy(&self.command.name))
    }

    fn with(&self, byte: u8) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.command.name), char::from(byte))
    }
}

impl Command {
    /// Appends the command as text, for a block that is used later.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(OPEN);
        out.extend_from_slice(&self.name);
        for (name, value) in &self.parameters {
            out.push(b' ');
            out.extend_from_slice(name);
            out.extend_from_slice(b"=\"");
            out.extend_from_slice(value);
            out.push(b'"');
        }
        out.extend_from_slice(b" -->");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The finds in a text that arrives in pieces of this size; commands and error messages are in
    /// brackets.
    fn found(text: &str, piece: usize) -> String {
        let mut scanner = Scanner::new(8);
        let mut all = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            let mut input = Bytes::copy_from_slice(piece);
            while !input.is_empty() {
                match scanner.next(&mut input) {
                    None => {}
                    Some(ScanItem::Text(text)) => all.extend_from_slice(&text),
                    Some(ScanItem::Command(command)) => {
                        all.push(b'[');
                        command.append_to(&mut all);
                        all.push(b']');
                    }
                    Some(ScanItem::Broken(what)) => {
                        all.extend_from_slice(format!("[{what}]").as_bytes())
                    }
                }
            }
        }
        all.extend_from_slice(&scanner.finish());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_result() {
        for (text, expected) in [
            ("no command", "no command"),
            ("<p>a < b <!- <!-- c -->", "<p>a < b <!- <!-- c -->"),
            ("a<!--#b-->c", "a[<!--#b -->]c"),
            ("<<!--#b --><!--#c-->", "<[<!--#b -->][<!--#c -->]"),
            ("<!--<!--#b-->", "<!--[<!--#b -->]"),
            ("<!--# b c = 'd' e=\"f\" -->", "[<!--#b c=\"d\" e=\"f\" -->]"),
            ("<!--#b c='\"\\'' -->.", "[<!--#b c=\"\"\\'\" -->]."),
            ("end <", "end <"),
            ("end <!--", "end <!--"),
            ("cut <!--#b", "cut "),
            (
                "<!--#b c-->d",
                "[unexpected \"-\" symbol after \"c\" parameter in \"b\" SSI command]d",
            ),
            (
                "<!--#b c d-->e",
                "[unexpected \"d\" symbol after \"c\" parameter in \"b\" SSI command]e",
            ),
            (
                "<!--#b c=d-->e",
                "[unexpected \"d\" symbol before value of \"c\" parameter in \"b\" SSI command]e",
            ),
            (
                "<!--#b c='d'e -->f",
                "[unexpected \"e\" symbol after \"d\" value of \"c\" parameter in \"b\" SSI command]f",
            ),
            ("<!--#b -x-->c", "[unexpected \"x\" symbol in \"b\" SSI command]c"),
            ("<!--#b c='12345678' -->d", "[<!--#b c=\"12345678\" -->]d"),
            (
                "<!--#b c='123456789' -->d",
                "[too long \"123456789...\" value of \"c\" parameter in \"b\" SSI command]d",
            ),
        ] {
            for piece in 1..=text.len() {
                assert_eq!(found(text, piece), expected, "{text} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn long_names_are_rejected() {
        let long = "x".repeat(33);
        assert!(found(&format!("<!--#{long} -->y"), 7).contains("SSI command is too long]y"));
        assert!(found(&format!("<!--#b {long}='c' -->y"), 7).contains("...\" parameter in"));
        let many = "a='b' ".repeat(1000);
        let mut input = Bytes::from(format!("<!--#b {many}-->"));
        let Some(ScanItem::Command(command)) = Scanner::new(8).next(&mut input) else { panic!() };
        assert_eq!((command.parameters.len(), command.too_many), (PARAMETERS_MAX, true));
    }
}
