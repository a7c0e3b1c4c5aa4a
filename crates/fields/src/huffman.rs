//! Huffman coding of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. So the
//! table of lengths is the only one that is written down; everything else follows from it at compile
//! time. Codes of up to [`FAST_BITS`] bits (nearly all text) are decoded by one look-up.

use bytes::BufMut;

use crate::CodingError;

/// Symbols: all octets, and EOS.
const SYMBOLS: usize = 257;

/// The longest code, in bits.
const BITS_MAX: usize = 30;

/// A mask of that many bits.
const WINDOW: u32 = (1 << BITS_MAX) - 1;

/// Bits of the look-up table's index.
const FAST_BITS: usize = 9;

/// The length of each symbol's code in bits; EOS is the last.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Tables computed from the lengths.
struct Code {
    /// The code of each symbol, in its low bits.
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    ordered: [u16; SYMBOLS],
    /// For each length, the code after its last one, aligned to [`BITS_MAX`] bits.
    limits: [u32; BITS_MAX + 1],
    /// For each length, what to subtract from a code to get its index in `ordered`.
    offsets: [u32; BITS_MAX + 1],
    /// Symbol << 4 | length for each start of up to [`FAST_BITS`] bits; 0 if the code is longer.
    fast: [u16; 1 << FAST_BITS],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        codes: [0; SYMBOLS],
        ordered: [0; SYMBOLS],
        limits: [0; BITS_MAX + 1],
        offsets: [0; BITS_MAX + 1],
        fast: [0; 1 << FAST_BITS],
    };
    let (mut next, mut count, mut length) = (0u32, 0, 1);
    while length <= BITS_MAX {
        next <<= 1;
        code.offsets[length] = next.wrapping_sub(count as u32);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.ordered[count] = symbol as u16;
                if length <= FAST_BITS {
                    let first = (next as usize) << (FAST_BITS - length);
                    let mut at = first;
                    while at < first + (1 << (FAST_BITS - length)) {
                        code.fast[at] = (symbol as u16) << 4 | length as u16;
                        at += 1;
                    }
                }
                next += 1;
                count += 1;
            }
            symbol += 1;
        }
        code.limits[length] = next << (BITS_MAX - length);
        length += 1;
    }
    code
}

/// Appends the decoded string to `out`. More than `max` octets, or `padding_max` bits of padding, are an
/// error.
pub fn decode(
    input: &[u8],
    out: &mut Vec<u8>,
    max: usize,
    padding_max: usize,
) -> Result<(), CodingError> {
    // The shortest code has 5 bits.
    out.reserve((input.len() * 8 / 5).min(max));
    let end = out.len().saturating_add(max);
    // The bits to be decoded, the next one on top. They are inverted, so that the zeros below them stand
    // for ones, the code of EOS, behind the end of the string.
    let (mut inverted, mut count, mut rest) = (0u64, 0usize, input);
    loop {
        // The next 30 bits decide about any symbol.
        if count < BITS_MAX {
            if let Some((word, behind)) = rest.split_first_chunk() {
                inverted |= u64::from(!u32::from_be_bytes(*word)) << (32 - count);
                (count, rest) = (count + 32, behind);
            } else {
                while let Some((octet, behind)) = rest.split_first() {
                    inverted |= u64::from(!octet) << (56 - count);
                    (count, rest) = (count + 8, behind);
                }
            }
        }
        // "A padding strictly longer than 7 bits MUST be treated as a decoding error. A padding not
        // corresponding to the most significant bits of the code for the EOS symbol MUST be treated
        // as a decoding error" (RFC 7541 section 5.2).
        if inverted == 0 {
            let ends = rest.is_empty() && count <= padding_max;
            return if ends { Ok(()) } else { Err(CodingError::InvalidHuffman) };
        }
        let (symbol, length) = symbol(!(inverted >> (64 - BITS_MAX)) as u32 & WINDOW)?;
        if length > count {
            return Err(CodingError::InvalidHuffman);
        }
        inverted <<= length;
        count -= length;
        if out.len() == end {
            return Err(CodingError::StringTooLong);
        }
        out.push(symbol);
    }
}

/// The symbol that 30 bits begin with, and the length of its code.
#[inline]
fn symbol(window: u32) -> Result<(u8, usize), CodingError> {
    let entry = CODE.fast[(window >> (BITS_MAX - FAST_BITS)) as usize];
    if entry != 0 {
        return Ok(((entry >> 4) as u8, usize::from(entry & 15)));
    }
    let mut length = FAST_BITS + 1;
    while window >= CODE.limits[length] {
        length += 1;
        if length > BITS_MAX {
            return Err(CodingError::InvalidHuffman);
        }
    }
    let index = (window >> (BITS_MAX - length)).wrapping_sub(CODE.offsets[length]);
    // "A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding
    // error" (RFC 7541 section 5.2): EOS is no octet.
    let symbol =
        u8::try_from(CODE.ordered[index as usize]).map_err(|_| CodingError::InvalidHuffman)?;
    Ok((symbol, length))
}

/// The length of the encoded string in octets.
#[inline]
pub fn encoded_len(string: &[u8]) -> usize {
    string.iter().map(|&octet| usize::from(LENGTHS[usize::from(octet)])).sum::<usize>().div_ceil(8)
}

