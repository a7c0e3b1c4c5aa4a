//! `nowait generate TEXT`: manual pages and completions, from the tables of this binary.
//!
//! Called by `main`; `cargo xtask package` puts the texts into the packages. Reads no file.

use std::io::{self, Write};

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use nowait_conf::docs::{self, Entry};

use crate::{commands, config};

/// A text for an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedText {
    /// nowait(8): the command line.
    Manual,
    /// nowait.conf(5): the directives.
    Directives,
    /// Completions of a shell.
    Completions(Shell),
}

/// Signals to the master process.
const SIGNALS: &[(&str, &str)] = &[
    ("TERM, INT", "Fast shutdown."),
    ("QUIT", "Graceful shutdown: requests under way are finished."),
    ("HUP", "Reload the configuration. If it has an error, the old one stays."),
    ("USR1", "Open the logs again."),
    ("USR2", "Start the program again beside the running one, with its sockets."),
    ("WINCH", "Finish the requests under way and stop the server process."),
];

/// The meaning of exit codes, for options as well as for commands.
const EXIT_CODES: &[(&str, &str)] = &[
    (
        "0",
        "Success: the server has started or was told to, a test found no error, a command found nothing.",
    ),
    (
        "1",
        "The server did not start or run, a test found an error, or a command found something (see there). Also \
         wrong options without a command, as with nginx, and all failures of check-health.",
    ),
    ("2", "Wrong arguments of a command, or files that it could not read or write."),
];

/// Files whose places are built in.
const FILES: &[(&str, &str)] = &[
    ("/etc/nowait/nowait.conf", "Configuration, unless -c or -p names another one."),
    ("/etc/nowait", "Prefix of relative paths, unless -p names another one."),
    (
        "/var/lib/nowait/acme",
        "Account and certificates of nowait serve --domain, if root starts it without --state.",
    ),
];

impl GeneratedText {
    /// The texts by their names on the command line.
    pub const NAMES: [(&'static str, GeneratedText); 5] = [
        ("nowait.8", GeneratedText::Manual),
        ("nowait.conf.5", GeneratedText::Directives),
        ("bash", GeneratedText::Completions(Shell::Bash)),
        ("zsh", GeneratedText::Completions(Shell::Zsh)),
        ("fish", GeneratedText::Completions(Shell::Fish)),
    ];
}

/// Writes a text.
///
/// # Errors
/// Those of `out`.
pub fn write(text: GeneratedText, out: &mut dyn Write) -> io::Result<()> {
    let mut out = out;
    match text {
        GeneratedText::Manual => manual(&mut out),
        GeneratedText::Directives => directives().to_writer(&mut out),
        GeneratedText::Completions(shell) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut commands::command_line(), "nowait", &mut script);
            out.write_all(&script)
        }
    }
}

/// nowait(8): the options, then each command with its own.
fn manual(out: &mut dyn Write) -> io::Result<()> {
    let mut line = commands::command_line();
    line.build();
    let mut out = out;
    page("nowait", "8").to_writer(&mut out)?;
    let man = Man::new(line.clone());
    man.render_name_section(&mut out)?;
    let mut intro = Roff::new();
    intro.control("SH", ["SYNOPSIS"]);
    intro.text([
        bold("nowait"),
        roman(" [-hvVtTq] [--json] [-s "),
        italic("signal"),
        roman("] [-p "),
        italic("prefix"),
        roman("] [-e "),
        italic("file"),
        roman("] [-c "),
        italic("file"),
        roman("] [-g "),
        italic("directives"),
        roman("]"),
    ]);
    intro.control("br", []);
    intro.text([bold("nowait"), roman(" "), italic("command"), roman(" ...")]);
    intro.control("SH", ["DESCRIPTION"]);
    intro.text([roman(
        "Reads nginx configuration and behaves like nginx. Without options, and without an installed \
         configuration, it serves the current directory at http://localhost:8080/.",
    )]);
    intro.to_writer(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut commands = Roff::new();
    commands.control("SH", ["COMMANDS"]);
    for command in leaves(&line, "nowait") {
        let (name, command) = command;
        commands.control("SS", [name.as_str()]);
        if let Some(about) = command.get_about() {
            commands.text([roman(format!("{about}."))]);
        }
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            commands.control("TP", []);
            commands.text([bold(argument.to_string())]);
            commands
                .text([roman(argument.get_help().map(ToString::to_string).unwrap_or_default())]);
        }
        if let Some(rest) = command.get_after_help() {
            commands.control("PP", []);
            commands.text([roman(rest.to_string())]);
        }
    }
    commands.to_writer(&mut out)?;
    let mut rest = Roff::new();
    rest.control("SH", ["SIGNALS"]);
    for (signal, meaning) in SIGNALS {
        entry(&mut rest, signal, meaning);
    }
    rest.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        entry(&mut rest, code, meaning);
    }
    rest.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        entry(&mut rest, path, meaning);
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text([bold("nowait.conf"), roman("(5)")]);
    rest.to_writer(&mut out)
}

