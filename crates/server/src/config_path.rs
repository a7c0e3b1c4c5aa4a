//! The location of the configuration and of its paths, from the options and the defaults.
//!
//! nginx's rules, plus four for newcomers (each `nginx differs`): a configuration file given by a
//! relative name without `-p` may be in the working directory; while nothing is installed in the
//! default prefix, the directory of the file is the prefix; without any option the file may be in
//! `conf/` of the working directory; and without any file, the current directory is served.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nowait_sys::user;

use crate::builtin::{Builtin, Serve};
use crate::cli::CommandLine;
use crate::features::{CONF_FILE, PID_FILE, PREFIX};
use crate::log::OsErrorText;

/// The configuration to read, and the prefix of its relative paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigPath {
    /// Ends with a slash.
    pub prefix: PathBuf,
    /// The main file, a full path (or relative to the working directory, if `-p` is).
    pub conf_file: PathBuf,
    /// `-e`; `None`: standard error, or not given.
    pub error_log: Option<PathBuf>,
    /// `-e stderr` was given.
    pub error_log_is_stderr: bool,
    /// `-g`.
    pub globals: Option<String>,
    /// There is no file: start this site.
    pub builtin: Option<Builtin>,
    /// The pid file without `pid`.
    pub pid_default: PathBuf,
}

impl ConfigPath {
    /// Decides by the options and by which files exist.
    ///
    /// # Errors
    /// The message to print: the working directory is gone, or `-g` is not text.
    pub fn find(options: &CommandLine) -> Result<ConfigPath, String> {
        let globals = match &options.globals {
            Some(text) => {
                Some(text.clone().into_string().map_err(|_| "option \"-g\" is not UTF-8")?)
            }
            None => None,
        };
        let (prefix, conf_file, is_builtin) = match (&options.prefix, &options.conf) {
            (Some(prefix), conf) => {
                let prefix = with_slash(prefix.clone());
                let file = match conf {
                    Some(conf) => prefix.join(conf),
                    None => first_of([prefix.join(CONF_FILE), in_conf(&prefix)]),
                };
                (prefix, file, false)
            }
            (None, Some(conf)) => {
                let installed = Path::new(PREFIX).join(conf);
                let here = working_directory()?.join(conf);
                // nginx differs: it searches its prefix only.
                let file = if !installed.exists() && here.exists() { here } else { installed };
                let directory = file.parent().filter(|_| file.exists());
                match directory.map(|directory| with_slash(directory.into())) {
                    // Not installed: relative paths of the file are beside it.
                    Some(directory) if !Path::new(PREFIX).exists() => (directory, file, false),
                    _ => (PREFIX.into(), file, false),
                }
            }
            (None, None) => {
                let installed = Path::new(PREFIX).join(CONF_FILE);
                let here = working_directory()?;
                if installed.exists() {
                    (PREFIX.into(), installed, false)
                } else if in_conf(&here).exists() {
                    (here.clone(), in_conf(&here), false)
                } else {
                    (here, installed, true)
                }
            }
        };
        let error_log = match &options.error_log {
            Some(name) if !name.is_empty() => Some(prefix.join(name)),
            _ => None,
        };
        let error_log_is_stderr = options.error_log.as_ref().is_some_and(|name| name.is_empty());
        let pid_default = default_pid_file(options.prefix.is_some(), &prefix);
        Ok(ConfigPath {
            prefix,
            conf_file,
            error_log,
            error_log_is_stderr,
            globals,
            builtin: is_builtin.then(|| Builtin::Serve(Serve::default())),
            pid_default,
        })
    }
}

impl ConfigPath {
    /// The place of `nowait serve` and `nowait proxy`: no file at all. The prefix is the served directory.
    ///
    /// # Errors
    /// The message to print: there is no such directory.
    pub fn builtin(builtin: Builtin) -> Result<ConfigPath, String> {
        let prefix = match &builtin {
            Builtin::Serve(serve) => served(serve)?,
            // Nothing is looked for there.
            Builtin::Proxy(_) => "/".into(),
        };
        Ok(ConfigPath {
            conf_file: Path::new(PREFIX).join(CONF_FILE),
            pid_default: PathBuf::new(),
            prefix,
            error_log: None,
            error_log_is_stderr: false,
            globals: None,
            builtin: Some(builtin),
        })
    }

