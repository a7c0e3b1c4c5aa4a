//! Certificates, keys, revocation lists and passwords, from files that directives name.
//!
//! Called while a configuration is read. The master reads the files; the server process gets their
//! contents with the configuration. A name after `data:` is itself the contents, as in nginx.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

use nowait_conf::{Contents, Cx, Diagnostic, Errno, IrregularFile, Node, Setting, Word, arity};
use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{
    Certificate, CertificateDer, CertificateRevocationListDer, Error, Identity, TicketKey, Verifier,
};

/// A file name as an argument; an empty one cancels the setting of an outer block. Its content is
/// only read when the settings are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(pub Word);

impl FileName {
    /// The argument, unless it is empty.
    pub fn word(&self) -> Option<&Word> {
        (!self.0.text.is_empty()).then_some(&self.0)
    }
}

impl Setting for FileName {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        Ok(Self(node.args.first().ok_or_else(|| node.arity_error())?.clone()))
    }
}

/// Passwords of encrypted keys; wiped on drop.
#[derive(Clone, Default)]
pub struct Passwords(Arc<Vec<Contents>>);

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Passwords({})", self.0.len())
    }
}

impl Setting for Passwords {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let (path, contents) = read(cx, word);
        let contents = contents.map_err(|error| {
            let why = os_error(&error);
            word.error(format!("open() \"{path}\" failed {why}")).hint(hint(&error))
        })?;
        let lines = contents.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let lines = lines.filter(|line| !line.is_empty());
        Ok(Self(Arc::new(lines.map(|line| Contents::new(line.to_vec())).collect())))
    }
}

impl Passwords {
    /// The same for clones, and different otherwise while both exist; zero without any.
    pub(super) fn address(&self) -> usize {
        if self.0.is_empty() { 0 } else { Arc::as_ptr(&self.0).addr() }
    }

    pub(super) fn list(&self) -> Vec<&[u8]> {
        self.0.iter().map(|password| &password[..]).collect()
    }
}

/// `(2: No such file or directory)`.
fn os_error(error: &io::Error) -> String {
    format!("({})", Errno(error))
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if IrregularFile::of(error).is_some() => IrregularFile::HINT,
        io::ErrorKind::NotFound => {
            "correct the path; a relative one starts at the directory of the configuration file"
        }
        io::ErrorKind::PermissionDenied if !nowait_sys::process::is_root() => {
            "run it as the user that starts the server, often root"
        }
        io::ErrorKind::IsADirectory => "name a file in the directory",
        io::ErrorKind::TimedOut => "look after the disk or the file server",
        _ => "make the file readable",
    }
}

/// Precedes the name of a file that OpenSSL reads as one of its stores.
const FILE_STORE: &[u8] = b"store:file:";

/// The name of a file.
pub(super) fn name(text: &[u8]) -> &[u8] {
    text.strip_prefix(FILE_STORE).unwrap_or(text)
}

/// The completed name of a file, and its contents.
fn read(cx: &mut Cx<'_>, word: &Word) -> (String, io::Result<Contents>) {
    use std::os::unix::ffi::OsStrExt;
    if let Some(data) = word.text.strip_prefix(b"data:") {
        return ("data:...".to_owned(), Ok(Contents::new(data.to_vec())));
    }
    let path = cx.paths().conf_full(name(&word.text));
    let contents = cx.read_named(Path::new(std::ffi::OsStr::from_bytes(&path)));
    (String::from_utf8_lossy(&path).into_owned(), contents)
}

/// Reads a file and evaluates it; `what` it is appears in errors.
fn load<T>(
    cx: &mut Cx<'_>,
    word: &Word,
    what: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, Error>,
) -> Result<T, Diagnostic> {
    let (path, contents) = read(cx, word);
    let contents = contents.map_err(|error| {
        let why = os_error(&error);
        word.error(format!("cannot load {what} \"{path}\": open() failed {why}")).hint(hint(&error))
    })?;
    parse(&contents).map_err(|error| {
        let diagnostic = word.error(format!("cannot load {what} \"{path}\": {error}"));
        match advice(&error, &contents) {
            Some(advice) => diagnostic.hint(advice),
            None => diagnostic,
        }
    })
}

/// The hint for a file in an unexpected format.
fn advice(error: &Error, contents: &[u8]) -> Option<&'static str> {
    match error {
        Error::Password => Some(
            "the key is encrypted: write its password into a file, and name it with ssl_password_file",
        ),
        // A DER file is a sequence from its first byte on.
        Error::Pem(..) if contents.first() == Some(&0x30) => Some(
            "the file seems to be DER; convert it to PEM, such as with openssl x509 -inform der",
        ),
        Error::Pem(..) => Some("expected is PEM: text with -----BEGIN ...----- lines"),
        _ => None,
    }
}

