//! Where Go's runtime keeps what a sample says of its goroutine, by version and processor.
//!
//! In: a Go program. Out: numbers for the kernel side, out of the table of [`layouts`], which has each of them once; only for versions whose memory is not
//! read otherwise there is a row here. A version that is in neither is refused: a wrong offset would read nonsense. Source:
//! `runtime/runtime2.go` (`g`, `m`) and `runtime/pprof/label.go` of each version; `sidecar/tests/offsets` compares the numbers with debug
//! information of programs that those versions built.

use profiler_sidecar_ebpf::{Go, LabelForm};

use super::layouts::{self, Labels, Layout};
use super::{Program, Version};
use crate::elf::Machine;

/// Offsets of fields, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// `g.m`.
    pub g_m: u32,
    /// `m.curg`.
    pub m_curg: u32,
    /// `g.goid`.
    pub g_goid: u32,
    /// `g.startpc`.
    pub g_startpc: u32,
    /// `g.labels`.
    pub g_labels: u32,
    /// `g.sched.sp`.
    pub g_sched_sp: u32,
    /// `g.sched.bp`.
    pub g_sched_bp: u32,
    /// How labels are kept.
    pub labels: LabelForm,
}

/// Go 1.18 to 1.20, of which CPU samples alone are taken.
const BEFORE_LAYOUTS: Offsets = Offsets {
    g_m: 48,
    m_curg: 192,
    g_goid: 152,
    g_startpc: 312,
    g_labels: 360,
    g_sched_sp: 56,
    g_sched_bp: 104,
    labels: LabelForm::Map,
};

/// The offsets of Go 1.`minor`; the same for amd64 and arm64, for all words before them are of 8 bytes on both.
#[must_use]
pub fn of_release(minor: u16) -> Option<Offsets> {
    match minor {
        18..=20 => Some(BEFORE_LAYOUTS),
        _ => layouts::of(minor.into()).as_ref().map(Offsets::of),
    }
}

impl Offsets {
    fn of(layout: &Layout) -> Self {
        let Layout { g, m_curg, labels, .. } = layout;
        Self {
            g_m: g.m as u32,
            m_curg: *m_curg as u32,
            g_goid: g.id as u32,
            g_startpc: g.start_pc as u32,
            g_labels: g.labels as u32,
            g_sched_sp: g.sched as u32,
            g_sched_bp: g.bp as u32,
            labels: match labels {
                Labels::Map => LabelForm::Map,
                Labels::Slice => LabelForm::Slice,
            },
        }
    }
}

/// The offsets of a release; `None` of what is none, or of one that is not known.
#[must_use]
pub fn of_version(version: &Version) -> Option<Offsets> {
    let is_release = version.major == 1 && version.before_release().is_none();
    is_release.then(|| of_release(version.minor))?
}

/// All that the kernel side needs to find the goroutine that runs in processes of `program`; `None` where its version is not known, or
/// where it keeps `g` nobody knows where.
#[must_use]
pub fn offsets(program: &Program) -> Option<Go> {
    let known = of_version(program.version())?;
    let (tls_offset, in_register) = match program.elf().machine() {
        Machine::X86_64 => (tls_offset(program)?, 0),
        // Go's own code keeps it in x28, and C preserves that register.
        Machine::Aarch64 => (0, 1),
        Machine::Other(_) => return None,
    };
    Some(Go {
        tls_offset,
        in_register,
        g_m: known.g_m,
        m_curg: known.m_curg,
        g_goid: known.g_goid,
        g_startpc: known.g_startpc,
        g_labels: known.g_labels,
        labels: known.labels as u32,
        g_bytes: known.g_labels + 8,
        g_sched_sp: known.g_sched_sp,
        g_sched_bp: known.g_sched_bp,
    })
}

/// From `fs` to `g`, as the linker wrote it into `runtime.stackcheck`, whose first instructions load `g` (`runtime/asm_amd64.s`).
fn tls_offset(program: &Program) -> Option<i64> {
    let mut code = [0; 16];
    program.elf().read(program.find("runtime.stackcheck")?, &mut code).ok()?;
    loaded_from_fs(&code)
}

/// What the code takes from `fs`: `mov rax, fs:[OFFSET]`, or, position-independent, `mov rcx, OFFSET; mov rax, fs:[rcx]`. Source: Intel's
/// manual, volume 2, "MOV".
fn loaded_from_fs(code: &[u8; 16]) -> Option<i64> {
    let number = match code {
        [0x64, 0x48, 0x8b, 0x04, 0x25, number @ ..] => number.first_chunk(),
        [0x48, 0xc7, 0xc1, a, b, c, d, 0x64, 0x48, 0x8b, 0x01, ..] => Some(&[*a, *b, *c, *d]),
        _ => None,
    };
    number.map(|number| i32::from_le_bytes(*number).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_that_were_never_seen_are_refused() {
        assert_eq!(of_release(17), None);
        assert_eq!(of_release(28), None);
        for minor in 18..28 {
            assert!(of_release(minor).is_some(), "go1.{minor}");
        }
    }

    #[test]
    fn labels_changed_their_form_with_go_1_24() {
        let form = |minor| of_release(minor).unwrap().labels;
        assert_eq!((form(23), form(24)), (LabelForm::Map, LabelForm::Slice));
    }

    /// Both as `go tool objdump -s runtime.stackcheck` shows them, of a program with `-buildmode=exe` and one with `pie`.
    #[test]
    fn the_place_of_g_is_an_operand() {
        let mut code = [0x90; 16];
        code[..9].copy_from_slice(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff]);
        assert_eq!(loaded_from_fs(&code), Some(-8));
        code[..11].copy_from_slice(&[0x48, 0xc7, 0xc1, 0xc0, 0xff, 0xff, 0xff, 0x64, 0x48, 0x8b, 0x01]);
        assert_eq!(loaded_from_fs(&code), Some(-64));
        assert_eq!(loaded_from_fs(&[0x90; 16]), None);
    }
}