    /// Creates the place for the certificates of `--domain`. `owner`: the user of the
    /// server process, if it is not that of the master.
    ///
    /// # Errors
    /// The message to print: the place can't be created, or is unsuitable.
    pub fn make_state(&self, owner: Option<u32>) -> Result<(), String> {
        let Some(builtin) = &self.builtin else { return Ok(()) };
        let Some(domain) = &builtin.site().domain else { return Ok(()) };
        let served = match builtin {
            Builtin::Serve(serve) => Some((&*self.prefix, serve.hidden)),
            Builtin::Proxy(_) => None,
        };
        domain.make_place(served, owner)
    }

    /// The error if no configuration was found.
    pub fn no_configuration(&self) -> String {
        format!(
            "[error] there is no configuration: neither {} nor conf/{CONF_FILE} here exists\n  = hint: -p \
             and -c name one",
            self.conf_file.display()
        )
    }
}

/// The full path of a directory to serve.
fn served(serve: &Serve) -> Result<PathBuf, String> {
    let directory = std::fs::canonicalize(&serve.directory)
        // Fails if the path is not a readable directory. Root may read everything: `Serve::warnings` is
        // about the user of its server process.
        .and_then(|path| std::fs::read_dir(&path).map(|_| path))
        .map_err(|error| {
            let shown = serve.directory.display();
            let hint = match serve.directory.to_str().is_some_and(|s| s.parse::<u16>().is_ok()) {
                true => format!("\"--port {shown}\" sets the port"),
                false => "name a directory that you may read".to_owned(),
            };
            format!("[emerg] cannot serve \"{shown}\": {error}; {hint}")
        })?;
    Ok(with_slash(directory.into_os_string()))
}

/// `nowait.pid` under `-p`; else the system's place for root, the user's own place for others.
fn default_pid_file(prefix_given: bool, prefix: &Path) -> PathBuf {
    if prefix_given {
        return prefix.join("nowait.pid");
    }
    if user::effective_uid() == 0 {
        return PID_FILE.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => Path::new(&directory).join("nowait.pid"),
        None => prefix.join("nowait.pid"),
    }
}

fn in_conf(prefix: &Path) -> PathBuf {
    prefix.join("conf").join(CONF_FILE)
}

fn first_of(candidates: [PathBuf; 2]) -> PathBuf {
    let [first, second] = candidates;
    if !first.exists() && second.exists() { second } else { first }
}

fn working_directory() -> Result<PathBuf, String> {
    std::env::current_dir()
        .map(|path| with_slash(path.into_os_string()))
        .map_err(|error| format!("[emerg] getcwd() failed {}", OsErrorText(&error)))
}

fn with_slash(mut path: OsString) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    if !path.is_empty() && !path.as_bytes().ends_with(b"/") {
        path.push("/");
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_prefix() {
        let options = CommandLine {
            prefix: Some("/tmp/x".into()),
            conf: Some("nginx.conf".into()),
            error_log: Some("error.log".into()),
            ..CommandLine::default()
        };
        let place = ConfigPath::find(&options).unwrap();
        assert_eq!(place.prefix.as_os_str(), "/tmp/x/");
        assert_eq!(place.conf_file.as_os_str(), "/tmp/x/nginx.conf");
        assert_eq!(place.error_log.unwrap().as_os_str(), "/tmp/x/error.log");
        assert_eq!(place.pid_default.as_os_str(), "/tmp/x/nowait.pid");
        assert!(place.builtin.is_none());
    }

    #[test]
    fn only_readable_directories_are_served() {
        use std::os::unix::fs::PermissionsExt;
        let dir = nowait_testkit::TempDir::new("serve");
        dir.write("file", "");
        dir.write("closed/file", "");
        let closed = dir.path().join("closed");
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o100)).unwrap();
        let place = |name: &str| {
            let directory = dir.path().join(name);
            ConfigPath::builtin(Builtin::Serve(Serve { directory, ..Serve::default() }))
        };
        assert!(place(".").is_ok());
        for (name, expected) in [
            ("missing", "No such file or directory"),
            ("file", "Not a directory"),
            ("closed", "Permission denied"),
        ] {
            // Root reads everything.
            if name == "closed" && user::effective_uid() == 0 {
                continue;
            }
            let error = place(name).err().unwrap_or_default();
            assert!(error.contains(expected) && error.contains("name a directory"), "{error}");
        }
        // Allows the removal of the directory.
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn an_absolute_file_needs_no_prefix() {
        let options = CommandLine {
            conf: Some("/nonexistent/nginx.conf".into()),
            error_log: Some("".into()),
            ..CommandLine::default()
        };
        let place = ConfigPath::find(&options).unwrap();
        assert_eq!(place.conf_file.as_os_str(), "/nonexistent/nginx.conf");
        assert_eq!(place.prefix.as_os_str(), PREFIX);
        assert_eq!(place.error_log, None);
    }
}
