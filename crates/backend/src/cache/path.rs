//! `proxy_cache_path` and its relatives: where a cache keeps its objects. nginx:
//! `ngx_http_file_cache_set_slot`.

use std::collections::BTreeSet;
use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Msec, Node, Offset, Seconds, Size, Span, Value, Word, number};
use nowait_http::conf::HttpConf;
use nowait_http::slots::Key;

use super::responses;

/// The smallest `keys_zone`, in bytes. nginx: two pages.
const ZONE_BYTES_MIN: u64 = 2 * 4096;

/// Generates the row that defines caches, under the prefix of a protocol's module.
///
/// `cache_path_rows! { pub static PROXY_CACHE_PATH_ROWS, module "proxy", name "proxy_cache_path"; }`
#[macro_export]
macro_rules! cache_path_rows {
    ($vis:vis static $rows:ident, module $module:literal, name $name:literal;) => {
        nowait_conf::rows! {
            $vis static $rows, module $module;

            /// Defines a cache: its directory, and the zone that holds the index. A key takes 100 bytes of the
            /// zone, so `10m` holds about 98,000. When the zone is full, the least recently used objects make
            /// room.
            ///
            /// Files are named by the MD5 of the key, below directories of `levels`. They are always written
            /// next to their final place, so that nothing is copied between file systems: `use_temp_path=on` has
            /// no effect.
            ///
            /// Objects that have not been requested for the time of `inactive` are removed. If the cache grows
            /// above `max_size`, or less than `min_free` bytes are free on the file system, the least recently
            /// used objects are removed. This is done in steps of up to `manager_files` files that take no longer
            /// than `manager_threshold`, with pauses of `manager_sleep`. The directory is read in the same way
            /// after a start (`loader_…`), and, with `purger=on`, searched for objects purged by the beginning of
            /// their key (`purger_…`).
            ///
            /// `max_size` counts the blocks that the files occupy on the file system, heads of responses included.
            /// It may be exceeded for a moment: objects are removed after another one was stored, and files that
            /// are still being written are not counted. A response larger than `max_size` is passed on, but not
            /// stored.
            ///
            /// `memory` also keeps the most requested small objects in memory, up to this many bytes. `tier` names
            /// the zone of a slower cache behind this one. Objects that are not here are looked up there, and
            /// copied here when they are requested again; an object that has to make room here goes back there if
            /// it is gone from there.
            $name => $crate::cache::path::cache_path, in HTTP, take at_least(2), args "path [levels=levels] [use_temp_path=on|off] keys_zone=name:size [inactive=time] [max_size=size] [min_free=size] [manager_files=number] [manager_sleep=time] [manager_threshold=time] [loader_files=number] [loader_sleep=time] [loader_threshold=time] [purger=on|off] [purger_files=number] [purger_sleep=time] [purger_threshold=time] [memory=size] [tier=name]";
        }
    };
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePath {
    /// Directory, absolute, without a slash at its end.
    pub path: Vec<u8>,
    /// Digits of up to three levels of directories; 0: no further level.
    pub levels: [u8; 3],
    /// Files are written to the directory of `proxy_temp_path` first.
    pub use_temp_path: bool,
    /// Name of the zone.
    pub zone: String,
    /// Size of the zone in bytes.
    pub zone_bytes: u64,
    /// Objects that were not requested for this long are removed.
    pub inactive: Duration,
    /// Limit of the objects' total size in bytes.
    pub max_size: Option<u64>,
    /// Bytes to keep free on the file system.
    pub min_free: Option<u64>,
    /// Pace of the removal of objects.
    pub manager: Pace,
    /// Pace of reading the directory after a start.
    pub loader: Pace,
    /// Pace of searching for purged objects; `None`: no search.
    pub purger: Option<Pace>,
    /// Limit of the memory tier in bytes.
    pub memory: Option<u64>,
    /// The zone behind this one.
    pub tier: Option<String>,
    /// Position in the configuration.
    pub span: Span,
}

/// Division of background work into steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Files in one step.
    pub files: u32,
    /// Pause between two steps.
    pub sleep: Duration,
    /// Longest duration of a step.
    pub threshold: Duration,
}

