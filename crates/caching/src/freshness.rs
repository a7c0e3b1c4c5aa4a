//! The age of a response, its freshness lifetime, and its permitted uses (RFC 9111 sections 4.2 and 5.2.1).
//!
//! Used in the strict mode when a response is stored, and for every request that finds one. All times
//! are Unix seconds; `now` is an argument.

use crate::control::{CacheControl, SECONDS_MAX};
use crate::facts::{RequestFacts, ResponseFacts};
use crate::storage;
use crate::validity::ValidByStatus;

/// A response without any times is fresh for a tenth of the time since its modification.
///
/// RFC 9111 section 4.2.2: "a typical setting of this fraction might be 10%."
const HEURISTIC_PARTS: i64 = 10;

/// The longest lifetime given by the heuristic: a day.
const HEURISTIC_SECONDS_MAX: u64 = 86_400;

/// The freshness lifetime of a response from its generation on, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds.
    pub seconds: u64,
    /// It was not stated by the origin.
    pub heuristic: bool,
}

/// The freshness lifetime of a response (section 4.2.1). `valid` replaces the heuristic where it
/// has an entry.
pub fn lifetime(response: &ResponseFacts, valid: &ValidByStatus, response_time: i64) -> Lifetime {
    let told = |seconds| Lifetime { seconds, heuristic: false };
    let control = &response.control;
    // "Caches are encouraged to consider responses that have invalid freshness information […] to be
    // stale."
    if control.invalid {
        return told(0);
    }
    // "If the cache is shared and the s-maxage response directive is present, use its value, or"
    if let Some(seconds) = control.s_maxage {
        return told(seconds);
    }
    // "If the max-age response directive is present, use its value, or"
    if let Some(seconds) = control.max_age {
        return told(seconds);
    }
    // "If the Expires response header field is present, use its value minus the value of the Date
    // response header field (using the time the message was received if it is not present […]), or"
    if let Some(expires) = response.expires {
        return told(between(response.date.unwrap_or(response_time), expires));
    }
    // "Otherwise, no explicit expiration time is present in the response. A heuristic freshness
    // lifetime might be applicable."
    Lifetime { seconds: heuristic(response, valid, response_time), heuristic: true }
}

fn heuristic(response: &ResponseFacts, valid: &ValidByStatus, response_time: i64) -> u64 {
    // Section 4.2.2: "A cache MUST NOT use heuristics to determine freshness when an explicit
    // expiration time is present"; "on responses with status codes that are not defined as
    // heuristically cacheable unless explicitly marked as cacheable". What the operator configures is
    // such a mark.
    let configured = valid.seconds(response.status);
    if configured > 0 {
        return configured;
    }
    if !(storage::heuristic(response.status) || response.control.public) {
        return 0;
    }
    let Some(modified) = response.last_modified else { return 0 };
    let age = response.date.unwrap_or(response_time).saturating_sub(modified);
    u64::try_from(age / HEURISTIC_PARTS).unwrap_or(0).min(HEURISTIC_SECONDS_MAX)
}

/// The age of a response when it was received (section 4.2.3), in seconds.
pub fn initial_age(response: &ResponseFacts, request_time: i64, response_time: i64) -> u64 {
    // "apparent_age = max(0, response_time - date_value);"
    let apparent_age = response.date.map_or(0, |date| between(date, response_time));
    // "response_delay = response_time - request_time;"
    let response_delay = between(request_time, response_time);
    // "corrected_age_value = age_value + response_delay;"
    let corrected_age_value = response.age.saturating_add(response_delay);
    // "corrected_initial_age = max(apparent_age, corrected_age_value);"
    apparent_age.max(corrected_age_value).min(SECONDS_MAX)
}

/// The age of a stored response, in seconds.
#[inline]
pub fn current_age(initial_age: u64, response_time: i64, now: i64) -> u64 {
    // "resident_time = now - response_time;
    // current_age = corrected_initial_age + resident_time;"
    initial_age.saturating_add(between(response_time, now)).min(SECONDS_MAX)
}

fn between(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

/// The input of the rules about a stored response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// The freshness lifetime, in seconds.
    pub lifetime: u64,
    /// The age, in seconds.
    pub age: u64,
    /// `no-cache`: never used without revalidation.
    pub always_validate: bool,
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: never used stale.
    pub never_stale: bool,
    /// `stale-while-revalidate`, in seconds.
    pub updating: u64,
    /// `stale-if-error`, in seconds.
    pub error: u64,
}

