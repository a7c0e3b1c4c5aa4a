//! Responses to `http-01` challenges in the state directory: the issuer may connect to another instance
//! than the one that ordered, if both have the same name and share the state.
//!
//! The issuer's task writes and removes these files while it holds the lock. Requests for tokens that their
//! own process does not know read them in the pool. The number of concurrent look-ups is limited, because
//! any client can request challenges that do not exist.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nowait_acme::is_token;
use nowait_http::generation::Current;
use nowait_runtime::fs::{self, Io};
use nowait_runtime::spawn;
use nowait_runtime::time::timeout;

use super::state::{ChallengeKind, Issuers};

/// The prefix of file names.
pub const PREFIX: &str = "challenge-";

/// Maximum length of a token in a file's name. Those of public issuers have 43 characters.
const TOKEN_BYTES_MAX: usize = 128;

/// Maximum size of a response: the token, a dot, the thumbprint of a key.
const RESPONSE_BYTES_MAX: usize = TOKEN_BYTES_MAX + 1 + 43;

/// Maximum number of concurrent look-ups. Beyond it, a request finds nothing.
const LOOKUPS_MAX: usize = 16;

/// Time limit of a look-up.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Look-ups in progress. On a hanging disk, look-ups outlive their requests.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// The file of a response; `None` if the token is malformed or too long.
pub fn file(token: &str) -> Option<String> {
    (is_token(token) && token.len() <= TOKEN_BYTES_MAX).then(|| format!("{PREFIX}{token}"))
}

/// A look-up in progress.
struct Lookup;

impl Lookup {
    fn start() -> Option<Self> {
        let more = |count| (count < LOOKUPS_MAX).then_some(count + 1);
        LOOKUPS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Files into which another instance may have written the response.
pub fn paths(issuers: &Issuers, token: &[u8]) -> Vec<Vec<u8>> {
    let Some(file) = std::str::from_utf8(token).ok().and_then(file) else { return Vec::new() };
    let http = issuers.all.iter().filter(|issuer| issuer.challenge == ChallengeKind::Http);
    let dirs = http.filter_map(|issuer| issuer.state_path.as_deref());
    dirs.map(|dir| [dir, b"/", file.as_bytes()].concat()).collect()
}

/// The response to a challenge, from the first of these files that exists.
pub async fn find(current: &Rc<Current>, paths: Vec<Vec<u8>>, token: &[u8]) -> Option<String> {
    let lookup = Lookup::start()?;
    let io = Io::new(current.default_pool().clone());
    let read = spawn(async move {
        let _lookup = lookup;
        for path in paths {
            if let Ok(bytes) = fs::read(&io, &path, RESPONSE_BYTES_MAX).await {
                return Some(bytes);
            }
        }
        None
    });
    let bytes = timeout(TIME_MAX, read).await.ok()?.ok()??;
    let text = std::str::from_utf8(&bytes).ok()?;
    let (own, thumbprint) = text.split_once('.')?;
    (own.as_bytes() == token && is_token(thumbprint)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_names_of_files() {
        assert_eq!(file("aB-_9").as_deref(), Some("challenge-aB-_9"));
        for bad in ["", ".", "..", "a/b", "a.tmp", "ä", "a\0", &"a".repeat(129)] {
            assert_eq!(file(bad), None, "{bad}");
        }
    }

    #[test]
    fn look_ups_are_bounded() {
        let all: Vec<_> = std::iter::from_fn(Lookup::start).collect();
        assert_eq!(all.len(), LOOKUPS_MAX);
        drop(all);
        assert!(Lookup::start().is_some());
    }
}
