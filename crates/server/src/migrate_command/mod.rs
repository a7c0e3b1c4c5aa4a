//! `nowait migrate`: reports which parts of an nginx configuration run, and writes an adapted copy.
//!
//! Called by `main`. The judgement is that of `nowait_migrate`; this reads the files, has the whole
//! checked as `-t` does, writes the copy (`copy`), and prints. The exit code is 0 if everything
//! runs, 1 if something is missing, 2 if the configuration cannot be read or the copy not written.

mod copy;

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use nowait_conf::{Files, Level};
use nowait_migrate::{Adaptation, ConfigSource, Survey};
use serde_json::json;

use crate::cli::CommandLine;
use crate::config;
use crate::config_path::ConfigPath;
use crate::log::{OsErrorText, complain};
use crate::output;
use crate::regular_files::RegularFiles;

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrate {
    /// The main file, or the directory with it.
    pub configuration: PathBuf,
    /// The directory for the copy.
    pub output: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

/// The command line of `migrate`.
pub fn arguments() -> Command {
    Command::new("migrate")
        .about("Report what of an nginx configuration runs, and write an adapted copy")
        .after_help(
            "The exit code is 0 if everything runs, 1 if something is missing, 2 for wrong arguments or if \
             something cannot be read or written.",
        )
        .arg(
            Arg::new("configuration")
                .value_name("PATH")
                .default_value("/etc/nginx")
                .value_parser(value_parser!(PathBuf))
                .help("Main configuration file, or the directory with nginx.conf"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Write an adapted copy of the whole directory; DIR must be new or empty"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the report as JSON"),
        )
}

/// Exit codes.
const RUNS: u8 = 0;
const MISSES: u8 = 1;
const FAILED: u8 = 2;

/// Findings about a copy that are printed; `-t` shows all.
const FINDINGS_MAX: usize = 10;

impl Migrate {
    /// The parsed command line.
    pub fn of(matches: &ArgMatches) -> Migrate {
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        Migrate {
            configuration: path("configuration").expect("the argument has a default"),
            output: path("output"),
            json: matches.get_flag("json"),
        }
    }

    /// Does all of it; returns the exit code.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(&self) -> Result<u8, String> {
        match self.migrate() {
            Ok(done) => {
                output::print(&done.text)?;
                Ok(if done.runs { RUNS } else { MISSES })
            }
            Err(message) => {
                complain(&format!("[emerg] {message}"));
                Ok(FAILED)
            }
        }
    }

    fn migrate(&self) -> Result<Done, String> {
        let main = main_file(&self.configuration)?;
        let root = main.parent().unwrap_or(Path::new("/"));
        // First, before any wait for a report.
        if let Some(output) = &self.output {
            copy::check_target(output)?;
        }
        let mut survey = Survey::take(&FromDisk, &config::registry(), &main)
            .map_err(|error| format!("cannot read \"{}\": {error}", main.display()))?;
        check(&mut survey, &main)?;
        let written = match &self.output {
            Some(output) => {
                let adaptation = Adaptation::plan(&survey, &FromDisk, root);
                let copied = copy::copy(root, output, &adaptation)?;
                Some(WrittenCopy::of(output, &main, adaptation, copied)?)
            }
            None => None,
        };
        let text = if self.json {
            let mut value = survey.json();
            value["copy"] = written.as_ref().map(WrittenCopy::json).into();
            format!("{value:#}\n")
        } else {
            let next = match &written {
                Some(written) => written.text(),
                None => format!(
                    "\nnowait migrate -o DIR {} writes an adapted copy.\n",
                    self.configuration.display()
                ),
            };
            survey.report() + &next
        };
        Ok(Done { text, runs: survey.works() })
    }
}

struct Done {
    text: String,
    runs: bool,
}

/// The main file of what the operator named, as a full path.
fn main_file(given: &Path) -> Result<PathBuf, String> {
    let failed =
        |error: io::Error| format!("cannot read \"{}\" {}", given.display(), OsErrorText(&error));
    let metadata = std::fs::metadata(given).map_err(failed)?;
    let file = if metadata.is_dir() {
        let candidates = [given.join("nginx.conf"), given.join("conf/nginx.conf")];
        let found = candidates.into_iter().find(|file| file.exists());
        found.ok_or_else(|| format!("there is no nginx.conf in \"{}\"", given.display()))?
    } else {
        given.to_owned()
    };
    // Links in the path stay: includes are spelt with it.
    std::path::absolute(&file).map_err(failed)
}

/// Has the whole configuration checked, as `-t` does, and adds what that finds.
fn check(survey: &mut Survey, main: &Path) -> Result<(), String> {
    let place = place_of(main)?;
    let diagnostics = config::findings(&FILES, &place);
    let sources = diagnostics.sources();
    for finding in diagnostics.iter() {
        let mut message = finding.message().to_owned();
        for hint in finding.hints() {
            message = format!("{message} ({hint})");
        }
        let mut places = finding.places().peekable();
        if places.peek().is_none() && finding.level() == Level::Emerg {
            survey.remark(String::new(), &message);
        }
        for span in places {
            match (sources.name(span.file), finding.level()) {
                (Some(file), Level::Error | Level::Emerg) => {
                    survey.refused(file, span.start, &message);
                }
                (Some(file), Level::Notice | Level::Warn) => {
                    survey.warning(file, span.line, &message);
                }
                (None, _) => {}
            }
        }
    }
    if diagnostics.dropped() > 0 {
        let message = format!("{} more findings, which are not listed here", diagnostics.dropped());
        survey.remark(String::new(), &message);
    }
    Ok(())
}

