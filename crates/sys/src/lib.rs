//! System-call layer: safe functions over the kernel calls that Nowait needs. The one crate with unsafe code besides the io_uring driver.
