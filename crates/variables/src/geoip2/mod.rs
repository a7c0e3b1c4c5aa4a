//! `geoip2`: variables with values of a MaxMind database for an address. The third-party modules
//! `ngx_http_geoip2_module` and `ngx_stream_geoip2_module`.
//!
//! A database is checked when the configuration is read and loaded when it is put to use
//! ([`Databases`]); the code that has a pool calls [`Database::reload`] then.

mod database;

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Seconds, Value, Word};

use crate::cidr::Cidr;
use crate::{Complex, Compute, Namespace, Subject, Table, text, variable_name};

pub use database::{BYTES_MAX, Database, DatabaseError, Fact, PathStep, probe};

/// The databases of a configuration. `http` and `stream` share those of one file.
#[derive(Default)]
pub struct Databases(Vec<DatabaseEntry>);

/// A database, and how it is kept up to date.
#[derive(Clone)]
pub struct DatabaseEntry {
    /// The database.
    pub database: Arc<Database>,
    /// The time after which its file is checked again; `None`: never.
    pub interval: Option<Duration>,
}

impl Databases {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &DatabaseEntry> {
        self.0.iter()
    }

    /// Reads all of them. Blocks.
    ///
    /// # Errors
    /// A text for the log: one can't be used.
    pub fn load(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|DatabaseEntry { database, .. }| {
            let path = database.path().display();
            database.load().map_err(|error| format!("cannot load database \"{path}\": {error}"))
        })
    }

    fn at(&mut self, path: &Path) -> &mut DatabaseEntry {
        let known = self.0.iter().position(|entry| entry.database.path() == path);
        let at = known.unwrap_or_else(|| {
            let database = Arc::new(Database::new(path.to_owned()));
            self.0.push(DatabaseEntry { database, interval: None });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

/// The proxies whose statements about client addresses are trusted.
#[derive(Debug, Default)]
pub struct Trust {
    /// `geoip2_proxy`.
    pub proxies: Vec<Cidr>,
    /// `geoip2_proxy_recursive`.
    pub recursive: bool,
}

/// The state shared by the blocks of one namespace.
struct SharedSettings<N> {
    /// Known when all directives were read.
    trust: Arc<OnceLock<Trust>>,
    files: Vec<std::path::PathBuf>,
    of: std::marker::PhantomData<fn(N)>,
}

impl<N> Default for SharedSettings<N> {
    fn default() -> Self {
        Self { trust: Arc::default(), files: Vec::new(), of: std::marker::PhantomData }
    }
}

/// Sets the trusted proxies of all `geoip2` blocks, when all directives were read.
pub fn trust<N: Namespace>(cx: &mut Cx<'_>, trust: Trust) {
    // Only called once.
    let _ = cx.global::<SharedSettings<N>>().trust.set(trust);
}

/// A variable with a value from a database.
struct DatabaseVariable<N> {
    database: Arc<Database>,
    /// The text with the address; `None`: the client's address.
    source: Option<Complex<N>>,
    trust: Arc<OnceLock<Trust>>,
    path: Vec<PathStep>,
    default: Option<Bytes>,
}

/// A variable with a fact about a database.
struct Metadata {
    database: Arc<Database>,
    fact: Fact,
}

/// Reads a `geoip2` block and defines its variables.
///
/// # Errors
/// The database can't be used; errors in the lines of the block go to `cx`.
pub fn geoip2<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [file] = &node.args[..] else { return Err(node.arity_error()) };
    let path = cx.paths().full(&file.text);
    let path = Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned();
    let common = cx.global::<SharedSettings<N>>();
    if common.files.contains(&path) {
        return Err(file
            .error(format!("duplicate database \"{}\"", path.display()))
            .hint("put all variables of a database into one block"));
    }
    common.files.push(path.clone());
    let trust = common.trust.clone();
    let database = cx.global::<Databases>().at(&path).database.clone();
    let checked = database.check().map_err(|error| {
        let text = format!("cannot load database \"{}\": {error}", path.display());
        file.error(text).expected("a database in the MaxMind format (.mmdb)")
    });
    cx.accept(checked);
    for entry in cx.entries(node) {
        let done = match &entry.name.text[..] {
            b"auto_reload" => auto_reload(cx, entry, &path),
            [b'$', ..] => variable::<N>(cx, entry, &database, &trust),
            _ => Err(entry
                .error(format!("invalid setting \"{}\"", entry.name))
                .expected("\"auto_reload\" or a variable")),
        };
        cx.accept(done);
    }
    Ok(())
}

fn auto_reload(cx: &mut Cx<'_>, entry: &Node, path: &Path) -> Result<(), Diagnostic> {
    let [word] = &entry.args[..] else {
        return Err(entry
            .error("invalid number of arguments for auto_reload")
            .expected("a time such as 5m"));
    };
    let time = Seconds::from_word(&word.text).map_err(|_| {
        word.error(format!("invalid interval for auto_reload \"{word}\""))
            .expected("a time such as 5m")
    })?;
    let interval = Some(time.duration()).filter(|time| !time.is_zero());
    let known = &mut cx.global::<Databases>().at(path).interval;
    *known = match (*known, interval) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Ok(())
}

fn variable<N: Namespace>(
    cx: &mut Cx<'_>,
    entry: &Node,
    database: &Arc<Database>,
    trust: &Arc<OnceLock<Trust>>,
) -> Result<(), Diagnostic> {
    let name = variable_name(&entry.name)?.to_owned();
    let database = database.clone();
    let defined = match &entry.args[..] {
        [word, rest @ ..] if *word == "metadata" => {
            let [parameter] = rest else {
                return Err(entry
                    .error(format!("invalid number of arguments for metadata of \"${name}\""))
                    .expected("one of build_epoch, last_check, last_change"));
            };
            let fact = match &parameter.text[..] {
                b"build_epoch" => Fact::BuildEpoch,
                b"last_check" => Fact::LastCheck,
                b"last_change" => Fact::LastChange,
                _ => {
                    return Err(parameter
                        .error(format!("unknown metadata \"{parameter}\""))
                        .expected("build_epoch, last_check or last_change"));
                }
            };
            let metadata = Arc::new(Metadata { database, fact });
            cx.global::<Table<N>>().define_computed(&name, metadata, false)
        }
        args => {
            let field = Arc::new(field::<N>(cx, args, database, trust.clone())?);
            cx.global::<Table<N>>().define_computed(&name, field, false)
        }
    };
    defined.map_err(|error| entry.name.error(error.to_string()))
}

fn field<N: Namespace>(
    cx: &mut Cx<'_>,
    args: &[Word],
    database: Arc<Database>,
    trust: Arc<OnceLock<Trust>>,
) -> Result<DatabaseVariable<N>, Diagnostic> {
    let (mut default, mut source) = (None, None);
    let mut words = args;
    // As in the module, words with "=" come first; everything that follows is the path.
    while let [word, rest @ ..] = words {
        if let Some(value) = word.text.strip_prefix(b"default=") {
            default = Some(Bytes::copy_from_slice(value)).filter(|value| !value.is_empty());
        } else if let Some(value) = word.text.strip_prefix(b"source=") {
            if value.len() < 2 || value[0] != b'$' {
                return Err(word
                    .error(format!("invalid source variable name in \"{word}\""))
                    .expected("source=$variable"));
            }
            let mut variable = word.clone();
            variable.text = value.to_vec();
            source = Some(text(&variable, cx)?);
        } else if word.text.contains(&b'=') {
            return Err(word
                .error(format!("invalid setting \"{word}\""))
                .expected("default=VALUE or source=$variable, then the path"));
        } else {
            break;
        }
        words = rest;
    }
    let steps = words.iter().map(|word| match std::str::from_utf8(&word.text) {
        Ok(text) => Ok(PathStep::new(text)),
        Err(_) => Err(word.error(format!("\"{word}\" is not UTF-8"))),
    });
    let path = steps.collect::<Result<Vec<_>, _>>()?;
    Ok(DatabaseVariable { database, source, trust, path, default })
}

impl<N: Namespace> DatabaseVariable<N> {
    fn address<S: Subject<Namespace = N>>(&self, subject: &S) -> Option<IpAddr> {
        if let Some(source) = &self.source {
            let text = subject.evaluate(source);
            return std::str::from_utf8(&text).ok()?.parse().ok();
        }
        let address = subject.peer_ip()?;
        Some(match self.trust.get() {
            Some(trust) if !trust.proxies.is_empty() => {
                subject.forwarded(address, &trust.proxies, trust.recursive)
            }
            _ => address,
        })
    }
}

impl<N: Namespace<Subject = S>, S: Subject<Namespace = N>> Compute<S> for DatabaseVariable<N> {
    fn sources(&self, add: &mut dyn FnMut(crate::Index)) {
        self.source.iter().for_each(|source| source.each_variable(add));
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let address = self.address(subject).map(|address| address.to_canonical());
        let value = address.and_then(|address| self.database.find(address, &self.path));
        value.map(Bytes::from).or_else(|| self.default.clone())
    }
}

impl<S: Subject> Compute<S> for Metadata {
    fn compute(&self, _subject: &S) -> Option<Bytes> {
        Some(self.database.fact(self.fact)?.to_string().into())
    }
}
