//! `cargo xtask nfs`: the tests in `tests/nfs`, in a virtual machine whose kernel has NFS.

use crate::vm::Suite;

/// The tests, and what they need: file systems and the link between their ends.
pub const SUITE: Suite<'_> = Suite {
    usage: USAGE,
    test: "nfs",
    programs: &[("ip", "iproute2"), ("unshare", "util-linux"), ("rpc.nfsd", "nfs-kernel-server")],
    modules: &["nfsd", "nfsv4", "veth"],
    modules_if_any: &[],
    requires: "nfs,io_uring",
    minutes: 60,
};

const USAGE: &str = "usage: cargo xtask nfs [OPTIONS] [TEST]...

  TEST             part of the name of a test (default: all)
  --kernel DIR     a directory with boot/vmlinuz-VERSION and lib/modules/VERSION
                   (default: Debian's current kernel, fetched to target/vm)
  --accel NAME     what qemu runs the machine with: tcg (the default, an emulator), kvm (faster)
  --minutes N      switch the machine off after this time (default 60)

Needs these Debian packages: qemu-system-x86 busybox-static kmod e2fsprogs iproute2
nfs-kernel-server. Where the running kernel has NFS (as root, with nfs-kernel-server),
cargo test -p nowait --test nfs does without a virtual machine.";
