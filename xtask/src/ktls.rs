//! `cargo xtask ktls`: the tests in `tests/ktls`, in a virtual machine whose kernel has TLS.

use crate::vm::Suite;

/// The tests, and what they need.
pub const SUITE: Suite<'_> = Suite {
    usage: USAGE,
    test: "ktls",
    programs: &[("curl", "curl"), ("openssl", "openssl")],
    modules: &["tls"],
    // The ciphers, which a running system loads by these names itself.
    modules_if_any: &[
        "crypto-gcm",
        "crypto-ctr",
        "crypto-ghash",
        "crypto-rfc7539",
        "crypto-chacha20",
        "crypto-poly1305",
    ],
    requires: "ktls,io_uring",
    minutes: 30,
};

const USAGE: &str = "usage: cargo xtask ktls [OPTIONS] [TEST]...

  TEST             part of the name of a test (default: all)
  --kernel DIR     a directory with boot/vmlinuz-VERSION and lib/modules/VERSION
                   (default: Debian's current kernel, fetched to target/vm)
  --accel NAME     what qemu runs the machine with: tcg (the default, an emulator), kvm (faster)
  --minutes N      switch the machine off after this time (default 30)

Needs these Debian packages: qemu-system-x86 busybox-static kmod e2fsprogs curl openssl. Where the
running kernel has its module loaded (modprobe tls), cargo test -p nowait --test ktls does without a
virtual machine.";
