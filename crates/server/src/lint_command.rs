//! `nowait lint`: looks for mistakes in a configuration, explains them, and fixes some.
//!
//! Called by `main`. The kinds of mistakes are in `nowait_lint`; this file reads and writes files,
//! and shows findings. The configuration need not be valid: unsupported directives are skipped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use nowait_conf::{Diagnostics, Disk, Tree, nearest, parse, parse_text};
use nowait_lint::{Edit, Finding, Surroundings, Unknown};

use crate::cli::CommandLine;
use crate::config;
use crate::config_path::ConfigPath;
use crate::edited_file::EditedFile;
use crate::findings::Findings;
use crate::lint_surroundings::ThisMachine;
use crate::log::complain;
use crate::output;
use crate::regular_files::RegularFiles;

/// The files to check, and the mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    file: Option<PathBuf>,
    options: CommandLine,
    fix: bool,
    json: bool,
    /// A kind to explain instead.
    explain: Option<String>,
    /// List the kinds instead.
    list: bool,
}

/// No findings.
const CLEAN: u8 = 0;
/// Findings.
const FOUND: u8 = 1;
/// The configuration cannot be read, or a file cannot be written.
const FAILED: u8 = 2;

/// How many times conflicting fixes are tried again.
const ROUNDS_MAX: usize = 5;

/// Findings that are shown to people; `--json` prints all.
const SHOWN_MAX: usize = 10_000;

/// Configuration files.
const FILES: RegularFiles = RegularFiles { bytes_max: Disk::FILE_BYTES_MAX };

/// The command line of `lint`.
pub fn arguments() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let option = |letter: char, name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .value_name(value)
            .value_parser(value_parser!(OsString))
            .help(help)
    };
    Command::new("lint")
        .about("Look for mistakes in a configuration that is valid all the same")
        .after_help(
            "The exit code is 0 without findings, 1 with some, 2 for wrong arguments or if something cannot be \
             read or written.",
        )
        .arg(
            Arg::new("path")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Configuration, or part of one; with -c, only findings in this file"),
        )
        .arg(
            option('c', "file", "FILE", "Configuration file of the server")
                .value_hint(ValueHint::FilePath),
        )
        .arg(
            option('p', "prefix", "PREFIX", "Prefix of relative paths")
                .value_hint(ValueHint::DirPath),
        )
        .arg(flag("fix", "Apply safe fixes and list them"))
        .arg(flag("json", "Print the findings as JSON").conflicts_with("fix"))
        .arg(
            Arg::new("explain")
                .long("explain")
                .value_name("KIND")
                .exclusive(true)
                .help("Explain a kind of mistake, with examples"),
        )
        .arg(flag("list", "List the kinds of mistakes").exclusive(true))
}

impl Lint {
    /// The parsed command line.
    pub fn of(matches: &ArgMatches) -> Lint {
        let value = |name: &str| matches.get_one::<OsString>(name).cloned();
        Lint {
            file: matches.get_one("path").cloned(),
            options: CommandLine {
                conf: value("file"),
                prefix: value("prefix"),
                ..CommandLine::default()
            },
            fix: matches.get_flag("fix"),
            json: matches.get_flag("json"),
            explain: matches.get_one("explain").cloned(),
            list: matches.get_flag("list"),
        }
    }

    /// Runs the command and returns the exit code.
    ///
    /// # Errors
    /// There is no file to check, or standard output cannot be written.
    pub fn run(&self) -> Result<u8, String> {
        if self.list {
            return output::print(&list()).map(|()| CLEAN);
        }
        if let Some(name) = &self.explain {
            return match explained(name) {
                Ok(text) => output::print(&text).map(|()| CLEAN),
                Err(message) => {
                    complain(&message);
                    Ok(FAILED)
                }
            };
        }
        match self.main_file() {
            Ok(main) => self.look(&main),
            Err(message) => {
                complain(&message);
                Ok(FAILED)
            }
        }
    }

    /// The file to begin with.
    fn main_file(&self) -> Result<PathBuf, String> {
        if let (Some(file), None) = (&self.file, &self.options.conf) {
            return Ok(file.clone());
        }
        let place = ConfigPath::find(&self.options)?;
        match place.builtin {
            Some(_) => Err(place.no_configuration()),
            None => Ok(place.conf_file),
        }
    }

