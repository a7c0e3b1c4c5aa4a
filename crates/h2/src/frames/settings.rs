//! SETTINGS (RFC 9113 section 6.5): the parameters of one endpoint.

use crate::error::ConnectionError;
use crate::frame::{FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX, WINDOW_DEFAULT, WINDOW_MAX};
use crate::hpack::TABLE_SIZE_DEFAULT;

/// One parameter as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The number.
    pub id: u16,
    /// The value.
    pub value: u32,
}

impl Setting {
    /// `SETTINGS_HEADER_TABLE_SIZE`
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// `SETTINGS_ENABLE_PUSH`
    pub const ENABLE_PUSH: u16 = 2;
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// `SETTINGS_INITIAL_WINDOW_SIZE`
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// `SETTINGS_MAX_FRAME_SIZE`
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441)
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218)
    pub const NO_RFC7540_PRIORITIES: u16 = 9;

    /// The parameters of a payload.
    pub fn all(payload: &[u8]) -> impl Iterator<Item = Setting> {
        let (settings, _) = payload.as_chunks::<6>();
        settings.iter().map(|&[i0, i1, v0, v1, v2, v3]| Setting {
            id: u16::from_be_bytes([i0, i1]),
            value: u32::from_be_bytes([v0, v1, v2, v3]),
        })
    }
}

/// The current settings of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// The largest dynamic table of a sender to it.
    pub header_table_size: u32,
    /// Accepts pushed streams.
    pub enable_push: bool,
    /// Maximum number of streams opened by its peer.
    pub max_concurrent_streams: u32,
    /// The window of each new stream.
    pub initial_window_size: u32,
    /// The largest frame that it accepts.
    pub max_frame_size: u32,
    /// Accepts extended CONNECT.
    pub enable_connect_protocol: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            header_table_size: TABLE_SIZE_DEFAULT,
            enable_push: true,
            max_concurrent_streams: u32::MAX,
            initial_window_size: WINDOW_DEFAULT,
            max_frame_size: FRAME_SIZE_DEFAULT,
            enable_connect_protocol: false,
        }
    }
}

impl Parameters {
    /// Takes one parameter over. "An endpoint that receives a SETTINGS frame with any unknown or
    /// unsupported identifier MUST ignore that setting."
    pub fn apply(&mut self, setting: Setting) -> Result<(), ConnectionError> {
        let Setting { id, value } = setting;
        let invalid = Err(ConnectionError::InvalidSetting(id));
        match id {
            Setting::HEADER_TABLE_SIZE => self.header_table_size = value,
            Setting::ENABLE_PUSH if value > 1 => return invalid,
            Setting::ENABLE_PUSH => self.enable_push = value == 1,
            Setting::MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            Setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                return Err(ConnectionError::InitialWindow);
            }
            Setting::INITIAL_WINDOW_SIZE => self.initial_window_size = value,
            Setting::MAX_FRAME_SIZE if !(FRAME_SIZE_DEFAULT..=FRAME_SIZE_MAX).contains(&value) => {
                return invalid;
            }
            Setting::MAX_FRAME_SIZE => self.max_frame_size = value,
            // "A sender MUST NOT send a SETTINGS_ENABLE_CONNECT_PROTOCOL parameter with the value of 0
            // after previously sending a value of 1" (RFC 8441 section 3).
            Setting::ENABLE_CONNECT_PROTOCOL
                if value > 1 || (value == 0 && self.enable_connect_protocol) =>
            {
                return invalid;
            }
            Setting::ENABLE_CONNECT_PROTOCOL => self.enable_connect_protocol = value == 1,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        use ConnectionError::{InitialWindow, InvalidSetting};
        for (id, value, expected) in [
            (1, u32::MAX, Ok(())),
            (2, 0, Ok(())),
            (2, 2, Err(InvalidSetting(2))),
            (3, 0, Ok(())),
            (4, 0x7fff_ffff, Ok(())),
            (4, 0x8000_0000, Err(InitialWindow)),
            (5, 16_383, Err(InvalidSetting(5))),
            (5, 16_384, Ok(())),
            (5, 0xff_ffff, Ok(())),
            (5, 0x100_0000, Err(InvalidSetting(5))),
            (8, 2, Err(InvalidSetting(8))),
            (999, 7, Ok(())),
        ] {
            assert_eq!(
                Parameters::default().apply(Setting { id, value }),
                expected,
                "{id} {value}"
            );
        }
        let mut offered = Parameters { enable_connect_protocol: true, ..Parameters::default() };
        assert_eq!(offered.apply(Setting { id: 8, value: 0 }), Err(InvalidSetting(8)));
    }

    #[test]
    fn a_payload_is_a_list() {
        let settings: Vec<_> = Setting::all(&[0, 3, 0, 0, 0, 9, 0, 4, 0, 1, 0, 0]).collect();
        let expected = [Setting { id: 3, value: 9 }, Setting { id: 4, value: 65_536 }];
        assert_eq!(settings, expected);
    }
}
