//! `/api/profile`, `/api/top` and `/flamegraph.svg`: samples of the store, for a range of time and tags.
//!
//! In: parsed parameters. Out: replies. All of them count the same samples in the same way, so that they agree.

use http::StatusCode;
use profiler_proto::{ProfileSet, folded};
use serde_json::json;

use super::flame;
use super::profiles::Profiles;
use super::query::{BadParameter, Query};
use super::reply::Reply;
use super::site::{Site, now};
use super::{pull, stats};

/// The most groups of `/api/top`.
const MOST_GROUPS: usize = 20;

impl Site {
    /// `/api/profile`.
    pub(super) async fn profile(&self, query: &Query) -> Result<Reply, BadParameter> {
        let (now, filter) = (now(), query.tags()?);
        let range = query.range(now, self.store.window())?;
        let format = query.choice("format", &["json", "pprof", "folded"])?;
        let _turn = self.tree_maker.acquire().await;
        let profiles = Profiles::new(self.store.select(range));
        Ok(match format {
            "pprof" => pull::attachment(&profiles.merged(&filter).await),
            "folded" => Reply::text(folded_text(&profiles.merged(&filter).await)),
            _ => {
                let tree = profiles.tree(&filter).await;
                let targets = self.source.targets();
                let stats = stats::json(&self.source.stats());
                let header = flame::Header { range, now, target: targets.first(), stats: &stats };
                Reply::json(flame::json(&header, &profiles.window, &tree))
            }
        })
    }

    /// `/api/top`: the hottest functions, for each value of the tag `by`.
    pub(super) async fn top(&self, query: &Query) -> Result<Reply, BadParameter> {
        let (now, filter, by) = (now(), query.tags()?, query.one("by"));
        let range = query.range(now, self.store.window())?;
        let most = usize::try_from(query.number("n", 1..=1000, 10)?).unwrap_or(10);
        let format = query.choice("format", &["json", "text"])?;
        let _turn = self.tree_maker.acquire().await;
        let profiles = Profiles::new(self.store.select(range));
        let groups = profiles.groups(by, &filter, MOST_GROUPS).await;
        if format == "text" {
            let tables: Vec<String> = groups.iter().map(|group| group.text(by, most)).collect();
            return Ok(Reply::text(if tables.is_empty() { "no samples\n".to_owned() } else { tables.join("\n") }));
        }
        let groups: Vec<_> = groups.iter().map(|group| group.json(most)).collect();
        let answer = json!({
            "version": 1, "by": by, "from": range.from / 1_000_000, "to": range.to / 1_000_000,
            "period": profiles.window.period, "samples": profiles.window.weight, "groups": groups,
        });
        Ok(Reply::json(answer.to_string()))
    }

    /// `/flamegraph.svg`.
    #[cfg(feature = "svg")]
    pub(super) async fn flamegraph(&self, query: &Query) -> Result<Reply, BadParameter> {
        let filter = query.tags()?;
        let range = query.range(now(), self.store.window())?;
        let _turn = self.tree_maker.acquire().await;
        let tree = Profiles::new(self.store.select(range)).tree(&filter).await;
        let service = self.source.targets().into_iter().next().map(|target| target.service);
        Ok(match super::svg::draw(&tree, service.as_deref().unwrap_or("")) {
            Some(svg) => super::svg::reply(svg),
            None => Reply::refusal(StatusCode::NOT_FOUND, "there are no samples in this range with these tags"),
        })
    }

    /// `/flamegraph.svg`, where it is left out.
    #[cfg(not(feature = "svg"))]
    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(super) async fn flamegraph(&self, _: &Query) -> Result<Reply, BadParameter> {
        Ok(Reply::refusal(StatusCode::NOT_FOUND, "built without the feature `svg` of profiler-sdk, which draws this"))
    }
}

/// The lines of the profile in `set`; none if there is none.
fn folded_text(set: &ProfileSet) -> String {
    set.profiles
        .first()
        .map_or_else(String::new, |profile| folded::encode(profile, &set.dictionary, folded::Tags::Left))
}
