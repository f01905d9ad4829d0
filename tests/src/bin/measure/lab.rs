//! Builds the profilers' programs and runs one task in one of them, counting what it sends.
//!
//! In: who and which task. Out: what the program says of itself, with the stacks and the weight that arrived. Only one
//! program runs at a time, for they would take the processor from each other, but where they are compared side by side.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::{Running, build};
use profiler_tests::usage::{cpu_of, own_cpu_of};
use serde_json::Value;

use crate::shop::{Serving, Shop};
use crate::sink::Sink;
use crate::who::Who;

/// How long a program may run: many times what it needs.
const LIMIT: Duration = Duration::from_secs(300);
/// Connections that send requests to the shop.
pub(crate) const CONNECTIONS: u32 = 4;
/// How long a shop serves before what it does is steady: the first window is sent, and its names are found.
pub(crate) const WARM: Duration = Duration::from_secs(11);

/// The built programs.
#[derive(Debug)]
pub(crate) struct Lab {
    programs: BTreeMap<Who, PathBuf>,
    /// The one on jemalloc, built when it is first asked for: what it needs is none of the others' business.
    heap: OnceLock<PathBuf>,
    /// Sends requests to the shop, by its command `client`.
    shop: PathBuf,
    /// Shorter runs.
    pub(crate) quick: bool,
}

/// What came of a task.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What the program said.
    pub(crate) said: Value,
    /// Stacks that were delivered: where the profiler sends, those that arrived; else those of its report.
    pub(crate) stacks: Option<f64>,
    /// What they weigh, in periods.
    pub(crate) weight: Option<f64>,
    /// What share of that has a stack that reaches its root, where that can be seen.
    pub(crate) whole: Option<f64>,
}

impl Outcome {
    /// A figure that the program said.
    pub(crate) fn figure(&self, name: &str) -> Result<f64> {
        self.said[name].as_f64().ok_or_else(|| format!("the program did not say {name}").into())
    }
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The directory that this program was built in.
fn own_target() -> Option<&'static Path> {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    OWN.get_or_init(|| std::env::current_exe().ok()?.ancestors().nth(2).map(Path::to_path_buf)).as_deref()
}

impl Lab {
    /// Without any program, for rows that need none.
    pub(crate) fn bare(quick: bool) -> Self {
        Self { programs: BTreeMap::new(), heap: OnceLock::new(), shop: PathBuf::new(), quick }
    }

    /// Builds all programs, in release mode.
    pub(crate) fn build(quick: bool) -> Result<Self> {
        let shop = ["--release", "--package=profiler-examples", "--bin=shop"];
        let shop = build(workspace(), &shop)?.pop().ok_or("cargo built no shop")?;
        let bins = Who::ALL.map(|who| format!("--bin={}", who.program()));
        let options =
            ["--release", "--package=profiler-tests", "--no-default-features", "--features=peers"].map(String::from);
        let built = build(workspace(), &[&options[..], &bins[..]].concat())?;
        let program =
            |who: Who| built.iter().find(|path| path.ends_with(who.program())).map(|path| (who, path.clone()));
        let programs = Who::ALL.into_iter().chain([Who::Off]).filter_map(program).collect();
        Ok(Self { programs, heap: OnceLock::new(), shop, quick })
    }

    /// Whether it has the programs of profilers.
    pub(crate) fn has_subjects(&self) -> bool {
        !self.programs.is_empty()
    }

    /// The program of `who`.
    pub(crate) fn program(&self, who: Who) -> Result<&Path> {
        Ok(self.programs.get(&who).ok_or("a program is missing")?)
    }

    /// The directory that cargo builds in.
    pub(crate) fn target(&self) -> &Path {
        // Where there are none, this program is built where they would be.
        let built = self.programs.values().next().and_then(|program| program.ancestors().nth(2));
        built.unwrap_or_else(|| own_target().unwrap_or(Path::new("target")))
    }

    /// Runs `task` under `pprof` built with this unwinder, a feature of that crate. Built here, once, and built again as it
    /// was: all of them share a name.
    pub(crate) fn run_pprof(&self, unwinder: &str, task: &[String]) -> Result<Outcome> {
        let built = |features: &str| -> Result<PathBuf> {
            let bin = format!("--bin={}", Who::Pprof.program());
            let features = format!("--features={features}");
            let options = ["--release", "--package=profiler-tests", "--no-default-features", &bin, &features];
            Ok(build(workspace(), &options)?.pop().ok_or("cargo built no subject")?)
        };
        let program = self.target().join("measure").join(format!("pprof-{unwinder}"));
        if !program.exists() {
            std::fs::create_dir_all(self.target().join("measure"))?;
            std::fs::copy(built(&format!("peers,pprof/{unwinder}"))?, &program)?;
            built("peers")?;
        }
        let mut command = Command::new(program);
        let said = Running::start(command.args(task).arg("url="), LIMIT)?.finish()?.json()?;
        let stacks = said["stacks"].as_f64();
        Ok(Outcome { said, stacks, weight: stacks, whole: None })
    }

