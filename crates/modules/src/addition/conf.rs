//! Settings of `add_before_body` and `add_after_body`. nginx: `ngx_http_addition_filter_module`.

use nowait_http::conf::LocalUri;
use nowait_http::conf::content_types::ContentTypes;

nowait_conf::directives! {
    /// Text around responses.
    #[derive(Debug)]
    module "addition";
    pub struct AdditionConf with AdditionConfLayer;

    /// Inserts the response to a subrequest for this URI before the body of responses with status
    /// 200. An empty string cancels the setting of an outer block.
    add_before_body: Option<LocalUri>, in HTTP | SERVER | LOCATION, args "uri";
    /// Appends the response to a subrequest for this URI to the body of responses with status 200.
    /// An empty string cancels the setting of an outer block.
    add_after_body: Option<LocalUri>, in HTTP | SERVER | LOCATION, args "uri";
    /// Content types of responses to which text is added, in addition to `text/html`; `*` means
    /// all.
    addition_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
}

impl AdditionConf {
    /// The URIs whose responses precede and follow the body.
    pub fn uris(&self) -> [Option<&[u8]>; 2] {
        [&self.add_before_body, &self.add_after_body]
            .map(|uri| uri.as_ref().map(|uri| &*uri.0).filter(|uri| !uri.is_empty()))
    }
}