/// Directives of a response that forbid serving it stale.
///
/// RFC 9111 section 4.2.4: "A cache MUST NOT generate a stale response if it is prohibited by an
/// explicit in-protocol directive (e.g., by a no-cache response directive, a must-revalidate
/// response directive, or an applicable s-maxage or proxy-revalidate response directive".
#[inline]
pub fn never_stale(control: &CacheControl) -> bool {
    control.must_revalidate || control.proxy_revalidate || control.s_maxage.is_some()
}

/// The permitted use of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Served as it is.
    Fresh,
    /// Stale, but the client accepts that: `max-stale`.
    Accepted,
    /// Must be validated with the origin first.
    Validate(Stale),
}

/// Conditions for serving a response that needs revalidation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stale {
    /// While it is being revalidated.
    pub while_updating: bool,
    /// When the origin fails.
    pub if_error: bool,
    /// Where the configuration allows it (`proxy_cache_use_stale`).
    pub by_configuration: bool,
}

/// Decides about a stored response.
pub fn usable(request: &RequestFacts, stored: &Stored) -> Freshness {
    let control = &request.control;
    let staleness = stored.age.saturating_sub(stored.lifetime);
    // "response_is_fresh = (freshness_lifetime > current_age)"
    let fresh = stored.lifetime > stored.age;
    let serves_stale = !stored.always_validate && !stored.never_stale;
    let stale = Stale {
        while_updating: serves_stale && staleness <= stored.updating && stored.updating > 0,
        if_error: serves_stale
            && (staleness <= stored.error && stored.error > 0
                || control.stale_if_error.is_some_and(|seconds| staleness <= seconds)),
        by_configuration: serves_stale,
    };
    // Section 5.2.1.4: no-cache "indicates that the client prefers a stored response not be used to
    // satisfy the request without successful validation on the origin server."
    if stored.always_validate || control.no_cache.is_whole() {
        return Freshness::Validate(Stale { while_updating: false, ..stale });
    }
    // Section 5.2.1.1: max-age "indicates that the client prefers a response whose age is less than
    // or equal to the specified number of seconds."
    if control.max_age.is_some_and(|seconds| stored.age > seconds) {
        return Freshness::Validate(Stale { while_updating: false, ..stale });
    }
    // Section 5.2.1.3: min-fresh "indicates that the client prefers a response whose freshness
    // lifetime is no less than its current age plus the specified time in seconds."
    if let Some(seconds) = control.min_fresh
        && stored.lifetime < stored.age.saturating_add(seconds)
    {
        return Freshness::Validate(Stale { while_updating: false, ..stale });
    }
    if fresh {
        return Freshness::Fresh;
    }
    // Section 5.2.1.2: max-stale "indicates that the client will accept a response that has exceeded
    // its freshness lifetime. If a value is present, then the client is willing to accept a response
    // that has exceeded its freshness lifetime by no more than the specified number of seconds."
    if serves_stale && control.max_stale.is_some_and(|seconds| staleness <= seconds) {
        return Freshness::Accepted;
    }
    Freshness::Validate(stale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Scope;
    use crate::tests::random_cases;

    const NOW: i64 = 1_000_000_000;

    fn response() -> ResponseFacts {
        ResponseFacts { status: 200, ..ResponseFacts::default() }
    }

    fn control(line: &str) -> CacheControl {
        CacheControl::parse([line.as_bytes()].into_iter())
    }

    fn seconds(response: &ResponseFacts) -> (u64, bool) {
        let life = lifetime(response, &ValidByStatus(vec![(Some(201), 7)]), NOW);
        (life.seconds, life.heuristic)
    }

    #[test]
    fn lifetimes() {
        let with =
            |line| ResponseFacts { control: control(line), expires: Some(NOW + 9), ..response() };
        assert_eq!(seconds(&with("max-age=5, s-maxage=6")), (6, false));
        assert_eq!(seconds(&with("max-age=5")), (5, false));
        assert_eq!(seconds(&with("")), (9, false));
        assert_eq!(seconds(&with("max-age=x")), (0, false));
        assert_eq!(seconds(&ResponseFacts { date: Some(NOW + 4), ..with("") }), (5, false));
        let modified = ResponseFacts { last_modified: Some(NOW - 1000), ..response() };
        assert_eq!(seconds(&modified), (100, true));
        assert_eq!(
            seconds(&ResponseFacts { last_modified: Some(0), ..response() }),
            (86_400, true)
        );
        assert_eq!(
            seconds(&ResponseFacts { last_modified: Some(NOW + 1000), ..response() }),
            (0, true)
        );
        assert_eq!(seconds(&ResponseFacts { status: 500, ..modified.clone() }), (0, true));
        assert_eq!(seconds(&ResponseFacts { status: 201, ..modified }), (7, true));
    }

    #[test]
    fn ages() {
        let response = ResponseFacts { date: Some(NOW - 10), age: 20, ..response() };
        assert_eq!(initial_age(&response, NOW - 3, NOW), 23);
        assert_eq!(initial_age(&ResponseFacts { age: 0, ..response.clone() }, NOW - 3, NOW), 10);
        // A clock that is ahead makes no response younger than new.
        assert_eq!(
            initial_age(
                &ResponseFacts { date: Some(NOW + 99), ..ResponseFacts::default() },
                NOW,
                NOW
            ),
            0
        );
        assert_eq!(current_age(23, NOW, NOW + 7), 30);
        assert_eq!(current_age(SECONDS_MAX, NOW, i64::MAX), SECONDS_MAX);
    }

    #[test]
    fn requests_decide_too() {
        let stored = Stored { lifetime: 100, age: 50, ..Stored::default() };
        let old = Stored { age: 150, ..stored };
        let ask = |line, stored: &Stored| {
            usable(&RequestFacts { control: control(line), ..RequestFacts::default() }, stored)
        };
        let no =
            |by_configuration| Freshness::Validate(Stale { by_configuration, ..Stale::default() });
        assert_eq!(ask("", &stored), Freshness::Fresh);
        assert_eq!(ask("no-cache", &stored), no(true));
        assert_eq!(ask("max-age=50", &stored), Freshness::Fresh);
        assert_eq!(ask("max-age=49", &stored), no(true));
        assert_eq!(ask("min-fresh=50", &stored), Freshness::Fresh);
        assert_eq!(ask("min-fresh=51", &stored), no(true));
        assert_eq!(ask("", &old), no(true));
        assert_eq!(ask("max-stale", &old), Freshness::Accepted);
        assert_eq!(ask("max-stale=50", &old), Freshness::Accepted);
        assert_eq!(ask("max-stale=49", &old), no(true));
        assert_eq!(ask("max-stale", &Stored { never_stale: true, ..old }), no(false));
        assert_eq!(ask("max-stale", &Stored { always_validate: true, ..stored }), no(false));
    }

    #[test]
    fn stale_extensions() {
        let stored = Stored { lifetime: 10, age: 15, updating: 5, error: 7, ..Stored::default() };
        let stale = |stored: &Stored| match usable(&RequestFacts::default(), stored) {
            Freshness::Validate(stale) => (stale.while_updating, stale.if_error),
            other => panic!("{other:?}"),
        };
        assert_eq!(stale(&stored), (true, true));
        assert_eq!(stale(&Stored { age: 16, ..stored }), (false, true));
        assert_eq!(stale(&Stored { age: 18, ..stored }), (false, false));
        assert_eq!(stale(&Stored { never_stale: true, ..stored }), (false, false));
    }

    /// For all times and directives: fresh means younger than its lifetime, nothing that must not
    /// be used stale is, what the client wants to be validated is, and time makes nothing fresher.
    #[test]
    fn any_times() {
        random_cases(5000, |random| {
            let mut some = |n: usize| (random.below(2) == 0).then(|| random.below(n) as u64);
            let request = RequestFacts {
                control: CacheControl {
                    max_age: some(200),
                    min_fresh: some(100),
                    max_stale: some(100),
                    stale_if_error: some(50),
                    no_cache: if some(8) == Some(0) { Scope::Whole } else { Scope::Absent },
                    ..CacheControl::default()
                },
                ..RequestFacts::default()
            };
            let stored = Stored {
                lifetime: some(200).unwrap_or(0),
                age: some(300).unwrap_or(0),
                always_validate: some(4) == Some(0),
                never_stale: some(2) == Some(0),
                updating: some(50).unwrap_or(0),
                error: some(50).unwrap_or(0),
            };
            let decided = usable(&request, &stored);
            match decided {
                Freshness::Fresh => {
                    assert!(stored.age < stored.lifetime);
                    assert!(request.control.max_age.is_none_or(|max| stored.age <= max));
                }
                Freshness::Accepted => {
                    assert!(request.control.max_stale.is_some() && !stored.never_stale)
                }
                Freshness::Validate(stale) => {
                    let any = stale.while_updating || stale.if_error || stale.by_configuration;
                    assert!(!any || !stored.never_stale && !stored.always_validate);
                }
            }
            if !matches!(decided, Freshness::Validate(_)) {
                assert!(!stored.always_validate && !request.control.no_cache.is_whole());
            }
            let older = Stored { age: stored.age + 1, ..stored };
            if usable(&request, &older) == Freshness::Fresh {
                assert_eq!(decided, Freshness::Fresh);
            }
        });
    }
}
