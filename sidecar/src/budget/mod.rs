//! The sidecar's own CPU and memory, kept within bounds by itself.
//!
//! In: what the kernel says this process used ([`Usage::read`]), and how much of it for samples, every few seconds, on the thread that drains.
//! Out: the rate to sample at from now on, whether what others send waits, and whether to let go of memory, with the reason for the log and
//! `/stats`. The rate follows what depends on it alone: a lower one would not make up for readers of the page, or for profiles that are
//! received; nor for memory that others hold, so it falls for memory only once names are gone and samples hold as much as is too much. A rate that could not be had is given back ([`Governor::refused`]) and tried again. Samples weigh as much as the rate they were
//! taken at says, so that totals stay true whatever the rate.

mod excess;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use self::excess::Excess;

/// Divisors of the wanted rate, one for each step: 99, 49, 19, 9, 4.
const STEPS: [u32; 5] = [1, 2, 5, 10, 20];
/// So many judgements in a row must leave room before the rate goes up a step.
const CALM: u32 = 6;
/// Share of the bound that the next higher rate may be expected to take.
const ROOM: f64 = 0.8;
/// Of the bound of memory, the part that samples hold at least where fewer of them help.
const PART: u64 = 10;

/// What this process used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time since it began.
    pub cpu: Duration,
    /// Of this, for samples and profiles of them: what grows with the rate.
    pub sampling: Duration,
    /// Of the rest, that of the main thread: page, receiver, pulls, sending.
    pub serving: Duration,
    /// Memory that it holds now, in bytes.
    pub resident: u64,
    /// Of this, about, names and samples that wait to be sent.
    pub held: u64,
}

/// What it may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Percent of one processor.
    pub cpu_percent: f64,
    /// Bytes.
    pub memory: u64,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Sample at this rate.
    pub rate_hz: u32,
    /// The rate before.
    pub before_hz: u32,
    /// Let go of what can be made again.
    pub shed: bool,
    /// More CPU or memory is used than may be, for whatever work, and not for a moment only.
    pub is_over: bool,
    /// Whether more is used than may be, which was not so before, or for a moment only.
    pub is_news: bool,
    /// What others send waits.
    pub puts_off: bool,
    /// CPU that was used, in percent of a processor.
    pub cpu_percent: f64,
    /// Of this, for what grows with the rate.
    pub sampling_percent: f64,
    /// Of the rest, by the main thread.
    pub serving_percent: f64,
    /// Memory that was held.
    pub resident: u64,
    /// Of this, for samples.
    pub held: u64,
}

/// Decides on the rate.
#[derive(Debug)]
pub struct Governor {
    wanted_hz: u32,
    /// No more can be had.
    attainable_hz: u32,
    in_force_hz: u32,
    bounds: Bounds,
    step: usize,
    /// The step before the last judgement.
    before: usize,
    calm: u32,
    /// Whether the last judgement found too much CPU used for samples: one busy moment, such as the start, is none to act on.
    was_hot: bool,
    /// Whether it found too much memory held.
    was_heavy: bool,
    excess: Excess,
    last: Usage,
}

impl Governor {
    /// Begins at the wanted rate, or the highest that can be had.
    #[must_use]
    pub fn new(wanted_hz: u32, bounds: Bounds, now: Usage, attainable_hz: u32) -> Self {
        let (was_hot, was_heavy, excess) = Default::default();
        let (in_force_hz, last) = (wanted_hz.min(attainable_hz), now);
        let (step, before, calm) = (0, 0, 0);
        Self { wanted_hz, attainable_hz, in_force_hz, bounds, step, before, calm, was_hot, was_heavy, excess, last }
    }

    /// No more than this can be had from now on; what that changes, the next judgement says.
    pub fn attains(&mut self, rate_hz: u32) {
        self.attainable_hz = rate_hz;
    }

