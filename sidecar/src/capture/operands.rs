//! Addresses of data in machine code: what instructions of Go's compiler refer to.
//!
//! In: the code of one function and its address. Out: the addresses that it loads, stores or computes relative to itself. On amd64 code is looked
//! through byte by byte without finding where instructions begin, so more may come out than there is: whoever asks keeps what lies in
//! the program's data, and what several functions agree on. Pure.
//!
//! Sources: Intel SDM volume 2, 2.1 (ModR/M, mod 00 and r/m 101: relative to the next instruction); Arm ARM C6.2 (ADRP, ADD, LDR, STR, LDP).

use crate::elf::Machine;

/// The addresses that `code`, which lies at `address`, refers to; in ascending order, each once.
pub(super) fn operands(machine: Machine, code: &[u8], address: u64) -> Vec<u64> {
    let mut found = match machine {
        Machine::X86_64 => x86_64(code, address),
        Machine::Aarch64 => aarch64(code, address),
        Machine::Other(_) => Vec::new(),
    };
    found.sort_unstable();
    found.dedup();
    found
}

/// Bytes of the immediate that follows the displacement, by opcode; none for an opcode that refers to no data.
fn immediate(opcode: u8) -> Option<i64> {
    Some(match opcode {
        // CMP, TEST, MOV, XCHG, LEA, ADD, INC; MOVUPS, CMPXCHG, XADD (second byte).
        0x01
        | 0x03
        | 0x0b
        | 0x10
        | 0x11
        | 0x23
        | 0x2b
        | 0x38..=0x3b
        | 0x84..=0x8b
        | 0x8d
        | 0xb1
        | 0xb6
        | 0xc1
        | 0xff => 0,
        // CMP, MOV and others with an immediate byte, or with four.
        0x80 | 0x83 | 0xc6 => 1,
        0x81 | 0xc7 => 4,
        _ => return None,
    })
}

fn x86_64(code: &[u8], address: u64) -> Vec<u64> {
    const RELATIVE: u8 = 0b00_000_101;
    let mut found = Vec::new();
    for (at, window) in code.windows(6).enumerate() {
        let [opcode, modrm, displacement @ ..] = window else { continue };
        let (Some(behind), Ok(displacement)) = (immediate(*opcode), <[u8; 4]>::try_from(displacement)) else {
            continue;
        };
        if modrm & 0b11_000_111 == RELATIVE {
            let next = address.wrapping_add(at as u64 + 6).wrapping_add_signed(behind);
            found.push(next.wrapping_add_signed(i64::from(i32::from_le_bytes(displacement))));
        }
    }
    found
}

/// Go's assembler writes ADRP and the instruction that adds the rest one behind the other; of a pair of words, the one that loads it stands behind that.
fn aarch64(code: &[u8], address: u64) -> Vec<u64> {
    let instructions: Vec<u32> = code.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let mut found = Vec::new();
    for (at, pair) in instructions.windows(2).enumerate() {
        let [adrp, user] = *pair else { continue };
        if adrp & 0x9f00_0000 != 0x9000_0000 {
            continue;
        }
        let (low, high) = (adrp >> 29 & 0b11, adrp >> 5 & 0x7_ffff);
        let pages = i64::from(((high << 2 | low) << 11) as i32 >> 11) << 12;
        let page = (address.wrapping_add(4 * at as u64) & !0xfff).wrapping_add_signed(pages);
        if user >> 5 & 31 != adrp & 31 {
            continue;
        }
        let sums = offsets(user).map(|offset| offset.map(|offset| page.wrapping_add(offset)));
        found.extend(sums.into_iter().flatten());
        let behind = instructions.get(at + 2).filter(|behind| is_add(user) && **behind >> 5 & 31 == user & 31);
        for (offset, sum) in behind.into_iter().flat_map(|behind| offsets(*behind)).zip([sums[0]; 2]) {
            found.extend(offset.zip(sum).map(|(offset, sum)| sum.wrapping_add(offset)));
        }
    }
    found
}

/// ADD (immediate), 64 bits, not shifted.
fn is_add(instruction: u32) -> bool {
    instruction & 0xffc0_0000 == 0x9100_0000
}

/// What an instruction adds to its base register: of a pair, of both words.
fn offsets(instruction: u32) -> [Option<u64>; 2] {
    let unsigned = u64::from(instruction >> 10 & 0xfff);
    if is_add(instruction) {
        return [Some(unsigned), None];
    }
    // LDR, STR and the like (unsigned offset), scaled by their size.
    if instruction & 0x3f00_0000 == 0x3900_0000 {
        return [Some(unsigned << (instruction >> 30)), None];
    }
    // LDP and STP of 64 bits (signed offset), scaled by eight.
    if instruction & 0xff80_0000 == 0xa900_0000 {
        let offset = i64::from(((instruction >> 15 & 0x7f) << 25) as i32 >> 25) * 8;
        return [Some(offset as u64), Some(offset as u64 + 8)];
    }
    [None, None]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the addresses of instructions as `go tool objdump` shows them.
    #[test]
    fn addresses_are_relative_to_what_follows() {
        // MOVQ 0x10(IP), AX; LEAQ -0x20(IP), CX; CMPL $0, 0x100(IP).
        let code = [
            &[0x48, 0x8b, 0x05, 0x10, 0, 0, 0][..],
            &[0x48, 0x8d, 0x0d, 0xe0, 0xff, 0xff, 0xff],
            &[0x83, 0x3d, 0, 1, 0, 0, 0],
        ];
        let code = code.concat();
        assert_eq!(operands(Machine::X86_64, &code, 0x1000), [0xfee, 0x1017, 0x1115]);
    }

    /// Check pairs of instructions of `runtime.allgadd` (Go 1.26, arm64) as `go tool objdump` shows them.
    #[test]
    fn pages_and_offsets_make_addresses() {
        // ADRP 1654784(PC), R27; ADD $192, R27, R27 and ADRP 1654784(PC), R27; MOVD 208(R27), R2.
        let code: Vec<u8> =
            [0x9000_0cbb_u32, 0x9103_037b, 0x9000_0cbb, 0xf940_6b62].iter().flat_map(|i| i.to_le_bytes()).collect();
        let page = 0x58cd0 / 0x1000 * 0x1000 + 1_654_784;
        assert_eq!(operands(Machine::Aarch64, &code, 0x58cd0), [page + 192, page + 208]);
        // Of `runtime.ticksPerSecond` (Go 1.27): ADRP 1941504(PC), R27; ADD $2728, R27, R27; LDP (R27), (R0, R1).
        let code: Vec<u8> = [0xd000_0edb_u32, 0x912a_a37b, 0xa940_0760].iter().flat_map(|i| i.to_le_bytes()).collect();
        let page = 0x696bc / 0x1000 * 0x1000 + 1_941_504;
        assert_eq!(operands(Machine::Aarch64, &code, 0x696bc), [page + 2728, page + 2736]);
    }
}