/// All certificates of a file.
///
/// # Errors
/// It can't be read, or is malformed.
pub fn certificates(
    cx: &mut Cx<'_>,
    word: &Word,
) -> Result<Vec<CertificateDer<'static>>, Diagnostic> {
    load(cx, word, "certificate", pem::certificates)
}

/// The end of validity of the first certificate in a PEM file, as OpenSSL prints it, if that has passed.
pub fn expired(file: &[u8], now: SystemTime) -> Option<String> {
    end_of_validity(pem::certificates(file).ok()?.first()?, now)
}

fn end_of_validity(der: &CertificateDer<'_>, now: SystemTime) -> Option<String> {
    let certificate = Certificate::parse(der)?;
    let (_, end) = certificate.dates()?;
    (end <= now).then(|| certificate.valid_to())
}

/// The private key of a file.
///
/// # Errors
/// It can't be read, is malformed, or no password fits.
pub fn private_key(
    cx: &mut Cx<'_>,
    word: &Word,
    passwords: &Passwords,
) -> Result<PrivateKey, Diagnostic> {
    for (prefix, what) in [("engine:", "engines"), ("store:", "stores of OpenSSL")] {
        if word.text.starts_with(prefix.as_bytes()) && !word.text.starts_with(FILE_STORE) {
            let error = format!("cannot load certificate key \"{word}\": no {what} exist here");
            return Err(word.error(error).hint("name a PEM file"));
        }
    }
    let parse = |file: &[u8]| PrivateKey::from_pem(file, &passwords.list());
    load(cx, word, "certificate key", parse)
}

/// A certificate with its chain and its key.
///
/// # Errors
/// A file can't be read or is malformed, or the key belongs to another certificate.
pub fn identity(
    cx: &mut Cx<'_>,
    certificate: &Word,
    key: &Word,
    passwords: &Passwords,
    ocsp: Option<Vec<u8>>,
) -> Result<Identity, Diagnostic> {
    let chain = certificates(cx, certificate)?;
    if let Some(end) = chain.first().and_then(|first| end_of_validity(first, SystemTime::now())) {
        let warning = Diagnostic::warn(format!("certificate \"{certificate}\" has expired: {end}"));
        cx.report(warning.at(certificate.span).hint("browsers refuse the connection; renew it"));
    }
    let private = private_key(cx, key, passwords)?;
    Identity::new(chain, &private, ocsp).map_err(|error| match error {
        Error::KeyMismatch => {
            let (path, _) = read(cx, key);
            let why = "error:05800074:x509 certificate routines::key values mismatch";
            key.error(format!("SSL_CTX_use_PrivateKey(\"{path}\") failed (SSL: {why})"))
                .note(certificate.span, "the certificate")
                .hint("the first certificate of the file must be the one that the key is for")
        }
        error => key.error(format!("cannot load certificate key \"{key}\": {error}")),
    })
}

/// The revocation lists of a file.
///
/// # Errors
/// It can't be read, or is malformed.
pub fn revocation_lists(
    cx: &mut Cx<'_>,
    word: &Word,
) -> Result<Vec<CertificateRevocationListDer<'static>>, Diagnostic> {
    load(cx, word, "CRL", pem::revocation_lists)
}

/// The authorities and revocation lists for verifying chains, from files.
///
/// # Errors
/// A file can't be read, or is malformed.
pub fn verifier(
    cx: &mut Cx<'_>,
    trusted: Vec<CertificateDer<'static>>,
    crl: Option<&Word>,
    depth: usize,
) -> Result<Verifier, Diagnostic> {
    let lists = match crl {
        None => Vec::new(),
        Some(word) => revocation_lists(cx, word)?,
    };
    Verifier::new(trusted, &lists, depth).map_err(|error| {
        let error = error.to_string();
        match crl {
            Some(word) => word.error(error),
            None => Diagnostic::emerg(error),
        }
    })
}

/// A key for session tickets.
///
/// # Errors
/// It can't be read, or has the wrong size.
pub fn ticket_key(cx: &mut Cx<'_>, word: &Word) -> Result<TicketKey, Diagnostic> {
    let (path, contents) = read(cx, word);
    let contents = contents.map_err(|error| {
        let why = os_error(&error);
        word.error(format!("open() \"{path}\" failed {why}")).hint(hint(&error))
    })?;
    TicketKey::from_file(&contents).map_err(|error| {
        word.error(format!("\"{path}\" {error}")).hint("make one: openssl rand 80 > ticket.key")
    })
}

/// The contents of a file in DER, such as an OCSP response.
///
/// # Errors
/// It can't be read.
pub fn der(cx: &mut Cx<'_>, word: &Word) -> Result<Vec<u8>, Diagnostic> {
    let (path, contents) = read(cx, word);
    match contents {
        Ok(contents) => Ok(contents.to_vec()),
        Err(error) => {
            let why = os_error(&error);
            Err(word.error(format!("open() \"{path}\" failed {why}")).hint(hint(&error)))
        }
    }
}
