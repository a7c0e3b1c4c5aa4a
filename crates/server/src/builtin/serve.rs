//! `nowait serve`: the configuration that serves a directory, as an ordinary text. There is no second code
//! path for serving.
//!
//! Used by `main`, also for a start without a configuration.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nowait_sys::user;

use super::media_types;
use super::site::Site;

/// The `http` block up to the types.
const HTTP: &str = "\
events {}
http {
    autoindex_format page;
    autoindex_readme on;
    autoindex_archive tar zip;
    error_page_format page;
";

/// A directory to serve without a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Where, and for whom.
    pub site: Site,
    /// The directory, as given.
    pub directory: PathBuf,
    /// Also serve names that begin with a dot.
    pub hidden: bool,
    /// Follow symbolic links out of the directory, and to hidden names.
    pub follow_links: bool,
    /// Answer requests for what does not exist by `index.html`.
    pub single_page: bool,
    /// Files that clients may add.
    pub uploads: Option<Uploads>,
}

/// What uploads may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uploads {
    /// Add files.
    New,
    /// Also replace them.
    Replacing,
}

/// The directory for uploads that are not complete, below the served one: a complete file is then renamed.
pub const UPLOADING: &str = ".nowait-uploads";

impl Default for Serve {
    fn default() -> Serve {
        Serve {
            site: Site::default(),
            directory: PathBuf::from("."),
            hidden: false,
            follow_links: false,
            single_page: false,
            uploads: None,
        }
    }
}

impl Serve {
    /// The configuration; the prefix is the directory. Directives that `globals` (`-g`) sets are
    /// left out.
    pub fn configuration(&self, globals: Option<&str>) -> String {
        let mut text = self.site.main_directives(globals);
        text.push_str(HTTP);
        if self.site.domain.is_some() {
            // What becomes of the certificate.
            text.push_str("    error_log stderr notice;\n");
        }
        text.push_str(&media_types::directives());
        text.push_str(&self.site.http_directives());
        text.push_str("    server {\n");
        text.push_str(&self.site.server_directives());
        text.push_str("        root .;\n        autoindex on;\n");
        if !self.follow_links {
            let hidden = if self.hidden { "" } else { " hidden" };
            text.push_str(&format!("        disable_symlinks outside{hidden};\n"));
        }
        if !self.hidden {
            // Repositories, passwords of tools, histories. Directory listings never show such
            // names.
            text.push_str("        location ~ /\\. { return 404; }\n");
        }
        if let Some(uploads) = self.uploads {
            let overwrite = if uploads == Uploads::Replacing { "on" } else { "off" };
            text.push_str(&format!(
                "        dav_methods put;\n        create_full_put_path on;\n        put_overwrite {overwrite};\n        \
                 dav_access user:rw group:r all:r;\n        client_max_body_size 0;\n        \
                 client_body_temp_path {UPLOADING};\n        location ^~ /{UPLOADING} {{ return 404; }}\n"
            ));
        }
        if self.single_page {
            // The page has to be asked for again after a new version; its ETag makes that cheap.
            text.push_str(
                "        location / {\n            try_files $uri $uri/index.html /index.html =404;\n            \
                 add_header Cache-Control no-cache;\n        }\n",
            );
        }
        text.push_str("    }\n}\n");
        text
    }

    /// The text shown at a terminal. `directory` is the full path.
    pub fn greeting(&self, directory: &Path) -> String {
        let urls = self.site.greeting();
        let end = match self.site.domain {
            Some(_) => "",
            None => " \"nowait -h\" shows how to configure it.",
        };
        format!("Serving {} at {urls}\nPress Ctrl-C to stop.{end}", directory.display())
    }

    /// What may surprise: as lines for a terminal.
    pub fn warnings(&self, directory: &Path) -> Vec<String> {
        let mut warnings = self.site.warnings();
        if self.uploads.is_some() && self.site.accounts.is_empty() && !self.site.is_local() {
            warnings.push(
                "[warn] without --auth, everybody who reaches this server can fill the disk"
                    .to_owned(),
            );
        }
        if self.single_page && !directory.join("index.html").is_file() {
            warnings.push(format!(
                "[warn] there is no index.html in \"{}\", which --spa needs",
                directory.display()
            ));
        }
        if user::effective_uid() != 0 {
            return warnings;
        }
        let user = self.site.own_user().unwrap_or("nobody");
        warnings.push(format!("[warn] started as root: files are read as user \"{user}\""));
        let others_may = |path: &Path, bits: u32| {
            std::fs::metadata(path).map_or(true, |metadata| metadata.mode() & bits == bits)
        };
        let is_open = others_may(directory, 0o5)
            && directory.ancestors().all(|ancestor| others_may(ancestor, 0o1));
        if !is_open {
            warnings.push(format!(
                "[warn] \"{}\" may not be readable by \"{user}\"; start nowait as the owner of the \
                 directory",
                directory.display()
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globals_replace_what_is_built_in() {
        let serve = Serve::default();
        assert!(serve.configuration(None).starts_with("daemon off;\nworker_processes auto;\n"));
        let text = serve.configuration(Some("worker_processes 2;daemon on;"));
        assert!(!text.contains("daemon") && !text.contains("worker_processes"), "{text}");
        assert!(text.contains("error_log stderr warn;"), "{text}");
        assert!(!Serve { hidden: true, ..serve }.configuration(None).contains("404"));
    }
}
