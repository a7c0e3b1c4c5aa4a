//! The files of the packages, as they are installed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Machine;
use crate::workspace::{output, root};

/// The trees that packages are made of.
pub(super) struct Stage {
    /// Where the packages go.
    pub(super) folder: PathBuf,
    /// What is installed.
    pub(super) root: PathBuf,
    /// Debug symbols.
    pub(super) debug: PathBuf,
}

/// Files from the repository: source, destination, mode.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/nowait.conf", "etc/nowait/nowait.conf", 0o644),
    ("conf/mime.types", "etc/nowait/mime.types", 0o644),
    ("conf/prometheus_all.conf", "etc/nowait/prometheus_all.conf", 0o644),
    ("conf/fastcgi.conf", "etc/nowait/fastcgi.conf", 0o644),
    ("conf/fastcgi_params", "etc/nowait/fastcgi_params", 0o644),
    ("conf/scgi_params", "etc/nowait/scgi_params", 0o644),
    ("conf/uwsgi_params", "etc/nowait/uwsgi_params", 0o644),
    ("packaging/site/default", "etc/nowait/sites-available/default", 0o644),
    ("packaging/site/index.html", "usr/share/nowait/html/index.html", 0o644),
    (
        "packaging/monitoring/nowait-rules.yml",
        "usr/share/nowait/monitoring/nowait-rules.yml",
        0o644,
    ),
    (
        "packaging/monitoring/nowait-dashboard.json",
        "usr/share/nowait/monitoring/nowait-dashboard.json",
        0o644,
    ),
    ("packaging/logrotate", "etc/logrotate.d/nowait", 0o644),
    ("packaging/apparmor", "etc/apparmor.d/usr.sbin.nowait", 0o644),
    ("packaging/nowait.service", "usr/lib/systemd/system/nowait.service", 0o644),
    ("packaging/sysusers.conf", "usr/lib/sysusers.d/nowait.conf", 0o644),
    ("packaging/tmpfiles.conf", "usr/lib/tmpfiles.d/nowait.conf", 0o644),
    ("packaging/upgrade", "usr/lib/nowait/upgrade", 0o755),
    ("LICENSE", "usr/share/doc/nowait/copyright", 0o644),
    ("CHANGES.md", "usr/share/doc/nowait/CHANGES.md", 0o644),
];

/// Directories from the repository whose files are installed, at any depth: source, destination.
const TREES: &[(&str, &str)] =
    &[("docs", "usr/share/doc/nowait/docs"), ("examples", "usr/share/doc/nowait/examples")];

/// Texts that the program prints: name, destination, whether compressed.
const TEXTS: &[(&str, &str, bool)] = &[
    ("nowait.8", "usr/share/man/man8/nowait.8.gz", true),
    ("nowait.conf.5", "usr/share/man/man5/nowait.conf.5.gz", true),
    ("bash", "usr/share/bash-completion/completions/nowait", false),
    ("zsh", "usr/share/zsh/vendor-completions/_nowait", false),
    ("fish", "usr/share/fish/vendor_completions.d/nowait.fish", false),
];

/// Directories that are installed empty.
const DIRECTORIES: &[&str] = &["etc/nowait/conf.d", "etc/nowait/sites-enabled"];

