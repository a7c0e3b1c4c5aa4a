//! The client's header fields as parameters.

use std::cell::Cell;
use std::hash::Hasher;

use bytes::Bytes;
use nowait_gateway::ParamForm;
use nowait_message::name::{CGI_PREFIX, cgi_byte};
use nowait_message::{Field, Fields, Known};
use rustc_hash::FxHasher;

/// Header fields of clients that are not passed on if the response is for a cache, which serves other
/// clients, too.
const CONDITIONS: u128 = bit(Known::IfModifiedSince)
    | bit(Known::IfUnmodifiedSince)
    | bit(Known::IfNoneMatch)
    | bit(Known::IfMatch)
    | bit(Known::Range)
    | bit(Known::IfRange);

/// A set of known names with this one.
const fn bit(known: Known) -> u128 {
    1 << known as u32
}

/// Maximum number of names without a number whose hashes a worker keeps memory for.
const KEPT_MAX: usize = 128;

thread_local! {
    /// Memory for the hashes of names.
    static HASHES: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// The client fields that are sent.
#[derive(Debug)]
pub(super) struct ClientFields {
    /// The names after `HTTP_` that directives set: the client's fields of these names are not sent.
    set: Vec<Bytes>,
    /// The known names among them, and `Host`, which is sent in any case.
    left_out: u128,
}

impl ClientFields {
    /// All but those of which directives set the parameter.
    pub(super) fn without(set: impl Iterator<Item = Bytes>) -> Self {
        let set: Vec<Bytes> = set.collect();
        let known = |name: &Bytes| {
            let name: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
            Known::from_bytes(&name)
        };
        let known = set.iter().filter_map(known).map(bit);
        let left_out = known.fold(bit(Known::Host), |all, one| all | one);
        Self { set, left_out }
    }

    /// Whether a directive sets the parameter for this field.
    pub(super) fn are_without(&self, field: &[u8]) -> bool {
        let is_it = |name: &Bytes| {
            name.len() == field.len()
                && name.iter().zip(field).all(|(a, b)| cgi_byte(*a) == cgi_byte(*b))
        };
        self.set.iter().any(is_it)
    }

    /// Appends a field of ours, unless a directive sets it or it is empty. `name`: after `HTTP_`.
    pub(super) fn append_own<F: ParamForm>(
        &self,
        name: &str,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), F::Error> {
        match self.are_without(name.as_bytes()) || value.is_empty() {
            true => Ok(()),
            false => append::<F>(name.as_bytes(), out, |out| out.extend_from_slice(value)),
        }
    }

    /// Appends the client's header fields. Fields with the same name are joined.
    pub(super) fn append<F: ParamForm>(
        &self,
        fields: Fields<'_>,
        for_cache: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), F::Error> {
        let mut left_out = self.left_out | if for_cache { CONDITIONS } else { 0 };
        let mut others = None;
        for field in fields.iter() {
            let Some(known) = field.known else {
                let others = others.get_or_insert_with(|| Others::new(fields));
                self.append_other::<F>(others, field, out)?;
                continue;
            };
            if left_out & bit(known) != 0 {
                continue;
            }
            let start = out.len();
            let name = known.cgi_name();
            F::open(out, name.len(), |out| out.extend_from_slice(name));
            let value = out.len();
            out.extend_from_slice(field.value);
            if fields.is_repeated(known) {
                // RFC 9110 section 5.3; RFC 6265 section 5.4 for cookies.
                let separator = if known == Known::Cookie { b"; " } else { b", " };
                for other in fields.all(known).skip(1) {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(other);
                }
                left_out |= bit(known);
            }
            F::close(out, start, value)?;
        }
        Ok(())
    }

    /// Appends the field of an unknown name that is next, and others of this name with it.
    #[inline(never)]
    fn append_other<F: ParamForm>(
        &self,
        others: &mut Others<'_>,
        field: Field<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), F::Error> {
        let place = others.take();
        let same = |other: &Field<'_>| other.name.eq_ignore_ascii_case(field.name);
        if field.name.eq_ignore_ascii_case(b"proxy")
            || self.are_without(field.name)
            || others.before(place).any(|other| same(&other))
        {
            return Ok(());
        }
        append::<F>(field.name, out, |out| {
            out.extend_from_slice(field.value);
            for other in others.after(place).filter(same) {
                out.extend_from_slice(b", ");
                out.extend_from_slice(other.value);
            }
        })
    }
}

/// Appends the parameter for a field.
fn append<F: ParamForm>(
    field: &[u8],
    out: &mut Vec<u8>,
    value: impl FnOnce(&mut Vec<u8>),
) -> Result<(), F::Error> {
    let start = out.len();
    F::open(out, CGI_PREFIX.len() + field.len(), |out| {
        out.extend_from_slice(CGI_PREFIX);
        out.extend(field.iter().map(|byte| cgi_byte(*byte)));
    });
    let at = out.len();
    value(out);
    F::close(out, start, at)
}

/// The fields of a request whose names have no number. Names are hashed: comparing each of them with all
/// others would take a client's request too long.
struct Others<'a> {
    fields: Fields<'a>,
    hashes: Vec<u64>,
    /// The number of processed fields.
    taken: usize,
}

impl<'a> Others<'a> {
    fn new(fields: Fields<'a>) -> Self {
        let mut hashes = HASHES.take();
        hashes.extend(Self::all(fields).map(|field| hash(field.name)));
        Self { fields, hashes, taken: 0 }
    }

    fn all(fields: Fields<'a>) -> impl Iterator<Item = Field<'a>> {
        fields.iter().filter(|field| field.known.is_none())
    }

    /// The place of the next one.
    fn take(&mut self) -> usize {
        self.taken += 1;
        self.taken - 1
    }

    /// Those before the one at `place`, of the same hash.
    fn before(&self, place: usize) -> impl Iterator<Item = Field<'a>> {
        self.with_hash(place, 0, place)
    }

    /// Those after the one at `place`, of the same hash.
    fn after(&self, place: usize) -> impl Iterator<Item = Field<'a>> {
        self.with_hash(place, place + 1, self.hashes.len())
    }

    fn with_hash(&self, place: usize, from: usize, to: usize) -> impl Iterator<Item = Field<'a>> {
        let hash = self.hashes.get(place).copied().unwrap_or_default();
        let found = self.hashes[from..to].contains(&hash);
        let fields = found.then(|| Self::all(self.fields).zip(&self.hashes));
        let fields = fields.into_iter().flatten().skip(from).take(to - from);
        fields.filter(move |(_, other)| **other == hash).map(|(field, _)| field)
    }
}

impl Drop for Others<'_> {
    fn drop(&mut self) {
        let mut hashes = std::mem::take(&mut self.hashes);
        if hashes.capacity() <= KEPT_MAX {
            hashes.clear();
            HASHES.set(hashes);
        }
    }
}

/// A name without regard to case.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    name.iter().for_each(|b| hasher.write_u8(b.to_ascii_lowercase()));
    hasher.finish()
}
