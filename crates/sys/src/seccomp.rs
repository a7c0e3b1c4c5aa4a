//! The filter on loop threads: system calls that may wait for a disk (or for anything but the
//! loop's own poll) raise SIGSYS, whose handler notifies a hook and then makes the call.
//!
//! Used by `nowait_runtime::guard`. Never: policy; the hook decides whether the process continues.
//! One exception: opening a kernel setting below `/proc/sys` does not notify the hook. No disk is
//! involved, and the caller is the allocator: glibc reads `/proc/sys/vm/overcommit_memory` inside
//! `free`, when it returns memory for the first time, with its lock held. A hook that allocates
//! would wait for that lock forever.
//!
//! Not visible to the filter, since it sees numbers but not the objects behind them: `openat2`
//! (allowed: only used with RESOLVE_CACHED), `read`, `write` and their vector forms (needed for
//! sockets and event descriptors), `sendfile` and `splice` of cold pages, page faults of mapped
//! files.
//!
//! Ownership: the program handed to the kernel is copied there during the call. The handler touches
//! the interrupted thread's saved registers through the pointer that the kernel gave it, reads the
//! path that the thread passed to `open` or `openat`, and nothing else; it runs only where this
//! thread made a system call, never at an arbitrary instruction.

use std::io;
use std::sync::OnceLock;

use libc::{c_int, c_long, c_void, sock_filter};

/// Mark in the sixth argument of a call that the filter lets pass. None of the calls that carry it
/// has a sixth argument.
pub const PASS: c_long = 0x6e6f_7761;

/// `RWF_NOWAIT` of preadv2(2).
const RWF_NOWAIT: u32 = 0x8;

/// FS_IOC_FIEMAP of ioctl(2).
const FS_IOC_FIEMAP: u32 = 0xC020_660B;

/// When a call is stopped. Arguments count from 0; only their lower halves are compared.
#[derive(Clone, Copy, Debug)]
enum CallRule {
    Always,
    /// Unless the argument has one of these bits.
    UnlessBits {
        arg: u32,
        bits: u32,
    },
    /// If the argument has this value.
    IfEqual {
        arg: u32,
        value: u32,
    },
    /// Unless the argument has this value.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only poll(2) needs it"))]
    UnlessEqual {
        arg: u32,
        value: u32,
    },
}

use CallRule::{Always, IfEqual, UnlessBits, UnlessEqual};

