//! Positions of the fields that a [`Head`](crate::response::Head) stores separately, among its other lines.
//!
//! nginx keeps one list and sends it in the order of additions: an upstream's `ETag` stays where
//! the upstream put it, `Accept-Ranges` follows `add_header`. Handlers and filters record places
//! here; the writer of heads merges them.

/// A header field that is stored separately from the other lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeparateField {
    /// `Server`, passed on from an upstream.
    Server,
    /// `Date`, likewise.
    Date,
    /// `Last-Modified`
    LastModified,
    /// `Location`
    Location,
    /// `Content-Encoding`
    ContentEncoding,
    /// `ETag`
    ETag,
    /// `Accept-Ranges`
    AcceptRanges,
}

/// Number of fields.
const PLACES_MAX: usize = 7;

/// Positions of fields: each precedes the line with its number. In the order of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldOrder {
    /// The first `len` are in use.
    places: [(SeparateField, u16); PLACES_MAX],
    len: u8,
    /// The fields that have a place: one bit for each.
    placed: u8,
}

impl Default for FieldOrder {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FieldOrder {
    /// No field has a place.
    pub const EMPTY: Self =
        Self { places: [(SeparateField::Server, 0); PLACES_MAX], len: 0, placed: 0 };

    /// Whether a field has a place. Fields without one are written where nginx puts those of
    /// handlers.
    #[inline]
    pub fn has(&self, field: SeparateField) -> bool {
        self.placed & (1 << field as u8) != 0
    }

    /// The fields that have a place, and the lines before which they stand.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (SeparateField, usize)> + '_ {
        let places = &self.places[..usize::from(self.len)];
        places.iter().map(|(field, line)| (*field, usize::from(*line)))
    }

    /// Places a field after the first `lines` lines, unless it has a place already.
    pub fn place(&mut self, field: SeparateField, lines: usize) {
        if !self.has(field)
            && let Some(free) = self.places.get_mut(usize::from(self.len))
        {
            *free = (field, u16::try_from(lines).unwrap_or(u16::MAX));
            self.len += 1;
            self.placed |= 1 << field as u8;
        }
    }

    /// Removes a field's place.
    pub fn forget(&mut self, field: SeparateField) {
        let before = std::mem::take(self);
        for (placed, line) in before.fields().filter(|(placed, _)| *placed != field) {
            self.place(placed, line);
        }
    }

    /// The line with this number was removed.
    pub fn remove_line(&mut self, number: usize) {
        for (_, line) in &mut self.places[..usize::from(self.len)] {
            if usize::from(*line) > number {
                *line -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_their_lines() {
        let mut order = FieldOrder::default();
        order.place(SeparateField::ETag, 1);
        order.place(SeparateField::Date, 3);
        order.place(SeparateField::Location, 3);
        order.place(SeparateField::ETag, 9);
        order.remove_line(2);
        let fields = |order: &FieldOrder| order.fields().collect::<Vec<_>>();
        assert_eq!(
            fields(&order),
            [(SeparateField::ETag, 1), (SeparateField::Date, 2), (SeparateField::Location, 2)]
        );
        order.remove_line(0);
        order.forget(SeparateField::Date);
        assert_eq!(fields(&order), [(SeparateField::ETag, 0), (SeparateField::Location, 1)]);
        assert!(!order.has(SeparateField::Date) && order.has(SeparateField::ETag));
    }
}