fn place_of(main: &Path) -> Result<ConfigPath, String> {
    ConfigPath::find(&CommandLine { conf: Some(main.into()), ..CommandLine::default() })
}

/// The files of a configuration.
const FILES: RegularFiles = RegularFiles { bytes_max: 16 << 20 };

/// The same files for the survey.
struct FromDisk;

impl ConfigSource for FromDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        FILES.read(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        FILES.glob(pattern)
    }

    fn real(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }

    fn exists(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok()
    }

    fn has_built_in(&self, path: &Path) -> bool {
        FILES.fallback(path).is_some()
    }
}

/// A copy that was written.
struct WrittenCopy {
    main: PathBuf,
    directory: PathBuf,
    adaptation: Adaptation,
    copied: copy::Copied,
    /// What the check says of it: place and message.
    findings: Vec<(String, String)>,
}

impl WrittenCopy {
    fn of(
        output: &Path,
        main: &Path,
        adaptation: Adaptation,
        copied: copy::Copied,
    ) -> Result<WrittenCopy, String> {
        let directory = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
        let main = directory.join(main.file_name().unwrap_or_default());
        let diagnostics = config::findings(&FILES, &place_of(&main)?);
        let sources = diagnostics.sources();
        let errors = diagnostics.iter().filter(|finding| finding.level() == Level::Emerg);
        let findings = errors.map(|finding| {
            let place = finding.span().map(|span| sources.place(span)).unwrap_or_default();
            (place, finding.message().to_owned())
        });
        let findings = findings.collect();
        Ok(WrittenCopy { main, directory, adaptation, copied, findings })
    }

    fn text(&self) -> String {
        let Adaptation { files, removed, added, left } = &self.adaptation;
        let directory = self.directory.display();
        let mut out = format!(
            "\nCopy in {directory}: {} files, {} of them adapted; {removed} directives turned into \
             comments, {added} added in their place\n",
            self.copied.files,
            files.len(),
        );
        list(&mut out, "Not copied", &self.copied.left_out);
        list(&mut out, "Left as they are, for you to decide", left);
        let findings: Vec<String> = self
            .findings
            .iter()
            .map(|(place, message)| match place.is_empty() {
                true => message.clone(),
                false => format!("{place}: {message}"),
            })
            .collect();
        match findings.is_empty() {
            true => out.push_str("The check of the copy finds no error.\n"),
            false => list(&mut out, "The check of the copy finds", &findings),
        }
        let main = self.main.display();
        out.push_str(&format!(
            "\nNext steps\n  grep -rn '# nowait:' {directory}\n      shows the changes and their \
             reasons\n  nowait -t -c {main}\n      checks the copy; -p PREFIX gives the start of \
             relative paths of logs and roots, as \"nginx -V\" shows it\n  nowait -c {main}\n      \
             starts it, once nginx has stopped: both use the same addresses and the same pid file\n"
        ));
        out
    }

    fn json(&self) -> serde_json::Value {
        let findings = self.findings.iter();
        let findings = findings.map(|(place, message)| json!({"place": place, "message": message}));
        json!({
            "directory": self.directory.to_string_lossy(),
            "main": self.main.to_string_lossy(),
            "files": self.copied.files,
            "adapted": self.adaptation.files.len(),
            "removed": self.adaptation.removed,
            "added": self.adaptation.added,
            "left": self.adaptation.left,
            "not_copied": self.copied.left_out,
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("{title}\n"));
    for line in lines.iter().take(FINDINGS_MAX) {
        out.push_str(&format!("  {}\n", line.replace(|c: char| c.is_control(), " ")));
    }
    if lines.len() > FINDINGS_MAX {
        out.push_str(&format!("  and {} more\n", lines.len() - FINDINGS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_defaults() {
        let parsed = |line: &str| {
            let matches = arguments().try_get_matches_from(line.split_whitespace())?;
            Ok::<_, clap::Error>(Migrate::of(&matches))
        };
        assert_eq!(parsed("migrate").unwrap().configuration, PathBuf::from("/etc/nginx"));
        let expected =
            Migrate { configuration: "a.conf".into(), output: Some("out".into()), json: true };
        assert_eq!(parsed("migrate -o out --json a.conf").unwrap(), expected);
        assert!(parsed("migrate a b").is_err());
    }

    #[test]
    fn every_difference_is_reported() {
        let silent = nowait_migrate::silent_differences(&config::registry());
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn every_block_is_known_as_directives_or_as_data() {
        let unknown = nowait_migrate::blocks_to_judge(&config::registry());
        assert!(unknown.is_empty(), "{unknown:?}: class.rs in nowait_migrate lists them");
    }
}
