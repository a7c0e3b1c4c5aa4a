//! "Did you mean": the known name nearest to a misspelt one.

use strsim::osa_distance;

/// The candidate nearest to `text` by Damerau-Levenshtein distance (optimal string alignment), if it is
/// near enough to be a typing error: at most a third of the letters, never all.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer words are no misspelling of anything and would cost quadratic time.
    const LENGTH_MAX: usize = 64;
    let text: String = text.chars().take(LENGTH_MAX + 1).flat_map(char::to_lowercase).collect();
    let length = text.chars().count();
    if length > LENGTH_MAX {
        return None;
    }
    let limit = (length / 3).clamp(1, 4);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            if candidate.chars().count().abs_diff(length) > limit {
                return None;
            }
            let distance = osa_distance(&text, candidate);
            (distance <= limit && distance < length.max(2)).then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_only() {
        let names = ["sendfile", "send_timeout", "server", "server_name", "root", "return"];
        assert_eq!(nearest("sendfiel", names), Some("sendfile"));
        assert_eq!(nearest("server_nmae", names), Some("server_name"));
        assert_eq!(nearest("sever", names), Some("server"));
        assert_eq!(nearest("rot", names), Some("root"));
        assert_eq!(nearest("gzip", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"a".repeat(10_000), names), None);
    }
}
