//! Settings of files: how they are opened, read and sent. nginx: `ngx_http_core_module`.

use nowait_conf::{BoundedNumber, Buffers, Cx, Diagnostic, Node, Seconds, Setting, Size, arity};

use crate::variables::complex::Complex;
use nowait_message::conditional::IfModifiedSince;
use nowait_runtime::fs::ReadCache;

nowait_conf::directives! {
    /// Settings for opening, reading and sending files.
    #[derive(Debug)]
    module "core";
    pub struct FileConf with FileConfLayer;

    /// Controls whether large files are sent by `sendfile()`, without copying them through the
    /// process.
    sendfile: bool = "off", in HTTP | SERVER | LOCATION | LOCATION_IF, args "on | off";
    /// Maximum amount of data sent by one `sendfile()` call, so that a fast client cannot
    /// monopolise a worker.
    sendfile_max_chunk: Size = "2m", in HTTP | SERVER | LOCATION, args "size";
    /// Selects where data that is not in memory is read. `threads` names a pool (variables are
    /// allowed). `on` bypasses the page cache where `directio` applies. `off` leaves the choice to
    /// Nowait, which uses the pool `default`. `blocking` reads in the event loop, for comparison.
    aio: AioConf = "off", in HTTP | SERVER | LOCATION, args "on | off | threads[=pool] | blocking";
    /// Accepted for compatibility and always on: Nowait never writes temporary files in the event
    /// loop.
    aio_write: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether the pool opens files and looks up names, unless that is known to need no
    /// disk. With `off`, the event loop does so and may wait.
    aio_open: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Files of at least this size bypass the page cache (O_DIRECT) and are read by the pool: for large
    /// files that are read once and would evict other data.
    directio: DirectIo = "off", in HTTP | SERVER | LOCATION, args "size | off";
    /// Alignment of reads that bypass the page cache, in bytes; at least 4096 is used.
    directio_alignment: Size = "512", in HTTP | SERVER | LOCATION, args "size";
    /// Tells the kernel that files larger than this are read sequentially, so that it reads further
    /// ahead; the kernel chooses how far. Zero gives no advice.
    read_ahead: Size = "0", in HTTP | SERVER | LOCATION, args "size";
    /// Controls whether data of files stays in the kernel's page cache after it was read from the disk. With
    /// `auto`, it stays if the same range of the file was read before, and not too long ago, so that
    /// downloads, crawlers and backups that read much data once don't displace the data in use; files of
    /// up to 64 KB always stay. With `off`, a read leaves nothing that was not there before. With `on`, the
    /// kernel alone decides, as in nginx. Applies to hits of a cache, too. An extension of Nowait.
    read_cache: ReadCacheConf = "on", in HTTP | SERVER | LOCATION, args "on | off | auto";
    /// Number and size of the buffers for reading a file if `sendfile` is not used.
    output_buffers: Buffers = "2 32k", in HTTP | SERVER | LOCATION, args "number size";
    /// Controls whether files are sent with an `ETag`: modification time and size in hexadecimal,
    /// as nginx writes it.
    etag: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Selects how `If-Modified-Since` is compared with the modification time of a file.
    if_modified_since: ImsConf = "exact", in HTTP | SERVER | LOCATION, args "off | exact | before";
    /// Maximum number of ranges in a request; zero disables ranges.
    max_ranges: u32 = "2147483647", in HTTP | SERVER | LOCATION, args "number";
    /// Controls whether symbolic links in paths are refused: all of them, with `if_not_owner`
    /// those whose owner differs from that of their target, or with `outside` those that lead out of a
    /// directory, and with `hidden` also those to names in it that begin with a dot, or below such
    /// names. Links in the part of the path given by `from` are followed; for `outside`, it is the
    /// directory, by default that of `root` or `alias`. Listings leave out what `outside` refuses. The
    /// kernel performs the check while it opens the file. `outside` is an extension of Nowait.
    disable_symlinks: DisableSymlinks = "off", in HTTP | SERVER | LOCATION,
    args "off | on | if_not_owner | outside [hidden] [from=part]";
    /// Caches descriptors, sizes and modification times of files and, with
    /// `open_file_cache_errors`, failed look-ups: at most `max` entries per worker, each until it
    /// has not been used for `inactive` (60s). Each directive has its own cache, which all blocks
    /// below it share. Files that `resident_files` keeps need no such cache; for others in memory, it saves
    /// a few microseconds per request.
    open_file_cache: OpenFileCache = "off", in HTTP | SERVER | LOCATION, args "off | max=N [inactive=time]";
    /// How long an entry of the cache is used before the file is checked again.
    open_file_cache_valid: Seconds = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Minimum number of uses within `inactive` for a file to stay open in the cache.
    open_file_cache_min_uses: u32 = "1", in HTTP | SERVER | LOCATION, args "number";
    /// Controls whether failed look-ups, such as those of missing files, are cached too.
    open_file_cache_errors: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: Linux reports no changes of open files in the event loop.
    open_file_cache_events: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether small files in use are kept in memory, with the look-ups that led to them, and
    /// sent without any system call on the file. The kernel reports every change before the next request
    /// arrives, so outdated content is never sent, unless `open_file_cache` allows it. Applies to local
    /// file systems, and where `aio blocking` and `aio_open off` are not in use.
    resident_files: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Largest file that is kept in memory; at most one megabyte.
    resident_files_max_size: Size = "64k", in HTTP | SERVER | LOCATION, args "size";
    /// Memory of all workers for resident files together; zero keeps none. The least used files make room.
    resident_files_memory: Size = "64m", in HTTP, args "size";
    /// Maximum number of files and directories of which the kernel reports changes to resident files.
    /// Half of `fs.inotify.max_user_watches` is used at most.
    resident_files_watches: u32 = "32768", in HTTP, args "number";
}

