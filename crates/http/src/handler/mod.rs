//! Handlers: each produces the response of a location, or declines.
//!
//! Called by the content phase. A handler never writes to a socket: it returns a response whose body is
//! pulled.

pub mod autoindex;
pub mod empty_gif;
pub mod index;
pub mod precompressed;
pub mod random_index;
pub mod static_file;
pub mod stub_status;
pub mod try_files;
