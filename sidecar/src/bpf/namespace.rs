//! Our pid namespace, as the kernel side asks for it.

use std::os::linux::fs::MetadataExt as _;

use crate::error::Error;
use crate::target::numbers::INITIAL_NAMESPACE;

const PATH: &str = "/proc/self/ns/pid";

/// A pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Namespace {
    /// The kernel's `dev_t`: 12 bits of major above 20 of minor (`include/linux/kdev_t.h`).
    pub(super) device: u64,
    /// Its number.
    pub(super) inode: u64,
}

impl Namespace {
    /// That of this process.
    pub(super) fn ours() -> Result<Self, Error> {
        let file = std::fs::metadata(PATH)
            .map_err(|error| Error::new(PATH, error.to_string(), "mount /proc of the sidecar's own pid namespace"))?;
        Ok(Self { device: kernel_device(file.st_dev()), inode: file.st_ino() })
    }

    pub(super) fn is_initial(self) -> bool {
        self.inode == INITIAL_NAMESPACE
    }
}

/// From the `st_dev` of user space, makedev(3), to the kernel's.
fn kernel_device(device: u64) -> u64 {
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    (major << 20) | (minor & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_encoded_as_the_kernel_does() {
        assert_eq!(kernel_device(4), 4, "nsfs has no major number");
        assert_eq!(kernel_device(0x0801), (8 << 20) | 1, "sda1");
        assert_eq!(kernel_device(0x0010_0334), (3 << 20) | 0x134, "minor numbers above 255");
    }

    #[test]
    fn this_process_has_a_namespace() {
        let ours = Namespace::ours().unwrap();
        assert_ne!(ours.inode, 0);
        assert_eq!(ours.is_initial(), ours.inode == 4_026_531_836);
    }
}
