//! `cargo xtask package`: the program as Debian and RPM packages and as an OCI image, in
//! `target/package`. What is installed, apart from the program and the texts that it prints itself, is in
//! `packaging/` and `conf/`.
//!
//! The formats are made by their own tools (`dpkg-deb`, `rpmbuild`, `tar`).

mod image;
pub(crate) mod stage;
mod trial;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::stage::Stage;
pub(crate) use self::stage::split;
use crate::workspace::{Outcome, build_shipped, output, require, root};

const USAGE: &str = "usage: cargo xtask package [deb] [rpm] [image] [--target TRIPLE] [--version V]
                           [--program FILE] [--test]

  deb, rpm, image   what to make (default: all)
  --target TRIPLE   for another processor, such as aarch64-unknown-linux-gnu
  --version V       version of the packages (default: that of the workspace)
  --program FILE    the program to package (default: it is built with the profile \"dist\")
  --test            install, upgrade, remove and purge the packages in directories of their own;
                    needs root and mmdebstrap";

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Deb,
    Rpm,
    Image,
}

struct Options {
    formats: Vec<Format>,
    target: Option<String>,
    version: String,
    program: Option<PathBuf>,
    test: bool,
}

/// Makes the packages.
pub fn run(args: &[String]) -> Outcome {
    let options = parse(args)?;
    let wants = |format| options.formats.contains(&format);
    let mut programs = vec![("objcopy", "binutils"), ("gzip", "gzip")];
    if wants(Format::Deb) {
        programs.push(("dpkg-deb", "dpkg"));
    }
    if wants(Format::Rpm) {
        programs.push(("rpmbuild", "rpm"));
    }
    if options.test {
        programs.push(("mmdebstrap", "mmdebstrap"));
    }
    require(&programs)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build_shipped(options.target.as_deref())?,
    };
    let folder = root().join("target/package");
    let machine = Machine::of(options.target.as_deref())?;
    let stage = Stage::new(&folder, &program, &machine)?;
    let mut made = Vec::new();
    for format in &options.formats {
        made.push(match format {
            Format::Deb => deb(&stage, &machine, &options.version)?,
            Format::Rpm => rpm(&stage, &machine, &options.version)?,
            Format::Image => image::make(&stage, &machine, &options.version)?,
        });
    }
    for path in &made {
        println!("wrote {}", path.strip_prefix(root()).unwrap_or(path).display());
    }
    if options.test {
        // Of each kind, the package and one to upgrade to.
        let newer = format!("{}+1", options.version);
        type Make = fn(&Stage, &Machine, &str) -> Result<PathBuf, String>;
        let pair = |format: Format, make: Make| -> Result<Option<[PathBuf; 2]>, String> {
            match options.formats.iter().position(|wanted| *wanted == format) {
                Some(n) => Ok(Some([made[n].clone(), make(&stage, &machine, &newer)?])),
                None => Ok(None),
            }
        };
        let pairs = [pair(Format::Deb, deb)?, pair(Format::Rpm, rpm)?];
        let position = options.formats.iter().position(|format| *format == Format::Image);
        trial::run(&folder, pairs, position.map(|n| made[n].as_path()))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, String> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut options =
        Options { formats: Vec::new(), target: None, version, program: None, test: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "deb" => options.formats.push(Format::Deb),
            "rpm" => options.formats.push(Format::Rpm),
            "image" => options.formats.push(Format::Image),
            "--test" => options.test = true,
            "--target" => {
                options.target = Some(args.next().ok_or("--target takes a triple")?.clone());
            }
            "--version" => {
                options.version = args.next().ok_or("--version takes a version")?.clone();
            }
            "--program" => {
                options.program = Some(args.next().ok_or("--program takes a file")?.into());
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    if options.formats.is_empty() {
        options.formats = vec![Format::Deb, Format::Rpm, Format::Image];
    }
    Ok(options)
}

/// A processor, by the names that the formats and tools have for it.
pub(crate) struct Machine {
    /// Debian's name, which OCI uses, too.
    deb: &'static str,
    rpm: &'static str,
    /// What precedes the names of binutils.
    tools: &'static str,
    /// How its programs run here: an emulator, if need be.
    emulator: Option<&'static str>,
}

impl Machine {
    pub(crate) fn of(target: Option<&str>) -> Result<Machine, String> {
        let name = target.map_or(std::env::consts::ARCH, |t| t.split('-').next().unwrap_or(t));
        let is_native = name == std::env::consts::ARCH;
        match name {
            "x86_64" => Ok(Machine {
                deb: "amd64",
                rpm: "x86_64",
                tools: if is_native { "" } else { "x86_64-linux-gnu-" },
                emulator: (!is_native).then_some("qemu-x86_64-static"),
            }),
            "aarch64" => Ok(Machine {
                deb: "arm64",
                rpm: "aarch64",
                tools: if is_native { "" } else { "aarch64-linux-gnu-" },
                emulator: (!is_native).then_some("qemu-aarch64-static"),
            }),
            other => Err(format!("there are no packages for {other}: only for x86_64 and aarch64")),
        }
    }

    /// A command that runs a program of this processor.
    pub(crate) fn command(&self, program: &Path) -> Command {
        match self.emulator {
            None => Command::new(program),
            Some(emulator) => {
                let mut command = Command::new(emulator);
                command.args(["-L", &format!("/usr/{}", self.tools.trim_end_matches('-'))]);
                command.arg(program);
                command
            }
        }
    }
}

/// Reads a template and fills in `@NAME@`.
fn fill(template: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let path = root().join("packaging").join(template);
    let mut text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    Ok(text)
}

fn deb(stage: &Stage, machine: &Machine, version: &str) -> Result<PathBuf, String> {
    let depends = stage.libraries_as_packages(machine)?;
    let packages = [
        ("nowait", "debian/control", &stage.root, true),
        ("nowait-dbgsym", "debian/dbgsym.control", &stage.debug, false),
    ];
    let mut made = PathBuf::new();
    for (name, control, tree, has_scripts) in packages.into_iter().rev() {
        let size = stage::kilobytes(tree)?.to_string();
        let values =
            [("VERSION", version), ("ARCH", machine.deb), ("SIZE", &size), ("DEPENDS", &depends)];
        let meta = tree.join("DEBIAN");
        stage::directory(&meta)?;
        stage::write(&meta.join("control"), fill(control, &values)?.as_bytes(), 0o644)?;
        if has_scripts {
            for script in ["postinst", "prerm", "postrm"] {
                let text = fill(&format!("debian/{script}"), &[])?;
                stage::write(&meta.join(script), text.as_bytes(), 0o755)?;
            }
            stage::write(&meta.join("conffiles"), stage.conffiles()?.as_bytes(), 0o644)?;
        }
        made = stage.folder.join(format!("{name}_{version}_{}.deb", machine.deb));
        output(
            Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(tree).arg(&made),
        )?;
        std::fs::remove_dir_all(&meta).map_err(|error| format!("{}: {error}", meta.display()))?;
    }
    Ok(made)
}

fn rpm(stage: &Stage, machine: &Machine, version: &str) -> Result<PathBuf, String> {
    let values = [
        ("VERSION", version),
        ("STAGE", &stage.root.display().to_string()),
        ("DEBUG", &stage.debug.display().to_string()),
    ];
    let spec = stage.folder.join("nowait.spec");
    stage::write(&spec, fill("rpm/nowait.spec", &values)?.as_bytes(), 0o644)?;
    let top = stage.folder.join("rpmbuild");
    output(
        Command::new("rpmbuild")
            .args(["-bb", "--target", machine.rpm, "--define"])
            .arg(format!("_topdir {}", top.display()))
            .args(["--define", "_build_id_links none"])
            .arg(&spec),
    )?;
    let name = |package: &str| format!("{package}-{version}-1.{}.rpm", machine.rpm);
    for package in ["nowait-debuginfo", "nowait"] {
        let from = top.join("RPMS").join(machine.rpm).join(name(package));
        std::fs::rename(&from, stage.folder.join(name(package)))
            .map_err(|error| format!("{}: {error}", from.display()))?;
    }
    Ok(stage.folder.join(name("nowait")))
}
