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

/// Bytes that are compressed on the event loop in one step; more go to the pool, which costs about
/// 33 µs. Measured for Rust source at 3 GHz, the first step, which makes the tables, included:
///
/// | | 4 KB | 8 KB | 16 KB | 32 KB |
/// |---|---|---|---|---|
/// | Brotli 0, 1 | 27 µs | 48 µs | 124 µs | 270 µs |
/// | Brotli 2, 3 | 53 µs | 99 µs | 400 µs | |
/// | Brotli 4, 5 | 110 µs | 230 µs | 470 µs | |
/// | Brotli 6 | 150 µs | 435 µs | | |
/// | Brotli 7 and more | 470 µs | | | |
/// | Zstandard 1 to 3 | 33 µs | | 114 µs | 190 µs |
/// | Zstandard 4, 5 | 46 µs | | 235 µs | 470 µs |
/// | Zstandard 6 to 10 | 230 µs | | 500 µs | |
/// | Zstandard 11, 12 | 250 to 480 µs | | | |
///
/// So a step keeps the loop for about 0.2 ms.
fn inline_bytes_max(coding: Coding, level: u32) -> usize {
    match (coding, level) {
        (Coding::Brotli, 0..=1) => 16 * 1024,
        (Coding::Brotli, 2..=5) => 8 * 1024,
        (Coding::Brotli, 6) => 4 * 1024,
        (Coding::Zstd, 0..=3) => compress::STEP_BYTES_MAX,
        (Coding::Zstd, 4..=5) => 16 * 1024,
        (Coding::Zstd, 6..=10) => 4 * 1024,
        // Even the tables of these take long to be made.
        _ => 0,
    }
}

/// The level that is used where another is wanted.
///
/// A text of up to 4 KB becomes at most three bytes in a thousand shorter above level 5, which takes
/// up to seven times as long. In this library level 9 takes five times as long as 8, for half a
/// percent.
fn effort(level: u32, len: Option<u64>) -> u32 {
    const SHORT_BYTES_MAX: u64 = 4096;
    match level {
        6..=9 if len.is_some_and(|len| len <= SHORT_BYTES_MAX) => 5,
        9 => 8,
        level => level,
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
            let level = effort(level, len);
            let window = window_bits(level, location.brotli.brotli_window.0, len);
            (Ok(Coder::brotli(level, window, len)), level)
        }
        Coding::Zstd => {
            let level = u32::try_from(location.zstd.zstd_comp_level.get()).unwrap_or(1);
            let dictionary = location.zstd.zstd_dict_file.as_ref();
            (Coder::zstd(i32::try_from(level).unwrap_or(1), len, dictionary), level)
        }
    };
    let coder = coder.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        Special { status: 500, ..Special::default() }
    })?;
    compress::wrap(request, response, coder, inline_bytes_max(*coding, level), counts.clone())
}

/// The smallest window that a text of this length fills.
fn window_bits(level: u32, wanted: u8, len: Option<u64>) -> u8 {
    /// The smallest that the format has.
    const BITS_MIN: u8 = 10;
    /// With a smaller window the library takes another way at these levels, which was seen to take
    /// 7 to 20 times as long: 8 ms instead of 0.5 for 16 KB.
    const GOOD_BITS_MIN: u8 = 17;
    let min = if (5..=9).contains(&level) { GOOD_BITS_MIN } else { BITS_MIN };
    let wanted = wanted.max(min);
    let Some(len) = len else { return wanted };
    (min..wanted).find(|bits| len <= 1 << bits).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_text() {
        for (len, bits) in [(0, 10), (1024, 10), (1025, 11), (1 << 40, 19)] {
            assert_eq!(window_bits(4, 19, Some(len)), bits);
        }
        assert_eq!(window_bits(4, 19, None), 19);
        for (wanted, bits) in [(10, 17), (17, 17), (24, 17)] {
            assert_eq!(window_bits(6, wanted, Some(1000)), bits);
        }
    }

    #[test]
    fn short_texts_get_no_more_effort_than_helps() {
        assert_eq!((effort(6, Some(4096)), effort(6, Some(4097)), effort(6, None)), (5, 6, 6));
        assert_eq!((effort(4, Some(10)), effort(9, None), effort(11, Some(10))), (4, 8, 11));
    }
}
