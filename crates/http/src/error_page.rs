//! Responses for statuses without a body: `error_page`, else the built-in pages. nginx:
//! `ngx_http_special_response_handler`, `ngx_http_send_error_page`.

use bytes::Bytes;
use nowait_message::Known;

use crate::conf::pages::{ErrorPage, Overwrite, PageFormat};
use crate::field_order::FieldOrder;
use crate::outcome::{Outcome, RedirectTarget, StatusResponse};
use crate::page_style;
use crate::readable_pages::{self, PageDetails};
use crate::request::Request;
use crate::response::{Body, Head, Response};
use crate::special_pages;

/// Turns a bare status into an internal redirect to its `error_page`, or into a response.
pub fn answer(request: &mut Request, special: StatusResponse) -> Outcome {
    let status = special.status;
    request.replaced_mut().status = None;
    if special_pages::closes_connection(status) {
        request.set_keep_alive(false);
    }
    let current = request.current().clone();
    let location = current.conf.location(request.location_id());
    let pages = &location.pages;
    if !request.replaced().by_error_page
        && request.rewriting().changes_left != 0
        && !pages.error_page.is_empty()
    {
        if !pages.recursive_error_pages {
            request.replaced_mut().by_error_page = true;
        }
        if let Some(page) = pages.error_page.iter().find(|page| page.statuses.contains(&status)) {
            return redirect(request, page, special);
        }
    }
    Outcome::Response(built_in(request, special))
}

fn redirect(request: &mut Request, page: &ErrorPage, special: StatusResponse) -> Outcome {
    request.replaced_mut().status = Some(special.status);
    match page.overwrite {
        Overwrite::Keep => {}
        Overwrite::Status(status) => request.replaced_mut().status = Some(status),
        // `error_page 404 = /x`: the status of the page itself.
        Overwrite::Page => request.replaced_mut().status = None,
    }
    let target = request.evaluate(&page.target);
    match target.first() {
        Some(b'/') => {
            request.switch_to_get();
            request.out_mut().headers.clear();
            request.out_mut().order = FieldOrder::default();
            carry(request, special);
            Outcome::Redirect(RedirectTarget::parse(&target))
        }
        Some(b'@') => {
            carry(request, special);
            Outcome::Redirect(RedirectTarget::Named(target.to_vec()))
        }
        _ => {
            let status = match page.overwrite {
                Overwrite::Status(status @ (301 | 302 | 303 | 307 | 308)) => status,
                _ => 302,
            };
            // The redirect's own status.
            request.replaced_mut().status = None;
            let special =
                StatusResponse { status, location: Some(target), headers: special.headers };
            Outcome::Response(built_in(request, special))
        }
    }
}

/// Keeps `Location`, `WWW-Authenticate` and similar fields for the replacing response.
fn carry(request: &mut Request, special: StatusResponse) {
    if special.location.is_some() || !special.headers.is_empty() {
        request.replaced_mut().special = Some(Box::new(special));
    }
}

/// Adds the kept fields to the response.
pub fn deliver(request: &mut Request, head: &mut Head) {
    if let Some(special) = request.replaced_mut().special.take() {
        if head.location.is_none() {
            head.location = special.location;
        }
        head.headers.extend(special.headers);
    }
}

/// The built-in page of a status.
pub fn built_in(request: &mut Request, special: StatusResponse) -> Response {
    // Don't ask a client that waits for `100 Continue` to send a body that is not read.
    request.discard_body();
    let location = request.location();
    let status = special.status;
    let shown = special_pages::sent_status(status);
    let mut head = Head::new(shown);
    head.location = special.location;
    head.headers = special.headers;
    let msie = request.is_msie();
    if msie
        && location.pages.msie_refresh
        && matches!(status, 301 | 302)
        && let Some(to) = head.location.take()
    {
        head.status = 200;
        return page(head, special_pages::refresh_page(&to));
    }
    if location.pages.error_page_format == PageFormat::Page && status >= 400 {
        head.add("Vary", "Accept");
        if page_style::is_for_people(request.head().header(Known::Accept))
            && let Some(text) = readable_page(request, status)
        {
            head.charset = Some(Bytes::from_static(b"utf-8"));
            head.add("Content-Security-Policy", readable_pages::policy());
            return page(head, text);
        }
    }
    match special_pages::page(
        status,
        location.server_tokens(),
        (msie || request.is_chrome()) && location.pages.msie_padding,
    ) {
        Some(text) => page(head, text),
        None => {
            head.content_length = Some(0);
            if status == 204 {
                head.content_length = None;
            }
            Response { head, body: Body::Empty }
        }
    }
}

/// The page for people; `None`: there is none for this status.
fn readable_page(request: &Request, status: u16) -> Option<Bytes> {
    let mut id = Vec::new();
    if special_pages::sent_status(status) >= 500 {
        request.append_id(&mut id);
    }
    let details = PageDetails {
        request_id: std::str::from_utf8(&id).unwrap_or_default(),
        is_start_page: &*request.uri().path == b"/",
    };
    readable_pages::page(status, request.location().server_tokens(), details)
}

fn page(mut head: Box<Head>, text: Bytes) -> Response {
    head.content_type = Some(Bytes::from_static(b"text/html"));
    head.content_length = Some(text.len() as u64);
    Response { head, body: Body::Bytes(text) }
}
