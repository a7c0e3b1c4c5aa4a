//! The state of `stream` in one worker: its sessions, its view of the configuration.
//!
//! Made by the program on each worker's thread. All state belongs to that thread.

use std::cell::{OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use nowait_front::handover::{Handover, ListenerDirectory};
use nowait_front::log::Level;
use nowait_front::resolvers;
use nowait_runtime::net::{Accepted, Address};
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, sleep, spawn, worker};
use nowait_sys::listen::ListenAddress;

use crate::counts::Counts;
use crate::generation::{Current, Generation, StreamContents};
use crate::phases;
use crate::session::{Arrival, Session, SessionTransport};

/// Stream in one worker.
pub struct Worker {
    current: RefCell<Rc<Current>>,
    /// Former generations that sessions still used when they were replaced.
    former: RefCell<Vec<Weak<Current>>>,
    /// Tasks of the newest generation besides its sessions.
    tasks: RefCell<Vec<JoinHandle<()>>>,
    pub(crate) counts: Counts,
    /// Receives connections that are handed over (`pass`).
    directory: OnceCell<Weak<dyn ListenerDirectory>>,
}

impl Worker {
    /// A worker that serves this generation.
    pub fn new(generation: Arc<Generation>) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(Current::new(generation)),
            former: RefCell::default(),
            tasks: RefCell::default(),
            counts: Counts::new(),
            directory: OnceCell::new(),
        })
    }

    /// The newest generation.
    pub fn current(&self) -> Rc<Current> {
        self.current.borrow().clone()
    }

    /// Switches to this generation; sessions keep theirs until they end. Called on the running
    /// worker, for the first generation too.
    pub fn activate(&self, generation: Arc<Generation>) {
        let logs = Arc::downgrade(&generation.logs);
        let log: nowait_resolver::ResolverLog = Arc::new(move |message| {
            if let Some(logs) = logs.upgrade() {
                logs.error(Level::Error, message);
            }
        });
        let StreamContents { conf, resolvers, .. } = &**generation;
        let tasks = resolvers::watch_names(&conf.upstreams, resolvers, conf.resolving, &log);
        self.tasks.replace(tasks).into_iter().for_each(JoinHandle::abort);
        let limit = generation.shutdown_timeout;
        let old = self.current.replace(Current::new(generation));
        // Without sessions, there are none to end.
        if Rc::strong_count(&old) == 1 {
            return;
        }
        let old = Rc::downgrade(&old);
        let mut former = self.former.borrow_mut();
        former.retain(|one| one.strong_count() > 0);
        former.push(old.clone());
        if let Some(limit) = limit {
            drop(spawn(async move {
                // A worker that shuts down has its own limit.
                select(sleep(limit), worker::stopping()).await;
                if let Some(old) = old.upgrade()
                    && !worker::is_stopping()
                {
                    old.expire();
                }
            }));
        }
    }

    /// Ends all sessions.
    pub fn cut(&self) {
        let former: Vec<_> = self.former.borrow().iter().filter_map(Weak::upgrade).collect();
        for one in former.iter().chain([&self.current()]) {
            one.expire();
        }
    }

    /// Serves a connection until it ends.
    pub fn serve(
        &self,
        listen: &Arc<ListenAddress>,
        accepted: Accepted,
    ) -> impl Future<Output = ()> + use<> {
        let Accepted { stream, peer } = accepted;
        let arrival = Arrival {
            transport: SessionTransport::Tcp(stream),
            peer,
            listen: listen.clone(),
            counted: self.counts.session(false),
        };
        self.run(Session::new(self.current(), arrival))
    }

    /// Serves a connection handed over by another listening socket, until it ends.
    pub fn serve_passed(&self, connection: Handover) -> impl Future<Output = ()> + use<> {
        let counted = self.counts.session(false);
        self.run(Session::of_passed(self.current(), connection, counted))
    }

    fn run(&self, session: Option<Session>) -> impl Future<Output = ()> + use<> {
        let directory = self.directory.get().cloned();
        async move {
            let Some(session) = session else { return };
            phases::serve(&session).await;
            if let Some(to) = session.pass_to.take()
                && let Some(directory) = directory.and_then(|directory| directory.upgrade())
            {
                hand_over(session, *to, &*directory);
            }
        }
    }

    /// Sets the receiver of connections that are handed over. Called once.
    pub fn set_directory(&self, directory: Weak<dyn ListenerDirectory>) {
        // A second call would be a bug in the program; the first one counts.
        let _ = self.directory.set(directory);
    }
}

/// Hands a connection over (`pass`), if a listening socket has this address.
fn hand_over(mut session: Session, to: Address, directory: &dyn ListenerDirectory) {
    let Some(listen) = directory.find(&to) else {
        session.log(Level::Error, format_args!("port not found for \"{to}\""));
        return;
    };
    let passes = session.passes + 1;
    let peer = session.peer().clone();
    let transport = std::mem::replace(&mut session.transport, SessionTransport::Gone);
    let SessionTransport::Tcp(stream) = transport else { return };
    let input = session.input.take();
    let proxy_protocol = session.proxy_protocol.take();
    // The session no longer counts for limits here.
    drop(session);
    directory.enter(Handover { stream, peer, local: to, listen, input, proxy_protocol, passes });
}
