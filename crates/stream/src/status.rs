//! What a session came to: `$status`. nginx: `ngx_stream.h`.

/// The status of a session, as nginx numbers them after those of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// It was served; also when a side broke it off, or nothing moved any more.
    Ok = 200,
    /// What the client sent at first can't be understood.
    BadRequest = 400,
    /// The client may not come in.
    Forbidden = 403,
    /// Our fault, or the configuration's.
    InternalServerError = 500,
    /// No server could be reached.
    BadGateway = 502,
    /// A limit was reached.
    ServiceUnavailable = 503,
}

impl Status {
    /// As a number.
    pub fn code(self) -> u16 {
        self as u16
    }
}
