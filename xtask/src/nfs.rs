//! `cargo xtask nfs`: the tests in `tests/nfs`, in a virtual machine whose kernel has NFS.

use std::path::PathBuf;

use crate::vm::{self, Kernel, Machine};
use crate::workspace::{Outcome, require, test_program};

const USAGE: &str = "usage: cargo xtask nfs [OPTIONS] [TEST]...

  TEST             part of the name of a test (default: all)
  --kernel DIR     a directory with boot/vmlinuz-VERSION and lib/modules/VERSION
                   (default: Debian's current kernel, fetched to target/vm)
  --accel NAME     what qemu runs the machine with: tcg (the default, an emulator), kvm (faster)
  --minutes N      switch the machine off after this time (default 60)

Needs these Debian packages: qemu-system-x86 busybox-static kmod e2fsprogs iproute2
nfs-kernel-server. Where the running kernel has NFS (as root, with nfs-kernel-server),
cargo test -p nowait --test nfs does without a virtual machine.";

/// Programs that the tests run, with their Debian packages.
const PROGRAMS: &[(&str, &str)] =
    &[("ip", "iproute2"), ("unshare", "util-linux"), ("rpc.nfsd", "nfs-kernel-server")];

/// File systems and the link between their ends.
const MODULES: &[&str] = &["nfsd", "nfsv4", "veth"];

const MINUTES: u32 = 60;

/// Tests that run at a time: as many as the machine has processors.
const THREADS: &str = "--test-threads=2";

/// Builds the tests here and runs them there.
pub fn run(args: &[String]) -> Outcome {
    let (mut minutes, mut kernel, mut accelerator) = (MINUTES, None, "tcg");
    let mut tests = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => {
                let number = args.next().and_then(|text| text.parse().ok());
                minutes = number.ok_or("--minutes needs a whole number")?;
            }
            "--kernel" => {
                kernel = Some(PathBuf::from(args.next().ok_or("--kernel needs a directory")?));
            }
            "--accel" => accelerator = args.next().ok_or("--accel needs a name")?,
            name if !name.starts_with('-') => tests.push(name),
            _ => return Err(USAGE.to_owned()),
        }
    }
    vm::check()?;
    require(PROGRAMS)?;
    let kernel = match kernel {
        Some(root) => Kernel::at(&root)?,
        None => Kernel::of_debian()?,
    };
    let program = test_program("nfs")?;
    let machine =
        Machine { kernel: &kernel, modules: MODULES, accelerator, seconds_max: minutes * 60 };
    let variables = [("NOWAIT_TESTS_REQUIRE", "nfs,io_uring"), ("RUST_TEST_NOCAPTURE", "1")];
    let command = [&[&program[..], THREADS], &tests[..]].concat();
    machine.run(&variables, &command)
}
