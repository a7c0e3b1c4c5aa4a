//! Thread-per-core runtime: drivers, tasks, timers, sockets, files, thread pools.
