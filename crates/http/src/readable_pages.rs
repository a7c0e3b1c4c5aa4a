//! Error pages for browsers, with one sentence of explanation: `error_page_format page`.
//!
//! Used by [`crate::error_page`]. The pages have no data from requests. They are built once per process and
//! shared, like nginx's ([`crate::special_pages`]).

use std::sync::LazyLock;

use bytes::Bytes;

use crate::page_style;
use crate::special_pages::{self, ServerTokens, internal};

static STYLE: LazyLock<String> =
    LazyLock::new(|| [page_style::STYLE, include_str!("page_style/error.css")].concat());

static POLICY: LazyLock<Bytes> = LazyLock::new(|| page_style::policy(&STYLE, None).into());

/// The explanations, by status.
const SENTENCES: [(u16, &str); 25] = [
    (400, "The server could not understand the request."),
    (401, "This page requires a user name and a password."),
    (402, "This page requires a payment."),
    (403, "The server is not permitted to show this page."),
    (404, "There is nothing at this address."),
    (405, "This address does not accept requests of this kind."),
    (406, "The page is not available in a form that the browser accepts."),
    (408, "The request took too long to arrive."),
    (409, "The request contradicts the present state of the page."),
    (410, "The page that was at this address has been removed."),
    (411, "The request did not say how long it is."),
    (412, "The page is no longer in the state that the request expects."),
    (413, "The request is larger than the server accepts."),
    (414, "The address is longer than the server accepts."),
    (415, "The server does not accept content of this type."),
    (416, "The file does not have the requested part."),
    (421, "The request reached a server that is not responsible for this address."),
    (429, "Too many requests arrived in a short time. Try again in a moment."),
    (500, "An error occurred in the server. Its error log says more."),
    (501, "The server does not support requests of this kind."),
    (502, "The server behind this one did not give a valid answer."),
    (503, "The server cannot answer at the moment. Try again in a while."),
    (504, "The server behind this one did not answer in time."),
    (505, "The server does not support this version of HTTP."),
    (507, "The server does not have enough space for this request."),
];

/// The sentences of nginx's own statuses, which are sent as others.
const OWN: [(u16, &str); 5] = [
    (internal::REQUEST_HEADER_TOO_LARGE, "The header of the request, or a cookie, is too large."),
    (internal::CERT_ERROR, "The certificate of the browser was not accepted."),
    (internal::NO_CERT, "This page requires a certificate of the browser."),
    (internal::TO_HTTPS, "The address must begin with https:// here."),
    (internal::CANCELED, "There is nothing at this address."),
];

struct Page {
    status: u16,
    /// By [`ServerTokens::Off`].
    forms: [Bytes; 2],
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let page = |&(status, sentence): &(u16, &str)| {
        let shown = match status {
            internal::CANCELED => 404,
            other => special_pages::sent_status(other),
        };
        let forms =
            [ServerTokens::On, ServerTokens::Off].map(|tokens| build(shown, sentence, tokens));
        Page { status, forms }
    };
    let mut pages: Vec<Page> = SENTENCES.iter().chain(&OWN).map(page).collect();
    pages.sort_by_key(|page| page.status);
    pages
});

fn build(status: u16, sentence: &str, tokens: ServerTokens) -> Bytes {
    let reason = special_pages::page_title(status).unwrap_or("Error");
    Bytes::from(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{status} {reason}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n\
         <h1><span>{status}</span> {reason}</h1>\n<p>{sentence}</p>\n\
         <a href=\"/\">Go to the start page</a>\n</main>\n<footer>{}</footer>\n</body>\n</html>\n",
        *STYLE,
        tokens.text()
    ))
}

/// The page of a status; `None` if there is none.
pub fn page(status: u16, tokens: ServerTokens) -> Option<Bytes> {
    let at = PAGES.binary_search_by_key(&status, |page| page.status).ok()?;
    Some(PAGES[at].forms[usize::from(tokens == ServerTokens::Off)].clone())
}

/// The value of `Content-Security-Policy` for these pages.
pub fn policy() -> Bytes {
    POLICY.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: u16, tokens: ServerTokens) -> String {
        String::from_utf8(page(status, tokens).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn every_error_page_of_nginx_has_a_readable_one() {
        for status in 400..600 {
            let plain = special_pages::page(status, ServerTokens::On, false);
            let readable = page(status, ServerTokens::On);
            // 407 is not for people.
            assert_eq!(plain.is_some() && status != 407, readable.is_some(), "{status}");
        }
        for status in [200, 301, 304, 407, 499] {
            assert_eq!(page(status, ServerTokens::On), None);
        }
    }

    #[test]
    fn pages_show_the_sent_status_and_the_server() {
        let page = text(404, ServerTokens::On);
        assert!(
            page.contains("<h1><span>404</span> Not Found</h1>\n<p>There is nothing"),
            "{page}"
        );
        assert!(page.contains(special_pages::PRODUCT_VERSION));
        assert!(text(404, ServerTokens::Off).contains("<footer>nowait</footer>"));
        assert!(text(497, ServerTokens::On).contains("<title>400 Bad Request</title>"));
        assert!(text(498, ServerTokens::On).contains("<title>404 Not Found</title>"));
    }

    #[test]
    fn the_policy_allows_the_page() {
        let page = text(500, ServerTokens::On);
        let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        assert_eq!(policy(), page_style::policy(style, None));
        assert!(!page.contains(" style=") && !page.contains("<script"));
    }
}
