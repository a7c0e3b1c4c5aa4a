//! Priorities of responses (RFC 9218): the value of the `Priority` field and of PRIORITY_UPDATE.

/// The priority of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, which comes first, to 7.
    pub urgency: u8,
    /// Parts of it are of use: it takes turns with others of its urgency. Otherwise those come one after
    /// the other, in the order of their requests.
    pub incremental: bool,
}

impl Default for Priority {
    /// For a stream without a priority. It takes turns, unlike in RFC 9218: clients that don't know
    /// priorities must not wait for each other's large responses.
    fn default() -> Self {
        Priority { urgency: URGENCY_DEFAULT, incremental: true }
    }
}

const URGENCY_DEFAULT: u8 = 3;

impl Priority {
    /// Reads a value: a dictionary of structured fields (RFC 9651). Members that are not understood have
    /// no effect, and of several with one name the last counts.
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority { urgency: URGENCY_DEFAULT, incremental: false };
        for member in value.split(|&octet| octet == b',') {
            // Parameters of members are ignored.
            let member = member.split(|&octet| octet == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }

    /// Of streams in the order of their numbers, the one whose turn it is: of the most urgent ones, the next after
    /// the one `served` last. Those that are not incremental have one turn together, which the first of them takes.
    #[inline]
    pub fn next<I: Ord + Copy>(
        streams: impl Iterator<Item = (I, Priority)>,
        served: Option<I>,
    ) -> Option<I> {
        // Of the most urgent streams: the first whole one, and the first incremental ones from the start and behind
        // the one served last.
        let mut urgency = u8::MAX;
        let (mut whole, mut first, mut behind) = (None, None, None);
        for (id, priority) in streams {
            if priority.urgency > urgency {
                continue;
            }
            if priority.urgency < urgency {
                urgency = priority.urgency;
                (whole, first, behind) = (None, None, None);
            }
            let place = match priority.incremental {
                false => &mut whole,
                true if Some(id) > served => &mut behind,
                true => &mut first,
            };
            place.get_or_insert(id);
        }
        let candidates = [whole, first, behind].into_iter().flatten();
        candidates.min_by_key(|id| (Some(*id) <= served, *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=1;x=2", 1, true),
            ("i;q=\"a\"", 3, true),
            ("i=?1,i=?0", 3, false),
            ("u=5, u=2", 2, false),
            ("u=8, u=-1, u=10, U=1, i=1, xi", 3, false),
        ] {
            let expected = Priority { urgency, incremental };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
