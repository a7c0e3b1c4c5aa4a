//! Single steps of rustls' unbuffered connections: each acts upon the state that a call has led to.
//!
//! Called by [`Session`](crate::Session), which determines their order.

use rustls::CommonState;
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, ReadEarlyData, UnbufferedStatus, WriteTraffic,
};

use crate::error::Error;
use crate::session::PLAINTEXT_BYTES_MAX;

/// Maximum of what protection adds to a record: the header, an explicit nonce, the inner type, a
/// tag.
const OVERHEAD_BYTES: usize = 5 + 8 + 1 + 16;

/// The destination of plaintext.
pub(crate) struct PlaintextSink<'a> {
    pub(crate) room: &'a mut [u8],
    pub(crate) written: usize,
}

impl PlaintextSink<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.room.get_mut(self.written..self.written + bytes.len());
        room.ok_or(Error::State("no room for plaintext"))?.copy_from_slice(bytes);
        self.written += bytes.len();
        Ok(())
    }
}

/// The result of a single call of rustls.
pub(crate) enum TlsStep {
    /// Call again.
    Again,
    /// It needs further records.
    Blocked,
    /// The peer has ended its side.
    Ended,
}

/// Acts upon one state of rustls that is met while records are processed.
pub(crate) fn step<'c, 'i, Data>(
    status: UnbufferedStatus<'c, 'i, Data>,
    plain: &mut PlaintextSink<'_>,
    output: &mut Vec<u8>,
    early: impl FnOnce(ReadEarlyData<'c, 'i, Data>, &mut PlaintextSink<'_>) -> Result<(), Error>,
) -> (usize, Result<TlsStep, Error>) {
    let UnbufferedStatus { mut discard, state, .. } = status;
    let step = state.map_err(Error::from).and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                plain.put(record.payload)?;
            }
            Ok(TlsStep::Again)
        }
        ConnectionState::ReadEarlyData(data) => early(data, plain).map(|()| TlsStep::Again),
        ConnectionState::EncodeTlsData(mut data) => {
            encode(|room| data.encode(room), output)?;
            Ok(TlsStep::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(TlsStep::Again)
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(TlsStep::Ended),
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => {
            Ok(TlsStep::Blocked)
        }
        _ => Err(Error::State("unknown state of a session")),
    });
    (discard, step)
}

/// Takes a message that rustls wants to send; false if there is none.
pub(crate) fn take_message<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Vec<u8>,
) -> bool {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(|room| data.encode(room), output).is_ok()
        }
        _ => false,
    }
}

/// Takes early data.
pub(crate) fn early_data(
    data: &mut ReadEarlyData<'_, '_, ServerConnectionData>,
    plain: &mut PlaintextSink<'_>,
) -> Result<(), Error> {
    while let Some(record) = data.next_record() {
        plain.put(record?.payload)?;
    }
    Ok(())
}

/// Acts upon one state of rustls that is met while `plain` is to be written. `None`: call again.
pub(crate) fn write<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &[u8],
    output: &mut Vec<u8>,
) -> Option<Result<(), Error>> {
    match status.state {
        Err(error) => Some(Err(error.into())),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(|room| data.encode(room), output).err().map(Err)
        }
        Ok(ConnectionState::TransmitTlsData(mut data)) => {
            let done =
                data.may_encrypt_app_data().map(|mut traffic| encrypt(&mut traffic, plain, output));
            data.done();
            done
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            Some(encrypt(&mut traffic, plain, output))
        }
        Ok(ConnectionState::PeerClosed) => None,
        Ok(_) => Some(Err(Error::State("not ready for data"))),
    }
}

/// Whether a connection has completed its handshake and is idle.
pub(crate) fn is_idle(connection: &CommonState) -> bool {
    !connection.is_handshaking() && !connection.wants_write()
}

fn encode(
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    output: &mut Vec<u8>,
) -> Result<(), Error> {
    let Err(EncodeError::InsufficientSize(size)) = encode(&mut []) else {
        return Err(Error::State("an empty message"));
    };
    let begin = output.len();
    output.resize(begin + size.required_size, 0);
    encode(&mut output[begin..]).map_err(|_| Error::State("a message of changing size"))?;
    Ok(())
}

/// Appends records with `plain`, or without it `close_notify`.
fn encrypt<Data>(
    traffic: &mut WriteTraffic<'_, Data>,
    plain: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut call = |room: &mut [u8]| match plain.is_empty() {
        true => traffic.queue_close_notify(room),
        false => traffic.encrypt(plain, room),
    };
    let records = plain.len().div_ceil(PLAINTEXT_BYTES_MAX).max(1);
    let mut wanted = plain.len() + 2 + records * OVERHEAD_BYTES;
    let begin = output.len();
    loop {
        output.resize(begin + wanted, 0);
        match call(&mut output[begin..]) {
            Ok(written) => {
                output.truncate(begin + written);
                return Ok(());
            }
            // A key update comes first, or records are smaller by `ssl_buffer_size`.
            Err(EncryptError::InsufficientSize(size)) if size.required_size > wanted => {
                wanted = size.required_size;
            }
            Err(_) => {
                output.truncate(begin);
                return Err(rustls::Error::EncryptError.into());
            }
        }
    }
}
