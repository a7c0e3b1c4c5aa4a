//! Stream in one worker: its sessions, its view of the configuration.
//!
//! Made by the program on each worker's thread. Everything in it belongs to that thread.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use nowait_front::log::Level;
use nowait_front::resolvers;
use nowait_runtime::net::Accepted;
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, sleep, spawn, worker};
use nowait_sys::listen::ListenAddress;

use crate::counts::Counts;
use crate::generation::{Current, Generation};
use crate::phases;
use crate::session::{Arrival, Session, Transport};
use crate::udp::{self, Receiving};

/// Stream in one worker.
pub struct Worker {
    current: RefCell<Rc<Current>>,
    /// Tasks that the newest generation needs besides its sessions.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    pub(crate) counts: Counts,
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(Current::new(generation)),
            tasks: RefCell::default(),
            counts: Counts::new(),
        })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Serves this generation from now on; sessions keep theirs until they end. Called on the running
    /// worker, for the first generation too.
    pub fn activate(&self, generation: Arc<Generation>) {
        let logs = Arc::downgrade(&generation.logs);
        let log: nowait_resolver::Log = Arc::new(move |message| {
            if let Some(logs) = logs.upgrade() {
                logs.error(Level::Error, message);
            }
        });
        let Generation { conf, resolvers, .. } = &*generation;
        let tasks = resolvers::watch_names(&conf.upstreams, resolvers, conf.resolving, &log);
        self.tasks.replace(tasks).into_iter().for_each(JoinHandle::abort);
        let limit = generation.shutdown_timeout;
        let old = self.current.replace(Current::new(generation));
        // Without sessions there is nothing to end.
        if let Some(limit) = limit
            && Rc::strong_count(&old) > 1
        {
            let old = Rc::downgrade(&old);
            drop(spawn(async move {
                // A worker that ends has a limit of its own.
                select(sleep(limit), worker::stopping()).await;
                if let Some(old) = old.upgrade()
                    && !worker::is_stopping()
                {
                    old.expire();
                }
            }));
        }
    }

    /// Begins to receive datagrams from a socket that the master has opened.
    ///
    /// # Errors
    /// When the descriptor is not one that can be watched.
    pub fn receive(
        self: &Rc<Self>,
        listen: &Arc<ListenAddress>,
        fd: OwnedFd,
    ) -> io::Result<Receiving> {
        udp::receive(self, listen, fd)
    }

    /// Serves a connection to its end.
    pub fn serve(
        &self,
        listen: &Arc<ListenAddress>,
        accepted: Accepted,
    ) -> impl Future<Output = ()> + use<> {
        let Accepted { stream, peer } = accepted;
        let arrival = Arrival {
            transport: Transport::Tcp(stream),
            peer,
            listen: listen.clone(),
            counted: self.counts.session(false),
        };
        let session = Session::new(self.current(), arrival);
        async move {
            if let Some(session) = session {
                phases::serve(&session).await;
            }
        }
    }
}
