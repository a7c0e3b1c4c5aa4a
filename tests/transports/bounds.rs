//! The bounds of buffers, and lengths around them.

use nowait_runtime::buf::{LARGE_BUF_BYTES, RECV_BUF_BYTES};

use crate::random::{SeededRng, mix};

const KB: usize = 1024;

/// Lengths at which the code, or the configuration, changes its way.
const BOUNDS: &[(&str, usize)] = &[
    ("proxy_buffer_size, fastcgi_buffer_size", 4 * KB),
    ("client_body_buffer_size, proxy_buffer_size", 8 * KB),
    ("client_body_buffer_size, TLS record, HTTP/2 frame", 16 * KB),
    ("net::layer: COMPLETE_BYTES", 17 * KB),
    ("a received buffer", RECV_BUF_BYTES),
    ("a record behind a received buffer", RECV_BUF_BYTES + 16 * KB),
    ("the smallest class of large buffers, FastCGI: CONTENT_BYTES_MAX", LARGE_BUF_BYTES / 4),
    ("http1::sender: INLINE_BYTES_MAX", 60 * KB),
    ("HTTP/2: the initial window", 65_535),
    ("READ_BYTES_MAX, COLLECT_BYTES_MAX, SEAL_BYTES_MAX, PIPED_BYTES_MIN, proxy_buffers", 64 * KB),
    ("large buffers", LARGE_BUF_BYTES),
    ("http2: window::BYTES; splice: PIPE_BYTES; COPY_BYTES; RECEIVE_BYTES_MAX", 256 * KB),
    ("net::send: DIRECT_BYTES", 512 * KB),
];

/// No content is longer.
pub const LEN_MAX: usize = KB * KB + 1;

/// Bounds above this are drawn less often: long contents take long.
const OFTEN_MAX: usize = 70 * KB;

/// How many lengths between the bounds [`exact`] knows.
const OTHERS: usize = 48;

/// A length at a bound, or one less or more, or one of a few others.
pub fn exact(random: &mut SeededRng) -> usize {
    match random.below(12) {
        0 => random.below(2),
        1 | 2 => {
            let other = mix(random.below(OTHERS) as u64 + 1);
            spread(&mut SeededRng::new(other))
        }
        _ => {
            let bound = bound(random);
            (bound + random.below(3)).saturating_sub(1).min(LEN_MAX)
        }
    }
}

/// A length near a bound, since heads and frames share buffers with contents; or any length.
pub fn near(random: &mut SeededRng) -> usize {
    match random.below(4) {
        0 => spread(random),
        1 => (bound(random) + random.below(800)).saturating_sub(600).min(LEN_MAX),
        _ => exact(random),
    }
}

/// A bound, or a small multiple of it.
fn bound(random: &mut SeededRng) -> usize {
    loop {
        let bound = BOUNDS[random.below(BOUNDS.len())].1;
        let whole = bound * random.pick(&[1, 1, 1, 2, 3, 4]);
        if whole <= LEN_MAX && (whole <= OFTEN_MAX || random.one_in(3)) {
            return whole;
        }
    }
}

/// Any length; each number of digits is as likely as the others.
fn spread(random: &mut SeededRng) -> usize {
    let most = 1usize << random.within(1, 20);
    random.within(most / 2, most)
}
