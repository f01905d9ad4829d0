//! Reads numbers out of unwind tables.
//!
//! In: bytes of a table, which may hold anything. Out: numbers, or nothing where the bytes end. Runs in the signal handler: no
//! allocation, no panic, no read beyond the slice.

/// A position in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Bytes<'a> {
    /// At the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// At `position` of `bytes`, where that is inside.
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Option<Self> {
        (position <= bytes.len()).then_some(Self { bytes, position })
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Moves by `distance`, backwards too, as the branches of an expression do.
    pub(crate) fn jump(&mut self, distance: i64) -> Option<()> {
        let position = (self.position as u64).checked_add_signed(distance)?;
        *self = Self::at(self.bytes, usize::try_from(position).ok()?)?;
        Some(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let end = self.position.checked_add(usize::try_from(length).ok()?)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.position..)?.first_chunk()?;
        self.position += N;
        Some(array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// An unsigned LEB128 number (DWARF 5, section 7.6).
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        self.leb128().map(|(value, _)| value)
    }

    /// A signed LEB128 number.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let (value, bits) = self.leb128()?;
        let unused = 64_u32.saturating_sub(bits);
        Some((value << unused) as i64 >> unused)
    }

    /// The value and how many bits it was given in.
    fn leb128(&mut self) -> Option<(u64, u32)> {
        let (mut value, mut bits) = (0, 0);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(bits).unwrap_or(0);
            bits += 7;
            if byte & 0x80 == 0 {
                return Some((value, bits));
            }
            if bits > 70 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that LEB128 numbers of the DWARF standard's own tables come out right.
    #[test]
    fn numbers_of_the_standard_are_read() {
        let unsigned: [(&[u8], u64); 6] =
            [(&[2], 2), (&[127], 127), (&[0x80, 1], 128), (&[0x81, 1], 129), (&[0x82, 1], 130), (&[0xb9, 0x64], 12857)];
        for (bytes, number) in unsigned {
            assert_eq!(Bytes::new(bytes).unsigned(), Some(number));
        }
        let signed: [(&[u8], i64); 8] = [
            (&[2], 2),
            (&[0x7e], -2),
            (&[0xff, 0], 127),
            (&[0x81, 0x7f], -127),
            (&[0x80, 1], 128),
            (&[0x80, 0x7f], -128),
            (&[0x81, 1], 129),
            (&[0xff, 0x7e], -129),
        ];
        for (bytes, number) in signed {
            assert_eq!(Bytes::new(bytes).signed(), Some(number));
        }
    }

    /// Check that numbers without an end, jumps to nowhere and bytes beyond the end are refused.
    #[test]
    fn what_is_not_there_is_refused() {
        assert_eq!(Bytes::new(&[0x80; 30]).unsigned(), None);
        assert_eq!(Bytes::new(&[0x80]).signed(), None);
        assert_eq!(Bytes::new(&[1, 2, 3]).u32(), None);
        assert_eq!(Bytes::new(&[1, 2, 3]).take(u64::MAX), None);
        assert!(Bytes::at(&[1], 2).is_none());
        let mut bytes = Bytes::new(&[1, 2, 3]);
        assert_eq!((bytes.jump(-1), bytes.jump(4), bytes.jump(i64::MAX)), (None, None, None));
        assert_eq!((bytes.jump(2), bytes.u8(), bytes.u8()), (Some(()), Some(3), None));
    }
}
