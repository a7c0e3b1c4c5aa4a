//! From texts to a checked configuration: parse, interpret, resolve, and report problems.
//!
//! Called by the master with the files on disk, and by the server process with the texts that the
//! master read, so that both see the same configuration even if the files change meanwhile.

use std::path::Path;

use nowait_conf::{
    Bundle, Cx, Diagnostic, Diagnostics, Files, Paths, Registry, Tree, parse_for_use,
};

use crate::builtin::{BuiltinFile, WithBuiltIn};
use crate::conf_core;
use crate::config_path::ConfigPath;
use crate::findings::Findings;
use crate::log::Level;
use crate::read_once::{KnownFiles, PartialFiles, WithoutFifos};
use crate::reader::FileReader;
use crate::service::{self, Needs, Plan};
use crate::settings::MainSettings;

/// A valid configuration.
pub struct Loaded {
    /// Every text that was read.
    pub bundle: Bundle,
    /// The main and `events` contexts.
    pub settings: MainSettings,
    /// The files and sockets to open.
    pub needs: Needs,
    /// Accepted but questionable settings: `MESSAGE in FILE:LINE`.
    pub warnings: Vec<String>,
    /// The warnings in their human-readable form.
    pub rendered: String,
    /// The warnings for programs.
    pub findings: Findings,
}

/// An invalid configuration.
#[derive(Debug)]
pub struct ConfigError {
    /// Every finding in nginx's one-line form, for the error log.
    pub lines: Vec<ReportLine>,
    /// Every finding with its source line and hints, for people.
    pub rendered: String,
    /// Every finding for programs.
    pub findings: Findings,
}