    /// Runs `task` under this profiler with `engine`.
    pub(crate) fn run_engine(&self, engine: &str, task: &[String]) -> Result<Outcome> {
        Self::counted(Who::Ours, &|url| {
            let mut command = self.command(Who::Ours, task, url)?;
            let finished = Running::start(command.env("PROFILER_ENGINE", engine), LIMIT)?.finish()?;
            finished.json()
        })
    }

    /// Runs `task` under `who`.
    pub(crate) fn run(&self, who: Who, task: &[String]) -> Result<Outcome> {
        let said = |url: &str| {
            let finished = self.start(who, task, url)?.finish()?;
            finished.json().map_err(|error| format!("{}: {error}", who.name()).into())
        };
        Self::counted(who, &said)
    }

    /// Lets the shop serve for `seconds` under `who`.
    pub(crate) fn serve(&self, who: Who, serving: Serving, seconds: u64) -> Result<Outcome> {
        Self::counted(who, &|url| self.under_load(self.start(who, &serving.task(), url)?, seconds))
    }

    /// Has shops serve, one under each of `all`: together for as long as `warm` what is done once, then in turn, `rounds` times for as
    /// long as `turn`; the CPU time of each for one request, in seconds. What it does while others have their turn does not count: what it does at
    /// each interval falls into its own turns as often as these are of the time.
    pub(crate) fn serve_in_turn(
        &self,
        all: &[Who],
        serving: Serving,
        warm: Duration,
        turn: Duration,
        rounds: u32,
    ) -> Result<Vec<f64>> {
        let sinks = all.iter().map(|who| Sink::of(*who)).collect::<Result<Vec<_>>>()?;
        let started = |(who, sink): (&Who, &Sink)| Shop::start(self.start(*who, &serving.task(), &sink.url())?);
        let shops = all.iter().zip(&sinks).map(started).collect::<Result<Vec<_>>>()?;
        self.load(&shops, warm)?;
        let (mut spent, mut requests) = (vec![Duration::ZERO; all.len()], vec![0.0; all.len()]);
        for _ in 0..rounds {
            for (place, shop) in shops.iter().enumerate() {
                let before = cpu_of(shop.program.id())?;
                requests[place] += self.load(std::slice::from_ref(shop), turn)?[0];
                spent[place] += cpu_of(shop.program.id())?.saturating_sub(before);
            }
        }
        let each = spent.iter().zip(requests).map(|(spent, requests)| spent.as_secs_f64() / requests).collect();
        shops.into_iter().try_for_each(|shop| shop.program.finish()?.json().map(drop))?;
        Ok(each)
    }

    /// Has a shop serve under our profiler, without `what` (nothing, tags, samples, both) in turn, so many pairs of turns; of each pair, CPU time for one
    /// request with ÷ without.
    pub(crate) fn serve_without(&self, what: &str, serving: Serving, turn: Duration, pairs: u32) -> Result<Vec<f64>> {
        let sink = Sink::of(Who::Ours)?;
        let mut command = self.command(Who::Ours, &serving.task(), &sink.url())?;
        command.env("MEASURE_TURNS", format!("{},{},{what}", WARM.as_millis(), turn.as_millis()));
        let shop = Shop::start(Running::start(&mut command, LIMIT)?)?;
        // A pair is two turns and what goes by at each change.
        self.load(std::slice::from_ref(&shop), WARM + (2 * turn + Duration::from_millis(120)) * pairs)?;
        let finished = shop.program.finish()?;
        finished.json()?;
        // Its turns, before what every task says at its end.
        let said: Value = serde_json::from_str(finished.lines.first().ok_or("the shop said nothing")?)?;
        let numbers = |pair: &Value| [0, 1, 2, 3].map(|place| pair[place].as_f64().unwrap_or(f64::NAN));
        let pairs = said["turns"].as_array().filter(|pairs| !pairs.is_empty()).ok_or("the shop took no turns")?;
        let ratio =
            |[with, count_with, without, count_without]: [f64; 4]| (with / count_with) / (without / count_without);
        Ok(pairs.iter().map(numbers).map(ratio).collect())
    }

    /// What sends requests to the shop at `address`, until it is to finish.
    pub(crate) fn client(&self, address: &str) -> Result<Running> {
        Running::start(Command::new(&self.shop).args(["client", address, &CONNECTIONS.to_string()]), LIMIT)
    }