/// The stopped calls, with their names in section 2 of the manual pages.
#[rustfmt::skip]
const CALLS: &[(&str, c_long, CallRule)] = &[
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open, Always),
    #[cfg(target_arch = "x86_64")]
    ("creat", libc::SYS_creat, Always),
    #[cfg(target_arch = "x86_64")]
    ("stat", libc::SYS_stat, Always),
    #[cfg(target_arch = "x86_64")]
    ("lstat", libc::SYS_lstat, Always),
    #[cfg(target_arch = "x86_64")]
    ("access", libc::SYS_access, Always),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename, Always),
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir, Always),
    #[cfg(target_arch = "x86_64")]
    ("rmdir", libc::SYS_rmdir, Always),
    #[cfg(target_arch = "x86_64")]
    ("link", libc::SYS_link, Always),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink, Always),
    #[cfg(target_arch = "x86_64")]
    ("symlink", libc::SYS_symlink, Always),
    #[cfg(target_arch = "x86_64")]
    ("readlink", libc::SYS_readlink, Always),
    #[cfg(target_arch = "x86_64")]
    ("chmod", libc::SYS_chmod, Always),
    #[cfg(target_arch = "x86_64")]
    ("chown", libc::SYS_chown, Always),
    #[cfg(target_arch = "x86_64")]
    ("lchown", libc::SYS_lchown, Always),
    #[cfg(target_arch = "x86_64")]
    ("utime", libc::SYS_utime, Always),
    #[cfg(target_arch = "x86_64")]
    ("utimes", libc::SYS_utimes, Always),
    #[cfg(target_arch = "x86_64")]
    ("futimesat", libc::SYS_futimesat, Always),
    #[cfg(target_arch = "x86_64")]
    ("mknod", libc::SYS_mknod, Always),
    #[cfg(target_arch = "x86_64")]
    ("getdents", libc::SYS_getdents, Always),
    ("openat", libc::SYS_openat, Always),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, Always),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, Always),
    ("faccessat", libc::SYS_faccessat, Always),
    ("faccessat2", libc::SYS_faccessat2, Always),
    ("renameat", libc::SYS_renameat, Always),
    ("renameat2", libc::SYS_renameat2, Always),
    ("mkdirat", libc::SYS_mkdirat, Always),
    ("mknodat", libc::SYS_mknodat, Always),
    ("linkat", libc::SYS_linkat, Always),
    ("symlinkat", libc::SYS_symlinkat, Always),
    ("unlinkat", libc::SYS_unlinkat, Always),
    ("readlinkat", libc::SYS_readlinkat, Always),
    ("truncate", libc::SYS_truncate, Always),
    ("ftruncate", libc::SYS_ftruncate, Always),
    ("fallocate", libc::SYS_fallocate, Always),
    ("fsync", libc::SYS_fsync, Always),
    ("fdatasync", libc::SYS_fdatasync, Always),
    ("sync", libc::SYS_sync, Always),
    ("syncfs", libc::SYS_syncfs, Always),
    ("sync_file_range", libc::SYS_sync_file_range, Always),
    ("msync", libc::SYS_msync, Always),
    ("pread64", libc::SYS_pread64, Always),
    ("preadv", libc::SYS_preadv, Always),
    ("pwrite64", libc::SYS_pwrite64, Always),
    ("pwritev", libc::SYS_pwritev, Always),
    ("copy_file_range", libc::SYS_copy_file_range, Always),
    ("getdents64", libc::SYS_getdents64, Always),
    ("fadvise64", libc::SYS_fadvise64, Always),
    ("readahead", libc::SYS_readahead, Always),
    ("statfs", libc::SYS_statfs, Always),
    ("fstatfs", libc::SYS_fstatfs, Always),
    ("chdir", libc::SYS_chdir, Always),
    ("fchmod", libc::SYS_fchmod, Always),
    ("fchmodat", libc::SYS_fchmodat, Always),
    ("fchown", libc::SYS_fchown, Always),
    ("fchownat", libc::SYS_fchownat, Always),
    ("utimensat", libc::SYS_utimensat, Always),
    ("getxattr", libc::SYS_getxattr, Always),
    ("lgetxattr", libc::SYS_lgetxattr, Always),
    ("fgetxattr", libc::SYS_fgetxattr, Always),
    ("setxattr", libc::SYS_setxattr, Always),
    ("lsetxattr", libc::SYS_lsetxattr, Always),
    ("fsetxattr", libc::SYS_fsetxattr, Always),
    ("listxattr", libc::SYS_listxattr, Always),
    ("llistxattr", libc::SYS_llistxattr, Always),
    ("flistxattr", libc::SYS_flistxattr, Always),
    ("removexattr", libc::SYS_removexattr, Always),
    ("lremovexattr", libc::SYS_lremovexattr, Always),
    ("fremovexattr", libc::SYS_fremovexattr, Always),
    ("inotify_add_watch", libc::SYS_inotify_add_watch, Always),
    ("nanosleep", libc::SYS_nanosleep, Always),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, Always),
    // fstat(2) on an open descriptor is allowed.
    ("newfstatat", libc::SYS_newfstatat, UnlessBits { arg: 3, bits: libc::AT_EMPTY_PATH as u32 }),
    ("statx", libc::SYS_statx, UnlessBits { arg: 2, bits: libc::AT_EMPTY_PATH as u32 }),
    ("preadv2", libc::SYS_preadv2, UnlessBits { arg: 5, bits: RWF_NOWAIT }),
    ("pwritev2", libc::SYS_pwritev2, UnlessBits { arg: 5, bits: RWF_NOWAIT }),
    ("flock", libc::SYS_flock, UnlessBits { arg: 1, bits: libc::LOCK_NB as u32 }),
    ("fcntl", libc::SYS_fcntl, IfEqual { arg: 1, value: libc::F_SETLKW as u32 }),
    ("fcntl", libc::SYS_fcntl, IfEqual { arg: 1, value: libc::F_OFD_SETLKW as u32 }),
    ("ioctl", libc::SYS_ioctl, IfEqual { arg: 1, value: FS_IOC_FIEMAP }),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll, UnlessEqual { arg: 2, value: 0 }),
    // No time limit at all. A zero limit cannot be distinguished from others.
    ("ppoll", libc::SYS_ppoll, IfEqual { arg: 2, value: 0 }),
];

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xC000_00B7;

