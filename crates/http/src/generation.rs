//! A worker's view of a generation of the configuration.
//!
//! The program makes a [`Generation`] per reload and hands it to every worker; a worker wraps it in
//! a [`Current`], whose reference counts stay on the worker's own core. A request keeps the one
//! that it began with, so a reload never changes a request in flight.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use nowait_cache::Store;
use nowait_runtime::fs::{Aio, Io};
use nowait_runtime::pool::Pool;
use nowait_runtime::reaper::Reaped;
use nowait_variables::Subject;

use crate::conf::files::AioConf;
use crate::conf::{HttpConf, LocationId};
use crate::open_file_cache::Caches;
use crate::variables::complex::HttpVariables;

/// A configuration in use, shared by all workers. Dropping the last reference, often on an event loop, does
/// not wait until it is freed.
pub type Generation = Reaped<Contents>;

/// The parts of a [`Generation`].
pub struct Contents {
    /// Counted from 1.
    pub number: u64,
    /// The `http` block.
    pub conf: HttpConf,
    /// Thread pools by name; `default` always exists.
    pub pools: HashMap<String, Pool>,
    /// The caches, by their numbers in the configuration.
    pub caches: Vec<Arc<nowait_cache::Store>>,
    /// The resolvers.
    pub resolvers: crate::resolvers::Resolvers,
    /// The logs.
    pub logs: nowait_front::logs::Logs,
    /// Status of `stream` sessions for status pages; `None` without such a block.
    pub sessions: Option<nowait_front::sessions::ReportSessions>,
    /// Counters of QUIC for status pages; `None` without such addresses.
    pub quic: Option<nowait_front::sessions::ReportQuic>,
    /// Dropped with the generation, which reports to the program that it has drained.
    pub lifeline: Box<dyn std::any::Any + Send + Sync>,
}

/// A worker's view of a generation.
pub struct Current {
    generation: Arc<Generation>,
    /// Settings of file operations, one per location, made at first use.
    io: RefCell<Vec<Option<Rc<Io>>>>,
    /// The same for the files of the locations' caches.
    cache_io: RefCell<Vec<Option<Rc<Io>>>>,
    /// The caches of `open_file_cache`.
    pub(crate) open_files: Caches,
}

impl std::ops::Deref for Current {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.generation
    }
}

impl Current {
    /// For this worker.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        let locations = generation.conf.locations().len();
        let none = || RefCell::new(vec![None; locations]);
        Rc::new(Self { generation, io: none(), cache_io: none(), open_files: Caches::default() })
    }

    /// The generation, for what must not keep it.
    pub fn generation(&self) -> Weak<Generation> {
        Arc::downgrade(&self.generation)
    }

    /// The error log, for tasks that must not keep the generation.
    pub fn error_log(&self) -> nowait_resolver::ResolverLog {
        let generation = Arc::downgrade(&self.generation);
        Arc::new(move |message| {
            if let Some(generation) = generation.upgrade() {
                generation.logs.error(crate::log::Level::Error, message);
            }
        })
    }

    /// Whether this belongs to the same generation.
    pub fn is_of(&self, generation: &Arc<Generation>) -> bool {
        Arc::ptr_eq(&self.generation, generation)
    }

    /// The pool for CPU work, independent of hanging disks.
    pub fn compute_pool(&self) -> &Pool {
        self.pools.get(COMPUTE_POOL).unwrap_or_else(|| self.default_pool())
    }

    /// The pool for all work without another pool.
    pub fn default_pool(&self) -> &Pool {
        &self.pools[crate::generation::DEFAULT_POOL]
    }

    /// The file settings of a location. The name of its pool may have variables of `subject`.
    pub fn io(
        &self,
        location: LocationId,
        subject: &impl Subject<Namespace = HttpVariables>,
    ) -> Rc<Io> {
        let at = location.0 as usize;
        if let Some(Some(io)) = self.io.borrow().get(at) {
            return io.clone();
        }
        let (io, constant) = self.make_io(location, subject);
        let io = Rc::new(io);
        if constant && let Some(slot) = self.io.borrow_mut().get_mut(at) {
            *slot = Some(io.clone());
        }
        io
    }

    /// The file settings for the cache `store` in a location that reads files with `io`; `fixed`: the same
    /// for all requests of the location.
    pub fn cache_io(
        &self,
        location: LocationId,
        io: impl FnOnce() -> Rc<Io>,
        store: &Store,
        fixed: bool,
    ) -> Rc<Io> {
        let at = location.0 as usize;
        if let Some(Some(io)) = self.cache_io.borrow().get(at) {
            return io.clone();
        }
        let io = Rc::new(store.io(&io()));
        let constant = fixed
            && match &self.conf.location(location).files.aio {
                AioConf::Threads(name) => name.literal().is_some(),
                AioConf::Off | AioConf::On | AioConf::Blocking => true,
            };
        if constant && let Some(slot) = self.cache_io.borrow_mut().get_mut(at) {
            *slot = Some(io.clone());
        }
        io
    }

    /// The settings, and whether they are the same for all requests of the location.
    fn make_io(
        &self,
        location: LocationId,
        subject: &impl Subject<Namespace = HttpVariables>,
    ) -> (Io, bool) {
        let files = &self.conf.location(location).files;
        let (aio, pool, constant) = match &files.aio {
            AioConf::Off => (Aio::Off, self.default_pool().clone(), true),
            AioConf::On => (Aio::On, self.default_pool().clone(), true),
            AioConf::Blocking => (Aio::Blocking, self.default_pool().clone(), true),
            AioConf::Threads(name) => {
                let constant = name.literal().is_some();
                let name = subject.evaluate(name);
                let known =
                    std::str::from_utf8(&name).ok().and_then(|name| self.pools.get(name)).cloned();
                let pool = known.unwrap_or_else(|| {
                    subject.fault(format_args!(
                        "thread pool \"{}\" not found, using \"default\"",
                        String::from_utf8_lossy(&name)
                    ));
                    self.default_pool().clone()
                });
                (Aio::Threads, pool, constant)
            }
        };
        let mut io = Io::new(pool);
        io.aio = aio;
        io.open_in_pool = files.aio_open;
        io.directio = files.directio.0;
        io.directio_alignment = u32::try_from(files.directio_alignment.0).unwrap_or(512);
        io.read_ahead = files.read_ahead.0;
        io.read_cache = files.read_cache.0;
        if files.resident_files {
            let max = files.resident_files_max_size.0.min(RESIDENT_BYTES_MAX);
            io.resident = usize::try_from(max).unwrap_or(0);
        }
        (io, constant)
    }
}

/// Largest resident file in bytes: beyond, `sendfile` is as cheap.
const RESIDENT_BYTES_MAX: u64 = 1024 * 1024;

/// Name of the pool that always exists.
pub const DEFAULT_POOL: &str = "default";

/// Name of the pool for CPU work.
pub const COMPUTE_POOL: &str = "compute";