fn entry(page: &mut Roff, name: &str, meaning: &str) {
    page.control("TP", []);
    page.text([bold(name)]);
    page.text([roman(meaning)]);
}

/// The commands that have no commands of their own, with their full names.
fn leaves(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
    let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    inner
        .flat_map(|inner| {
            let name = format!("{name} {}", inner.get_name());
            match inner.has_subcommands() {
                true => leaves(inner, &name),
                false => vec![(name, inner.clone())],
            }
        })
        .collect()
}

/// nowait.conf(5).
fn directives() -> Roff {
    let mut page = page("nowait.conf", "5");
    page.control("SH", ["NAME"]);
    page.text([roman("nowait.conf - configuration of the nowait web server")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman("The language is that of nginx. These are the directives, by module.")]);
    let registry = config::registry();
    for module in docs::modules(&registry) {
        page.control("SH", [format!("MODULE {}", module.to_uppercase()).as_str()]);
        for entry in docs::entries(&registry, module) {
            describe(&mut page, &entry);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("nowait"), roman("(8)")]);
    page
}

fn describe(page: &mut Roff, entry: &Entry) {
    page.control("SS", [entry.name]);
    let facts = [
        ("Syntax: ", Some(entry.syntax.clone())),
        ("Default: ", entry.default.clone()),
        ("Context: ", Some(entry.contexts.clone())),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            page.text([roman(name), bold(value)]);
            page.control("br", []);
        }
    }
    for paragraph in entry.paragraphs() {
        page.control("PP", []);
        page.text(inline(&paragraph));
    }
}

/// Markdown's code in bold, its emphasis in italics, and its links by their texts.
fn inline(text: &str) -> Vec<Inline> {
    let mut pieces = Vec::new();
    for (index, piece) in text.split('`').enumerate() {
        if piece.is_empty() {
            continue;
        }
        if index % 2 == 1 {
            pieces.push(bold(piece));
            continue;
        }
        for (index, piece) in without_links(piece).split('*').enumerate() {
            if !piece.is_empty() {
                pieces.push(if index % 2 == 1 { italic(piece) } else { roman(piece) });
            }
        }
    }
    pieces
}

/// `[text](target)` becomes `text`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((label_before, label)) = before.rsplit_once('[') else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        out.push_str(label_before);
        out.push_str(label);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn page(name: &str, section: &str) -> Roff {
    let mut page = Roff::new();
    let version = concat!("nowait ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name, section, "", version, ""]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        let (_, text) = GeneratedText::NAMES.iter().find(|(known, _)| *known == name).unwrap();
        let mut out = Vec::new();
        write(*text, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn manual_pages_name_everything() {
        let manual = text("nowait.8");
        for expected in [
            ".TH nowait 8",
            "nowait cache purge",
            "\\-\\-soft",
            "reopen",
            "USR2",
            "exit code is 0",
            "findings of the test as JSON",
            "SH \"EXIT STATUS\"",
        ] {
            assert!(manual.contains(expected), "{expected}: {manual}");
        }
        let directives = text("nowait.conf.5");
        for expected in [".SS worker_processes", ".SS resident_files", "Context: \\fBhttp"] {
            assert!(directives.contains(expected), "{expected}");
        }
    }

    #[test]
    fn shells_complete_commands_and_options() {
        for shell in ["bash", "zsh", "fish"] {
            let script = text(shell);
            for expected in ["reference", "purge", "reload"] {
                assert!(script.contains(expected), "{shell}: {expected}");
            }
        }
    }

    #[test]
    fn markdown_becomes_type() {
        let pieces = inline("see [a *b*](x#y) or `c*`");
        let expected = vec![roman("see a "), italic("b"), roman(" or "), bold("c*")];
        assert_eq!(pieces, expected);
    }
}
