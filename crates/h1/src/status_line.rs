//! Status lines.

macro_rules! lines {
    ($($code:literal $reason:literal),+ $(,)?) => {
        /// The whole status line of a status that has a reason phrase.
        pub(crate) fn line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($code => Some(
                    concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n").as_bytes(),
                ),)+
                _ => None,
            }
        }
    };
}

nowait_message::statuses!(lines);
