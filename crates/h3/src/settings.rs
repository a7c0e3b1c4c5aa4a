//! SETTINGS (RFC 9114 section 7.2.4).

use bytes::BufMut;

use crate::error::ConnectionError;
use crate::frame::{FrameType, read_varint, write_varint};

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Settings of one side; by default, those that hold before they are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY, in bytes.
    pub table_capacity: u64,
    /// SETTINGS_QPACK_BLOCKED_STREAMS.
    pub blocked_streams: u64,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes; advice only.
    pub field_section_size: Option<u64>,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220).
    pub enable_connect_protocol: bool,
}

impl Settings {
    /// Reads the payload of a frame.
    pub(crate) fn parse(mut payload: &[u8]) -> Result<Settings, ConnectionError> {
        let mut settings = Settings::default();
        // "The same setting identifier MUST NOT occur more than once". Those that have a meaning are checked.
        let mut seen = 0u8;
        while !payload.is_empty() {
            let mut next = || {
                let read = read_varint(payload);
                let (value, length) =
                    read.ok_or(ConnectionError::FrameLength(FrameType::Settings))?;
                payload = &payload[length..];
                Ok(value)
            };
            let (id, value) = (next()?, next()?);
            match id {
                // "Setting identifiers that were defined in [HTTP/2] where there is no corresponding HTTP/3 setting
                // have also been reserved [...]. Their receipt MUST be treated as a connection error".
                0x0 | 0x2..=0x5 => return Err(ConnectionError::InvalidSetting(id)),
                QPACK_MAX_TABLE_CAPACITY => settings.table_capacity = value,
                MAX_FIELD_SECTION_SIZE => settings.field_section_size = Some(value),
                QPACK_BLOCKED_STREAMS => settings.blocked_streams = value,
                ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(ConnectionError::InvalidSetting(id));
                }
                ENABLE_CONNECT_PROTOCOL => settings.enable_connect_protocol = value == 1,
                _ => continue,
            }
            let bit = 1 << (id & 7);
            if seen & bit != 0 {
                return Err(ConnectionError::InvalidSetting(id));
            }
            seen |= bit;
        }
        Ok(settings)
    }

    /// Writes the frame.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        let values = [
            (QPACK_MAX_TABLE_CAPACITY, self.table_capacity),
            (QPACK_BLOCKED_STREAMS, self.blocked_streams),
            (ENABLE_CONNECT_PROTOCOL, self.enable_connect_protocol.into()),
        ];
        for (id, value) in values.into_iter().filter(|(_, value)| *value > 0) {
            write_varint(&mut payload, id);
            write_varint(&mut payload, value);
        }
        if let Some(size) = self.field_section_size {
            write_varint(&mut payload, MAX_FIELD_SECTION_SIZE);
            write_varint(&mut payload, size);
        }
        write_varint(out, 0x4);
        write_varint(out, payload.len() as u64);
        out.put_slice(&payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_return() {
        let settings = Settings {
            table_capacity: 4096,
            blocked_streams: 16,
            field_section_size: Some(32_768),
            enable_connect_protocol: true,
        };
        for settings in [settings, Settings::default()] {
            let mut out = Vec::new();
            settings.write(&mut out);
            assert_eq!((out[0], usize::from(out[1])), (4, out.len() - 2));
            assert_eq!(Settings::parse(&out[2..]), Ok(settings));
        }
    }

    #[test]
    fn wrong_settings_are_errors() {
        use ConnectionError::{FrameLength, InvalidSetting};
        for (payload, error) in [
            (&[0x2, 0][..], InvalidSetting(2)),
            (&[0x0, 1], InvalidSetting(0)),
            (&[0x5, 1], InvalidSetting(5)),
            (&[0x8, 2], InvalidSetting(8)),
            (&[0x1, 0, 0x7, 0, 0x1, 0], InvalidSetting(1)),
            (&[0x8, 0, 0x8, 0], InvalidSetting(8)),
            (&[0x1], FrameLength(FrameType::Settings)),
            (&[0x1, 0x40], FrameLength(FrameType::Settings)),
        ] {
            assert_eq!(Settings::parse(payload), Err(error), "{payload:?}");
        }
        // GREASE, and numbers that share bits with known ones.
        assert_eq!(Settings::parse(&[0x21, 9, 0x21, 9, 0x9, 0, 0x1, 0]), Ok(Settings::default()));
    }
}
