//! `cargo xtask dist`: the files of a release, in `target/dist-files`: for each processor an archive with the
//! program, its texts and licences, one with its debug symbols, and a bill of materials; and checksums of all.
//!
//! The same commit and tools make the same archives: times are those of the commit.

mod libraries;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::libraries::Libraries;
use self::sbom::Subject;
use crate::package::{Machine, split, stage};
use crate::workspace::{Outcome, build_shipped, output, require, root};

const USAGE: &str = "usage: cargo xtask dist [--target TRIPLE]... [--program FILE]

  --target TRIPLE   what for (default: x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu)
  --program FILE    the program (default: it is built); for one target";

const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Where the files go.
const FOLDER: &str = "target/dist-files";

/// Files from the repository, and their places in the archive.
const FILES: &[(&str, &str)] = &[
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGES.md", "CHANGES.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("packaging/nowait.service", "systemd/nowait.service"),
];

/// Trees from the repository, which have the same place in the archive.
const TREES: [&str; 3] = ["conf", "docs", "examples"];

/// Texts that the program prints, and their places.
const TEXTS: &[(&str, &str)] = &[
    ("nowait.8", "man/man8/nowait.8"),
    ("nowait.conf.5", "man/man5/nowait.conf.5"),
    ("bash", "completions/nowait.bash"),
    ("zsh", "completions/_nowait"),
    ("fish", "completions/nowait.fish"),
];

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes the files.
pub fn run(args: &[String]) -> Outcome {
    let (targets, program) = parse(args)?;
    require(&[("objcopy", "binutils"), ("tar", "tar"), ("gzip", "gzip"), ("git", "git")])?;
    let notes = format!("docs/releases/{VERSION}.md");
    if !root().join(&notes).is_file() {
        return Err(format!("the release has no notes: {notes}"));
    }
    let folder = root().join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{FOLDER}: {error}"))?;
    }
    let mut names = Vec::new();
    for target in targets {
        let program = match &program {
            Some(program) => program.clone(),
            None => build_shipped(Some(&target))?,
        };
        names.extend(release(&folder, &target, &program)?);
    }
    let sums = output(Command::new("sha256sum").args(&names).current_dir(&folder))?;
    stage::write(&folder.join("SHA256SUMS"), &sums, 0o644)?;
    print!("{}", String::from_utf8_lossy(&sums));
    println!("wrote {} files and SHA256SUMS to {FOLDER}", names.len());
    Ok(())
}

fn parse(args: &[String]) -> Result<(Vec<String>, Option<PathBuf>), String> {
    let (mut targets, mut program) = (Vec::new(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--target", Some(target)) => targets.push(target.clone()),
            ("--program", Some(path)) => program = Some(path.into()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.map(str::to_owned).to_vec();
    }
    if program.is_some() && targets.len() != 1 {
        return Err("--program is for one --target".to_owned());
    }
    Ok((targets, program))
}

/// Makes the files for one target; returns their names.
fn release(folder: &Path, target: &str, program: &Path) -> Result<[String; 3], String> {
    let machine = Machine::of(Some(target))?;
    let name = format!("nowait-{VERSION}-{target}");
    let tree = folder.join(&name);
    for (from, to) in FILES {
        let text = fs::read(root().join(from)).map_err(|error| format!("{from}: {error}"))?;
        stage::write(&tree.join(to), &text, 0o644)?;
    }
    for part in TREES {
        stage::copy_tree(&root().join(part), &tree.join(part))?;
    }
    for (text, to) in TEXTS {
        let text = output(machine.command(program).args(["generate", text]))?;
        stage::write(&tree.join(to), &text, 0o644)?;
    }
    let libraries = Libraries::of(target)?;
    let notices = libraries::notices(&libraries.all)?;
    stage::write(&tree.join("LICENSES-OF-LIBRARIES"), notices.as_bytes(), 0o644)?;
    let symbols = folder.join(format!("{name}-debug/nowait.debug"));
    split(program, &machine, &tree.join("nowait"), &symbols)?;

    let digest = output(Command::new("sha256sum").arg(tree.join("nowait")))?;
    let digest = String::from_utf8_lossy(&digest);
    let rust = output(Command::new(compiler()).arg("-V"))?;
    let rust = String::from_utf8_lossy(&rust);
    let subject = Subject {
        version: VERSION,
        target,
        digest: digest.split(' ').next().unwrap_or_default(),
        time: &committed("--date=format-local:%Y-%m-%dT%H:%M:%SZ")?,
        rust: rust.split(' ').nth(1).unwrap_or_default(),
    };
    let bill = format!("{name}.cdx.json");
    stage::write(&folder.join(&bill), sbom::bill(&subject, &libraries).as_bytes(), 0o644)?;
    let archive = pack(folder, &name)?;
    let debug = pack(folder, &format!("{name}-debug"))?;
    Ok([archive, debug, bill])
}

fn compiler() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// When the source was committed, by one of git's formats of dates, in UTC.
fn committed(format: &str) -> Result<String, String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%cd", format]).env("TZ", "UTC").current_dir(root());
    Ok(String::from_utf8_lossy(&output(&mut git)?).trim().to_owned())
}

/// Turns a folder into an archive, in which it is root's; returns the archive's name.
fn pack(folder: &Path, name: &str) -> Result<String, String> {
    let archive = format!("{name}.tar.gz");
    let time = committed("--date=unix")?;
    output(
        Command::new("tar")
            .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args([&format!("--mtime=@{time}"), "--use-compress-program=gzip -9n", "--file"])
            .args([&archive, name])
            .current_dir(folder),
    )?;
    fs::remove_dir_all(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    Ok(archive)
}