impl Pace {
    const fn new(files: u32, sleep_ms: u64, threshold_ms: u64) -> Self {
        Self {
            files,
            sleep: Duration::from_millis(sleep_ms),
            threshold: Duration::from_millis(threshold_ms),
        }
    }
}

/// The caches defined until now.
#[derive(Debug, Default)]
pub struct CachePaths {
    /// In the order of their definition.
    pub paths: Vec<CachePath>,
    /// Mentions of unknown zones.
    pub(super) unknown: BTreeSet<Span>,
}

/// The caches of a configuration.
static PATHS: Key<Vec<CachePath>> = Key::new();

/// The caches of a configuration, by their numbers.
pub fn paths(conf: &HttpConf) -> &[CachePath] {
    conf.settings.get(&PATHS).map_or(&[], Vec::as_slice)
}

/// Completes the caches, when the whole configuration was read.
pub(super) fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let paths = cx.take_global::<CachePaths>().resolve(cx);
    responses::finish(paths.iter().map(|path| &*path.zone), conf);
    conf.settings.set(&PATHS, paths);
}

impl CachePaths {
    /// The cache with a zone of this name.
    pub fn position(&self, zone: &[u8]) -> Option<usize> {
        self.paths.iter().position(|path| path.zone.as_bytes() == zone)
    }

    /// All caches; at this point every tier must be defined.
    fn resolve(self, cx: &mut Cx<'_>) -> Vec<CachePath> {
        for path in &self.paths {
            let Some(tier) = &path.tier else { continue };
            let behind = self.paths.iter().find(|other| other.zone == *tier);
            let (problem, hint) = match behind {
                None => ("is unknown", "name the keys_zone of the cache on the slower disk"),
                Some(other) if other.tier.is_some() => {
                    ("has a tier itself", "there are two tiers at most: remove one \"tier\"")
                }
                Some(_) => continue,
            };
            let error = Diagnostic::emerg(format!("tier \"{tier}\" {problem}"));
            cx.report(error.at(path.span).hint(hint));
        }
        self.paths
    }
}

/// Defines a cache: a row of any protocol.
///
/// # Errors
/// What is wrong with its parameters.
pub fn cache_path(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (directory, parameters) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let mut path = cx.paths().full(&directory.text);
    while path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    let mut made = CachePath {
        path,
        levels: [0; 3],
        use_temp_path: true,
        zone: String::new(),
        zone_bytes: 0,
        inactive: Duration::from_secs(600),
        max_size: None,
        min_free: None,
        manager: Pace::new(100, 50, 200),
        loader: Pace::new(100, 50, 200),
        purger: None,
        memory: None,
        tier: None,
        span: node.name.span,
    };
    let mut purger = Pace::new(10, 50, 50);
    for word in parameters {
        parameter(&mut made, &mut purger, node, word)?;
    }
    if let Some(pace) = &mut made.purger {
        *pace = purger;
    }
    if made.zone.is_empty() || made.zone_bytes == 0 {
        return Err(node.error(format!("\"{}\" must have \"keys_zone\" parameter", node.name)));
    }
    let paths = &mut cx.global::<CachePaths>().paths;
    if let Some(old) = paths.iter().find(|old| old.zone == made.zone) {
        let error = node.error(format!("duplicate zone \"{}\"", made.zone));
        return Err(error.note(old.span, "first defined here"));
    }
    if let Some(old) = paths.iter().find(|old| old.path == made.path) {
        let path = String::from_utf8_lossy(&made.path);
        let error = directory.error(format!("the same path name \"{path}\" is used by two caches"));
        return Err(error.note(old.span, "first used here"));
    }
    paths.push(made);
    Ok(())
}

