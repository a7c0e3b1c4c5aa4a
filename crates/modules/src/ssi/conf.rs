//! Settings of server-side includes. nginx: `ngx_http_ssi_filter_module`.

use nowait_conf::Size;
use nowait_http::conf::content_types::ContentTypes;

nowait_conf::directives! {
    /// Server-side includes.
    #[derive(Debug)]
    module "ssi";
    pub struct SsiConf with SsiConfLayer;

    /// Enables or disables server-side includes in responses (`<!--#include virtual="/menu" -->`):
    /// `include`, `echo`, `set`, `if`, `elif`, `else`, `endif`, `block`, `endblock` and `config`.
    ssi: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Controls whether a failed command produces nothing instead of a message (`[an error occurred
    /// while processing the directive]`, or the text of `config errmsg`).
    ssi_silent_errors: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: buffers are not reused while they are being sent.
    ssi_ignore_recycled_buffers: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: data that was read is sent from memory.
    ssi_min_file_chunk: Size = "1k", in HTTP | SERVER | LOCATION, args "size";
    /// Maximum length of a command parameter, in bytes.
    ssi_value_length: Size = "255", in HTTP | SERVER | LOCATION, args "length";
    /// Content types of responses to process, in addition to `text/html`; `*` means all.
    ssi_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Controls whether responses keep `Last-Modified`, and `ETag` as a weak one, although included
    /// parts may be newer than the file.
    ssi_last_modified: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}
