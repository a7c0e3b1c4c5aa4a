//! A MaxMind database: read as a whole, queried for the values of an address, replaced when its file has
//! changed. Reading blocks, so it is done while a configuration is loaded, and in a pool.

use nowait_conf::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use maxminddb::{MaxMindDbError, PathElement, Reader};
use serde::de::{Deserialize, Deserializer, IgnoredAny, Visitor};

/// The largest database, in bytes: it is kept in memory.
pub const BYTES_MAX: u64 = 1 << 30;

/// Longer values count as missing.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A database in memory.
type DatabaseReader = Reader<Vec<u8>>;

/// The reason why a database can't be used: a fault of the operator or of the database's publisher.
#[derive(Debug)]
pub enum DatabaseError {
    /// The file can't be opened or read.
    File(io::Error),
    /// It is larger than [`BYTES_MAX`].
    TooLarge,
    /// It was changed while it was being read; another attempt may succeed.
    Changing,
    /// The contents are not those of a MaxMind database.
    Invalid(MaxMindDbError),
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) if error.raw_os_error().is_some() => {
                write!(f, "open() failed ({})", Errno(error))
            }
            Self::File(error) => write!(f, "read() failed ({error})"),
            Self::TooLarge => write!(f, "it is larger than {} MB", BYTES_MAX >> 20),
            Self::Changing => f.write_str("it was changed while it was being read"),
            Self::Invalid(error) => write!(f, "it is not a usable MaxMind database: {error}"),
        }
    }
}

impl std::error::Error for DatabaseError {}

/// Identifies a version of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// A database and its file.
pub struct Database {
    path: PathBuf,
    state: RwLock<DatabaseState>,
}

#[derive(Default)]
struct DatabaseState {
    reader: Option<Arc<DatabaseReader>>,
    version: Option<Version>,
    /// A version whose contents can't be used, which is not read again.
    refused: Option<Version>,
    /// Seconds since 1970, as variables show them.
    checked: u64,
    changed: u64,
}

/// One step from a value into its parts: a key of a map or a position in an array.
pub struct PathStep {
    key: Box<str>,
    position: Option<isize>,
}

impl PathStep {
    /// The step that a word of the configuration names.
    pub fn new(word: &str) -> Self {
        Self { key: word.into(), position: word.parse().ok() }
    }
}

/// Facts about a database.
#[derive(Clone, Copy)]
pub enum Fact {
    /// The build time.
    BuildEpoch,
    /// The time of the last check of its file.
    LastCheck,
    /// The time of the last change of its contents.
    LastChange,
}

impl Database {
    /// The database in a file, which is not read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: RwLock::default() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file to check that it can be used. Blocks.
    ///
    /// # Errors
    /// It can't be used.
    pub fn check(&self) -> Result<(), DatabaseError> {
        read(&self.path).map(drop).map_err(|(error, _)| error)
    }

    /// Reads the file. Blocks.
    ///
    /// # Errors
    /// It can't be used.
    pub fn load(&self) -> Result<(), DatabaseError> {
        let (reader, version) = read(&self.path).map_err(|(error, _)| error)?;
        let now = seconds();
        let state = DatabaseState {
            reader: Some(Arc::new(reader)),
            version: Some(version),
            refused: None,
            checked: now,
            changed: now,
        };
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(())
    }

    /// Reads the file again if it has changed; true if that gave new contents. Blocks.
    ///
    /// # Errors
    /// It can't be used; what was read before stays.
    pub fn reload(&self) -> Result<bool, DatabaseError> {
        let found = std::fs::metadata(&self.path);
        let state = || self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (version, refused) = {
            let mut state = state();
            state.checked = seconds();
            (state.version, state.refused)
        };
        let found = Some(Version::of(&found.map_err(DatabaseError::File)?));
        if found == version || found == refused {
            return Ok(false);
        }
        match read(&self.path) {
            Ok((reader, version)) => {
                let reader = Arc::new(reader);
                let mut state = state();
                let old = state.reader.replace(reader);
                state.version = Some(version);
                state.refused = None;
                state.changed = u64::try_from(version.modified.0).unwrap_or(0);
                drop(state);
                // Requests never wait for the memory to be returned.
                drop(old);
                Ok(true)
            }
            Err((error, refused)) => {
                state().refused = refused;
                Err(error)
            }
        }
    }

