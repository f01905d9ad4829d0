//! `/api/profile`, `/api/top` and `/flamegraph.svg`: samples of the store, for a range of time and tags.
//!
//! In: parsed parameters. Out: replies. All of them count the same samples ([`Asked`]) in the same way, so that they
//! agree.

use std::collections::HashSet;

use http::StatusCode;
use profiler_proto::{ProfileSet, folded};
use serde_json::json;

use super::asked::Asked;
use super::flame::{self, millis};
use super::profiles::{HeapFigures, Profiles};
use super::query::{BadParameter, Query};
use super::reply::Reply;
use super::site::Site;
use super::source::Target;
use super::{pull, stats};

/// The most processes that are listed.
const MOST_TARGETS: usize = 1000;
/// The most groups of `/api/top`.
const MOST_GROUPS: usize = 20;
/// Most bytes of lines: each has the names of all its frames.
const MOST_TEXT: usize = 32 << 20;

impl Site {
    /// `/api/profile`.
    pub(super) async fn profile(&self, query: &Query) -> Result<Reply, BadParameter> {
        let asked = self.asked(query)?;
        let format = query.choice("format", &["json", "pprof", "folded"])?;
        let _turn = self.tree_maker.acquire().await;
        let profiles = Profiles::find(&self.store, &asked).await;
        Ok(match format {
            "pprof" => pull::attachment(&profiles.merged().await),
            "folded" => match folded_text(profiles.merged().await) {
                Some(text) => Reply::text(text),
                None => Reply::refusal(
                    StatusCode::INSUFFICIENT_STORAGE,
                    format!("as text it is more than {MOST_TEXT} bytes: ask for a shorter range, or format=pprof"),
                ),
            },
            _ => Reply::json(self.flame(&asked, &profiles).await),
        })
    }

    /// What the page draws.
    async fn flame(&self, asked: &Asked, profiles: &Profiles<'_>) -> Vec<u8> {
        let tree = profiles.tree().await;
        let stats = stats::json(&self.source.stats());
        let of_heap = asked.sample_type.is_heap();
        let header = flame::Header {
            asked,
            types: &self.types(),
            targets: &self.all_targets(),
            stats: &stats,
            heap: of_heap.then(|| HeapFigures::at(asked.range.to, &asked.of, &self.store)).flatten(),
            shrank: asked.growth.then(|| profiles.shrank()),
        };
        flame::json(&header, &profiles.window, &tree)
    }

    /// The processes that are profiled, and those that there are profiles of.
    fn all_targets(&self) -> Vec<Target> {
        let mut targets = self.source.targets();
        let of = |target: &Target| (target.service.clone(), target.pid);
        let known: HashSet<(String, u32)> = targets.iter().map(of).collect();
        let is_named = |target: &Target| !target.service.is_empty() || target.pid != 0;
        let stored = self.store.targets().into_iter().filter(is_named);
        targets.extend(stored.filter(|target| !known.contains(&of(target))));
        targets.truncate(MOST_TARGETS);
        targets
    }

    /// `/api/top`: the hottest functions, for each value of the tag `by`.
    pub(super) async fn top(&self, query: &Query) -> Result<Reply, BadParameter> {
        let (asked, by) = (self.asked(query)?, query.one("by"));
        let most = usize::try_from(query.number("n", 1..=1000, 10)?).unwrap_or(10);
        let format = query.choice("format", &["json", "text"])?;
        let _turn = self.tree_maker.acquire().await;
        let profiles = Profiles::find(&self.store, &asked).await;
        let groups = profiles.groups(by, MOST_GROUPS).await;
        if format == "text" {
            let tables: Vec<String> = groups.iter().map(|group| group.text(by, most)).collect();
            return Ok(Reply::text(if tables.is_empty() { "no samples\n".to_owned() } else { tables.join("\n") }));
        }
        let groups: Vec<_> = groups.iter().map(|group| group.json(most)).collect();
        let answer = json!({
            "version": 1, "type": asked.sample_type.name(), "unit": asked.sample_type.unit(), "growth": asked.growth,
            "by": by, "from": asked.range.from / 1_000_000, "to": asked.range.to / 1_000_000,
            "first": profiles.window.first.map(millis), "last": profiles.window.last.map(millis),
            "period": profiles.window.period, "samples": profiles.window.evidence.weight(), "groups": groups,
        });
        Ok(Reply::json(answer.to_string()))
    }

    /// `/flamegraph.svg`.
    pub(super) async fn flamegraph(&self, query: &Query) -> Result<Reply, BadParameter> {
        let asked = self.asked(query)?;
        let _turn = self.tree_maker.acquire().await;
        let tree = Profiles::find(&self.store, &asked).await.tree().await;
        let service = self.source.targets().into_iter().next().map(|target| target.service);
        Ok(match super::svg::draw(&tree, service.as_deref().unwrap_or(""), &asked) {
            Some(svg) => super::svg::reply(svg),
            None => Reply::refusal(StatusCode::NOT_FOUND, "there are no samples in this range with these tags"),
        })
    }
}

/// The lines of the profile in `set`, without what shrank, of which no graph can be drawn; none if there is none. `None`: they are too many.
fn folded_text(mut set: ProfileSet) -> Option<String> {
    let Some(profile) = set.profiles.first_mut() else { return Some(String::new()) };
    profile.samples.retain(|sample| sample.value > 0);
    folded::encode_within(profile, &set.dictionary, folded::Tags::Left, MOST_TEXT)
}
