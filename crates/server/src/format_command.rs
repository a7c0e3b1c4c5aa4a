//! `nowait fmt FILE...`: the layout of configuration files.
//!
//! Called by `main`. The layout itself is `nowait_conf::format`. A file with a mistake stays as it is,
//! and the others are formatted nevertheless.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::edited_file::{self, EditedFile};
use crate::log::complain;
use crate::output;

/// The files to format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatCommand {
    /// None: standard input.
    files: Vec<PathBuf>,
    check: bool,
    /// Standard input is meant, even if it is a terminal.
    stdin: bool,
}

/// All files are formatted.
const DONE: u8 = 0;
/// `--check` found files that would change.
const DIFFERENT: u8 = 1;
/// A file cannot be read, has a mistake, or cannot be written.
const FAILED: u8 = 2;

/// The command line of `fmt`.
pub fn arguments() -> Command {
    Command::new("fmt")
        .about("Format configuration files; without FILE, standard input to standard output")
        .after_help(
            "The exit code is 0, 1 if --check finds files that would change, 2 for wrong arguments or if a file \
             has a mistake or cannot be read or written.",
        )
        .arg(
            Arg::new("files")
                .value_name("FILE")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Configuration file; it is rewritten if its layout changes"),
        )
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Change nothing; list the files that would change, and exit with 1"),
        )
        .arg(
            Arg::new("stdin")
                .long("stdin")
                .action(ArgAction::SetTrue)
                .conflicts_with("files")
                .help("Format standard input, even from a terminal"),
        )
}

impl FormatCommand {
    /// The parsed command line.
    pub fn of(matches: &ArgMatches) -> FormatCommand {
        FormatCommand {
            files: matches.get_many("files").into_iter().flatten().cloned().collect(),
            check: matches.get_flag("check"),
            stdin: matches.get_flag("stdin"),
        }
    }

    /// Formats, and returns the exit code.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(&self) -> Result<u8, String> {
        if self.files.is_empty() {
            return self.standard_input();
        }
        let mut code = DONE;
        for path in &self.files {
            match self.file(path) {
                Ok(false) => {}
                Ok(true) => {
                    output::print(&format!("{}\n", path.display()))?;
                    code = code.max(if self.check { DIFFERENT } else { DONE });
                }
                Err(problem) => {
                    problem.show();
                    code = FAILED;
                }
            }
        }
        Ok(code)
    }

    fn standard_input(&self) -> Result<u8, String> {
        const NAME: &str = "standard input";
        let input = io::stdin();
        let text = match input.is_terminal() && !self.stdin {
            true => {
                Err("no file to format: name files, pipe a configuration into \"nowait fmt\", \
                         or type one with \"--stdin\""
                    .to_owned())
            }
            false => edited_file::bounded(input.lock()).map_err(|error| format!("{NAME}: {error}")),
        };
        let result = text.map_err(Problem::Other).and_then(|text| {
            let formatted = formatted(Path::new(NAME), &text)?;
            Ok((formatted != text, formatted))
        });
        match result {
            Err(problem) => {
                problem.show();
                Ok(FAILED)
            }
            Ok((_, formatted)) if !self.check => {
                output::print_with(|out: &mut dyn Write| out.write_all(&formatted))?;
                Ok(DONE)
            }
            Ok((false, _)) => Ok(DONE),
            Ok((true, _)) => {
                output::print(&format!("{NAME}\n"))?;
                Ok(DIFFERENT)
            }
        }
    }

    /// Formats a file; returns whether its layout was another.
    fn file(&self, path: &Path) -> Result<bool, Problem> {
        let file = EditedFile::read(path).map_err(Problem::Other)?;
        let formatted = formatted(path, &file.text)?;
        let is_different = formatted != file.text;
        if is_different && !self.check {
            file.replace(&formatted).map_err(Problem::Other)?;
        }
        Ok(is_different)
    }
}

/// The reason why a text is not formatted.
enum Problem {
    /// Mistakes, as they are shown.
    Findings(String),
    Other(String),
}

impl Problem {
    fn show(&self) {
        match self {
            Problem::Findings(rendered) => output::print_error(rendered),
            Problem::Other(message) => complain(&format!("[emerg] {message}")),
        }
    }
}

fn formatted(name: &Path, text: &[u8]) -> Result<Vec<u8>, Problem> {
    nowait_conf::format(name, text)
        .map_err(|diagnostics| Problem::Findings(diagnostics.render(io::stderr().is_terminal())))
}