impl Stage {
    /// Lays the files out again.
    pub(super) fn new(folder: &Path, program: &Path, machine: &Machine) -> Result<Stage, String> {
        let stage = Stage {
            folder: folder.to_owned(),
            root: folder.join("stage/root"),
            debug: folder.join("stage/debug"),
        };
        if folder.join("stage").exists() {
            fs::remove_dir_all(folder.join("stage")).map_err(|error| error.to_string())?;
        }
        for (from, to, mode) in FILES {
            let text = fs::read(root().join(from)).map_err(|error| format!("{from}: {error}"))?;
            write(&stage.root.join(to), &text, *mode)?;
        }
        for (from, to) in TREES {
            copy_tree(&root().join(from), &stage.root.join(to))?;
        }
        for name in DIRECTORIES {
            directory(&stage.root.join(name))?;
        }
        for (name, to, is_compressed) in TEXTS {
            let text = output(machine.command(program).args(["generate", name]))?;
            let path = stage.root.join(to.trim_end_matches(".gz"));
            write(&path, &text, 0o644)?;
            if *is_compressed {
                // -n: without the time, so that the same input makes the same package.
                output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&path))?;
            }
        }
        // Where debuggers look for what the program's link names (gdb, "Separate Debug Files").
        let symbols = stage.debug.join("usr/lib/debug/usr/sbin/nowait.debug");
        split(program, machine, &stage.root.join("usr/sbin/nowait"), &symbols)?;
        Ok(stage)
    }

    /// The names of the files below `etc`, as Debian's `conffiles` has them.
    pub(super) fn conffiles(&self) -> Result<String, String> {
        let names = FILES.iter().map(|(_, to, _)| to).filter(|to| to.starts_with("etc/"));
        Ok(names.map(|name| format!("/{name}\n")).collect())
    }

    /// Debian's packages of the libraries that the program needs.
    pub(super) fn libraries_as_packages(&self, machine: &Machine) -> Result<String, String> {
        let program = self.root.join("usr/sbin/nowait");
        let needed = needed(&program, machine)?;
        let version = newest_symbol(&program, machine)?;
        let mut packages = vec![format!("libc6 (>= {version})")];
        if needed.iter().any(|name| name.starts_with("libgcc_s")) {
            packages.push("libgcc-s1".to_owned());
        }
        let known = ["libc.", "libm.", "ld-linux", "libgcc_s", "libpthread", "libdl"];
        match needed.iter().find(|name| !known.iter().any(|known| name.starts_with(known))) {
            Some(other) => Err(format!("the program needs {other}: which package is that in?")),
            None => Ok(packages.join(", ")),
        }
    }
}

/// Writes the program without its symbols, and its symbols, each to a file of its own.
pub(crate) fn split(
    program: &Path,
    machine: &Machine,
    stripped: &Path,
    symbols: &Path,
) -> Result<(), String> {
    let objcopy = format!("{}objcopy", machine.tools);
    for path in [stripped, symbols] {
        directory(path.parent().unwrap_or(path))?;
    }
    output(Command::new(&objcopy).args(["--only-keep-debug"]).arg(program).arg(symbols))?;
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    output(Command::new(&objcopy).args(["--strip-all", &link]).arg(program).arg(stripped))?;
    set_mode(symbols, 0o644)?;
    set_mode(stripped, 0o755)
}

fn readelf(machine: &Machine, option: &str, program: &Path) -> Result<String, String> {
    let tool = format!("{}readelf", machine.tools);
    let text = output(Command::new(tool).args(["-W", option]).arg(program))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The shared libraries that a program names.
pub(super) fn needed(program: &Path, machine: &Machine) -> Result<Vec<String>, String> {
    let text = readelf(machine, "-d", program)?;
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    Ok(lines.filter_map(name).collect())
}

/// The newest version of the C library that a program asks for: `2.34`.
fn newest_symbol(program: &Path, machine: &Machine) -> Result<String, String> {
    let text = readelf(machine, "-V", program)?;
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let numbers = rest[..end].split('.').map(|number| number.parse::<u32>().ok());
        numbers.collect::<Option<Vec<_>>>()
    });
    let newest = versions.max().ok_or("the program names no version of the C library")?;
    Ok(newest.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
}

pub(super) fn directory(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn write(path: &Path, text: &[u8], mode: u32) -> Result<(), String> {
    directory(path.parent().unwrap_or(path))?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    set_mode(path, mode)
}

pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))? {
        let path = entry.map_err(|error| format!("{}: {error}", from.display()))?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_tree(&path, &to)?;
        } else {
            let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            write(&to, &text, 0o644)?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Space that a tree takes, for `Installed-Size`.
pub(super) fn kilobytes(tree: &Path) -> Result<u64, String> {
    let text = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    let text = String::from_utf8_lossy(&text);
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("du printed {text:?}"))
}
