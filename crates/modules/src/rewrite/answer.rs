//! `return`. nginx: `ngx_http_script_return_code`, `ngx_http_send_response`.

use bytes::Bytes;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::special_pages::internal::CLOSE;
use nowait_http::variables::complex::Complex;

/// A `return` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Return {
    /// The status; 444 closes the connection.
    pub status: u16,
    /// Text of the response, or target of a redirect.
    pub text: Option<Complex>,
}

impl Return {
    /// Produces the response.
    pub fn run(&self, request: &mut Request) -> Outcome {
        let Some(text) = &self.text else {
            return match self.status {
                CLOSE => Outcome::Close,
                status @ (301 | 302 | 303 | 307 | 308 | 400..) => Outcome::status(status),
                status => respond(request, status, Bytes::new()),
            };
        };
        let value = match text.literal() {
            Some(text) => text.clone(),
            None => {
                // It may contain `$status`.
                request.out_mut().status = self.status;
                request.evaluate(text)
            }
        };
        match self.status {
            status @ (301 | 302 | 303 | 307 | 308) => {
                // The state that an error page for this status observes.
                request.out_mut().status = status;
                Outcome::moved(status, value)
            }
            status => respond(request, status, value),
        }
    }
}

fn respond(request: &Request, status: u16, text: Bytes) -> Outcome {
    let mut head = Head::new(status);
    head.content_type = request.location().content_type(request.uri());
    head.content_length = Some(text.len() as u64);
    let body = if text.is_empty() { Body::Empty } else { Body::Bytes(text) };
    Response { head, body }.into()
}
