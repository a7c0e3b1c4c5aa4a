//! The fields of an origin's response as they are stored, and the head made from stored fields. Used by
//! [`super::filling`], [`super::hit`] and [`super::origin_resume`].

use bytes::Bytes;
use nowait_caching::meta::Field;
use nowait_message::{ResponseBuilder, ResponseHead};

/// The fields of a response that was just received.
pub(super) fn of(head: &ResponseHead) -> Vec<Field> {
    let own = |field: nowait_message::Field<'_>| Field {
        known: field.known,
        name: head.share(field.name),
        value: head.share(field.value),
    };
    head.fields().map(own).collect()
}

/// A stored head.
pub(super) fn head(status: u16, reason: Bytes, fields: &[Field]) -> ResponseHead {
    let bytes = fields.iter().map(|field| field.name.len() + field.value.len()).sum();
    let mut builder = ResponseBuilder::with_capacity(status, fields.len(), bytes);
    for field in fields {
        builder.field(field.known, &field.name, &field.value);
    }
    let mut head = builder.take();
    head.reason = reason;
    head
}
