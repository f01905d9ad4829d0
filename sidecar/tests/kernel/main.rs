//! The kernel side on the kernel that runs here.
use profiler_sidecar::bpf::{Options, Sampler};
use profiler_sidecar::drain::{self, Event};
use std::time::{Duration, Instant};

#[test]
fn probe() {
    let mut s = match Sampler::load(Options::default()) {
        Ok(s) => s,
        Err(e) => panic!("{e}"),
    };
    eprintln!("lacks {:?}", s.lacks());
    let pid = std::process::id();
    let until = Instant::now() + Duration::from_secs(3);
    let busy = std::thread::spawn(move || {
        let mut x = 1u64;
        while Instant::now() < until {
            for _ in 0..10000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
    });
    let mut n = 0;
    let mut bytes = 0;
    let mut mine = 0;
    let mut first = 0;
    let mut depth = 0;
    let mut ends = [0; 3];
    let mut events = 0;
    let mut user = 0;
    let mut kern = 0;
    while Instant::now() < until {
        s.wait(Duration::from_millis(100));
        n += s.drain(|r| {
            bytes += r.len();
            match drain::decode(r).unwrap() {
                Event::Sample(x) => {
                    depth = depth.max(x.user.len());
                    ends[x.end as usize] += 1;
                    user += x.user.len();
                    if !x.kernel.is_empty() {
                        kern += 1
                    }
                    if x.pid == pid {
                        mine += 1;
                        if first < 3 {
                            first += 1;
                            eprintln!("{x:x?}");
                        }
                    }
                }
                _ => events += 1,
            }
        });
    }
    busy.join().unwrap();
    eprintln!(
        "{n} records {bytes} bytes, mine {mine}, deepest {depth}, ends {ends:?}, events {events} frames {user} kernel {kern} {:?}",
        s.counters()
    );
}
