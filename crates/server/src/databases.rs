//! Keeps the databases of `geoip2` up to date: a task on one of the workers periodically checks their
//! files, in a pool. It serves `http` and `stream`, and ends with its generation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nowait_front::log::Level;
use nowait_front::log::error::{ErrorLog, LineContext};
use nowait_runtime::pool::{Pool, blocking};
use nowait_runtime::task::select;
use nowait_runtime::{sleep, spawn, worker};
use nowait_variables::geoip2::{self, Database};

/// The databases of a generation.
pub struct Databases {
    list: geoip2::Databases,
    pool: Pool,
    log: ErrorLog,
    /// Whether a worker has taken the task.
    watched: AtomicBool,
}

impl Databases {
    /// Reads all databases. Blocks.
    ///
    /// # Errors
    /// The message for the log.
    pub fn load(list: geoip2::Databases, pool: Pool, log: ErrorLog) -> Result<Self, String> {
        list.load()?;
        Ok(Self { list, pool, log, watched: AtomicBool::new(false) })
    }

    /// Starts watching the files on this worker, unless another one does.
    pub fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        for entry in self.list.iter() {
            let Some(interval) = entry.interval else { continue };
            let (database, generation) = (entry.database.clone(), Arc::downgrade(self));
            drop(spawn(async move {
                let watch = async {
                    loop {
                        sleep(interval).await;
                        // An unused generation needs no updates.
                        let Some(reloading) = reload(&database, &generation) else { return };
                        reloading.await;
                    }
                };
                select(worker::stopping(), watch).await;
            }));
        }
    }
}

fn reload(
    database: &Arc<Database>,
    generation: &Weak<Databases>,
) -> Option<impl Future<Output = ()> + use<>> {
    let databases = generation.upgrade()?;
    let database = database.clone();
    Some(async move {
        let work = database.clone();
        let done = blocking(&databases.pool, move || work.reload()).await;
        let path = database.path().display();
        let entry = LineContext::default();
        match done {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                databases.log.log(
                    Level::Notice,
                    entry,
                    format_args!("database \"{path}\" reloaded"),
                );
            }
            Ok(Err(error)) => {
                let text = format_args!("cannot reload database \"{path}\": {error}");
                databases.log.log(Level::Error, entry, text);
            }
            Err(error) => {
                let text = format_args!("cannot reload database \"{path}\": {error}");
                databases.log.log(Level::Error, entry, text);
            }
        }
    })
}
