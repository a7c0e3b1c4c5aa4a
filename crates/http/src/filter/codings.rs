//! `brotli` and `zstd`: compression of what is sent.
//!
//! Two steps as for `gzip`, before which both have their turn: before ranges are cut it is decided
//! whether the response is compressed; after charsets were converted its body is.

use std::rc::Rc;

use bytes::Bytes;

use super::coder::Coder;
use super::compress::{self, recode};
use crate::codings::{Coded, Coding, weight};
use crate::conf::Location;
use crate::log::Level;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::{Head, Response};

/// Bytes that are compressed on the event loop in one step, in about 0.2 ms; more go to the pool.
fn inline_bytes_max(coding: Coding, level: u32) -> usize {
    match (coding, level) {
        (Coding::Brotli, 0..=1) => 16 * 1024,
        (Coding::Brotli, 2..=4) => 8 * 1024,
        (Coding::Brotli, 5..=6) => 4 * 1024,
        (Coding::Zstd, 0..=3) => compress::STEP_BYTES_MAX,
        (Coding::Zstd, 4..=6) => 16 * 1024,
        (Coding::Zstd, 7..=12) => 4 * 1024,
        // Even the tables of these take long to be made.
        _ => 0,
    }
}

/// Decides whether the response is compressed, and says so in its head.
pub(super) fn decide(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    request.filters.coded = None;
    let location = request.location();
    if !location.brotli.brotli && !location.zstd.zstd {
        return Ok(());
    }
    let possible = [Coding::Brotli, Coding::Zstd]
        .map(|coding| is_compressible(coding, location, &response.head).then_some(coding));
    let mut best: Option<(Coding, u16)> = None;
    for coding in possible.into_iter().flatten() {
        let weight = weight(request, coding);
        if weight > best.map_or(0, |(_, best)| best) {
            best = Some((coding, weight));
        }
    }
    if possible != [None, None] {
        request.gzip.vary = true;
    }
    if let Some((coding, _)) = best {
        request.filters.coded = Some(Coded { coding, counts: Rc::default() });
        response.head.content_encoding = Some(Bytes::from_static(coding.name()));
        recode(response);
    }
    Ok(())
}

fn is_compressible(coding: Coding, location: &Location, head: &Head) -> bool {
    let (on, min, types) = match coding {
        Coding::Brotli => {
            let conf = &location.brotli;
            (conf.brotli, conf.brotli_min_length, &conf.brotli_types)
        }
        Coding::Zstd => {
            let conf = &location.zstd;
            (conf.zstd, conf.zstd_min_length, &conf.zstd_types)
        }
    };
    on && matches!(head.status, 200 | 403 | 404)
        && head.content_encoding.as_ref().is_none_or(Bytes::is_empty)
        && head.content_length.is_none_or(|length| length >= min.0)
        && types.mean(head.content_type.as_ref())
}

/// Compresses the body.
pub(super) fn compress(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let Some(Coded { coding, counts }) = &request.filters.coded else { return Ok(()) };
    if request.header_only {
        return Ok(());
    }
    let location = request.location();
    let len = response.body.len();
    let (coder, level) = match coding {
        Coding::Brotli => {
            let level = u32::try_from(location.brotli.brotli_comp_level.get()).unwrap_or(6);
            let window = window_bits(location.brotli.brotli_window.0, len);
            (Ok(Coder::brotli(level, window, len)), level)
        }
        Coding::Zstd => {
            let level = u32::try_from(location.zstd.zstd_comp_level.get()).unwrap_or(1);
            (Coder::zstd(i32::try_from(level).unwrap_or(1), len), level)
        }
    };
    let coder = coder.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        Special { status: 500, ..Special::default() }
    })?;
    compress::wrap(request, response, coder, inline_bytes_max(*coding, level), counts.clone())
}

/// The smallest window that a text of this length fills.
fn window_bits(wanted: u8, len: Option<u64>) -> u8 {
    /// The smallest that the format has.
    const BITS_MIN: u8 = 10;
    let Some(len) = len else { return wanted };
    (BITS_MIN..wanted).find(|bits| len <= 1 << bits).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_text() {
        for (len, bits) in [(0, 10), (1024, 10), (1025, 11), (1 << 40, 19)] {
            assert_eq!(window_bits(19, Some(len)), bits);
        }
        assert_eq!(window_bits(19, None), 19);
    }
}