    /// The value at the end of a path in an address's record, if there is one.
    pub fn find(&self, address: IpAddr, path: &[PathStep]) -> Option<Vec<u8>> {
        let reader = self.read_state(|state| state.reader.clone())?;
        let found = reader.lookup(address).ok()?;
        if !found.has_data() {
            return None;
        }
        let mut elements = Vec::with_capacity(path.len());
        for step in path {
            elements.push(PathElement::Key(&step.key));
            // A number may be a key as well: that depends on the data.
            if let Some(position) = step.position
                && !matches!(found.decode_path::<IgnoredAny>(&elements), Ok(Some(_)))
            {
                elements.pop();
                elements.push(PathElement::from(position));
            }
        }
        found.decode_path::<ScalarText>(&elements).ok()?.map(|text| text.0)
    }

    /// A fact about the database; `None` before it was read.
    pub fn fact(&self, fact: Fact) -> Option<u64> {
        self.read_state(|state| {
            let reader = state.reader.as_ref()?;
            Some(match fact {
                Fact::BuildEpoch => reader.metadata().build_epoch,
                Fact::LastCheck => state.checked,
                Fact::LastChange => state.changed,
            })
        })
    }

    fn read_state<T>(&self, look: impl FnOnce(&DatabaseState) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The database in a file. An error about contents comes with their version.
fn read(path: &Path) -> Result<(DatabaseReader, Version), (DatabaseError, Option<Version>)> {
    let read = || -> Result<_, DatabaseError> {
        let mut file = File::open(path).map_err(DatabaseError::File)?;
        let metadata = file.metadata().map_err(DatabaseError::File)?;
        if metadata.len() > BYTES_MAX {
            return Err(DatabaseError::TooLarge);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
        file.by_ref().take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(DatabaseError::File)?;
        let version = Version::of(&metadata);
        let after = file.metadata().map_err(DatabaseError::File)?;
        if version != Version::of(&after) || bytes.len() as u64 != metadata.len() {
            return Err(DatabaseError::Changing);
        }
        Ok((bytes, version))
    };
    let (bytes, version) = read().map_err(|error| (error, None))?;
    match parse(bytes) {
        Ok(reader) => Ok((reader, version)),
        Err(error) => Err((error, Some(version))),
    }
}

fn parse(bytes: Vec<u8>) -> Result<DatabaseReader, DatabaseError> {
    Reader::from_source(bytes).map_err(DatabaseError::Invalid)
}

/// A scalar as text, in the forms of the module.
struct ScalarText(Vec<u8>);

impl<'de> Deserialize<'de> for ScalarText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar)
    }
}

struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = ScalarText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<ScalarText, E> {
        Ok(ScalarText(vec![b'0' + u8::from(value)]))
    }

    fn visit_i64<E>(self, value: i64) -> Result<ScalarText, E> {
        Ok(ScalarText(value.to_string().into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<ScalarText, E> {
        Ok(ScalarText(value.to_string().into()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<ScalarText, E> {
        Ok(ScalarText(format!("0x{value:032x}").into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<ScalarText, E> {
        Ok(ScalarText(format!("{value:.5}").into()))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<ScalarText, E> {
        self.visit_bytes(value.as_bytes())
    }

    fn visit_bytes<E: serde::de::Error>(self, value: &[u8]) -> Result<ScalarText, E> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(E::custom("the value is too long"));
        }
        Ok(ScalarText(value.to_vec()))
    }
}

/// Reads a database from memory and asks it for addresses: for the fuzzer.
#[doc(hidden)]
pub fn probe(bytes: &[u8]) {
    let Ok(reader) = parse(bytes.to_vec()) else { return };
    let state = DatabaseState { reader: Some(Arc::new(reader)), ..DatabaseState::default() };
    let database = Database { path: PathBuf::new(), state: RwLock::new(state) };
    let paths = [&["a", "b"][..], &["list", "0"], &["list", "-1", "a"], &["1", "2", "3"], &[]];
    for address in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "2001:db8::1", "ffff::"] {
        let address: IpAddr = address.parse().expect("the addresses above are valid");
        for path in paths {
            let steps: Vec<_> = path.iter().map(|word| PathStep::new(word)).collect();
            database.find(address, &steps);
        }
    }
}
