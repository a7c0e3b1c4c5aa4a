//! The background work of a store: which worker does it.
//!
//! Every worker offers itself with [`Store::tend`]; one of them does the work for the process, as
//! tasks among its others: the [manager](crate::manager), the [loader](crate::loader) and the
//! saving of the index. When that worker ends, another takes over. The tasks hold the store only
//! while they work, so that a store removed by a reload can be dropped.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use nowait_runtime::spawn;
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use rustc_hash::FxHashSet;

use crate::store::Store;
use crate::{loader, manager, saved_index};

thread_local! {
    /// Stores that this worker tends or waits to tend.
    static OFFERED: RefCell<FxHashSet<u64>> = RefCell::default();
}

impl Store {
    /// Offers this worker for the store's background work; returns at once. Called on every worker
    /// for every store of a new generation; repeated calls have no effect.
    pub fn tend(self: &Arc<Self>) {
        let id = self.id();
        if !OFFERED.with_borrow_mut(|offered| offered.insert(id)) {
            return;
        }
        self.recall.begin();
        let (store, lease) = (Arc::downgrade(self), self.lease.clone());
        drop(spawn(async move {
            if let Either::Right(Some(held)) = select(stopping(), lease.take()).await {
                work(&store).await;
                drop(held);
            }
            OFFERED.with_borrow_mut(|offered| offered.remove(&id));
        }));
    }
}

/// Runs all background work until the worker ends or the store is dropped.
async fn work(store: &Weak<Store>) {
    let loading = spawn(loader::run(store.clone()));
    let managing = spawn(manager::run(store.clone()));
    let saving = spawn(saved_index::run(store.clone()));
    // A task that panicked was reported by the worker; the others continue.
    let _ = managing.await;
    let _ = loading.await;
    let _ = saving.await;
}