    /// What to do, `elapsed` after the last judgement.
    pub fn judge(&mut self, usage: Usage, elapsed: Duration) -> Judgement {
        let last = std::mem::replace(&mut self.last, usage);
        let percent = |now: Duration, before: Duration| {
            100.0 * now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64().max(1e-3)
        };
        let [cpu_percent, sampling_percent, serving_percent] =
            [(usage.cpu, last.cpu), (usage.sampling, last.sampling), (usage.serving, last.serving)]
                .map(|(now, before)| percent(now, before));
        let (Bounds { cpu_percent: bound, memory }, was_over) = (self.bounds, self.excess.is_over());
        let too_much = usage.resident.saturating_sub(memory);
        let is_heavy = too_much > 0;
        let was_heavy = std::mem::replace(&mut self.was_heavy, is_heavy);
        // Names were let go in vain: fewer samples help where they hold as much as that, and there may be fewer.
        let is_of_samples = usage.held >= too_much.max(memory / PART);
        let is_full = is_heavy && was_heavy && is_of_samples && self.step < self.last_step();
        let of_memory = if is_full { 0.0 } else { usage.resident as f64 / memory as f64 };
        self.excess.judge((cpu_percent / bound).max(of_memory));
        let before_hz = self.in_force_hz;
        self.before = self.step;
        let is_hot = sampling_percent > bound;
        let was_hot = std::mem::replace(&mut self.was_hot, is_hot);
        if (is_hot && was_hot) || is_full {
            let far = sampling_percent > 3.0 * bound;
            self.step = (self.step + 1 + usize::from(far)).min(self.last_step());
            self.calm = 0;
        } else if is_hot {
            self.calm = 0;
        } else {
            let is_little = |held: f64| held < ROOM * too_much.max(memory / PART) as f64;
            self.recover(sampling_percent, |more| too_much == 0 || is_little(usage.held as f64 * more));
        }
        self.in_force_hz = self.rate_of(self.step).min(self.attainable_hz).max(1);
        Judgement {
            rate_hz: self.in_force_hz,
            before_hz,
            shed: is_heavy,
            is_over: self.excess.is_over(),
            is_news: (is_heavy && !was_heavy) || (self.excess.is_over() && !was_over),
            puts_off: self.excess.puts_off(),
            cpu_percent,
            sampling_percent,
            serving_percent,
            resident: usage.resident,
            held: usage.held,
        }
    }

    /// The rate of the last judgement could not be had: the one before stays in force, and the next judgement starts out from it. What is
    /// true instead of `judgement`.
    pub fn refused(&mut self, judgement: Judgement) -> Judgement {
        self.step = self.before;
        self.in_force_hz = judgement.before_hz;
        Judgement { rate_hz: judgement.before_hz, ..judgement }
    }

    /// The rate in force.
    #[must_use]
    pub fn rate_hz(&self) -> u32 {
        self.in_force_hz
    }

    fn rate_of(&self, step: usize) -> u32 {
        (self.wanted_hz / STEPS.get(step).copied().unwrap_or(1)).max(1)
    }

    /// The last step that lowers the rate.
    fn last_step(&self) -> usize {
        (1..STEPS.len()).take_while(|step| self.rate_of(*step) < self.rate_of(step - 1)).count()
    }

    /// Goes up a step once it has long been clear that there is room for it.
    fn recover(&mut self, sampling_percent: f64, has_space: impl Fn(f64) -> bool) {
        let Some(above) = self.step.checked_sub(1) else { return };
        let more = f64::from(self.rate_of(above)) / f64::from(self.rate_of(self.step));
        let has_time = sampling_percent * more < ROOM * self.bounds.cpu_percent;
        self.calm = if has_time && has_space(more) { self.calm + 1 } else { 0 };
        if self.calm >= CALM {
            (self.step, self.calm) = (above, 0);
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mib, held) = (self.resident >> 20, self.held >> 20);
        let Self { cpu_percent, sampling_percent, serving_percent, .. } = self;
        write!(
            f,
            "used {cpu_percent:.1} % of a processor (of it sampling {sampling_percent:.1}; page, receiver, pulls "
        )?;
        write!(f, "and sending {serving_percent:.1}) and {mib} MiB, of it for samples {held}: ")?;
        let Self { rate_hz, before_hz, .. } = self;
        match rate_hz.cmp(before_hz) {
            std::cmp::Ordering::Less => write!(f, "over the bound, rate lowered from {before_hz} Hz to {rate_hz} Hz"),
            std::cmp::Ordering::Equal if self.is_over => {
                write!(f, "over the bound: received profiles, if any, are put off at times, rate stays at {rate_hz} Hz")
            }
            std::cmp::Ordering::Equal if self.shed => {
                write!(f, "over the bound: names are let go, rate stays at {rate_hz} Hz")
            }
            std::cmp::Ordering::Equal => write!(f, "rate stays at {rate_hz} Hz"),
            std::cmp::Ordering::Greater => write!(f, "room again, rate raised from {before_hz} Hz to {rate_hz} Hz"),
        }
    }
}