impl ConfigError {
    fn of(diagnostics: &Diagnostics) -> ConfigError {
        ConfigError {
            lines: lines(diagnostics),
            rendered: rendered(diagnostics),
            findings: Findings::of(diagnostics),
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// The severity.
    pub level: Level,
    /// `MESSAGE in FILE:LINE`.
    pub text: String,
}

/// Every directive of the program.
pub fn registry() -> Registry {
    let mut tables: Vec<_> = conf_core::TABLES.to_vec();
    tables.push(conf_core::STRUCTURE);
    tables.extend(service::tables());
    Registry::new(&tables).with(nowait_catalogue::find)
}

/// Reads the configuration of a place.
///
/// # Errors
/// All problems found.
pub fn load(place: &ConfigPath) -> Result<Loaded, ConfigError> {
    if let Some(builtin) = &place.builtin {
        let text = builtin.configuration(place.globals.as_deref());
        let files = BuiltinFile { path: place.conf_file.clone(), text };
        let mut loaded = interpret(&files, place)?;
        // It stores only certificates and uploads: no other request bodies and no pid file, least of all in the
        // served directory.
        let used = builtin.directories(&place.prefix);
        loaded.needs.directories.retain(|directory| used.contains(directory));
        loaded.settings.pid.clear();
        return Ok(loaded);
    }
    interpret(&WithBuiltIn, place)
}

/// The same, for a server that runs; `files` are [`following`] its configuration.
///
/// # Errors
/// All problems found.
pub fn load_again(place: &ConfigPath, files: &dyn Files) -> Result<Loaded, ConfigError> {
    match place.builtin {
        Some(_) => load(place),
        None => interpret(files, place),
    }
}

/// The files for a configuration that follows `running`: files that can be read only once are not read
/// again.
pub fn following(running: &Bundle) -> KnownFiles<'_> {
    KnownFiles { files: &WithBuiltIn, running }
}

/// The settings of a configuration, for a command to a running server. Files that can be read only once are
/// skipped, and a hanging disk must not prevent the server from being stopped.
///
/// # Errors
/// All problems found.
pub fn settings(place: &ConfigPath) -> Result<MainSettings, ConfigError> {
    let untouched = WithoutFifos::of(&WithBuiltIn);
    let reader = FileReader::of(&untouched);
    let files = PartialFiles::of(&reader);
    let Interpreted { settings, diagnostics, .. } = run(&files, place);
    // Missing contents cause other findings, such as keys without their password.
    match diagnostics.has_errors() && !files.lacks_some() {
        true => Err(ConfigError::of(&diagnostics)),
        false => Ok(settings),
    }
}

/// Reads a configuration from any source of texts.
///
/// # Errors
/// All problems found.
pub fn interpret(files: &dyn Files, place: &ConfigPath) -> Result<Loaded, ConfigError> {
    let loaded = interpret_with_plan(files, place).map(|(loaded, _)| loaded);
    // For a large configuration, the plan takes the most memory, and the master never needs it.
    nowait_sys::memory::give_back();
    loaded
}

/// The same for the process that puts the plan to use.
///
/// # Errors
/// All problems found.
pub fn interpret_with_plan(
    files: &dyn Files,
    place: &ConfigPath,
) -> Result<(Loaded, Plan), ConfigError> {
    let Interpreted { tree, settings, plan, needs, diagnostics } = run(files, place);
    if diagnostics.has_errors() {
        return Err(ConfigError::of(&diagnostics));
    }
    let warnings = lines(&diagnostics).into_iter().map(|line| line.text).collect();
    let (rendered, findings) = (rendered(&diagnostics), Findings::of(&diagnostics));
    let bundle = tree.files;
    Ok((Loaded { bundle, settings, needs, warnings, rendered, findings }, plan))
}

/// Every finding about a configuration, for callers that need only the findings.
#[cfg(feature = "migrate")]
pub fn findings(files: &dyn Files, place: &ConfigPath) -> Diagnostics {
    run(files, place).diagnostics
}

/// A valid configuration and its directives. Files that can be read only once are refused.
///
/// # Errors
/// All problems found.
#[cfg(feature = "explain")]
pub fn with_tree(place: &ConfigPath) -> Result<(Tree, MainSettings, Plan), ConfigError> {
    let files = WithoutFifos::of(&WithBuiltIn);
    let Interpreted { tree, settings, plan, diagnostics, .. } =
        run_with(&files, place, nowait_conf::parse);
    match diagnostics.has_errors() {
        true => Err(ConfigError::of(&diagnostics)),
        false => Ok((tree, settings, plan)),
    }
}

/// A configuration that may be invalid.
struct Interpreted {
    tree: Tree,
    settings: MainSettings,
    plan: Plan,
    needs: Needs,
    diagnostics: Diagnostics,
}

fn run(files: &dyn Files, place: &ConfigPath) -> Interpreted {
    run_with(files, place, parse_for_use)
}

/// The parser of the texts.
type Parse = fn(&dyn Files, &Path, Option<&str>) -> (Tree, Diagnostics);

fn run_with(files: &dyn Files, place: &ConfigPath, parse: Parse) -> Interpreted {
    let (mut tree, mut diagnostics) = parse(files, &place.conf_file, place.globals.as_deref());
    let registry = registry();
    let paths = Paths::new(&place.prefix, &place.conf_file);
    let mut cx = Cx::new(&registry, paths, &mut diagnostics).reading(files);
    service::prepare(&mut cx);
    let main = cx.run(&tree);
    let settings = conf_core::resolve(&mut cx, &main, place);
    let plan = Plan::of(&mut cx, &main, &settings);
    let needs = plan.needs();
    cx.give_named(&mut tree.files);
    drop(cx);
    if needs.listens.is_empty() && !diagnostics.has_errors() {
        let warning = Diagnostic::warn("no \"server\" listens: nothing will be served");
        diagnostics.push(warning.hint("http { server { listen 8080; root /srv/www; } }"));
    }
    Interpreted { tree, settings, plan, needs, diagnostics }
}

/// The findings with their source lines, in colours only if they go to a terminal.
fn rendered(diagnostics: &Diagnostics) -> String {
    diagnostics.render(std::io::IsTerminal::is_terminal(&std::io::stderr()))
}

fn lines(diagnostics: &Diagnostics) -> Vec<ReportLine> {
    let findings = diagnostics.iter().map(|found| (found.level(), diagnostics.classic(found)));
    let line = |(level, text)| ReportLine {
        level: match level {
            nowait_conf::Level::Notice => Level::Notice,
            nowait_conf::Level::Warn => Level::Warn,
            nowait_conf::Level::Error => Level::Error,
            nowait_conf::Level::Emerg => Level::Emerg,
        },
        text,
    };
    findings.chain(diagnostics.omissions()).map(line).collect()
}

/// The output of `-T`: every file once, each after a line with its name, as in nginx.
pub fn dump(bundle: &Bundle, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    for (path, text) in bundle.iter() {
        dump_file(path, text, out)?;
    }
    Ok(())
}

fn dump_file(path: &Path, text: &[u8], out: &mut dyn std::io::Write) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    out.write_all(b"# configuration file ")?;
    out.write_all(path.as_os_str().as_bytes())?;
    out.write_all(b":\n")?;
    out.write_all(text)?;
    out.write_all(b"\n")
}
