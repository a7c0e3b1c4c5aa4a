//! `Alt-Svc` where the server has HTTP/3 on the same port, so that clients of HTTP/1.1 and HTTP/2 change to it
//! (RFC 7838, RFC 9114 section 3.1.1). There is nothing of the kind in nginx.

use bytes::Bytes;
use nowait_conf::Cx;
use nowait_http::conf::http3::AdvertisedPorts;
use nowait_http::module::{Filter, FilterStage, LocationBuilder};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::Response;

use super::conf::HeadersConf;

/// The field.
const NAME: &str = "Alt-Svc";

/// Adds the filter to locations of servers with HTTP/3, unless the operator adds the field.
pub(super) fn build(cx: &mut Cx<'_>, headers: &HeadersConf, parts: &mut LocationBuilder) {
    let is_own = |name: &Bytes| name.eq_ignore_ascii_case(NAME.as_bytes());
    if headers.add_header.iter().any(|header| is_own(&header.name)) {
        return;
    }
    let ports = cx.global::<AdvertisedPorts>().0.clone();
    if ports.is_empty() {
        return;
    }
    // A day, as in nginx's documentation: clients forget a server that has left HTTP/3 soon enough.
    let value = |port: &u16| Bytes::from(format!("h3=\":{port}\"; ma=86400"));
    let values = ports.iter().map(|port| (*port, value(port))).collect();
    parts.filter(FilterStage::Fields, Advertise { values });
}

/// Adds the field.
struct Advertise {
    /// Its values by port.
    values: Box<[(u16, Bytes)]>,
}

impl Filter for Advertise {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        let client = request.client();
        if request.is_nested() || !client.is_tls() || !client.listen.is_stream() {
            return Ok(());
        }
        let port = client.listen.inet().map(|address| address.port());
        let value = self.values.iter().find(|(own, _)| Some(*own) == port);
        // An upstream server's own field stays.
        if let Some((_, value)) = value
            && !response.head.has(NAME.as_bytes())
        {
            response.head.add(NAME, value.clone());
        }
        Ok(())
    }
}