impl Usage {
    /// What this process used until now; for samples, of which it cannot know, nothing.
    ///
    /// # Errors
    /// If procfs cannot be read.
    pub fn read() -> io::Result<Self> {
        // The number of the process, which is the main thread's, too, as this procfs counts.
        let main = Path::new("/proc/self/task").join(std::fs::read_link("/proc/self")?).join("stat");
        let [stat, main] = [Path::new("/proc/self/stat"), &main].map(std::fs::read_to_string);
        let status = std::fs::read_to_string("/proc/self/status")?;
        let unreadable = || io::Error::other("/proc/self/stat or status is not as proc(5) says");
        Self::parse(&stat?, &main?, &status).ok_or_else(unreadable)
    }

    /// The same with what samples took, `taken` by other threads, `made` by the main one, and with the bytes that are `held` for them.
    #[must_use]
    pub fn with_sampling(self, taken: Duration, made: Duration, held: u64) -> Self {
        Self { sampling: taken + made, serving: self.serving.saturating_sub(made), held, ..self }
    }

    /// The texts of `stat`, that of the main thread, and `status`; of the latter `VmRSS`, in KiB.
    fn parse(stat: &str, main: &str, status: &str) -> Option<Self> {
        let (cpu, serving) = (cpu_of(stat)?, cpu_of(main)?);
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)?;
        Some(Self { cpu, serving, resident, ..Self::default() })
    }
}

