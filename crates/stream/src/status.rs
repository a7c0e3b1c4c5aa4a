//! The outcome of a session: `$status`. nginx: `ngx_stream.h`.

/// The status of a session, numbered like HTTP's, as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Served; also if a side closed early or the session timed out.
    Ok = 200,
    /// The client's first data was invalid.
    BadRequest = 400,
    /// Access denied.
    Forbidden = 403,
    /// An internal or configuration error.
    InternalServerError = 500,
    /// No server could be reached.
    BadGateway = 502,
    /// A limit was reached.
    ServiceUnavailable = 503,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 6] = [
        Status::Ok,
        Status::BadRequest,
        Status::Forbidden,
        Status::InternalServerError,
        Status::BadGateway,
        Status::ServiceUnavailable,
    ];

    /// As a number.
    pub fn code(self) -> u16 {
        self as u16
    }
}
