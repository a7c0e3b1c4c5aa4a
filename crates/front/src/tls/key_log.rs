//! `ssl_key_log`: the secrets of connections, for those who analyse recorded traffic. The format is
//! that of NSS (`SSLKEYLOGFILE`).
//!
//! rustls hands secrets over in the middle of a handshake, on a loop. They wait in memory until the
//! handshake is done; then a task appends them to the file in a pool.

use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::HEXLOWER;
use nowait_conf::Contents;
use nowait_resolver::ResolverLog;
use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::spawn;
use nowait_tls::KeyLog;

use crate::log::OsError;

/// Maximum number of secrets that wait for a slow disk; further ones are lost.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// A file for secrets.
pub struct KeyLogFile {
    path: PathBuf,
    state: Mutex<KeyLogState>,
}

#[derive(Default)]
struct KeyLogState {
    pending: Contents,
    lost: u64,
    is_writing: bool,
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyLogFile({})", self.path.display())
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = Contents::new(Vec::new());
        let hex = |bytes: &[u8]| HEXLOWER.encode(bytes);
        line.extend_from_slice(
            format!("{label} {} {}\n", hex(client_random), hex(secret)).as_bytes(),
        );
        let mut state = self.lock();
        match state.pending.len() + line.len() > PENDING_BYTES_MAX {
            true => state.lost += 1,
            false => state.pending.extend_from_slice(&line),
        }
    }
}

impl KeyLogFile {
    /// A log at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, KeyLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what waits appended to the file by a task.
    pub(super) fn flush(self: &Arc<Self>, pool: &Pool, log: &ResolverLog) {
        {
            let mut state = self.lock();
            if state.is_writing || state.pending.is_empty() {
                return;
            }
            state.is_writing = true;
        }
        let (own, pool, log) = (self.clone(), pool.clone(), log.clone());
        drop(spawn(async move {
            let path = own.path.display().to_string();
            while let Some(pending) = own.take(&log) {
                let file = own.path.clone();
                let append = move || append(&file, &pending);
                match pool.run(Class::Bulk, 0, Op::Blocking, append).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        log(format_args!("open() \"{path}\" failed{}", OsError(&error)));
                    }
                    Err(error) => log(format_args!("{error} while writing \"{path}\"")),
                }
            }
        }));
    }

    /// The pending secrets; `None` if there are none.
    fn take(&self, log: &ResolverLog) -> Option<Contents> {
        let mut state = self.lock();
        let lost = std::mem::take(&mut state.lost);
        state.is_writing = !state.pending.is_empty();
        let pending = state.is_writing.then(|| std::mem::take(&mut state.pending));
        drop(state);
        if lost > 0 {
            log(format_args!("{lost} lines of \"{}\" are lost", self.path.display()));
        }
        pending
    }
}

fn append(path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).append(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
