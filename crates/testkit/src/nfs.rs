//! A hard NFS mount whose server can be cut off.
//!
//! The NFS server runs in network and mount namespaces of its own. The calling thread moves into
//! others, connected to them by one link: the mount is seen by this thread and its children only,
//! and no address, export or mount of the machine is touched. [`NfsMount::freeze`] pulls the plug
//! on the server's side: requests are lost without an error, as if the server hung or its switch
//! were off. A hard mount waits until it is back.
//!
//! The kernel releases everything with the last process: a killed test leaves nothing behind.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};

use crate::skip::skip_rare;
use crate::slow_disk::mounts::{find_program, may_mount, supports};
use crate::temp::{TempDir, write_below};
use crate::wait::{PATIENCE, try_until, until};

/// Programs that set it up, with their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("rpc.nfsd", "nfs-kernel-server"),
    ("rpc.mountd", "nfs-kernel-server"),
    ("exportfs", "nfs-kernel-server"),
];

/// Both ends of the link (RFC 5737: addresses for documentation).
const CLIENT: &str = "192.0.2.1";
const SERVER: &str = "192.0.2.2";

/// Threads of the NFS server.
const THREADS: u32 = 4;

/// The client gives up a connection without an acknowledgement after `timeo` × (`retrans` + 1)
/// tenths of a second and reconnects. A hard mount goes on forever all the same; this only
/// bounds how long a recovery takes.
const OPTIONS: &str = "vers=4.2,hard,timeo=50,retrans=2";

/// Runs in the server's namespaces: announces itself, waits for the link, serves `$0` to `$1` at
/// `$2` with `$3` threads, then obeys commands until its standard input ends.
const SCRIPT: &str = r#"
    set -e
    echo ready; read -r go
    ip link set lo up
    ip addr add "$2/30" dev nfs0
    ip link set nfs0 up
    mount -t tmpfs tmpfs /var/lib/nfs
    mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    mount -t nfsd nfsd /proc/fs/nfsd
    # The shortest lease bounds how long the client waits between its attempts to connect.
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    exportfs -o rw,fsid=0,no_root_squash,insecure,no_subtree_check "$1:$0"
    rpc.mountd -N 3 -F >&2 &
    trap "rpc.nfsd 0; kill $!" EXIT
    rpc.nfsd -N 3 -V 4.2 --no-udp "$3"
    # No client has state to reclaim.
    echo Y >/proc/fs/nfsd/v4_end_grace || true
    echo ready
    while read -r command; do
        case $command in
            freeze) ip link set nfs0 down ;;
            thaw) ip link set nfs0 up ;;
        esac
        echo ready
    done"#;

/// A mounted export.
pub struct NfsMount {
    dir: TempDir,
    child: Child,
    /// `None` when the server has been told to end.
    commands: Option<ChildStdin>,
    replies: Receiver<String>,
}

impl NfsMount {
    /// Mounts one, and moves the calling thread into new namespaces; returns nothing and reports
    /// the reason where the machine lacks a requirement.
    ///
    /// # Panics
    /// If the machine meets all requirements and something fails nevertheless.
    #[track_caller]
    pub fn or_skip() -> Option<NfsMount> {
        match missing() {
            Some(missing) => {
                skip_rare("nfs", &missing);
                None
            }
            None => Some(NfsMount::mount()),
        }
    }

