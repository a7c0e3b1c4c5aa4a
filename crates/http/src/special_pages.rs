//! Reason phrases and built-in pages for statuses without a body of their own.
//!
//! The structure of the pages is nginx's (title, heading, rule, server line, CRLF line ends), because
//! scripts and tests match it. Pages are built once per process and shared; the special response
//! handler picks one with [`page`].

use std::sync::LazyLock;

use bytes::Bytes;

use nowait_message::escape;

/// The product in `Server` and on pages.
pub const PRODUCT: &str = "nowait";
/// The product with its version, such as `nowait/0.1.0`.
pub const PRODUCT_VERSION: &str = concat!("nowait/", env!("CARGO_PKG_VERSION"));

/// `Content-Type` of all pages here.
pub const CONTENT_TYPE: &str = "text/html";

/// The `server_tokens` directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerTokens {
    /// Product and version.
    #[default]
    On,
    /// The product only.
    Off,
    /// Product, version and build name. Builds have no name, so it equals `On`, as nginx's does
    /// without one.
    Build,
}

impl ServerTokens {
    /// The value of the `Server` field and the last line of a page.
    pub fn text(self) -> &'static str {
        match self {
            ServerTokens::On | ServerTokens::Build => PRODUCT_VERSION,
            ServerTokens::Off => PRODUCT,
        }
    }

    /// The line of the `Server` field.
    pub fn line(self) -> &'static str {
        match self {
            ServerTokens::On | ServerTokens::Build => {
                concat!("Server: nowait/", env!("CARGO_PKG_VERSION"), "\r\n")
            }
            ServerTokens::Off => "Server: nowait\r\n",
        }
    }
}

/// The client took too long to send its request. Only in logs where nothing can be sent any more.
pub const REQUEST_TIMEOUT: u16 = 408;

/// Statuses that exist only between modules and in logs, as in nginx.
pub mod internal {
    /// Close the connection without a response.
    pub const CLOSE: u16 = 444;
    /// A request header line, or all of them, exceeded the buffers. Sent as 400.
    pub const REQUEST_HEADER_TOO_LARGE: u16 = 494;
    /// The client's certificate failed verification. Sent as 400.
    pub const CERT_ERROR: u16 = 495;
    /// The client sent no certificate. Sent as 400.
    pub const NO_CERT: u16 = 496;
    /// A plain request on a TLS port. Sent as 400.
    pub const TO_HTTPS: u16 = 497;
    /// The request was cancelled while being handled.
    pub const CANCELED: u16 = 498;
    /// The client closed the connection before a response could be sent. Only in logs. nginx:
    /// `NGX_HTTP_CLIENT_CLOSED_REQUEST`.
    pub const CLIENT_CLOSED: u16 = 499;
}

/// The status of the status line for one of the modules' statuses.
pub fn sent_status(status: u16) -> u16 {
    match status {
        internal::REQUEST_HEADER_TOO_LARGE
        | internal::CERT_ERROR
        | internal::NO_CERT
        | internal::TO_HTTPS => 400,
        other => other,
    }
}

/// The connection is not kept alive after a built-in response of this status: its framing can no longer be
/// trusted, or the server has failed.
pub fn closes_connection(status: u16) -> bool {
    matches!(
        status,
        400 | 413 | 414 | 500 | 501 | internal::CERT_ERROR | internal::NO_CERT | internal::TO_HTTPS
    )
}

/// No lingering close follows either, since the rest of the input is not HTTP.
pub fn skips_lingering(status: u16) -> bool {
    matches!(status, 400 | internal::CERT_ERROR | internal::NO_CERT | internal::TO_HTTPS)
}

/// A status line's text and a page's text, if they differ.
struct Status {
    code: u16,
    reason: &'static str,
    page: Option<&'static str>,
}

const fn same(code: u16, reason: &'static str) -> Status {
    Status { code, reason, page: Some(reason) }
}

const fn bare(code: u16, reason: &'static str) -> Status {
    Status { code, reason, page: None }
}