/// Writes the encoded string.
pub fn encode(string: &[u8], out: &mut impl BufMut) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &octet in string {
        let symbol = usize::from(octet);
        bits = bits << LENGTHS[symbol] | u64::from(CODE.codes[symbol]);
        count += u32::from(LENGTHS[symbol]);
        if count >= 32 {
            count -= 32;
            out.put_u32((bits >> count) as u32);
        }
    }
    // "the most significant bits of the code for the EOS (end-of-string) symbol": ones.
    let padding = (8 - count % 8) % 8;
    bits = bits << padding | ((1 << padding) - 1);
    count += padding;
    while count > 0 {
        count -= 8;
        out.put_u8((bits >> count) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8], max: usize) -> Result<Vec<u8>, CodingError> {
        let mut out = Vec::new();
        decode(input, &mut out, max, 7).map(|()| out)
    }

    fn encoded(string: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(string, &mut out);
        assert_eq!(out.len(), encoded_len(string));
        out
    }

    #[test]
    fn codes_of_the_rfc() {
        let code = |symbol: usize| (CODE.codes[symbol], LENGTHS[symbol]);
        assert_eq!(code(b'0'.into()), (0x0, 5));
        assert_eq!(code(b'a'.into()), (0x3, 5));
        assert_eq!(code(b'&'.into()), (0xf8, 8));
        assert_eq!(code(b'!'.into()), (0x3f8, 10));
        assert_eq!(code(0), (0x1ff8, 13));
        assert_eq!(code(195), (0x7fff1, 19));
        assert_eq!(code(10), (0x3fff_fffc, 30));
        assert_eq!(code(256), (0x3fff_ffff, 30));
    }

    #[test]
    fn every_string_returns() {
        let all: Vec<u8> = (0..=255).collect();
        for start in 0..256 {
            for end in [start, start + 1, start + 2, start + 5, 256] {
                let string = &all[start..end.clamp(start, 256)];
                assert_eq!(decoded(&encoded(string), 256), Ok(string.to_vec()));
            }
        }
    }

    #[test]
    fn a_whole_octet_of_padding_may_be_accepted() {
        let lenient = |input: &[u8]| {
            let mut out = Vec::new();
            decode(input, &mut out, 99, 15).map(|()| out)
        };
        assert_eq!(lenient(&[0x1f, 0xff]), Ok(vec![b'a']));
        assert_eq!(lenient(&[0x1f, 0xff, 0xff]), Err(CodingError::InvalidHuffman));
        assert_eq!(lenient(&[0x1f, 0xfe]), Err(CodingError::InvalidHuffman));
    }

    #[test]
    fn eos_and_bad_padding_are_errors() {
        let bad = Err(CodingError::InvalidHuffman);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff], 99), bad); // EOS
        assert_eq!(decoded(&[0xff; 9], 99), bad);
        assert_eq!(decoded(&[0xff], 99), bad); // eight bits of padding
        assert_eq!(decoded(&[0x1f], 99), Ok(vec![b'a']));
        assert_eq!(decoded(&[0x1f, 0xff], 99), bad); // a symbol and eleven bits
        assert_eq!(decoded(&[0x1e], 99), bad); // padding with a zero
        assert_eq!(decoded(&[0x18], 99), bad); // padding of zeros
        assert_eq!(decoded(&[], 0), Ok(vec![]));
    }

    /// Like [`decode`], one bit at a time.
    fn decoded_plainly(input: &[u8], padding_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut code, mut length) = (0, 0);
        for bit in (0..input.len() * 8).map(|at| input[at / 8] >> (7 - at % 8) & 1) {
            (code, length) = (code << 1 | u32::from(bit), length + 1);
            let is_it = |&symbol: &usize| {
                CODE.codes[symbol] == code && usize::from(LENGTHS[symbol]) == length
            };
            if let Some(symbol) = (0..SYMBOLS).find(is_it) {
                // EOS is no octet.
                out.push(u8::try_from(symbol).ok()?);
                (code, length) = (0, 0);
            }
        }
        (length <= padding_max && code == (1 << length) - 1).then_some(out)
    }

    #[test]
    fn any_octets_are_decoded_as_one_bit_at_a_time() {
        let check = |input: &[u8]| {
            for padding_max in [7, 15] {
                let mut out = Vec::new();
                let result = decode(input, &mut out, usize::MAX, padding_max).map(|()| out);
                assert_eq!(result.ok(), decoded_plainly(input, padding_max), "{input:x?}");
            }
        };
        for pair in (0..=u16::MAX).step_by(37) {
            check(&pair.to_be_bytes());
        }
        let mut random = 1u64;
        for length in (0..16).cycle().take(200) {
            let mut octet = || {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (random >> 56) as u8
            };
            let octets: Vec<u8> = (0..length).map(|_| octet()).collect();
            check(&octets);
            // Long codes, and many ones.
            check(&octets.iter().map(|octet| octet | 0xf7).collect::<Vec<_>>());
            // What is valid, cut and extended.
            let mut valid = encoded(&octets);
            check(&valid);
            valid.push(0xff);
            check(&valid);
            valid.pop();
            valid.pop();
            check(&valid);
        }
    }

    #[test]
    fn the_length_is_bounded() {
        let long = encoded(&[b'a'; 100]);
        assert_eq!(decoded(&long, 100).unwrap().len(), 100);
        assert_eq!(decoded(&long, 99), Err(CodingError::StringTooLong));
        let short = encoded(b"ab");
        assert_eq!(decoded(&short, 1), Err(CodingError::StringTooLong));
    }
}
