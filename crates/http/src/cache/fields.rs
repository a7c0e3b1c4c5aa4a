//! The fields of an origin's response as they are stored, and the head made from stored fields. Used by
//! [`super::filling`], [`super::hit`] and [`super::rest`].

use bytes::Bytes;
use nowait_caching::meta::Field;

use crate::upstream::{self, HeadBuilder, UpstreamHead};

/// The fields of a response that was just received.
pub(super) fn of(head: &UpstreamHead) -> Vec<Field> {
    let own = |field: upstream::Field<'_>| Field {
        known: field.known,
        name: head.share(field.name),
        value: head.share(field.value),
    };
    head.fields().map(own).collect()
}

/// A stored head.
pub(super) fn head(status: u16, reason: Bytes, fields: &[Field]) -> UpstreamHead {
    let bytes = fields.iter().map(|field| field.name.len() + field.value.len()).sum();
    let mut builder = HeadBuilder::new(status, fields.len(), bytes);
    for field in fields {
        builder.field(field.known, &field.name, &field.value);
    }
    let mut head = builder.finish();
    head.reason = reason;
    head
}
