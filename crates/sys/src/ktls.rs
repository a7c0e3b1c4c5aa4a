//! Kernel TLS: sockets whose data the kernel seals when it is sent (Documentation/networking/tls.rst).
//!
//! Called by the code that has made a handshake and keeps receiving by itself. Never: policy; which
//! connections the kernel seals is decided elsewhere.
//!
//! Ownership argument for the unsafe code: `setsockopt` and `sendmsg` read local arrays of the sizes
//! given with them, during the call only. The array with a key is wiped behind it.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void};
use zeroize::Zeroize;

/// Level of the options of kernel TLS (linux/socket.h).
const SOL_TLS: c_int = 282;

/// The option with the keys for sending (linux/tls.h).
const TLS_TX: c_int = 1;

/// Control message with the type of a record (linux/tls.h).
const TLS_SET_RECORD_TYPE: c_int = 1;

/// Room for the largest `struct tls12_crypto_info_*` (linux/tls.h).
const CRYPTO_INFO_BYTES_MAX: usize = 56;

/// Room for a control message of one byte; a multiple of its alignment.
const CONTROL_WORDS: usize = 4;

/// A cipher of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES with 128 bits in Galois counter mode.
    Aes128Gcm,
    /// AES with 256 bits in Galois counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    Chacha20Poly1305,
}

/// A cipher in a version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// TLS 1.3; else TLS 1.2.
    pub tls13: bool,
    /// The cipher.
    pub cipher: Cipher,
}

impl Suite {
    /// All ciphers that the kernel may have.
    pub const ALL: [Suite; 6] = [
        Suite { tls13: false, cipher: Cipher::Aes128Gcm },
        Suite { tls13: false, cipher: Cipher::Aes256Gcm },
        Suite { tls13: false, cipher: Cipher::Chacha20Poly1305 },
        Suite { tls13: true, cipher: Cipher::Aes128Gcm },
        Suite { tls13: true, cipher: Cipher::Aes256Gcm },
        Suite { tls13: true, cipher: Cipher::Chacha20Poly1305 },
    ];

    /// Length of a key in bytes.
    fn key_len(self) -> usize {
        match self.cipher {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm | Cipher::Chacha20Poly1305 => 32,
        }
    }

    /// `TLS_CIPHER_*` (linux/tls.h).
    fn number(self) -> u16 {
        match self.cipher {
            Cipher::Aes128Gcm => 51,
            Cipher::Aes256Gcm => 52,
            Cipher::Chacha20Poly1305 => 54,
        }
    }
}

/// The cipher and keys for sealing.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// The cipher.
    pub suite: Suite,
    /// The key: 16 or 32 bytes.
    pub key: &'a [u8],
    /// The initialization vector. For GCM in TLS 1.2: four implicit bytes, and the explicit nonce of
    /// the next record, which the kernel counts up.
    pub iv: &'a [u8; 12],
    /// Sequence number of the next record.
    pub sequence: u64,
}

/// The capabilities of the running kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    suites: [bool; Suite::ALL.len()],
    /// Keys can be replaced (Linux 6.14).
    pub rekeys: bool,
}

impl Offer {
    /// Whether there is any cipher.
    pub fn is_any(&self) -> bool {
        self.suites.contains(&true)
    }

    /// Whether the kernel can seal this.
    pub fn has(&self, suite: Suite) -> bool {
        Suite::ALL.iter().zip(self.suites).any(|(known, offered)| offered && *known == suite)
    }
}

/// Detects them by trial on local connections. May wait for a disk: the kernel loads modules of ciphers,
/// and for a process with CAP_NET_ADMIN that of TLS.
///
/// # Errors
/// There is no kernel TLS, or no address 127.0.0.1.
pub fn probe() -> io::Result<Offer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut offer = Offer::default();
    for (suite, offered) in Suite::ALL.into_iter().zip(&mut offer.suites) {
        let socket = TcpStream::connect(address)?;
        attach(&socket)?;
        let key = [0; 32];
        let keys = Keys { suite, key: &key[..suite.key_len()], iv: &[0; 12], sequence: 0 };
        *offered = seal(&socket, &keys).is_ok();
        if *offered && suite.tls13 {
            offer.rekeys |= seal(&socket, &keys).is_ok();
        }
    }
    Ok(offer)
}

