//! Reads the files of a configuration for processes that must not wait for disks: the master, which has to
//! handle signals and to replace a server process that has ended, and commands to a running server.
//!
//! A separate process opens and reads; the caller waits [`ANSWER_MAX`] for each file, and [`ALL_MAX`] for
//! all. After that nothing more is read: a reload fails, and what runs goes on. The first start reads for
//! itself, as there is nothing to be heard yet.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nowait_conf::{Contents, Files, IrregularFile};
use nowait_sys::process;
use nowait_sys::signal::Signal;
use rustix::event::PollFlags;

use crate::log_process::wait_for;

/// How long the master waits for a file.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How long the master waits for all files of a configuration.
const ALL_MAX: Duration = Duration::from_secs(60);

/// Bytes read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The reason why a file was not read in time.
const LATE: &str = "its disk does not answer";

/// A request to the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileQuery {
    Text = b'r' as isize,
    Named = b'n' as isize,
    Glob = b'g' as isize,
}

/// Files that a process of its own reads.
pub struct FileReader<'a> {
    files: &'a dyn Files,
    process: RefCell<Option<Process>>,
    until: Instant,
    /// A disk did not answer this process, which ends when it does.
    late: Cell<Option<u32>>,
}

struct Process {
    pid: u32,
    socket: UnixStream,
}

impl<'a> FileReader<'a> {
    /// Reads these files.
    pub fn of(files: &'a dyn Files) -> Self {
        let process = RefCell::new(start(files).ok());
        Self { files, process, until: Instant::now() + ALL_MAX, late: Cell::new(None) }
    }

    /// If a disk did not answer: the process that waits for it, whose end is still to come.
    pub fn late(&self) -> Option<u32> {
        self.late.get()
    }

    fn ask(&self, wanted: FileQuery, path: &[u8]) -> io::Result<Contents> {
        if self.late.get().is_some() {
            return Err(io::Error::new(ErrorKind::TimedOut, "another disk does not answer"));
        }
        let mut process = self.process.borrow_mut();
        let Some(reader) = process.as_mut() else {
            // A process with several threads (`master_process off`), or no process can be created.
            return answer(self.files, wanted, path);
        };
        let until = self.until.min(Instant::now() + ANSWER_MAX);
        let received = reader.exchange(wanted, path, until);
        let is_late = received.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        if is_late && let Some(Process { pid, .. }) = process.take() {
            let _ = process::kill(pid, Signal::SIGKILL);
            self.late.set(Some(pid));
        }
        decoded(received?)
    }
}

impl Drop for FileReader<'_> {
    fn drop(&mut self) {
        if let Some(Process { pid, socket }) = self.process.take() {
            // The process ends when there are no more requests.
            drop(socket);
            process::wait_for(pid);
        }
    }
}

impl Files for FileReader<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.ask(FileQuery::Text, path.as_os_str().as_bytes())?;
        Ok(text.to_vec())
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        self.ask(FileQuery::Named, path.as_os_str().as_bytes())
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        let paths = self.ask(FileQuery::Glob, pattern)?;
        let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect())
    }

    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        self.files.fallback(path)
    }
}

impl Process {
    /// The answer to a question, as it was sent.
    fn exchange(&mut self, wanted: FileQuery, path: &[u8], until: Instant) -> io::Result<Contents> {
        send(&mut self.socket, wanted as u8, path)?;
        let mut len = [0; 4];
        self.receive(&mut len, until)?;
        let mut bytes = Contents::new(vec![0; u32::from_be_bytes(len) as usize]);
        self.receive(&mut bytes, until)?;
        Ok(bytes)
    }

    fn receive(&mut self, mut room: &mut [u8], until: Instant) -> io::Result<()> {
        while !room.is_empty() {
            if !wait_for(&self.socket, PollFlags::IN, until) {
                return Err(io::Error::new(ErrorKind::TimedOut, LATE));
            }
            let piece = room.len().min(PIECE_BYTES);
            match self.socket.read(&mut room[..piece])? {
                0 => return Err(io::Error::other("the process that reads files has ended")),
                count => room = &mut room[count..],
            }
        }
        Ok(())
    }
}

