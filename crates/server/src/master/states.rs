//! State files (`state` of groups and of key-value zones) for a server process that replaces one that has died.
//!
//! The configuration in use has their texts as of the last reload, but the API may have changed them since. All other
//! files stay as they were read. The master waits for their disk as for that of a reload ([`FileReader`]), and if it
//! doesn't respond, the new process starts with the older texts. Called by [`super::child`].

use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Bundle, Contents, Disk, Files};

use super::{Master, directories};
use crate::config;
use crate::log::Level;
use crate::reader::FileReader;

/// The texts of a configuration in use, with its state files as they are now.
struct WithStates<'a>(&'a Bundle);

impl Files for WithStates<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        if self.0.is_state(path) { Disk.read_named(path) } else { self.0.read_named(path) }
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        self.0.glob(pattern)
    }
}

impl Master {
    /// Reads the state files of the running configuration again.
    pub(super) fn read_states_again(&mut self) {
        let bundle = &self.running.loaded.bundle;
        if !bundle.has_states() {
            return;
        }
        let files = WithStates(bundle);
        let interpreted = self.notifier.patiently(|| {
            let reader = FileReader::of(&files);
            let interpreted = config::interpret(&reader, &self.place);
            reader.late().into_iter().for_each(directories::note_late);
            interpreted
        });
        match interpreted {
            Ok(loaded) => self.running.loaded.bundle = loaded.bundle,
            Err(refused) => {
                for line in refused.lines.iter().filter(|line| line.level != Level::Warn) {
                    self.log.log(Level::Error, &line.text);
                }
                let text = "state files cannot be used: the server process starts with their contents \
                            as of the last reload";
                self.log.log(Level::Error, text);
            }
        }
    }
}