/// A call that was stopped.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// The call's name in the manual pages.
    pub name: &'static str,
    pub number: c_long,
    /// Address of the call in the program.
    pub address: usize,
}

/// Called for a stopped call before it is made, on the calling thread.
pub type Hook = fn(&Trap);

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Installs the filter on the calling thread, permanently. Threads that it starts inherit the
/// filter. `hook` applies to the whole process: the first one stays.
///
/// Sets `no_new_privs` for the thread: programs that it executes gain no privileges.
///
/// # Errors
/// Those of seccomp(2): EINVAL where the kernel lacks it, EACCES; `Unsupported` on architectures
/// whose call numbers are unknown here.
pub fn install(hook: Hook) -> io::Result<()> {
    HOOK.get_or_init(|| hook);
    install_handler()?;
    let program = program()?;
    let len = u16::try_from(program.len()).expect("the filter is short");
    let header = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: no pointers; only this thread is concerned.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `header` names `program`, which is alive during the call; the kernel copies it and
    // only reads. SPEC_ALLOW: the filter guards against mistakes, not attackers, so it must not cost
    // the mitigations that the kernel may turn on for filtered threads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const header,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn install_handler() -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // NODEFER: the hook may make calls that are stopped too. A blocked SIGSYS would kill.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: `action` is initialised and names a handler of the type that SA_SIGINFO asks for; the
    // signal set is initialised by sigemptyset before its use.
    unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGSYS);
        match libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The registers of the interrupted thread that hold the call.
#[cfg(target_arch = "x86_64")]
mod registers {
    use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, c_long};

    const ARGS: [c_int; 6] = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];

    use libc::c_int;

    pub(super) fn arguments(context: &libc::ucontext_t) -> [c_long; 6] {
        ARGS.map(|register| context.uc_mcontext.gregs[register as usize])
    }

    pub(super) fn address(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.gregs[REG_RIP as usize] as usize
    }

    pub(super) fn set_result(context: &mut libc::ucontext_t, result: c_long) {
        context.uc_mcontext.gregs[REG_RAX as usize] = result;
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use libc::c_long;

    pub(super) fn arguments(context: &libc::ucontext_t) -> [c_long; 6] {
        std::array::from_fn(|n| context.uc_mcontext.regs[n] as c_long)
    }

    pub(super) fn address(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.pc as usize
    }

    pub(super) fn set_result(context: &mut libc::ucontext_t, result: c_long) {
        context.uc_mcontext.regs[0] = result as u64;
    }
}

/// The kernel's description of a stopped call: `siginfo_t` with its `_sigsys` part.
#[repr(C)]
struct SigsysInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    call_addr: *mut c_void,
    syscall: c_int,
    arch: u32,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn handler(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno's location is this thread's own.
    let saved_errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid siginfo_t, whose SIGSYS part has this layout (64-bit), to a
    // handler with SA_SIGINFO.
    let number = unsafe { (*info.cast::<SigsysInfo>()).syscall };
    // SAFETY: likewise a valid ucontext_t, which nothing else uses while the handler runs.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let number = c_long::from(number);
    let arguments = registers::arguments(context);
    if !opens_a_kernel_setting(number, &arguments)
        && let Some(hook) = HOOK.get()
    {
        let name = CALLS.iter().find(|call| call.1 == number).map_or("?", |call| call.0);
        hook(&Trap { name, number, address: registers::address(context) });
    }
    let result = remake(number, arguments);
    registers::set_result(context, result);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = saved_errno };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
