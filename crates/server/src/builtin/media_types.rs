//! What the contents of a directory are: types for every known extension, UTF-8 for text, compression for what
//! becomes smaller.
//!
//! Used by [`super::serve`]. The types are those of `mime.types`; sources and settings are text here, because a
//! browser would save what it has no viewer for.

use super::files;

/// Types of `mime.types` that browsers save although they are text.
const SHOWN_AS_TEXT: [&str; 6] = [
    "application/sql",
    "application/toml",
    "application/x-perl",
    "application/x-tcl",
    "application/x-subrip",
    "application/yaml",
];

/// Extensions of sources and settings, which are not media types.
const TEXTS: &str = "adoc asm bash bat c cc cfg cmake conf cpp cs diff el env fish go gradle h hh hpp hs ini java jl \
                     kt kts lisp lock lua m mk nix org patch php properties ps1 py r rb rs rst scala service sh srt \
                     swift tex tsx jsx vue zig zsh";

/// Types of text besides `text/html`; the charset is declared for them.
const WITH_CHARSET: &str = "text/calendar text/css text/csv text/javascript text/markdown text/plain text/vcard \
                            text/vtt text/xml";

/// More types that compression makes smaller.
const COMPRESSED: &str = "application/atom+xml application/dash+xml application/geo+json application/json \
                          application/ld+json application/manifest+json application/rss+xml \
                          application/vnd.apple.mpegurl application/wasm application/xhtml+xml font/otf font/ttf \
                          image/bmp image/svg+xml";

/// The least length to compress, in bytes: below, a packet is saved at most.
const COMPRESSED_BYTES_MIN: usize = 1000;

/// Directives of the `http` block.
pub fn directives() -> String {
    let mut text = String::from("    default_type application/octet-stream;\n");
    for line in files::MIME_TYPES.lines() {
        let line = line.trim();
        match SHOWN_AS_TEXT.iter().find_map(|name| line.strip_prefix(name)) {
            _ if line.is_empty() || line.starts_with('#') => {}
            Some(extensions) => {
                text.push_str(&format!("        text/plain {}\n", extensions.trim()))
            }
            None if line == "}" => {
                text.push_str(&format!("        text/plain {TEXTS};\n    }}\n"));
            }
            None if line.ends_with('{') => text.push_str(&format!("    {line}\n")),
            None => text.push_str(&format!("        {line}\n")),
        }
    }
    text.push_str(&format!(
        "    charset utf-8;\n    charset_types {WITH_CHARSET};\n    gzip on;\n    gzip_vary on;\n    \
         gzip_min_length {COMPRESSED_BYTES_MIN};\n    gzip_types {WITH_CHARSET} {COMPRESSED};\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_has_one_type() {
        let text = directives();
        let types = text.split_once("types {").unwrap().1.split_once('}').unwrap().0;
        let mut extensions: Vec<&str> =
            types.split(';').flat_map(|entry| entry.split_whitespace().skip(1)).collect();
        let count = extensions.len();
        extensions.sort_unstable();
        extensions.dedup();
        assert_eq!(extensions.len(), count);
        for (extension, kind) in [("yaml", "text/plain"), ("rs", "text/plain"), ("mkv", "video/")] {
            let line = types.lines().find(|line| {
                line.trim_end_matches(';').split_whitespace().skip(1).any(|word| word == extension)
            });
            assert!(
                line.is_some_and(|line| line.trim().starts_with(kind)),
                "{extension}: {line:?}"
            );
        }
    }
}
