//! "Did you mean": the known name nearest to a misspelt one.

/// The candidate nearest to `text` by Damerau-Levenshtein distance (optimal string alignment), if
/// it is near enough to be a slip of the fingers: at most a third of the letters, never all.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer words are no misspelling of anything and would cost quadratic time.
    const LENGTH_MAX: usize = 64;
    let text: Vec<char> = text.chars().take(LENGTH_MAX + 1).flat_map(char::to_lowercase).collect();
    if text.len() > LENGTH_MAX {
        return None;
    }
    let limit = (text.len() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let chars: Vec<char> = candidate.chars().collect();
            if chars.len().abs_diff(text.len()) > limit {
                return None;
            }
            let distance = distance(&text, &chars);
            (distance <= limit && distance < text.len().max(2)).then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &cb) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(ca != cb)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                cost = cost.min(before[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