fn parameter(
    made: &mut CachePath,
    purger: &mut Pace,
    node: &Node,
    word: &Word,
) -> Result<(), Diagnostic> {
    let at = word.text.iter().position(|&b| b == b'=').ok_or_else(|| node.parameter_error(word))?;
    let (name, text) = (&word.text[..at], &word.text[at + 1..]);
    let shown = String::from_utf8_lossy(name);
    let invalid =
        |expected: &str| word.error(format!("invalid {shown} value \"{word}\"")).expected(expected);
    let size = || Offset::from_word(text).map_err(|_| invalid("a size such as 512k, 10m or 100g"));
    let switched = || switch(text).ok_or_else(|| invalid("\"on\" or \"off\""));
    match name {
        b"levels" => {
            made.levels = levels(text).ok_or_else(|| {
                word.error(format!("invalid \"levels\" \"{word}\""))
                    .expected("up to three levels of one or two digits such as 1:2")
            })?;
        }
        b"use_temp_path" => made.use_temp_path = switched()?,
        b"keys_zone" => (made.zone, made.zone_bytes) = keys_zone(text, word)?,
        b"inactive" => {
            let time = Seconds::from_word(text);
            made.inactive = time.map_err(|_| invalid("a time such as 10m or 7d"))?.duration();
        }
        b"max_size" => made.max_size = Some(size()?.0),
        b"min_free" => made.min_free = Some(size()?.0),
        b"memory" => made.memory = Some(size()?.0),
        b"tier" if !text.is_empty() => made.tier = Some(String::from_utf8_lossy(text).into_owned()),
        b"purger" => made.purger = switched()?.then_some(*purger),
        _ => {
            let (who, what) = shown.split_once('_').ok_or_else(|| node.parameter_error(word))?;
            let pace = match who {
                "manager" => &mut made.manager,
                "loader" => &mut made.loader,
                "purger" => purger,
                _ => return Err(node.parameter_error(word)),
            };
            let time = || {
                let time = Msec::from_word(text).map(Msec::duration);
                time.map_err(|_| invalid("a time such as 50ms or 1s"))
            };
            match what {
                "files" => {
                    let files = number(text).and_then(|files| u32::try_from(files).ok());
                    pace.files = files
                        .filter(|files| *files > 0)
                        .ok_or_else(|| invalid("a number above 0"))?;
                }
                "sleep" => pace.sleep = time()?,
                "threshold" => pace.threshold = time()?,
                _ => return Err(node.parameter_error(word)),
            }
        }
    }
    Ok(())
}

fn switch(text: &[u8]) -> Option<bool> {
    match text {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}

/// `1:2:2`: up to three levels of one or two digits.
fn levels(text: &[u8]) -> Option<[u8; 3]> {
    let mut levels = [0; 3];
    for (n, level) in text.split(|&b| b == b':').enumerate() {
        *levels.get_mut(n)? = match level {
            [digit @ b'1'..=b'2'] => digit - b'0',
            _ => return None,
        };
    }
    Some(levels)
}

/// `name:size`
fn keys_zone(text: &[u8], word: &Word) -> Result<(String, u64), Diagnostic> {
    let invalid = || {
        word.error(format!("invalid keys zone size \"{word}\""))
            .expected("a name and a size such as keys_zone=name:10m")
    };
    let at = text.iter().position(|&b| b == b':').ok_or_else(invalid)?;
    let Size(size) = Size::from_word(&text[at + 1..]).map_err(|_| invalid())?;
    if size < ZONE_BYTES_MIN {
        return Err(word
            .error(format!("keys zone \"{word}\" is too small"))
            .expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
    }
    Ok((String::from_utf8_lossy(&text[..at]).into_owned(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_up_to_three_of_one_or_two() {
        assert_eq!(levels(b"1:2"), Some([1, 2, 0]));
        assert_eq!(levels(b"2:2:2"), Some([2, 2, 2]));
        for wrong in [&b""[..], b"3", b"1:", b"1:2:", b"1:1:1:1", b"1::1", b"12"] {
            assert_eq!(levels(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
