//! Tries the packages: installs, upgrades, removes and purges them in root directories of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::output;
use crate::workspace::{Outcome, find_program, root, succeed};

/// Tries what was made. `upgrade` is a package of a newer version.
pub(super) fn run(
    folder: &Path,
    version: &str,
    upgrade: Option<&Path>,
    has_image: bool,
) -> Outcome {
    unit()?;
    if let Some(upgrade) = upgrade {
        debian(folder, version, upgrade)?;
    }
    if has_image {
        image(folder)?;
    }
    println!("all trials passed");
    Ok(())
}

/// Highest exposure of the unit, as `systemd-analyze security` counts it.
const EXPOSURE_MAX: f32 = 3.0;

fn unit() -> Outcome {
    if find_program("systemd-analyze").is_none() {
        println!("skipped: systemd-analyze is missing, which judges the unit");
        return Ok(());
    }
    let unit = root().join("packaging/nowait.service");
    let text = output(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(unit),
    )?;
    let text = String::from_utf8_lossy(&text);
    let level =
        text.lines().find_map(|line| line.split_once("exposure level for")?.1.split_once(':'));
    let level = level.and_then(|(_, level)| level.split_whitespace().next()?.parse::<f32>().ok());
    match level {
        Some(level) if level <= EXPOSURE_MAX => Ok(()),
        other => Err(format!("exposure of the unit: {other:?}, allowed are {EXPOSURE_MAX}")),
    }
}

/// A script for each step is run inside a fresh Debian.
fn debian(folder: &Path, version: &str, upgrade: &Path) -> Outcome {
    let system = folder.join("debian");
    if !system.join("etc/debian_version").exists() {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--variant=minbase", "--include=adduser,curl,libgcc-s1"]);
        succeed(bootstrap.arg(name.unwrap_or("stable")).arg(&system))?;
    }
    let machine = upgrade.file_stem().and_then(|name| name.to_str()?.rsplit_once('_'));
    let machine = machine.map_or("amd64", |(_, machine)| machine);
    let first = folder.join(format!("nowait_{version}_{machine}.deb"));
    for (from, to) in [(&*first, "first.deb"), (upgrade, "second.deb")] {
        fs::copy(from, system.join(to)).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let script = root().join("packaging/debian/trial");
    fs::copy(&script, system.join("trial")).map_err(|error| error.to_string())?;
    // With namespaces of its own, nothing of it outlives the trial, and port 80 is free.
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]);
    inside.arg("--root").arg(&system).arg("/bin/sh").arg("/trial");
    succeed(&mut inside)
}

/// Starts the program of the image with a root file system that it can't write to, as an unprivileged user.
fn image(folder: &Path) -> Outcome {
    let tree = folder.join("image/root");
    let script = "set -e
        ip link set lo up 2>/dev/null || true
        mount --bind \"$1\" \"$1\"; mount -o remount,ro,bind \"$1\"; mount -t tmpfs tmpfs \"$1/tmp\"
        mount -t proc proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"
        chroot --userspec=65532:65532 \"$1\" /usr/sbin/nowait -g 'daemon off;' >/dev/null &
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            if chroot --userspec=65532:65532 \"$1\" /usr/sbin/nowait check-health http://127.0.0.1:8080/; then
                kill -QUIT $!; wait $!; exit 0
            fi
            sleep 0.5
        done
        exit 1";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--net", "--fork", "--kill-child"]);
    inside.args(["/bin/sh", "-c", script, "image"]).arg(&tree);
    succeed(&mut inside)
}
