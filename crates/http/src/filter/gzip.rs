//! `gzip`: compression of what is sent. nginx: `ngx_http_gzip_filter_module`.
//!
//! Two steps: before ranges are cut it is decided whether the response is compressed; after charsets
//! were converted its body is, in the frame of all compressions ([`compress`]).

use std::rc::Rc;

use bytes::Bytes;

use super::coder::Coder;
use super::compress::{self, STEP_BYTES_MAX, recode};
use crate::conf::gzip::GzipConf;
use crate::gzip::is_accepted;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// Bytes that are compressed on the event loop in one step; more go to the pool, which costs about
/// 33 µs. Measured for C source at 3 GHz, per 32 KB: 125 µs at levels 1 and 2, 350 at 3 to 5,
/// 670 at 6, 1.2 to 2.7 ms above. So a step keeps the loop for about 0.2 ms.
fn inline_bytes_max(level: u32) -> usize {
    match level {
        ..=2 => STEP_BYTES_MAX,
        3..=5 => 16 * 1024,
        6 => 8 * 1024,
        _ => 4 * 1024,
    }
}

/// Decides whether the response is compressed, and says so in its head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let on = request.location().gzip.gzip;
    if on {
        request.gzip.counts = None;
        if is_compressible(&request.location().gzip, response) {
            request.gzip.vary = true;
            if is_accepted(request, &response.head) {
                request.gzip.counts = Some(Rc::default());
                response.head.content_encoding = Some(Bytes::from_static(b"gzip"));
                recode(response);
            }
        }
    }
    if request.gzip.vary && request.location().gzip.gzip_vary {
        response.head.add("Vary", Bytes::from_static(b"Accept-Encoding"));
    }
    Ok(())
}

fn is_compressible(conf: &GzipConf, response: &Response) -> bool {
    let head = &response.head;
    matches!(head.status, 200 | 403 | 404)
        && head.content_encoding.as_ref().is_none_or(Bytes::is_empty)
        && head.content_length.is_none_or(|length| length >= conf.gzip_min_length.0)
        && conf.gzip_types.mean(head.content_type.as_ref())
}

/// Compresses the body.
pub(super) fn compress(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let Some(counts) = request.gzip.counts.clone() else { return Ok(()) };
    if request.header_only {
        return Ok(());
    }
    let conf = &request.location().gzip;
    let level = u32::try_from(conf.gzip_comp_level.get()).unwrap_or(1);
    let inline = inline_bytes_max(level);
    let (wanted, len) = (conf.gzip_window.0, response.body.len());
    let window = match len {
        // Compressed at once, with a state that has been used before.
        Some(len) if len <= inline as u64 => wanted,
        len => window_bits(wanted, len),
    };
    compress::wrap(request, response, Coder::gzip(level, window), inline, counts)
}

/// The smallest window that a text of this length fills: memory of the compression follows it.
fn window_bits(wanted: u8, len: Option<u64>) -> u8 {
    /// zlib: MIN_LOOKAHEAD, which is lost for the window.
    const LOOKAHEAD: u64 = 262;
    let Some(len) = len else { return wanted };
    (9..wanted).find(|bits| len + LOOKAHEAD <= 1 << bits).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_text() {
        for (len, bits) in [(0, 9), (250, 9), (251, 10), (20_000, 15), (1 << 40, 15)] {
            assert_eq!(window_bits(15, Some(len)), bits, "{len}");
        }
        assert_eq!((window_bits(12, None), window_bits(12, Some(1 << 20))), (12, 12));
    }
}
