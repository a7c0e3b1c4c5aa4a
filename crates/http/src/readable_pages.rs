//! Error pages for browsers, with one sentence of explanation: `error_page_format page`.
//!
//! Used by [`crate::error_page`]. They speak to visitors, not to operators. Of a request they show `$request_id`,
//! if the server is at fault, and nothing else; the rest is built once per process.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::page_style;
use crate::special_pages::{self, ServerTokens, internal};

static STYLE: LazyLock<String> =
    LazyLock::new(|| [page_style::STYLE, include_str!("page_style/error.css")].concat());

static POLICY: LazyLock<Bytes> = LazyLock::new(|| page_style::policy(&STYLE, None).into());

/// The explanations, by status.
const SENTENCES: [(u16, &str); 25] = [
    (400, "The browser sent something that this site does not understand."),
    (401, "This page requires a user name and a password."),
    (402, "This page requires a payment."),
    (403, "You do not have access to this page."),
    (404, "There is nothing at this address."),
    (405, "This address does not accept requests of this kind."),
    (406, "This page is not available in a form that your browser accepts."),
    (408, "The request took too long to arrive."),
    (409, "Somebody has changed this page in the meantime. Load it again first."),
    (410, "The page at this address has been removed."),
    (411, "The browser did not say how much it wants to send."),
    (412, "Somebody has changed this page in the meantime. Load it again first."),
    (413, "This is too large to be sent here."),
    (414, "This address is too long."),
    (415, "Files of this type are not accepted here."),
    (416, "The file does not have the requested part."),
    (421, "This address belongs to another server. Load the page again."),
    (429, "Too many requests in a short time. Try again in a moment."),
    (500, "Something went wrong here. Try again in a moment."),
    (501, "This site cannot do that."),
    (502, "This site cannot be reached at the moment. Try again in a minute."),
    (503, "This site is too busy, or under maintenance. Try again in a few minutes."),
    (504, "This site takes too long to answer at the moment. Try again in a minute."),
    (505, "Your browser speaks a version of HTTP that this site does not support."),
    (507, "There is not enough space left here to store this."),
];

/// The sentences of nginx's own statuses, which are sent as others.
const OWN: [(u16, &str); 5] = [
    (
        internal::REQUEST_HEADER_TOO_LARGE,
        "Your browser sent too many or too large cookies. Delete those of this site, and try again.",
    ),
    (internal::CERT_ERROR, "The certificate of your browser was not accepted."),
    (internal::NO_CERT, "This page requires a certificate in your browser."),
    (internal::TO_HTTPS, "The address of this site begins with https://."),
    (internal::CANCELED, "There is nothing at this address."),
];

/// Details of a request that its page depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageDetails<'a> {
    /// `$request_id`, for a visitor who reports a fault of the server.
    pub request_id: &'a str,
    /// The page is that of `/` itself, which has failed.
    pub is_start_page: bool,
}

struct Page {
    /// The status by which the page is found: nginx's own ones are sent as others.
    status: u16,
    /// The status that is sent.
    sent: u16,
    /// Up to and with the sentence.
    start: String,
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let page = |&(status, sentence): &(u16, &str)| {
        let sent = match status {
            internal::CANCELED => 404,
            other => special_pages::sent_status(other),
        };
        Page { status, sent, start: start(sent, sentence) }
    };
    let mut pages: Vec<Page> = SENTENCES.iter().chain(&OWN).map(page).collect();
    pages.sort_by_key(|page| page.status);
    pages
});

fn start(status: u16, sentence: &str) -> String {
    let reason = special_pages::page_title(status).unwrap_or("Error");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{status} {reason}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n\
         <h1><span>{status}</span> {reason}</h1>\n<p>{sentence}</p>\n",
        *STYLE
    )
}

/// The page of a status; `None` if there is none.
pub fn page(status: u16, tokens: ServerTokens, details: PageDetails<'_>) -> Option<Bytes> {
    let at = PAGES.binary_search_by_key(&status, |page| page.status).ok()?;
    let Page { sent, start, .. } = &PAGES[at];
    let mut text = String::with_capacity(start.len() + 200);
    text.push_str(start);
    if *sent >= 500 {
        // Trying again is all that a visitor can do: the start page may fail, too.
        let _ =
            writeln!(text, "<p><small>Reference: <code>{}</code></small></p>", details.request_id);
    } else if !details.is_start_page {
        text.push_str("<a href=\"/\">Go to the start page</a>\n");
    }
    let _ = write!(text, "</main>\n<footer>{}</footer>\n</body>\n</html>\n", tokens.text());
    Some(text.into())
}

/// The value of `Content-Security-Policy` for these pages.
pub fn policy() -> Bytes {
    POLICY.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: u16, tokens: ServerTokens) -> String {
        let details = PageDetails { request_id: "0123abcd", is_start_page: false };
        String::from_utf8(page(status, tokens, details).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn every_error_page_of_nginx_has_a_readable_one() {
        for status in 400..600 {
            let plain = special_pages::page(status, ServerTokens::On, false);
            let readable = page(status, ServerTokens::On, PageDetails::default());
            // 407 is not for people.
            assert_eq!(plain.is_some() && status != 407, readable.is_some(), "{status}");
        }
        for status in [200, 301, 304, 407, 499] {
            assert_eq!(page(status, ServerTokens::On, PageDetails::default()), None);
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
    fn faults_of_the_server_have_a_reference_and_others_a_way_on() {
        let failed = text(502, ServerTokens::On);
        assert!(failed.contains("Reference: <code>0123abcd</code>") && !failed.contains("<a "));
        let missing = text(404, ServerTokens::On);
        assert!(missing.contains("<a href=\"/\">") && !missing.contains("0123abcd"));
        let start = PageDetails { is_start_page: true, ..PageDetails::default() };
        let start = page(403, ServerTokens::On, start).unwrap();
        assert!(!String::from_utf8_lossy(&start).contains("<a "));
    }

    #[test]
    fn the_policy_allows_the_page() {
        let page = text(500, ServerTokens::On);
        let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        assert_eq!(policy(), page_style::policy(style, None));
        assert!(!page.contains(" style=") && !page.contains("<script"));
    }
}