const fn other(code: u16, reason: &'static str, page: &'static str) -> Status {
    Status { code, reason, page: Some(page) }
}

/// nginx's words where it has them (302, 408, 413, 414, 416, 503, 504 differ from RFC 9110).
/// In ascending order.
static STATUSES: &[Status] = &[
    bare(100, "Continue"),
    bare(101, "Switching Protocols"),
    bare(103, "Early Hints"),
    bare(200, "OK"),
    bare(201, "Created"),
    bare(202, "Accepted"),
    bare(204, "No Content"),
    bare(206, "Partial Content"),
    same(301, "Moved Permanently"),
    other(302, "Moved Temporarily", "Found"),
    same(303, "See Other"),
    bare(304, "Not Modified"),
    same(307, "Temporary Redirect"),
    same(308, "Permanent Redirect"),
    same(400, "Bad Request"),
    other(401, "Unauthorized", "Authorization Required"),
    same(402, "Payment Required"),
    same(403, "Forbidden"),
    same(404, "Not Found"),
    same(405, "Not Allowed"),
    same(406, "Not Acceptable"),
    same(407, "Proxy Authentication Required"),
    same(408, "Request Time-out"),
    same(409, "Conflict"),
    same(410, "Gone"),
    same(411, "Length Required"),
    same(412, "Precondition Failed"),
    same(413, "Request Entity Too Large"),
    same(414, "Request-URI Too Large"),
    same(415, "Unsupported Media Type"),
    same(416, "Requested Range Not Satisfiable"),
    same(421, "Misdirected Request"),
    same(429, "Too Many Requests"),
    same(500, "Internal Server Error"),
    same(501, "Not Implemented"),
    same(502, "Bad Gateway"),
    same(503, "Service Temporarily Unavailable"),
    same(504, "Gateway Time-out"),
    same(505, "HTTP Version Not Supported"),
    same(507, "Insufficient Storage"),
];

/// The pages of the statuses that are sent as 400.
const AS_400: [(u16, &str); 4] = [
    (internal::REQUEST_HEADER_TOO_LARGE, "Request Header Or Cookie Too Large"),
    (internal::CERT_ERROR, "The SSL certificate error"),
    (internal::NO_CERT, "No required SSL certificate was sent"),
    (internal::TO_HTTPS, "The plain HTTP request was sent to HTTPS port"),
];

/// The reason phrase of a status, `None` for those that nginx sends without one.
pub fn reason(status: u16) -> Option<&'static str> {
    let at = STATUSES.binary_search_by_key(&status, |entry| entry.code).ok()?;
    Some(STATUSES[at].reason)
}

/// The text of the page of a status, `None` for statuses without one.
pub fn page_title(status: u16) -> Option<&'static str> {
    let at = STATUSES.binary_search_by_key(&status, |entry| entry.code).ok()?;
    STATUSES[at].page
}

/// Appended to error pages for browsers that replace short ones (`msie_padding`).
const PADDING_LINE: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";
const PADDING_LINES: usize = 6;

/// One page in its four forms.
struct Page {
    status: u16,
    /// By [`ServerTokens::Off`] and padding.
    forms: [[Bytes; 2]; 2],
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let plain = STATUSES.iter().filter_map(|entry| {
        let title = format!("{} {}", entry.code, entry.page?);
        Some((entry.code, build_head(&title, &title, None)))
    });
    let as_400 = AS_400.iter().map(|&(status, text)| {
        (status, build_head(&format!("400 {text}"), "400 Bad Request", Some(text)))
    });
    let canceled = (internal::CANCELED, build_head("404 Not Found", "404 Not Found", None));
    let mut pages: Vec<Page> = plain
        .chain(as_400)
        .chain([canceled])
        .map(|(status, head)| Page { status, forms: build_forms(&head) })
        .collect();
    pages.sort_by_key(|page| page.status);
    pages
});

fn build_head(title: &str, heading: &str, detail: Option<&str>) -> String {
    let detail = detail.map_or(String::new(), |text| format!("<center>{text}</center>\r\n"));
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n\
         <center><h1>{heading}</h1></center>\r\n{detail}"
    )
}

