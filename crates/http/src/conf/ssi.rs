//! Settings of server-side includes. nginx: `ngx_http_ssi_filter_module`.

use nowait_conf::Size;

use super::charset::ContentTypes;

nowait_conf::directives! {
    /// Server-side includes.
    #[derive(Debug)]
    module "ssi";
    pub struct SsiConf with SsiConfLayer;

    /// Whether commands in responses (`<!--#include virtual="/menu" -->`) are carried out: `include`,
    /// `echo`, `set`, `if`, `elif`, `else`, `endif`, `block`, `endblock` and `config`.
    ssi: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Whether a command that fails leaves nothing instead of a message
    /// (`[an error occurred while processing the directive]`, or what `config errmsg` says).
    ssi_silent_errors: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: buffers are not reused while they are sent.
    ssi_ignore_recycled_buffers: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: what was read is sent from memory.
    ssi_min_file_chunk: Size = "1k", in HTTP | SERVER | LOCATION, args "size";
    /// Longest value of a parameter in a command, in bytes.
    ssi_value_length: Size = "255", in HTTP | SERVER | LOCATION, args "length";
    /// Content types of responses that have commands, besides `text/html`; `*` is all.
    ssi_types: ContentTypes = "text/html", in HTTP | SERVER | LOCATION, args "mime-type ...";
    /// Whether responses keep `Last-Modified`, and `ETag` as a weak one, though what is put into
    /// them may be younger than their file.
    ssi_last_modified: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}