extern "C" fn handler(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {}

/// Whether the call opens something below `/proc/sys`.
fn opens_a_kernel_setting(number: c_long, arguments: &[c_long; 6]) -> bool {
    const SETTINGS: &[u8] = b"/proc/sys/";
    let path = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => arguments[0],
        libc::SYS_openat => arguments[1],
        _ => return false,
    };
    let path = path as *const u8;
    !path.is_null()
        && SETTINGS.iter().enumerate().all(|(at, wanted)| {
            // SAFETY: the caller passed a string that ends in a zero byte, alive during its call,
            // which has not returned. All bytes before this one were like those wanted, which are
            // not zero, so this one is still within the string.
            unsafe { path.add(at).read() == *wanted }
        })
}

/// Makes the stopped call, with the mark. Returns the kernel's result: a negative errno is an
/// error.
fn remake(number: c_long, args: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, flags] = args;
    // These have a sixth argument where the mark would go.
    let number = match number {
        libc::SYS_preadv2 if flags == 0 => libc::SYS_preadv,
        libc::SYS_pwritev2 if flags == 0 => libc::SYS_pwritev,
        libc::SYS_preadv2 | libc::SYS_pwritev2 => return -c_long::from(libc::EOPNOTSUPP),
        // Callers expect that it may be missing and copy by themselves.
        libc::SYS_copy_file_range => return -c_long::from(libc::ENOSYS),
        other => other,
    };
    // SAFETY: the very call that the program made, with its arguments; the reasons that made it sound there
    // holds here, on the same thread at the same moment.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, PASS) };
    if result == -1 {
        // SAFETY: errno's location is this thread's own.
        return -c_long::from(unsafe { *libc::__errno_location() });
    }
    result
}

/// Offsets in `struct seccomp_data`.
const DATA_NUMBER: u32 = 0;
const DATA_ARCH: u32 = 4;

const fn data_arg(arg: u32) -> u32 {
    16 + 8 * arg
}

/// Target of a jump.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// This many instructions past the next one.
    Skip(u8),
    /// The end, which checks for the mark.
    Check,
    Allow,
}

struct Instruction {
    code: u32,
    value: u32,
    then: To,
    otherwise: To,
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// The filter: one comparison per call (the kernel caches numbers that are always allowed), then
/// the mark.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn program() -> io::Result<Vec<sock_filter>> {
    let load = |value| Instruction { code: LOAD, value, then: To::Next, otherwise: To::Next };
    let test = |code, value, then, otherwise| Instruction { code, value, then, otherwise };
    let mut list =
        vec![load(DATA_ARCH), test(EQUAL, AUDIT_ARCH, To::Next, To::Allow), load(DATA_NUMBER)];
    for (_, number, rule) in CALLS {
        let number = u32::try_from(*number).expect("numbers are small");
        let (arg, code, value, then, otherwise) = match *rule {
            Always => {
                list.push(test(EQUAL, number, To::Check, To::Next));
                continue;
            }
            UnlessBits { arg, bits } => (arg, ANY_BIT, bits, To::Allow, To::Check),
            UnlessEqual { arg, value } => (arg, EQUAL, value, To::Allow, To::Check),
            // There may be another rule for the same number.
            IfEqual { arg, value } => (arg, EQUAL, value, To::Check, To::Next),
        };
        list.push(test(EQUAL, number, To::Next, To::Skip(3)));
        list.push(load(data_arg(arg)));
        list.push(test(code, value, then, otherwise));
        list.push(load(DATA_NUMBER));
    }
    let pass = u32::try_from(PASS).expect("the mark is of 32 bits");
    let check = list.len() + 1;
    list.push(test(RETURN, libc::SECCOMP_RET_ALLOW, To::Next, To::Next));
    list.push(load(data_arg(5)));
    list.push(test(EQUAL, pass, To::Next, To::Skip(1)));
    list.push(test(RETURN, libc::SECCOMP_RET_ALLOW, To::Next, To::Next));
    list.push(test(RETURN, libc::SECCOMP_RET_TRAP, To::Next, To::Next));
    let allow = check - 1;
    list.iter()
        .enumerate()
        .map(|(at, instruction)| {
            let jump = |to| match to {
                To::Next => Ok(0),
                To::Skip(count) => Ok(count),
                // BPF jumps forward by at most 255.
                To::Check => u8::try_from(check - at - 1),
                To::Allow => u8::try_from(allow - at - 1),
            };
            let too_far = |_| io::Error::other("the filter has too many rules");
            Ok(sock_filter {
                code: instruction.code as u16,
                jt: jump(instruction.then).map_err(too_far)?,
                jf: jump(instruction.otherwise).map_err(too_far)?,
                k: instruction.value,
            })
        })
        .collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn program() -> io::Result<Vec<sock_filter>> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::fd::{AsFd, AsRawFd};

