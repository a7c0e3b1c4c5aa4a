//! Settings of request bodies. nginx: `ngx_http_core_module`.

use nowait_conf::{Cx, Diagnostic, Msec, Node, Offset, Setting, Size, arity};

nowait_conf::directives! {
    /// Settings for reading request bodies.
    #[derive(Debug)]
    module "core";
    pub struct BodyConf with BodyConfLayer;

    /// Maximum size of a request body; zero means no limit. Larger bodies are refused with 413.
    client_max_body_size: Offset = "1m", in HTTP | SERVER | LOCATION, args "size";
    /// Maximum size of a request body that is kept in memory; larger bodies are written to a file.
    client_body_buffer_size: Size = "16k", in HTTP | SERVER | LOCATION, args "size";
    /// Maximum time between two reads of a request body; after that the request fails with 408.
    client_body_timeout: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Directory for files with request bodies, with up to three levels of subdirectories.
    client_body_temp_path: TempPath = "client_body_temp", in HTTP | SERVER | LOCATION, args "path [level1 [level2 [level3]]]";
    /// Writes every request body to a file. `on` keeps the file after the request, `clean` removes
    /// it.
    client_body_in_file_only: InFileOnly = "off", in HTTP | SERVER | LOCATION, args "on | clean | off";
    /// Accepted for compatibility: a body in memory is always contiguous.
    client_body_in_single_buffer: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

nowait_conf::setting_enum! {
    /// `client_body_in_file_only`
    pub enum InFileOnly {
        /// `off`
        Off = "off",
        /// `on`
        On = "on",
        /// `clean`
        Clean = "clean",
    }
}

/// A directory for temporary files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TempPath {
    /// The directory, absolute.
    pub path: Vec<u8>,
    /// Length of the name of each level of directories in it; zero: no further level.
    pub levels: [u8; 3],
}

/// The directories that locations use for temporary files, without repetitions.
#[derive(Default)]
pub struct TempPaths(pub Vec<TempPath>);

impl TempPaths {
    /// Adds one.
    pub fn add(&mut self, path: &TempPath) {
        if !self.0.contains(path) {
            self.0.push(path.clone());
        }
    }
}

impl Setting for TempPath {
    const ARITY: arity::Arity = arity::between(1, 4);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (path, levels) = node.args.split_first().ok_or_else(|| node.arity_error())?;
        let mut lengths = [0; 3];
        for (word, length) in levels.iter().zip(&mut lengths) {
            *length = match &word.text[..] {
                [digit @ b'1'..=b'3'] => digit - b'0',
                _ => {
                    return Err(word
                        .error(format!("invalid value \"{word}\""))
                        .expected("1, 2 or 3: the length of a directory's name"));
                }
            };
        }
        Ok(Self { path: cx.paths().full(&path.text), levels: lengths })
    }
}
