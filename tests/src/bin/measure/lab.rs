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
use profiler_tests::usage::cpu_of;
use serde_json::Value;

use crate::shop::{Serving, Shop};
use crate::sink::Sink;
use crate::who::Who;

/// How long a program may run: many times what it needs.
const LIMIT: Duration = Duration::from_secs(300);
/// Connections that send requests to the shop.
const CONNECTIONS: u32 = 4;

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

impl Lab {
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

    /// The program of `who`.
    pub(crate) fn program(&self, who: Who) -> Result<&Path> {
        Ok(self.programs.get(&who).ok_or("a program is missing")?)
    }

    /// The directory that cargo builds in.
    pub(crate) fn target(&self) -> &Path {
        let program = self.programs.values().next().and_then(|program| program.ancestors().nth(2));
        program.unwrap_or(Path::new("target"))
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
        Ok(Outcome { said, stacks, weight: stacks })
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
    /// long as `turn`; the CPU time of each for one request, in seconds. What it does while it waits for its turn counts, too.
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
        let cpu = || shops.iter().map(|shop| cpu_of(shop.program.id())).collect::<Result<Vec<_>>>();
        let before = cpu()?;
        let mut requests = vec![0.0; all.len()];
        for _ in 0..rounds {
            for (shop, requests) in shops.iter().zip(&mut requests) {
                *requests += self.load(std::slice::from_ref(shop), turn)?[0];
            }
        }
        let spent = cpu()?.into_iter().zip(before).map(|(after, before)| after.saturating_sub(before).as_secs_f64());
        let each = spent.zip(requests).map(|(spent, requests)| spent / requests).collect();
        shops.into_iter().try_for_each(|shop| shop.program.finish()?.json().map(drop))?;
        Ok(each)
    }

    /// Sends requests to all of the shops for as long as `time`; how many each has answered.
    fn load(&self, shops: &[Shop], time: Duration) -> Result<Vec<f64>> {
        let clients = shops.iter().map(|shop| {
            let mut client = Command::new(&self.shop);
            Running::start(client.args(["client", &shop.address, &CONNECTIONS.to_string()]), LIMIT)
        });
        let clients = clients.collect::<Result<Vec<_>>>()?;
        std::thread::sleep(time);
        let counted = |client: Running| {
            let said = client.finish()?.json()?;
            let count = said["requests"].as_f64().filter(|count| *count > 0.0 && said["errors"] == 0);
            count.ok_or_else(|| format!("the shop did not serve well: {said}").into())
        };
        clients.into_iter().map(counted).collect()
    }

    /// Sends requests to a shop for `seconds`; what it said, and how many requests there were.
    fn under_load(&self, shop: Running, seconds: u64) -> Result<Value> {
        let shop = Shop::start(shop)?;
        let requests = self.load(std::slice::from_ref(&shop), Duration::from_secs(seconds))?;
        let mut said = shop.program.finish()?.json()?;
        said["requests"] = requests[0].into();
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
        let (stacks, weight) = match sink {
            Sink::None => (said["stacks"].as_f64(), said["stacks"].as_f64()),
            Sink::Otlp(receiver) => {
                let tally = receiver.accepted();
                (Some(tally.stacks as f64), Some(tally.weight as f64))
            }
            Sink::Pyroscope(server) => {
                let stacks = server.periods()?;
                (Some(stacks), Some(stacks))
            }
        };
        Ok(Outcome { said, stacks, weight })
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
