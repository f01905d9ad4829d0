//! A record of fixed length, whose fields are read by offsets that the compiler checks.

/// A record of `N` bytes, least significant byte first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<const N: usize>([u8; N]);

impl<const N: usize> Record<N> {
    pub(crate) fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// The byte at `AT`.
    pub(crate) fn u8<const AT: usize>(&self) -> u8 {
        self.bytes::<AT, 1>()[0]
    }

    /// The two bytes from `AT` on.
    pub(crate) fn u16<const AT: usize>(&self) -> u16 {
        u16::from_le_bytes(self.bytes::<AT, 2>())
    }

    /// The four bytes from `AT` on.
    pub(crate) fn u32<const AT: usize>(&self) -> u32 {
        u32::from_le_bytes(self.bytes::<AT, 4>())
    }

    /// The four bytes from `AT` on, with a sign.
    pub(crate) fn i32<const AT: usize>(&self) -> i32 {
        i32::from_le_bytes(self.bytes::<AT, 4>())
    }

    /// The eight bytes from `AT` on.
    pub(crate) fn u64<const AT: usize>(&self) -> u64 {
        u64::from_le_bytes(self.bytes::<AT, 8>())
    }

    fn bytes<const AT: usize, const LEN: usize>(&self) -> [u8; LEN] {
        const { assert!(AT + LEN <= N, "a field lies within its record") };
        let mut field = [0; LEN];
        field.copy_from_slice(&self.0[AT..AT + LEN]);
        field
    }
}