    #[track_caller]
    fn mount() -> NfsMount {
        isolate();
        let dir = TempDir::new("nfs");
        let (exported, mounted) = (dir.path().join("exported"), dir.path().join("mounted"));
        for path in [&exported, &mounted] {
            fs::create_dir(path).unwrap_or_else(|e| panic!("mkdir {}: {e}", path.display()));
        }
        // Not every file system can be exported; this one can.
        mount("tmpfs", &exported, "tmpfs", MountFlags::empty(), None)
            .unwrap_or_else(|e| panic!("mount a tmpfs: {e}"));
        let stderr = File::create(dir.path().join("stderr")).expect("the directory is new");
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "/bin/sh", "-c", SCRIPT])
            .arg(&exported)
            .args([CLIENT, SERVER, &THREADS.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|e| panic!("unshare: {e}"));
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            // Ends with the process or with the receiver.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let commands = child.stdin.take();
        let mut nfs = NfsMount { dir, child, commands, replies };
        nfs.wait_ready("the namespaces");
        let pid = nfs.child.id().to_string();
        nfs.run("ip", &["link", "set", "lo", "up"]);
        let link = ["link", "add", "nfs0", "type", "veth", "peer", "name", "nfs0", "netns", &pid];
        nfs.run("ip", &link);
        nfs.run("ip", &["addr", "add", &format!("{CLIENT}/30"), "dev", "nfs0"]);
        nfs.run("ip", &["link", "set", "nfs0", "up"]);
        nfs.command("start");
        let options = format!("{OPTIONS},addr={SERVER},clientaddr={CLIENT}");
        let target = mounted.display().to_string();
        // -i: the kernel needs no helper if it is told both addresses.
        nfs.run("mount", &["-i", "-t", "nfs4", "-o", &options, &format!("{SERVER}:/"), &target]);
        nfs
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// The exported directory: what the NFS server serves, without the client's cache.
    pub fn exported(&self) -> PathBuf {
        self.dir.path().join("exported")
    }

    /// Writes a file on the server, so that the client has nothing of it in memory.
    #[track_caller]
    pub fn write_cold(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_below(&self.exported(), relative, content.as_ref())
    }

    /// From now on the server receives nothing and sends nothing.
    #[track_caller]
    pub fn freeze(&mut self) {
        self.command("freeze");
    }

    /// Connects the server again. The client notices in its own time.
    #[track_caller]
    pub fn thaw(&mut self) {
        self.command("thaw");
    }

    #[track_caller]
    fn command(&mut self, command: &str) {
        let sent = self.commands.as_mut().map(|stdin| writeln!(stdin, "{command}"));
        assert!(matches!(sent, Some(Ok(()))), "{command}: {sent:?}\n{}", self.stderr());
        self.wait_ready(command);
    }

    #[track_caller]
    fn wait_ready(&self, what: &str) {
        let reply = self.replies.recv_timeout(PATIENCE);
        assert!(reply.as_deref() == Ok("ready"), "{what}: {reply:?}\n{}", self.stderr());
    }

    fn stderr(&self) -> String {
        let mut text = fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default();
        let _ = write!(text, "(the end of the NFS server's standard error)");
        text
    }

    /// Runs a program in this thread's namespaces.
    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) {
        let path = find_program(program).unwrap_or_else(|| panic!("{program} not found"));
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let status = until(program, PATIENCE, || child.try_wait().ok().flatten());
        assert!(status.success(), "{program} {arguments:?}: {status}\n{}", self.stderr());
    }
}

impl Drop for NfsMount {
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.commands {
            // A client that can't reach its server can't unmount.
            let _ = writeln!(stdin, "thaw");
        }
        let unmounted = |path: &Path, flags| unmount(path, flags).is_ok();
        let mounted = self.path();
        let plain = || unmounted(&mounted, UnmountFlags::NOFOLLOW).then_some(());
        if try_until(PATIENCE, plain).is_none() {
            unmounted(&mounted, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        self.commands = None;
        if try_until(PATIENCE, || self.child.try_wait().ok().flatten()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        unmounted(&self.exported(), UnmountFlags::DETACH);
    }
}

/// The missing requirement, if any.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("NFS needs root".to_owned());
    }
    if !may_mount() {
        return Some("NFS needs permission to mount (CAP_SYS_ADMIN)".to_owned());
    }
    if let Some(lacking) = ["nfsd", "nfs4"].iter().find(|name| !supports(name)) {
        return Some(format!(
            "the kernel does not support {lacking} (cargo xtask nfs runs this in an emulator)"
        ));
    }
    let (program, package) = PROGRAMS.iter().find(|(name, _)| find_program(name).is_none())?;
    Some(format!("NFS needs {program} (Debian: {package})"))
}

/// Moves the calling thread into a network namespace with nothing in it and a mount namespace whose
/// mounts nothing else sees.
#[track_caller]
fn isolate() {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .unwrap_or_else(|e| panic!("new namespaces: {e}"));
    // Not private: what others unmount must not stay mounted here.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .unwrap_or_else(|e| panic!("mounts of this namespace only: {e}"));
}