fn build_forms(head: &str) -> [[Bytes; 2]; 2] {
    let form = |server: &str, padding: usize| {
        let padding = PADDING_LINE.repeat(padding);
        Bytes::from(format!(
            "{head}<hr><center>{server}</center>\r\n</body>\r\n</html>\r\n{padding}"
        ))
    };
    [ServerTokens::On, ServerTokens::Off]
        .map(|tokens| [form(tokens.text(), 0), form(tokens.text(), PADDING_LINES)])
}

/// The page for a status, `None` if its response has no body. `padding` (for the browsers of
/// `msie_padding`) counts for statuses from 400 only.
pub fn page(status: u16, tokens: ServerTokens, padding: bool) -> Option<Bytes> {
    let at = PAGES.binary_search_by_key(&status, |page| page.status).ok()?;
    let off = usize::from(tokens == ServerTokens::Off);
    let padded = usize::from(padding && status >= 400);
    Some(PAGES[at].forms[off][padded].clone())
}

/// The page that replaces a redirect for old browsers (`msie_refresh`); its status is 200 and it
/// has no `Location`.
pub fn refresh_page(location: &[u8]) -> Bytes {
    let mut out = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    escape::push_uri(&mut out, escape::Set::Refresh, location);
    out.extend_from_slice(b"\"></head><body></body></html>\r\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: u16, tokens: ServerTokens, padding: bool) -> String {
        String::from_utf8(page(status, tokens, padding).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn status_lines_agree_with_pages() {
        for tokens in [ServerTokens::On, ServerTokens::Off, ServerTokens::Build] {
            assert_eq!(tokens.line(), format!("Server: {}\r\n", tokens.text()));
        }
    }

    #[test]
    fn statuses_are_sorted() {
        assert!(STATUSES.is_sorted_by_key(|entry| entry.code));
        assert_eq!(reason(302), Some("Moved Temporarily"));
        assert_eq!(reason(299), None);
        assert_eq!(reason(499), None);
    }

    #[test]
    fn structure() {
        assert_eq!(
            text(404, ServerTokens::On, false),
            format!(
                "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n\
                 <center><h1>404 Not Found</h1></center>\r\n\
                 <hr><center>{PRODUCT_VERSION}</center>\r\n</body>\r\n</html>\r\n"
            )
        );
        assert!(text(404, ServerTokens::Off, false).contains("<center>nowait</center>"));
        assert_eq!(text(404, ServerTokens::Build, false), text(404, ServerTokens::On, false));
        assert!(text(302, ServerTokens::On, false).contains("<h1>302 Found</h1>"));
        assert!(text(401, ServerTokens::On, false).contains("401 Authorization Required"));
        for status in [200, 204, 304, 417, 499, 506, 0, 65535] {
            assert_eq!(page(status, ServerTokens::On, false), None);
        }
    }

    #[test]
    fn sent_as_400() {
        let page = text(494, ServerTokens::On, false);
        assert!(page.contains("<title>400 Request Header Or Cookie Too Large</title>"));
        assert!(page.contains(
            "<h1>400 Bad Request</h1></center>\r\n\
             <center>Request Header Or Cookie Too Large</center>\r\n<hr>"
        ));
        assert_eq!([494, 495, 496, 497, 498, 404].map(sent_status), [400, 400, 400, 400, 498, 404]);
        assert!(closes_connection(497) && !closes_connection(404) && !closes_connection(494));
        assert!(skips_lingering(400) && !skips_lingering(413));
    }

    #[test]
    fn padding_is_for_errors_and_large_enough() {
        // Browsers replaced pages of less than 512 bytes.
        assert!(text(400, ServerTokens::Off, true).len() > 512);
        assert_eq!(text(301, ServerTokens::On, true), text(301, ServerTokens::On, false));
    }

    #[test]
    fn refresh() {
        assert_eq!(
            &refresh_page(b"http://a/\"<x>")[..],
            b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=http://a/%22%3Cx%3E\">\
              </head><body></body></html>\r\n"
        );
    }
}