    fn look(&self, main: &Path) -> Result<u8, String> {
        let mut rounds = if self.fix { ROUNDS_MAX } else { 0 };
        loop {
            let (tree, found) = match self.findings(main) {
                Ok(read) => read,
                Err(diagnostics) => {
                    output::print_error(&diagnostics.render(io::stderr().is_terminal()));
                    return Ok(FAILED);
                }
            };
            let is_fixable = found.iter().any(|finding| !finding.edits.is_empty());
            if rounds > 0 && is_fixable {
                rounds -= 1;
                match fix(&tree, &found) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(message) => {
                        complain(&format!("[emerg] {message}"));
                        return Ok(FAILED);
                    }
                }
            }
            self.show(main, &tree, &found)?;
            return Ok(if found.is_empty() { CLEAN } else { FOUND });
        }
    }

    /// Reads the configuration, and looks for mistakes.
    fn findings(&self, main: &Path) -> Result<(Tree, Vec<Finding>), Diagnostics> {
        let (tree, diagnostics) = parse(&FILES, main, None);
        if diagnostics.has_errors() {
            return Err(diagnostics);
        }
        let machine =
            ThisMachine { directory: main.parent().map_or_else(PathBuf::new, Path::to_owned) };
        // A file that is named may be a part of something, or meant for another machine.
        let is_own = self.file.is_none() || self.options.conf.is_some();
        let surroundings: &dyn Surroundings = if is_own { &machine } else { &Unknown };
        let mut found = nowait_lint::check(&tree, &config::registry(), surroundings);
        if let (Some(file), Some(_)) = (&self.file, &self.options.conf) {
            let same = |path: &Path| {
                let real = |path: &Path| std::fs::canonicalize(path).ok();
                real(path).is_some_and(|path| real(file) == Some(path))
            };
            found.retain(|finding| tree.sources.name(finding.span.file).is_some_and(same));
        }
        Ok((tree, found))
    }

    fn show(&self, main: &Path, tree: &Tree, found: &[Finding]) -> Result<(), String> {
        let max = if self.json { usize::MAX } else { SHOWN_MAX };
        let diagnostics = nowait_lint::diagnostics(tree, found, max);
        if self.json {
            return output::print(&Findings::of(&diagnostics).json(main, found.is_empty()));
        }
        if found.is_empty() {
            complain(&format!("nothing found in {}", main.display()));
            return Ok(());
        }
        let mut text = diagnostics.render(io::stdout().is_terminal());
        let fixable = found.iter().filter(|finding| !finding.edits.is_empty()).count();
        let noun = if found.len() == 1 { "finding" } else { "findings" };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{} {noun}", found.len());
        if found.len() > SHOWN_MAX {
            let _ = write!(text, ", of which the {SHOWN_MAX} most severe are shown");
            text.push_str("; \"--json\" prints all");
        }
        text.push_str("; \"nowait lint --explain KIND\" explains");
        if fixable > 0 {
            let _ = write!(text, ", \"--fix\" changes {fixable}");
        }
        text.push('\n');
        output::print(&text)
    }
}

/// A file's text as one inclusion read it, and the findings that change it.
type Inclusion<'a> = (&'a [u8], Vec<&'a Finding>);

/// Writes the fixes of findings, and reports the changes of each file as soon as it is written. Returns
/// whether a file was changed.
///
/// # Errors
/// A file cannot be written; those before it have been. Or standard output cannot be written.
fn fix(tree: &Tree, found: &[Finding]) -> Result<bool, String> {
    let mut files: BTreeMap<PathBuf, Vec<Inclusion<'_>>> = BTreeMap::new();
    for (id, path, text) in tree.sources.texts() {
        let fixes = found.iter().filter(|f| f.span.file == id && !f.edits.is_empty());
        let fixes: Vec<&Finding> = fixes.collect();
        if !fixes.is_empty() {
            // A file may be included by several names.
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            files.entry(real).or_default().push((text, fixes));
        }
    }
    let mut is_changed = false;
    for (path, inclusions) in files {
        let shown = path.display();
        let file = EditedFile::read(&path)?;
        if inclusions.iter().any(|(text, _)| file.text != *text) {
            return Err(format!("\"{shown}\" was changed by another program meanwhile"));
        }
        let fixes: Vec<&Finding> = inclusions.into_iter().flat_map(|(_, fixes)| fixes).collect();
        let edits: Vec<&[Edit]> = fixes.iter().map(|finding| finding.edits.as_slice()).collect();
        let (fixed, applied) = nowait_lint::fix(&file.text, &edits);
        if fixed == file.text {
            continue;
        }
        if !parse_text(&path, &fixed).1.is_empty() {
            return Err(format!("\"{shown}\" would be broken by the changes; it stays as it is"));
        }
        file.replace(&fixed)?;
        is_changed = true;
        let mut said = String::new();
        let applied = fixes.into_iter().zip(applied).filter(|(_, is_applied)| *is_applied);
        for (Finding { rule, message, span, .. }, _) in applied {
            let (place, column) = (tree.sources.place(*span), tree.sources.column(*span));
            let _ =
                writeln!(said, "fixed {} in {place}:{}: {message}", rule.name, column.unwrap_or(1));
        }
        output::print(&said)?;
    }
    Ok(is_changed)
}

fn explained(name: &str) -> Result<String, String> {
    if let Some(rule) = nowait_lint::rule(name) {
        return Ok(rule.explain());
    }
    let near = nearest(name, nowait_lint::rules().map(|rule| rule.name));
    let near = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
    Err(format!(
        "there is no kind of mistake \"{name}\"{near}\n  = hint: \"--list\" lists all kinds"
    ))
}

/// The kinds by topic.
fn list() -> String {
    let width = nowait_lint::rules().map(|rule| rule.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for (topic, rules) in nowait_lint::topics() {
        let _ = writeln!(out, "{}{topic}", if out.is_empty() { "" } else { "\n" });
        for rule in *rules {
            let level = rule.level.name();
            let _ = writeln!(out, "  {:width$}  {level:6}  {}", rule.name, rule.summary);
        }
    }
    out
}
