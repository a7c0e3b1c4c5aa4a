//! A virtual machine with Debian's kernel and the programs of this machine, for tests that need
//! what the running kernel lacks. Called by [`crate::nfs`] and [`crate::ktls`].
//!
//! The machine's root is this machine's file system with a layer in memory on top: every program is
//! there, and nothing written lasts. The machine has no network but loopback. It is emulated, which
//! makes it some ten times slower: it shows whether something works, never how fast.

mod initrd;
mod kernel;
mod suite;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use self::initrd::Initrd;
pub use self::kernel::Kernel;
pub use self::suite::Suite;
use crate::workspace::{Outcome, find_program, require, root};

/// Programs that a machine needs, with their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("mkfs.ext4", "e2fsprogs"),
    ("timeout", "coreutils"),
];

/// Modules of the root and of the local disk.
const MODULES: &[&str] =
    &["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_rng", "loop", "ext4"];

const MEMORY_MB: u32 = 2048;
const PROCESSORS: u32 = 2;

/// What the first process prints when the command has ended.
const EXIT: &str = "vm: exit status ";

/// A command and the machine that runs it.
pub struct VirtualMachine<'a> {
    pub kernel: &'a Kernel,
    /// Modules to load before the command runs, besides those that the machine needs itself.
    pub modules: &'a [&'a str],
    /// What qemu runs the machine with: `tcg`, its emulator, or `kvm`. Not a choice of this
    /// program: where virtual machines are nested, `kvm` may exist and fail.
    pub accelerator: &'a str,
    /// After this time the machine is switched off.
    pub seconds_max: u32,
}

/// Checks that this computer has what machines need.
///
/// # Errors
/// Names what is missing.
pub fn check() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err("virtual machines run on x86_64 only".to_owned());
    }
    require(PROGRAMS)
}

impl VirtualMachine<'_> {
    /// Runs a command in the root of the repository, with these environment variables, and copies
    /// its output to standard output.
    ///
    /// # Errors
    /// If it fails, or the machine does not come to its end.
    pub fn run(&self, variables: &[(&str, &str)], command: &[&str]) -> Outcome {
        let initrd = Scratch::write("initrd", &self.initrd(variables, command)?)?;
        let mut machine = self.start(&initrd.0)?;
        let status = print_output(&mut machine)?;
        let ended = machine.wait().map_err(|error| format!("qemu: {error}"))?;
        match status {
            Some(0) => Ok(()),
            Some(status) => Err(format!("{} failed with status {status}", command[0])),
            // timeout(1).
            None if ended.code() == Some(124) => {
                Err(format!("the virtual machine was still at work after {} s", self.seconds_max))
            }
            None => Err(format!("the virtual machine ended early ({ended}); see above")),
        }
    }

    fn initrd(&self, variables: &[(&str, &str)], command: &[&str]) -> Result<Vec<u8>, String> {
        let busybox = find_program("busybox").ok_or("busybox not found")?;
        let busybox = read(&busybox)?;
        if busybox.windows(9).any(|window| window == b"/ld-linux") {
            return Err("busybox must be static (Debian: busybox-static)".to_owned());
        }
        let mut initrd = Initrd::new();
        initrd.directory("bin");
        initrd.program("bin/busybox", &busybox);
        initrd.program("init", include_bytes!("init.sh"));
        initrd.program("command", script(variables, command).as_bytes());
        initrd.directory("modules");
        let modules: Vec<_> = MODULES.iter().chain(self.modules).copied().collect();
        for (n, module) in self.kernel.modules(&modules)?.iter().enumerate() {
            initrd.program(&format!("modules/{n:03}"), module);
        }
        Ok(initrd.finish())
    }

    fn start(&self, initrd: &Path) -> Result<Child, String> {
        let share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", &self.seconds_max.to_string(), "qemu-system-x86_64"])
            .args(["-accel", self.accelerator, "-cpu", "max"])
            .args(["-smp", &PROCESSORS.to_string(), "-m", &MEMORY_MB.to_string()])
            .arg("-kernel")
            .arg(self.kernel.image())
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1"])
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"])
            .args(["-nic", "none", "-device", "virtio-rng-pci", "-virtfs", share])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.spawn().map_err(|error| format!("{command:?}: {error}"))
    }
}

/// The command as a script, which must quote it for the shell.
fn script(variables: &[(&str, &str)], command: &[&str]) -> String {
    let quote = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let mut text = format!("cd {} || exit 1\n", quote(&root().display().to_string()));
    text.push_str("export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run\n");
    for (name, value) in variables {
        text.push_str(&format!("export {name}={}\n", quote(value)));
    }
    let words: Vec<_> = command.iter().map(|word| quote(word)).collect();
    text + "exec " + &words.join(" ") + "\n"
}

/// Copies the machine's console to standard output; the exit status of its command, if it came to
/// that.
fn print_output(machine: &mut Child) -> Result<Option<i32>, String> {
    let console = BufReader::new(machine.stdout.take().ok_or("the console is not connected")?);
    let mut status = None;
    for line in console.split(b'\n') {
        let line = line.map_err(|error| format!("the console: {error}"))?;
        let line = String::from_utf8_lossy(&line).replace('\r', "");
        match line.strip_prefix(EXIT) {
            Some(number) => status = number.trim().parse().ok(),
            // A closed standard output must not end the machine.
            None => _ = writeln!(std::io::stdout(), "{line}"),
        }
    }
    Ok(status)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where kernels and other files of machines are.
fn directory() -> Result<PathBuf, String> {
    let path = root().join("target/vm");
    fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// A file that lives as long as its value.
struct Scratch(PathBuf);

impl Scratch {
    fn write(name: &str, content: &[u8]) -> Result<Scratch, String> {
        let path = directory()?.join(format!("{name}-{}", std::process::id()));
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let text = script(&[("A", "b c")], &["it's", "$x"]);
        assert!(text.contains("export A='b c'\n"), "{text}");
        assert!(text.ends_with("exec 'it'\\''s' '$x'\n"), "{text}");
    }
}