    /// Sends requests to all of the shops for as long as `time`; how many each has answered.
    fn load(&self, shops: &[Shop], time: Duration) -> Result<Vec<f64>> {
        let clients = shops.iter().map(|shop| self.client(&shop.address)).collect::<Result<Vec<_>>>()?;
        std::thread::sleep(time);
        let counted = |client: Running| {
            let said = client.finish()?.json()?;
            let count = said["requests"].as_f64().filter(|count| *count > 0.0 && said["errors"] == 0);
            count.ok_or_else(|| format!("the shop did not serve well: {said}").into())
        };
        clients.into_iter().map(counted).collect()
    }

    /// Sends requests to a shop until what is done once is done, and for `seconds` more; what it said, how many requests there were, and what the
    /// profiler's own threads took until then and of the CPU time afterwards.
    fn under_load(&self, shop: Running, seconds: u64) -> Result<Value> {
        let shop = Shop::start(shop)?;
        let spent = || Ok::<_, profiler_tests::Error>([own_cpu_of(shop.program.id())?, cpu_of(shop.program.id())?]);
        let load = |time| self.load(std::slice::from_ref(&shop), time);
        let warming = load(if self.quick { Duration::from_secs(1) } else { WARM })?;
        let [once, before] = spent()?;
        let requests = load(Duration::from_secs(seconds))?;
        let [own, whole] = spent()?;
        let mut said = shop.program.finish()?.json()?;
        said["requests"] = (warming[0] + requests[0]).into();
        said["own_seconds_once"] = once.as_secs_f64().into();
        said["own_share"] =
            (own.saturating_sub(once).as_secs_f64() / whole.saturating_sub(before).as_secs_f64()).into();
        Ok(said)
    }

    /// Builds the program on jemalloc, once: it says where it is.
    pub(crate) fn heap(&self) -> Result<&Path> {
        if let Some(program) = self.heap.get() {
            return Ok(program);
        }
        let options = ["--release", "--package=profiler-tests", "--no-default-features", "--features=heap-peers"];
        let built = build(workspace(), &[&options[..], &["--bin=subject_heap"]].concat())?.pop();
        let program = built.ok_or("cargo built no subject_heap")?;
        Ok(self.heap.get_or_init(|| program))
    }

    /// Runs a task of the program on jemalloc, with jemalloc's options as `options` say.
    pub(crate) fn run_heap(&self, who: Who, options: &str, task: &[String]) -> Result<Value> {
        let said = |url: &str| {
            let finished = self.start_heap(who, options, task, url)?.finish()?;
            finished.json().map_err(|error| format!("{}: {error}", who.name()).into())
        };
        Ok(Self::counted(who, &said)?.said)
    }

    /// Lets the shop on jemalloc serve for `seconds` under our profiler, with a span and tags for each request.
    pub(crate) fn serve_heap(&self, seconds: u64) -> Result<Value> {
        let task = ["task=serve".into()];
        let served = |url: &str| self.under_load(self.start_heap(Who::Ours, "", &task, url)?, seconds);
        Ok(Self::counted(Who::Ours, &served)?.said)
    }

    fn start_heap(&self, who: Who, options: &str, task: &[String], url: &str) -> Result<Running> {
        let profiler = if who == Who::Ours { "ours" } else { who.name() };
        let mut command = Command::new(self.heap()?);
        command.args(task).args([format!("profiler={profiler}"), format!("url={url}")]);
        command.env_remove("MALLOC_CONF").env_remove("_RJEM_MALLOC_CONF");
        if !options.is_empty() {
            command.env("_RJEM_MALLOC_CONF", options);
        }
        Running::start(&mut command, LIMIT)
    }

    /// Plays the other side for `who` while `said` runs the program, and counts what arrives.
    fn counted(who: Who, said: &dyn Fn(&str) -> Result<Value>) -> Result<Outcome> {
        let sink = Sink::of(who)?;
        let said = said(&sink.url())?;
        let (stacks, weight, whole) = match sink {
            Sink::None => (said["stacks"].as_f64(), said["stacks"].as_f64(), None),
            Sink::Otlp(receiver) => {
                let tally = receiver.accepted();
                let torn: i64 = tally.torn().map(|(_, weight)| weight).sum();
                let whole = 1.0 - torn as f64 / tally.weight as f64;
                (Some(tally.stacks as f64), Some(tally.weight as f64), Some(whole))
            }
            Sink::Pyroscope(server) => {
                let stacks = server.periods()?;
                (Some(stacks), Some(stacks), None)
            }
        };
        Ok(Outcome { said, stacks, weight, whole })
    }

    fn start(&self, who: Who, task: &[String], url: &str) -> Result<Running> {
        Running::start(&mut self.command(who, task, url)?, LIMIT)
    }

    fn command(&self, who: Who, task: &[String], url: &str) -> Result<Command> {
        let mut command = Command::new(self.program(who)?);
        command.args(task).arg(format!("url={url}"));
        if who == Who::Off {
            command.env("PROFILER_ENABLED", "0");
        }
        Ok(command)
    }
}
