//! Records made by hand, as the kernel side lays them out.

use proptest::prelude::*;

use super::*;

/// A sample with two frames, one of the kernel, two of the goroutine's own stack, a label, attributes.
fn record() -> Vec<u8> {
    let mut bytes = Vec::new();
    let words: [u32; 4] = [Kind::Sample as u32, 7, 8, 3];
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    [10_101_010_u64, 77].iter().for_each(|long| bytes.extend(long.to_ne_bytes()));
    bytes.extend(*b"worker\0\0\0\0\0\0\0\0\0\0");
    [0x401000_u64, 0x7ff0, 0x7ff8, 0, 42, 0x402000].iter().for_each(|long| bytes.extend(long.to_ne_bytes()));
    bytes.extend([[5; 16].as_slice(), &[6; 8]].concat());
    let flags = [Flag::Lost, Flag::Goroutine, Flag::Context, Flag::LabelsCut, Flag::Outer, Flag::Known];
    bytes.extend(flags.iter().fold(0, |flags, flag| flags | *flag as u32).to_ne_bytes());
    [2_u16, 1, 8, 1, 5, 2].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
    bytes.extend(*b"12345678");
    bytes.extend([0xee; TOP - 8]);
    [0x401000_u64, 0x401234, u64::MAX - 8, 0x403000, 0x403456].iter().for_each(|long| bytes.extend(long.to_ne_bytes()));
    bytes.extend([3, 0, 2, 0]);
    bytes.extend(*b"keyva");
    bytes.extend([9, 3, b'a', b'b', b'c']);
    bytes
}

#[test]
fn a_sample_says_what_was_written() {
    let Ok(Event::Sample(sample)) = decode(&record()) else { panic!("no sample") };
    let expected = Sample {
        pid: 7,
        tid: 8,
        cpu: 3,
        period_nanos: 10_101_010,
        program: 77,
        comm: "worker".into(),
        in_kernel: false,
        kernel: vec![u64::MAX - 8],
        user: vec![0x401000, 0x401234],
        end: End::Lost,
        saved: vec![0x403000, 0x403456],
        is_outer: true,
        is_known: true,
        registers: Registers { ip: 0x401000, sp: 0x7ff0, fp: 0x7ff8, lr: 0 },
        top: b"12345678".to_vec(),
        goroutine: Some(Goroutine { id: 42, start_pc: 0x402000 }),
        labels: Labels::from_iter([("key", "va")]),
        labels_cut: true,
        attributes: vec![(9, b"abc".to_vec())],
        span: Some(Span { trace_id: [5; 16], span_id: [6; 8] }),
    };
    assert_eq!(*sample, expected);
}

#[test]
fn a_record_that_ends_early_is_a_fault() {
    let whole = record();
    for end in 0..whole.len() {
        assert_eq!(decode(&whole[..end]), Err(Fault::Short), "{end}");
    }
}

#[test]
fn events_name_processes() {
    let event = |kind: Kind| {
        let words = [kind as u32, 7, 7, 0, 9, 0];
        decode(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>())
    };
    assert_eq!(event(Kind::Exit), Ok(Event::Exit { pid: 7 }));
    assert_eq!(event(Kind::Fork), Ok(Event::Fork { pid: 7, child: 9 }));
    let words = [Kind::Exec as u32, 7, 7, 0, 77, 0, 5, 0, 4096, 0, 9, 0, 3, 1];
    let exec = words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let executable = Executable { inode: 5, size: 4096, changed_nanos: 9, device: 3, generation: 1 };
    assert_eq!(decode(&exec), Ok(Event::Exec { pid: 7, started: Started { program: 77, executable } }));
    assert_eq!(decode(&exec[..52]), Err(Fault::Short));
    assert_eq!(decode(&[9; 64]), Err(Fault::Unknown(0x0909_0909)));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0_u32..6) {
        let bytes = [&kind.to_ne_bytes()[..], &bytes].concat();
        let _said = decode(&bytes);
    }
}