fn start(files: &dyn Files) -> io::Result<Process> {
    let (socket, far) = UnixStream::pair()?;
    let pid = process::fork_alone(vec![OwnedFd::from(far)], |kept| {
        if let Some(far) = kept.into_iter().next() {
            // Without the master, the reader has no purpose.
            let _ = serve(files, UnixStream::from(far));
        }
    })?;
    Ok(Process { pid, socket })
}

/// Answers questions until there are no more.
fn serve(files: &dyn Files, mut socket: UnixStream) -> io::Result<()> {
    loop {
        let mut head = [0; 5];
        socket.read_exact(&mut head)?;
        let [kind, len @ ..] = head;
        let mut path = vec![0; u32::from_be_bytes(len) as usize];
        socket.read_exact(&mut path)?;
        let wanted = match kind {
            b'r' => FileQuery::Text,
            b'n' => FileQuery::Named,
            _ => FileQuery::Glob,
        };
        let answer = encoded(answer(files, wanted, &path));
        let len = u32::try_from(answer.len()).map_err(io::Error::other)?;
        socket.write_all(&len.to_be_bytes())?;
        socket.write_all(&answer)?;
    }
}

fn send(socket: &mut UnixStream, kind: u8, path: &[u8]) -> io::Result<()> {
    let len = u32::try_from(path.len()).map_err(io::Error::other)?;
    socket.write_all(&[&[kind], &len.to_be_bytes()[..], path].concat())
}

fn answer(files: &dyn Files, wanted: FileQuery, path: &[u8]) -> io::Result<Contents> {
    let file = Path::new(std::ffi::OsStr::from_bytes(path));
    match wanted {
        FileQuery::Text => files.read(file).map(Contents::new),
        FileQuery::Named => files.read_named(file),
        FileQuery::Glob => {
            let paths = files.glob(path)?;
            let mut all = Vec::new();
            for path in paths {
                all.extend_from_slice(path.as_os_str().as_bytes());
                all.push(0);
            }
            Ok(Contents::new(all))
        }
    }
}

/// A result for the socket: `+` and the contents, `!` and the number of an error, or `?` and its text.
/// Those of [`IrregularFile`] are recognized by it.
fn encoded(result: io::Result<Contents>) -> Contents {
    let parts = |kind: u8, bytes: &[u8]| {
        let mut all = Vec::with_capacity(bytes.len() + 1);
        all.push(kind);
        all.extend_from_slice(bytes);
        Contents::new(all)
    };
    match result {
        Ok(contents) => parts(b'+', &contents),
        Err(error) => match error.raw_os_error() {
            Some(number) => parts(b'!', &number.to_be_bytes()),
            None => parts(b'?', error.to_string().as_bytes()),
        },
    }
}

fn decoded(answer: Contents) -> io::Result<Contents> {
    match answer.split_first() {
        Some((b'+', contents)) => Ok(Contents::new(contents.to_vec())),
        Some((b'!', number)) => Err(match number.try_into() {
            Ok(number) => io::Error::from_raw_os_error(i32::from_be_bytes(number)),
            Err(_) => ErrorKind::InvalidData.into(),
        }),
        Some((_, text)) => {
            let text = String::from_utf8_lossy(text).into_owned();
            Err(match IrregularFile::of_text(&text) {
                Some(irregular) => io::Error::other(irregular),
                None => io::Error::other(text),
            })
        }
        None => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_the_same_afterwards() {
        let pass = |result: io::Result<&[u8]>| {
            decoded(encoded(result.map(|contents| Contents::new(contents.to_vec()))))
        };
        assert_eq!(**pass(Ok(b"text")).unwrap(), *b"text");
        assert_eq!(**pass(Ok(b"")).unwrap(), *b"");
        let missing = pass(Err(io::Error::from_raw_os_error(2))).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let told = pass(Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(told.to_string(), "no");
    }
}
