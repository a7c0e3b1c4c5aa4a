//! Whole numbers, decimal, without sign, as nginx's `ngx_atoi`.

use crate::field::{Value, ValueError};

/// Reads decimal digits; `None` for anything else and beyond `i64::MAX`, nginx's limit.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = u64::from(byte.checked_sub(b'0').filter(|d| *d <= 9)?);
        value.checked_mul(10)?.checked_add(digit).filter(|v| *v <= i64::MAX as u64)
    })
}

fn invalid() -> ValueError {
    ValueError::directive("invalid number")
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn from_word(text: &[u8]) -> Result<$type, ValueError> {
                let value = number(text).ok_or_else(|| invalid().expected("a whole number"))?;
                <$type>::try_from(value)
                    .map_err(|_| invalid().expected(format!("a number up to {}", <$type>::MAX)))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize, i64);

/// A number from `LOW` to `HIGH`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundedNumber<const LOW: u64, const HIGH: u64>(u64);

impl<const LOW: u64, const HIGH: u64> BoundedNumber<LOW, HIGH> {
    /// The number, if it is in bounds.
    pub const fn new(value: u64) -> Option<Self> {
        if value >= LOW && value <= HIGH { Some(BoundedNumber(value)) } else { None }
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const LOW: u64, const HIGH: u64> Value for BoundedNumber<LOW, HIGH> {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let value = number(text).ok_or_else(|| invalid().expected("a whole number"))?;
        Self::new(value).ok_or_else(|| {
            if HIGH >= i64::MAX as u64 {
                ValueError::message(format!("value must be equal to or greater than {LOW}"))
            } else {
                ValueError::message(format!("value must be between {LOW} and {HIGH}"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"0012"), Some(12));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX as u64));
        for wrong in [&b""[..], b"-1", b"+1", b"1k", b" 1", b"9223372036854775808", b"0x10"] {
            assert_eq!(number(wrong), None);
        }
        assert!(u8::from_word(b"256").is_err());
        assert_eq!(u16::from_word(b"65535"), Ok(65535));
    }

    #[test]
    fn bounds() {
        assert_eq!(BoundedNumber::<1, 9>::from_word(b"9").map(BoundedNumber::get), Ok(9));
        assert_eq!(
            BoundedNumber::<1, 9>::from_word(b"10"),
            Err(ValueError::message("value must be between 1 and 9"))
        );
        assert_eq!(
            BoundedNumber::<1, { u64::MAX }>::from_word(b"0"),
            Err(ValueError::message("value must be equal to or greater than 1"))
        );
    }
}