    thread_local! {
        static LAST: Cell<&'static str> = const { Cell::new("") };
    }

    fn note(trap: &Trap) {
        LAST.set(trap.name);
    }

    fn stopped(work: impl FnOnce()) -> &'static str {
        LAST.set("");
        work();
        LAST.get()
    }

    #[test]
    fn calls_that_wait_are_noticed_and_made() {
        std::thread::spawn(|| {
            let executable = std::env::current_exe().unwrap();
            let mut file = None;
            install(note).unwrap();
            assert_eq!(stopped(|| file = std::fs::File::open(&executable).ok()), "openat");
            let file = file.expect("the call was made and its result returned");
            let mut buffer = Vec::new();
            let read = |flags| {
                let mut byte = 0_u8;
                let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
                // SAFETY: one writable byte, alive during the call.
                unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, 0, flags) }
            };
            assert_eq!(stopped(|| assert_eq!(read(0), 1)), "preadv2");
            assert_eq!(stopped(|| assert_ne!(read(8), 0)), "");
            let fd = file.as_fd();
            let mut memory = || crate::fs::read_memory(fd, 0, 4, &mut buffer).unwrap();
            assert_eq!(stopped(|| assert_eq!(memory(), 4)), "");
            assert_eq!(&buffer[1..4], b"ELF");
            assert_eq!(stopped(|| drop(file.metadata())), "", "fstat is allowed");
            assert_eq!(stopped(|| drop(std::fs::metadata(&executable))), "statx");
            let error = std::fs::File::open("/nonexistent").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "errors come through");
            let setting = "/proc/sys/vm/overcommit_memory";
            assert_eq!(stopped(|| drop(std::fs::File::open(setting).unwrap())), "");
            assert_eq!(stopped(|| drop(std::fs::File::open("/proc/sy"))), "openat");
            assert_eq!(stopped(|| drop(std::fs::remove_file("/nonexistent"))), "unlink");
            assert_eq!(stopped(|| drop(std::fs::rename("/nonexistent", "/x"))), "rename");
            assert_eq!(stopped(|| drop(file.sync_all())), "fsync");
            assert_eq!(
                stopped(|| std::thread::sleep(std::time::Duration::from_nanos(1))),
                "clock_nanosleep"
            );
            assert_eq!(stopped(|| drop(crate::fiemap::count(fd))), "ioctl");
            assert_eq!(stopped(|| assert!(rustix::io::ioctl_fionread(fd).is_ok())), "");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn other_threads_are_free() {
        std::thread::spawn(|| install(note).unwrap()).join().unwrap();
        assert_eq!(stopped(|| drop(std::fs::File::open("/"))), "");
    }
}