/// Puts kernel TLS on a TCP connection. Nothing changes until [`seal`].
///
/// # Errors
/// `NotFound`: the kernel has no TLS, or its module is not loaded; others if the connection is not
/// established any more.
pub fn attach(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

/// From here on, the kernel seals what is sent.
///
/// # Errors
/// `InvalidInput`: the key has the wrong length. Those of the kernel: it does not know the cipher, or
/// cannot replace keys.
pub fn seal(socket: impl AsFd, keys: &Keys<'_>) -> io::Result<()> {
    let mut info = [0u8; CRYPTO_INFO_BYTES_MAX];
    let result = match crypto_info(keys, &mut info) {
        Some(len) => set(socket, SOL_TLS, TLS_TX, &info[..len]),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    info.zeroize();
    result
}

/// Writes a `struct tls12_crypto_info_*`; returns its size. `None`: the key has the wrong length.
fn crypto_info(keys: &Keys<'_>, info: &mut [u8; CRYPTO_INFO_BYTES_MAX]) -> Option<usize> {
    let Keys { suite, key, iv, sequence } = *keys;
    let version: u16 = if suite.tls13 { 0x0304 } else { 0x0303 };
    let (salt, iv) = match suite.cipher {
        Cipher::Aes128Gcm | Cipher::Aes256Gcm => iv.split_at(4),
        Cipher::Chacha20Poly1305 => iv.split_at(0),
    };
    let fields: [&[u8]; 6] = [
        &version.to_ne_bytes(),
        &suite.number().to_ne_bytes(),
        iv,
        key,
        salt,
        &sequence.to_be_bytes(),
    ];
    let mut len = 0;
    for field in fields {
        info.get_mut(len..len + field.len())?.copy_from_slice(field);
        len += field.len();
    }
    (key.len() == suite.key_len()).then_some(len)
}

/// Sends a record of another type than application data (RFC 8446, 5.1), if the socket takes it at
/// once, after [`seal`]. Returns the number of bytes taken.
///
/// # Errors
/// `WouldBlock`; those of the network.
pub fn send_record(socket: impl AsFd, kind: u8, content: &[u8]) -> io::Result<usize> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut data =
        libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
    // SAFETY: an all-zero header is valid: no address, no data, no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut data;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: these only compute sizes.
    let (space, len) = unsafe { (libc::CMSG_SPACE(1), libc::CMSG_LEN(1)) };
    debug_assert!(space as usize <= size_of_val(&control));
    header.msg_controllen = space as _;
    // SAFETY: `control` is aligned for a `cmsghdr` and has room for one with a byte of data, so that
    // the first header and its data are within it.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = SOL_TLS;
        (*message).cmsg_type = TLS_SET_RECORD_TYPE;
        (*message).cmsg_len = len as _;
        *libc::CMSG_DATA(message) = kind;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: `header` refers to live locals and to `content`, which the kernel only reads.
        let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

fn set(socket: impl AsFd, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `len` bytes of `value` during the call.
    match unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast::<c_void>(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_laid_out_as_the_kernel_expects() {
        let iv: [u8; 12] = std::array::from_fn(|n| n as u8);
        let of = |tls13, cipher, key: &[u8]| {
            let mut info = [0; CRYPTO_INFO_BYTES_MAX];
            let keys = Keys { suite: Suite { tls13, cipher }, key, iv: &iv, sequence: 0x0102 };
            crypto_info(&keys, &mut info).map(|len| info[..len].to_vec())
        };
        let sequence = [0, 0, 0, 0, 0, 0, 1, 2];
        let begin =
            |version: u16, cipher: u16| [version.to_ne_bytes(), cipher.to_ne_bytes()].concat();
        // struct tls12_crypto_info_aes_gcm_128: 40 bytes.
        let expected = [&begin(0x0303, 51)[..], &iv[4..], &[7; 16], &iv[..4], &sequence].concat();
        assert_eq!(of(false, Cipher::Aes128Gcm, &[7; 16]), Some(expected));
        let expected = [&begin(0x0304, 52)[..], &iv[4..], &[7; 32], &iv[..4], &sequence].concat();
        assert_eq!(expected.len(), 56);
        assert_eq!(of(true, Cipher::Aes256Gcm, &[7; 32]), Some(expected));
        let expected = [&begin(0x0304, 54)[..], &iv[..], &[7; 32], &sequence].concat();
        assert_eq!(expected.len(), 56);
        assert_eq!(of(true, Cipher::Chacha20Poly1305, &[7; 32]), Some(expected));
        assert_eq!(of(true, Cipher::Aes256Gcm, &[7; 16]), None);
        assert_eq!(of(true, Cipher::Aes128Gcm, &[7; 64]), None);
    }

    #[test]
    fn only_tcp_connections_can_have_it() {
        let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(attach(&pair).is_err());
        let keys = Keys {
            suite: Suite { tls13: true, cipher: Cipher::Aes128Gcm },
            key: &[0; 16],
            iv: &[0; 12],
            sequence: 0,
        };
        assert!(seal(&pair, &keys).is_err());
    }

    #[test]
    fn an_offer_is_of_suites() {
        let mut offer = Offer::default();
        assert!(!offer.is_any());
        offer.suites[3] = true;
        assert!(offer.is_any());
        for (n, suite) in Suite::ALL.into_iter().enumerate() {
            assert_eq!(offer.has(suite), n == 3, "{suite:?}");
        }
    }
}