/// `utime` and `stime`, the 14th and 15th field, in ticks of 10 ms (proc_pid_stat(5); `USER_HZ` is 100 on all architectures of ours).
fn cpu_of(stat: &str) -> Option<Duration> {
    // The second field, a name in parentheses, may hold anything.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Duration::from_millis(10).checked_mul(u32::try_from(ticks(14)?.checked_add(ticks(15)?)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_cpu;

    const BOUNDS: Bounds = Bounds { cpu_percent: 5.0, memory: 100 << 20 };
    const SECOND: Duration = Duration::from_secs(1);

    /// A process that uses so much of a processor for samples, judged once a second.
    struct Process {
        governor: Governor,
        usage: Usage,
    }

    impl Process {
        fn new(wanted_hz: u32) -> Self {
            Self { governor: Governor::new(wanted_hz, BOUNDS, Usage::default(), wanted_hz), usage: Usage::default() }
        }

        fn uses(&mut self, percent: u32, mib: u64) -> Judgement {
            self.uses_beside(percent, 0, mib)
        }

        fn holds(&mut self, held_mib: u64, mib: u64) -> Judgement {
            self.usage.held = held_mib << 20;
            self.uses(1, mib)
        }

        fn uses_beside(&mut self, percent: u32, serving: u32, mib: u64) -> Judgement {
            self.usage.cpu += SECOND * (percent + serving) / 100;
            self.usage.sampling += SECOND * percent / 100;
            self.usage.serving += SECOND * serving / 100;
            self.usage.resident = mib << 20;
            self.governor.judge(self.usage, SECOND)
        }
    }

    /// Check that over budget the rate goes down by steps to the last one, and not below 1 Hz.
    #[test]
    fn over_budget_the_rate_goes_down_in_steps() {
        let mut process = Process::new(99);
        let rates: Vec<u32> = (0..6).map(|_| process.uses(6, 50).rate_hz).collect();
        assert_eq!(rates, [99, 49, 19, 9, 4, 4]);
        let of = |wanted_hz| {
            let mut process = Process::new(wanted_hz);
            [(); 3].map(|()| process.uses(50, 50).rate_hz)
        };
        assert_eq!((of(99), of(2)), ([99, 19, 4], [2, 1, 1]));
    }

    /// Check that a rate that cannot be had any more is left at the next judgement, whatever the step, and comes back when it can be had.
    #[test]
    fn no_more_is_asked_for_than_can_be_had() {
        let mut process = Process::new(1000);
        let mut judged = |attainable_hz: u32, percent: u32| {
            process.governor.attains(attainable_hz);
            let judgement = process.uses(percent, 50);
            (judgement.before_hz, judgement.rate_hz)
        };
        assert_eq!([judged(1000, 1), judged(250, 1), judged(250, 1)], [(1000, 1000), (1000, 250), (250, 250)]);
        assert_eq!([judged(250, 6), judged(250, 6), judged(250, 6)], [(250, 250), (250, 250), (250, 200)]);
        assert_eq!([judged(1000, 4), judged(0, 4)], [(200, 200), (200, 1)]);
    }

    /// Check that samples that hold next to nothing do not have the rate lowered, however little is too much, nor keep it from rising.
    #[test]
    fn memory_of_others_leaves_the_rate() {
        let mut process = Process::new(99);
        assert!((0..10).all(|_| process.holds(5, 101).rate_hz == 99));
        assert_eq!([(20, 101), (5, 101)].map(|(held, mib)| process.holds(held, mib).rate_hz), [49, 49]);
        assert!((0..CALM).map(|_| process.holds(3, 101).rate_hz).any(|rate_hz| rate_hz == 99));
    }

    /// Check that too much memory asks for names to be let go, and lowers the rate where that was in vain and samples hold as much as is too much.
    #[test]
    fn too_much_memory_is_let_go() {
        let mut process = Process::new(99);
        let rates = [(20, 110), (20, 110), (12, 110), (9, 110), (12, 110), (12, 110)].map(|(held, mib)| {
            let judgement = process.holds(held, mib);
            assert!(judgement.shed);
            judgement.rate_hz
        });
        assert_eq!(rates, [99, 49, 19, 19, 9, 4]);
        // There is nothing more to be had by fewer samples.
        let last = [(); 2].map(|()| process.holds(12, 110));
        assert!(last[1].is_over && last[1].puts_off && last[1].rate_hz == 4, "{}", last[1]);
        let judgement = Process::new(99).holds(20, 101);
        assert!(judgement.is_news && !process.holds(20, 110).is_news);
        assert!(
            judgement
                .to_string()
                .ends_with("and 101 MiB, of it for samples 20: over the bound: names are let go, rate stays at 99 Hz"),
            "{judgement}"
        );
        // One that is within again recovers, and names that were let go in time are all that was needed.
        let recovered: Vec<u32> = (0..24).map(|_| process.holds(5, 90).rate_hz).collect();
        assert_eq!((recovered.first(), recovered.last()), (Some(&4), Some(&99)));
        assert_eq!(
            [(30, 120), (1, 90), (30, 120), (1, 90)].map(|(held, mib)| process.holds(held, mib).rate_hz),
            [99; 4]
        );
    }

    /// Check that memory which samples do not hold leaves the rate as it is, and has what others send wait, and not for ever.
    #[test]
    fn others_memory_does_not_lower_the_rate() {
        let mut process = Process::new(99);
        let judged: Vec<Judgement> = (0..40).map(|_| process.holds(2, 130)).collect();
        assert!(judged.iter().all(|judgement| judgement.rate_hz == 99 && judgement.shed));
        assert_eq!([0, 1].map(|time: usize| judged[time].puts_off), [false, true]);
        assert!((10..30).contains(&judged.iter().filter(|judgement| judgement.puts_off).count()));
        assert_eq!(judged.iter().filter(|judgement| judgement.is_news).count(), 2);
        assert!(judged[1].to_string().contains("put off at times, rate stays at 99 Hz"), "{}", judged[1]);
    }

    /// Check that work that does not grow with the rate does not lower it, nor keeps it low, and that what others send waits instead, with the reason.
    #[test]
    fn others_work_does_not_lower_the_rate() {
        let mut process = Process::new(99);
        let judged: Vec<Judgement> = (0..10).map(|_| process.uses_beside(1, 50, 50)).collect();
        assert!(judged.iter().all(|judgement| judgement.rate_hz == 99));
        assert_eq!([0, 1, 2].map(|second: usize| judged[second].puts_off), [false, true, true]);
        assert_eq!(
            [0, 1, 2].map(|second: usize| (judged[second].is_news, judged[second].is_over)),
            [(false, false), (true, true), (false, true)]
        );
        let told = judged[1].to_string();
        assert!(
            told.contains("sampling 1.0")
                && told.contains("sending 50.0")
                && told.contains("put off at times, rate stays at 99 Hz"),
            "{told}"
        );
        // Back from the lowest rate to the wanted one, though others go on.
        (0..5).for_each(|_| _ = process.uses(20, 50));
        assert_eq!(process.governor.rate_hz(), 4);
        assert_eq!((0..24).map(|_| process.uses_beside(0, 50, 50).rate_hz).last(), Some(99));
    }

    /// Check that it goes up again only after a while in which the higher rate would have fitted, step by step.
    #[test]
    fn the_rate_recovers_where_there_is_room() {
        let mut process = Process::new(99);
        (0..3).for_each(|_| _ = process.uses(6, 50));
        let calm: Vec<u32> = (0..12).map(|_| process.uses(1, 50).rate_hz).collect();
        assert_eq!(calm, [19, 19, 19, 19, 19, 49, 49, 49, 49, 49, 49, 99]);
        (0..2).for_each(|_| _ = process.uses(6, 50));
        // At 99 Hz it would take 6 %.
        assert_eq!((0..50).map(|_| process.uses(3, 50).rate_hz).max(), Some(49));
    }

    /// Check that a rate that could not be had is not taken for the one in force, down or up, and is tried again.
    #[test]
    fn a_rate_that_is_refused_is_tried_again() {
        let mut process = Process::new(99);
        process.uses(6, 50);
        for _ in 0..3 {
            let judgement = process.uses(6, 50);
            assert_eq!((judgement.before_hz, judgement.rate_hz), (99, 49));
            let judgement = process.governor.refused(judgement);
            assert_eq!((judgement.before_hz, judgement.rate_hz, process.governor.rate_hz()), (99, 99, 99));
        }
        assert_eq!(process.uses(6, 50).rate_hz, 49);
        for _ in 0..2 {
            let judgement = (0..6).map(|_| process.uses(1, 50)).last().unwrap();
            assert_eq!((judgement.before_hz, judgement.rate_hz), (49, 99));
            assert_eq!(process.governor.refused(judgement).rate_hz, 49);
        }
    }

    /// Check that a load that comes and goes does not make the rate swing at once.
    #[test]
    fn one_busy_moment_starts_the_wait_anew() {
        let mut process = Process::new(99);
        (0..2).for_each(|_| _ = process.uses(6, 50));
        for _ in 0..10 {
            (0..5).for_each(|_| assert_eq!(process.uses(1, 50).rate_hz, 49));
            assert_eq!(process.uses(4, 50).rate_hz, 49);
        }
    }

    /// Check that the figures are read past a name that looks like fields.
    #[test]
    fn usage_is_read_from_procfs() {
        let stat = "7 (a) 1 2 (b) S 1 1 1 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 3 0 100 1 1";
        let main = "7 (a) S 1 1 1 0 -1 4194560 1 0 0 0 50 5 0 0 20 0 3 0 100 1 1";
        let usage = Usage::parse(stat, main, "Name:\ta\nVmRSS:\t    2048 kB\n").unwrap();
        let [cpu, serving, sampling] = [1750, 550, 0].map(Duration::from_millis);
        assert_eq!(usage, Usage { cpu, sampling, serving, resident: 2 << 20, held: 0 });
        let [taken, made, rest] = [200, 150, 400].map(Duration::from_millis);
        let of_samples = usage.with_sampling(taken, made, 7);
        let Usage { sampling, serving, held, .. } = of_samples;
        assert_eq!((of_samples.cpu, sampling, serving, held), (cpu, taken + made, rest, 7));
        assert_eq!(Usage::parse("7 (a", main, "VmRSS:\t1 kB"), None);
        assert!(Usage::read().unwrap().resident > 1 << 20);
    }

    /// Check that a thread's CPU time is that of its work, not of its rest.
    #[test]
    fn a_threads_cpu_time_is_its_own() {
        let (begun, before) = (std::time::Instant::now(), thread_cpu());
        std::thread::sleep(Duration::from_millis(50));
        let rested = thread_cpu() - before;
        while thread_cpu() - before < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(
            rested < Duration::from_millis(20) && begun.elapsed() >= Duration::from_millis(70) - rested,
            "{rested:?}"
        );
    }
}
