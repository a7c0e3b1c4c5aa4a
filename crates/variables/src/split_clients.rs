//! `split_clients`: a variable that divides requests by the hash of a text.
//! nginx: `ngx_http_split_clients_module`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Word};

use crate::{Complex, Compute, Index, Namespace, Subject, Table, text, variable_name};

/// Shares are counted in hundredths of a percent.
const WHOLE: u32 = 10_000;

struct Split<N> {
    source: Complex<N>,
    parts: Vec<SplitPart>,
}

/// A value and the hashes that select it.
#[derive(Debug, PartialEq, Eq)]
struct SplitPart {
    /// The upper bound of the hashes; `None`: all.
    below: Option<u32>,
    value: Bytes,
}

/// Reads a `split_clients` block and defines its variable.
///
/// # Errors
/// An invalid argument; errors in its lines go to `cx`.
pub fn split_clients<N: Namespace>(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [source, name] = &node.args[..] else { return Err(node.arity_error()) };
    let source = text(source, cx)?;
    let variable = variable_name(name)?.to_owned();
    let mut shares = Vec::new();
    for entry in cx.entries(node) {
        let share = share(&entry.name);
        let Some(share) = cx.accept(share) else { continue };
        let value = entry.args.first().map(|word| Bytes::copy_from_slice(&word.text));
        shares.push((share, value.unwrap_or_default()));
    }
    let parts = parts(shares).ok_or_else(|| node.error("percent total is greater than 100%"))?;
    cx.global::<Table<N>>()
        .define_computed(&variable, Arc::new(Split { source, parts }), false)
        .map_err(|error| name.error(error.to_string()))
}

/// A share in hundredths of a percent; `None` for `*`.
fn share(word: &Word) -> Result<Option<u32>, Diagnostic> {
    if word.text == b"*" {
        return Ok(None);
    }
    let number = word.text.strip_suffix(b"%").and_then(hundredths);
    match number {
        Some(share) if share > 0 => Ok(Some(share)),
        _ => Err(word
            .error(format!("invalid percent value \"{word}\""))
            .expected("a percentage such as 0.5%, or *")),
    }
}

/// A decimal number with at most two decimals, times 100. nginx: `ngx_atofp`.
fn hundredths(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if text.is_empty() || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    format!("{whole}{decimals:0<2}").parse().ok()
}

/// The bounds of the shares; `None` if they exceed the whole.
fn parts(shares: Vec<(Option<u32>, Bytes)>) -> Option<Vec<SplitPart>> {
    let (mut sum, mut last) = (0u32, 0u32);
    let mut parts = Vec::with_capacity(shares.len());
    for (share, value) in shares {
        sum = match share {
            Some(share) => sum.checked_add(share)?,
            None => WHOLE,
        };
        if sum > WHOLE {
            return None;
        }
        let below = match share {
            Some(share) if sum < WHOLE => {
                // Rounded down for each share as nginx does, so that both split alike.
                let size = u64::from(share) * u64::from(u32::MAX) / u64::from(WHOLE);
                last = last.wrapping_add(size as u32);
                Some(last)
            }
            _ => None,
        };
        parts.push(SplitPart { below, value });
    }
    Some(parts)
}

impl<N: Namespace<Subject = S>, S: Subject<Namespace = N>> Compute<S> for Split<N> {
    fn sources(&self, add: &mut dyn FnMut(Index)) {
        self.source.each_variable(add);
    }

    fn compute(&self, subject: &S) -> Option<Bytes> {
        let hash = murmur2(&subject.evaluate(&self.source));
        let part = self.parts.iter().find(|part| part.below.is_none_or(|below| hash < below));
        Some(part.map(|part| part.value.clone()).unwrap_or_default())
    }
}

/// MurmurHash2 by Austin Appleby (public domain), 32 bits, seed 0.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let split = |shares: &[Option<u32>]| {
            let shares = shares.iter().map(|share| (*share, Bytes::new())).collect();
            parts(shares).map(|parts| parts.iter().map(|part| part.below).collect::<Vec<_>>())
        };
        assert_eq!(split(&[Some(5000), None]), Some(vec![Some(0x7fff_ffff), None]));
        // Shares that add up to the whole leave nothing out, no matter what rounding loses.
        assert_eq!(split(&[Some(9999), Some(1)]), Some(vec![Some(4_294_537_798), None]));
        assert_eq!(split(&[Some(6000), Some(4001)]), None);
    }

    #[test]
    fn percentages() {
        assert_eq!(hundredths(b"51.2"), Some(5120));
        assert_eq!(hundredths(b"0.05"), Some(5));
        assert_eq!(hundredths(b"100"), Some(10_000));
        for text in [&b""[..], b"1.234", b"-1", b"1.x", b"x"] {
            assert_eq!(hundredths(text), None);
        }
    }

    /// Values of the reference implementation.
    #[test]
    fn hashes() {
        assert_eq!(murmur2(b""), 0);
        assert_eq!(murmur2(b"a"), 0x9268_5f5e);
        assert_eq!(murmur2(b"abcd"), 0x2687_3021);
    }
}