/// `aio`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AioConf {
    /// The pool `default`, because the configuration names none.
    Off,
    /// Direct I/O where `directio` applies.
    On,
    /// This pool.
    Threads(Complex),
    /// In the event loop.
    Blocking,
}

impl Setting for AioConf {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match &word.text[..] {
            b"off" => Ok(Self::Off),
            b"on" => Ok(Self::On),
            b"blocking" => Ok(Self::Blocking),
            b"threads" => Ok(Self::Threads(Complex::from_literal("default"))),
            _ => match word.strip_prefix("threads=") {
                Some(pool) if !pool.text.is_empty() => {
                    let pool = super::complex(&pool, cx)?;
                    if let Some(name) = pool.literal() {
                        let name = String::from_utf8_lossy(name).into_owned();
                        cx.global::<super::PoolsWanted>().0.push((name, word.clone()));
                    }
                    Ok(Self::Threads(pool))
                }
                _ => Err(word
                    .error(format!("invalid value \"{word}\""))
                    .expected("on, off, threads, threads=POOL or blocking")),
            },
        }
    }
}

/// `directio`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectIo(pub Option<u64>);

impl Setting for DirectIo {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        if node.args.first().is_some_and(|word| *word == *"off") {
            return Ok(Self(None));
        }
        Ok(Self(Some(super::value::<nowait_conf::Offset>(node, 0)?.0)))
    }
}

/// `read_cache`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCacheConf(pub ReadCache);

impl Setting for ReadCacheConf {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match &word.text[..] {
            b"on" => Ok(Self(ReadCache::On)),
            b"off" => Ok(Self(ReadCache::Off)),
            b"auto" => Ok(Self(ReadCache::Auto)),
            _ => Err(word.error(format!("invalid value \"{word}\"")).expected("on, off or auto")),
        }
    }
}

/// `if_modified_since`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImsConf(pub IfModifiedSince);

impl Setting for ImsConf {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match &word.text[..] {
            b"off" => Ok(Self(IfModifiedSince::Off)),
            b"exact" => Ok(Self(IfModifiedSince::Exact)),
            b"before" => Ok(Self(IfModifiedSince::Before)),
            _ => Err(word
                .error(format!("invalid value \"{word}\""))
                .expected("off, exact or before")),
        }
    }
}

/// `disable_symlinks`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisableSymlinks {
    /// Links are followed.
    Off,
    /// No component may be a link.
    On(Option<Complex>),
    /// Links are followed if they have the same owner as their targets.
    IfNotOwner(Option<Complex>),
    /// Links are followed if they stay inside a directory.
    Outside {
        /// Links to hidden names are allowed there.
        hidden: bool,
        /// The directory; otherwise the root.
        from: Option<Complex>,
    },
}

impl Setting for DisableSymlinks {
    const ARITY: arity::Arity = arity::between(1, 3);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (word, parameters) = node.args.split_first().ok_or_else(|| node.arity_error())?;
        let is_outside = *word == *"outside";
        let (mut from, mut hidden) = (None, true);
        for word in parameters {
            if let Some(part) = word.strip_prefix("from=").filter(|_| from.is_none()) {
                from = Some(super::complex(&part, cx)?);
            } else if *word == *"hidden" && is_outside && hidden {
                hidden = false;
            } else {
                let expected = if is_outside { "hidden or from=PART" } else { "from=PART" };
                return Err(word.error(format!("invalid parameter \"{word}\"")).expected(expected));
            }
        }
        match &word.text[..] {
            b"off" => Ok(Self::Off),
            b"on" => Ok(Self::On(from)),
            b"if_not_owner" => Ok(Self::IfNotOwner(from)),
            b"outside" => Ok(Self::Outside { hidden, from }),
            _ => Err(word
                .error(format!("invalid parameter \"{word}\""))
                .expected("off, on, if_not_owner or outside")),
        }
    }
}

/// `open_file_cache`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileCache(pub Option<OpenFileCacheConf>);

/// One cache of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileCacheConf {
    /// Number of this directive in the configuration, from 0.
    pub number: usize,
    /// Maximum number of entries per worker.
    pub max: usize,
    /// Entries that were not used for this long are removed.
    pub inactive: Seconds,
}

impl Setting for OpenFileCache {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (mut max, mut inactive) = (None, Seconds(60));
        for word in &node.args {
            if *word == *"off" {
                return Ok(Self(None));
            } else if let Some(value) = word.strip_prefix("max=") {
                let n: BoundedNumber<1, { i32::MAX as u64 }> = super::word_value(&value, word)?;
                max = Some(usize::try_from(n.get()).unwrap_or(usize::MAX));
            } else if let Some(value) = word.strip_prefix("inactive=") {
                inactive = super::word_value(&value, word)?;
            } else {
                return Err(word
                    .error(format!("invalid \"open_file_cache\" parameter \"{word}\""))
                    .expected("off, max=N or inactive=TIME"));
            }
        }
        let Some(max) = max else {
            return Err(node.error("\"open_file_cache\" must have the \"max\" parameter"));
        };
        let lines = &mut cx.global::<OpenFileCacheLines>().0;
        let number = *lines;
        *lines += 1;
        Ok(Self(Some(OpenFileCacheConf { number, max, inactive })))
    }
}

/// Number of directives that have defined a cache of open files.
#[derive(Default)]
struct OpenFileCacheLines(usize);
