//! FastCGI 1.0, the web server's side: one request at a time on a connection.
//! <https://fastcgi-archives.github.io/FastCGI_Specification.html>

mod record;
mod request;
mod response;

pub use record::{RecordEvent, RecordStep, RecordType, Records};
pub use request::{CONTENT_BYTES_MAX, Params, begin, end, head, padding, write};
pub use response::{FastCgiContext, FastCgiResponse, STDERR_BYTES_MAX};
