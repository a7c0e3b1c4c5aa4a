//! Tries the packages: installs, upgrades, removes and purges them in root directories of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{Outcome, find_program, output, root, succeed};

/// Tries what was made. `packages` are of Debian and of RPM, each with one of a newer
/// version; `of_image` is the file with the image.
pub(super) fn run(
    folder: &Path,
    packages: [Option<[PathBuf; 2]>; 2],
    of_image: Option<&Path>,
) -> Outcome {
    unit()?;
    let [deb, rpm] = packages;
    if let Some(packages) = deb {
        debian(folder, &packages)?;
    }
    if let Some(packages) = rpm {
        red_hat(folder, &packages)?;
    }
    if let Some(made) = of_image {
        image(folder, made)?;
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

/// A fresh Debian, made once.
fn system(folder: &Path) -> Result<PathBuf, String> {
    let system = folder.join("debian");
    // One without this was not finished, or made by an older version.
    if !system.join("usr/sbin/logrotate").exists() {
        if system.exists() {
            fs::remove_dir_all(&system).map_err(|error| error.to_string())?;
        }
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--variant=minbase", "--include=adduser,curl,libgcc-s1,logrotate"]);
        succeed(bootstrap.arg(name.unwrap_or("stable")).arg(&system))?;
    }
    Ok(system)
}

/// A command with namespaces of its own: nothing of it outlives the trial, and port 80 is free.
fn apart() -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]);
    inside
}

/// A script for each step is run inside a fresh Debian.
fn debian(folder: &Path, packages: &[PathBuf; 2]) -> Outcome {
    let system = system(folder)?;
    for (from, to) in packages.iter().zip(["first.deb", "second.deb"]) {
        fs::copy(from, system.join(to)).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let script = root().join("packaging/debian/trial");
    fs::copy(&script, system.join("trial")).map_err(|error| error.to_string())?;
    succeed(apart().arg("--root").arg(&system).args(["/bin/sh", "/trial"]))
}

/// The tool installs into the root of another system, where the scripts of the package run.
fn red_hat(folder: &Path, packages: &[PathBuf; 2]) -> Outcome {
    let system = system(folder)?;
    let script = root().join("packaging/rpm/trial");
    succeed(apart().arg("/bin/sh").arg(script).arg(system).args(packages))
}

/// Starts the program of the image with a root file system that it can't write to, as an unprivileged user.
fn image(folder: &Path, made: &Path) -> Outcome {
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
    succeed(&mut inside)?;
    loaded(folder, made)
}

/// What podman understands of the image. It is not started: that needs more of the machine.
fn loaded(folder: &Path, made: &Path) -> Outcome {
    if find_program("podman").is_none() {
        println!("skipped: podman is missing, which loads the image");
        return Ok(());
    }
    let store = TempStore(folder.join("podman"));
    let podman = || {
        let mut command = Command::new("podman");
        command.args(["--storage-driver", "vfs", "--root"]).arg(store.0.join("root"));
        command.arg("--runroot").arg(store.0.join("run"));
        command
    };
    output(podman().args(["load", "--quiet", "--input"]).arg(made))?;
    let names = output(podman().args(["images", "--format", "{{.Repository}}:{{.Tag}}"]))?;
    let name = String::from_utf8_lossy(&names).trim().to_owned();
    let format = "{{.HealthCheck.Test}} {{.Config.StopSignal}} {{.User}}";
    let said = output(podman().args(["image", "inspect", &name, "--format", format]))?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match said.as_str() {
        "[CMD /usr/sbin/nowait check-health] SIGQUIT 65532:65532" => Ok(()),
        other => Err(format!("podman says of the image: {other}")),
    }
}

/// A directory that does not outlive the trial.
struct TempStore(PathBuf);

impl Drop for TempStore {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
