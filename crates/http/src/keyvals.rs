//! The key-value zones of a configuration: defined by a module, changed by another one.

use std::sync::Arc;

use nowait_front::keyval::KeyvalZone;

use crate::slots::Key;

/// The zones of `keyval_zone`.
pub static KEYVALS: Key<Vec<Arc<KeyvalZone>>> = Key::new();
