//! The kernel of virtual machines: a directory with `boot` and `lib/modules`, unpacked from
//! Debian's package unless told otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{directory, read};
use crate::workspace::{find_program, require, succeed};

/// The package that depends on the current kernel.
const PACKAGE: &str = "linux-image-amd64";

/// A kernel with its modules.
pub struct Kernel {
    root: PathBuf,
    version: String,
}

impl Kernel {
    /// The newest kernel below `root`.
    pub fn at(root: &Path) -> Result<Kernel, String> {
        let modules = root.join("lib/modules");
        let entries = fs::read_dir(&modules).map_err(|e| format!("{}: {e}", modules.display()))?;
        let mut versions: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|version| root.join(format!("boot/vmlinuz-{version}")).is_file())
            .collect();
        versions.sort_by_key(|version| numbers(version));
        let missing = || format!("no kernel with modules in {}", root.display());
        let version = versions.pop().ok_or_else(missing)?;
        Ok(Kernel { root: root.to_owned(), version })
    }

    /// Debian's current kernel, fetched from the package sources of this machine the first time.
    /// Nothing is installed.
    pub fn of_debian() -> Result<Kernel, String> {
        let root = directory()?.join("kernel");
        if !root.exists() {
            fetch(&root).map_err(|error| {
                format!(
                    "{error}\nWithout access to Debian's packages, unpack one that contains a \
                     kernel with nfs, nfsd, 9p and overlay (dpkg-deb -x, then depmod -b) and pass \
                     the directory as --kernel DIR"
                )
            })?;
        }
        Kernel::at(&root)
    }

    /// The file to boot.
    pub fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.version))
    }

    /// The contents of modules, each after those that it needs. Those built into the kernel are
    /// left out.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let mut files: Vec<PathBuf> = Vec::new();
        for name in names {
            let modprobe = find_program("modprobe").ok_or("modprobe not found")?;
            let output = Command::new(modprobe)
                .arg("-d")
                .arg(&self.root)
                .args(["-S", &self.version, "--show-depends", name])
                .output()
                .map_err(|error| format!("modprobe: {error}"))?;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(format!("kernel {} without {name}: {error}", self.version));
            }
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let file = line.strip_prefix("insmod ").and_then(|line| line.split(' ').next());
                files.extend(file.map(PathBuf::from).filter(|file| !files.contains(file)));
            }
        }
        files.iter().map(|file| unpacked(file)).collect()
    }
}

/// Numbers in a version, in order, so that 6.10 is newer than 6.9.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// A module as the kernel loads it.
fn unpacked(file: &Path) -> Result<Vec<u8>, String> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read(file),
    };
    let output = Command::new(program).arg("-dc").arg(file).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} -dc {}: {}", file.display(), output.status));
    }
    Ok(output.stdout)
}

/// Unpacks the package with the current kernel to `root`.
fn fetch(root: &Path) -> Result<(), String> {
    require(&[("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod")])?;
    let package = package()?;
    println!("fetching {package}");
    let scratch = root.with_extension("new");
    let _ = fs::remove_dir_all(&scratch);
    let unpacked = scratch.join("root");
    fs::create_dir_all(&unpacked).map_err(|e| format!("{}: {e}", scratch.display()))?;
    succeed(Command::new("apt-get").args(["download", "-q", &package]).current_dir(&scratch))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let file = fs::read_dir(&scratch)
        .map_err(|e| format!("{}: {e}", scratch.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(is_package)
        .ok_or("apt-get downloaded nothing")?;
    succeed(Command::new("dpkg-deb").arg("-x").arg(file).arg(&unpacked))?;
    let kernel = Kernel::at(&unpacked)?;
    let depmod = find_program("depmod").ok_or("depmod not found")?;
    succeed(Command::new(depmod).arg("-b").arg(&unpacked).arg(&kernel.version))?;
    fs::rename(&unpacked, root).map_err(|e| format!("{}: {e}", root.display()))?;
    let _ = fs::remove_dir_all(&scratch);
    Ok(())
}

/// The name of the package with the current kernel.
fn package() -> Result<String, String> {
    let output = Command::new("apt-cache")
        .args(["depends", PACKAGE])
        .output()
        .map_err(|error| format!("apt-cache: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_owned))
        .filter(|name| name.starts_with("linux-image-"))
        .ok_or_else(|| format!("apt knows no {PACKAGE} (try apt-get update)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["6.1.0-9-amd64", "6.10.1-amd64", "6.1.0-44-amd64"];
        versions.sort_by_key(|version| numbers(version));
        assert_eq!(versions, ["6.1.0-9-amd64", "6.1.0-44-amd64", "6.10.1-amd64"]);
    }
}
