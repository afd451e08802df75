//! What plots a page has, and what is said at its top.

use super::figures::{self, Figure};
use crate::cell::{Figures, Metric};
use crate::digest::peer;
use crate::number;
use crate::plot::DrawError;
use crate::result::{Item, Measured, Run, System};
use crate::statistics::{Spread, ratios};
use std::collections::{BTreeMap, BTreeSet};

/// A part of the page.
pub struct Section {
    /// For links.
    pub id: &'static str,
    /// Above it.
    pub title: &'static str,
    /// How to read it.
    pub says: Vec<String>,
    /// Its plots.
    pub folds: Vec<Fold>,
}

/// Plots that are shown or hidden together.
pub struct Fold {
    /// What a click is on; empty where nothing is hidden.
    pub title: String,
    /// True if it is shown at first.
    pub is_open: bool,
    /// The plots.
    pub figures: Vec<Figure>,
}

/// Items that have plots of their own: with more, a page is slow and nobody looks at all.
const ITEMS_MAX: usize = 48;

/// All sections that have something to show.
pub fn all(run: &Run) -> Result<Vec<Section>, DrawError> {
    let all = [throughput(run)?, cpu(run)?, percentiles(run)?, heat(run)?];
    Ok(all.into_iter().filter(|section| !section.folds.is_empty()).collect())
}

/// Figures without anything to click on; none where there are none.
fn plain(figures: Vec<Figure>) -> Vec<Fold> {
    match figures.is_empty() {
        true => Vec::new(),
        false => vec![Fold { title: String::new(), is_open: true, figures }],
    }
}

fn throughput(run: &Run) -> Result<Section, DrawError> {
    let mut plots = Vec::new();
    let mut single: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for (title, items) in families(run) {
        let connections = items.iter().filter_map(|item| item.number("connections"));
        let connections: BTreeSet<u64> = connections.map(f64::to_bits).collect();
        match connections.len() > 1 && connections.len() == items.len() {
            true => plots.extend(figures::throughput(run, &title, &items)?),
            false => single.entry(items[0].group.as_str()).or_default().extend(items),
        }
    }
    for (group, items) in single {
        let title = if group.is_empty() { "Throughput" } else { group };
        let rate = |measured: &Measured| Metric::Throughput.of(measured);
        plots.extend(figures::bars(run, (title, "requests/s"), &items, rate, number::short)?);
    }
    Ok(Section {
        id: "throughput",
        title: "Throughput",
        says: vec![
            "Medians; bars go from the slowest round to the fastest. Where they overlap, no \
             difference is shown."
                .to_owned(),
        ],
        folds: plain(plots),
    })
}

/// Items that differ in nothing but connections and threads, with what tells each family from
/// the others.
fn families(run: &Run) -> Vec<(String, Vec<&Item>)> {
    type Rest<'a> = (&'a str, Vec<(&'a str, String)>);
    // A title that several items have says what they do, which no parameter may.
    let is_shared = |title: &String| {
        !title.is_empty() && run.items.iter().filter(|other| other.title == *title).count() > 1
    };
    let rest = |item: &'_ Item| -> Vec<(String, String)> {
        let title = Some(&item.title).filter(|title| is_shared(title));
        let title = title.map(|title| (String::new(), title.clone()));
        let own = item.parameters.iter();
        let own = own.filter(|(name, _)| !matches!(name.as_str(), "connections" | "threads"));
        let own = own.map(|(name, value)| (name.clone(), value.told(name)));
        title.into_iter().chain(own).collect()
    };
    let mut families: Vec<(Rest, Vec<&Item>)> = Vec::new();
    let rests: Vec<Vec<(String, String)>> = run.items.iter().map(rest).collect();
    for (item, rest) in run.items.iter().zip(&rests) {
        let rest = rest.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let key: Rest = (item.group.as_str(), rest);
        match families.iter_mut().find(|(known, _)| *known == key) {
            Some((_, items)) => items.push(item),
            None => families.push((key, vec![item])),
        }
    }
    let is_common = |one: &(&str, String)| families.iter().all(|((_, rest), _)| rest.contains(one));
    let title = |(group, rest): &Rest| {
        let own = rest.iter().filter(|one| !is_common(one)).map(|(_, value)| value.clone());
        let words: Vec<String> = match group.is_empty() {
            false => vec![(*group).to_owned()],
            true => own.collect(),
        };
        if words.is_empty() { "All".to_owned() } else { words.join(", ") }
    };
    let titles: Vec<String> = families.iter().map(|(key, _)| title(key)).collect();
    // A group may hold several families: then what tells them apart is said, too.
    let full = |((group, rest), _): &(Rest, Vec<&Item>), title: &String| {
        let is_alone = titles.iter().filter(|other| *other == title).count() == 1;
        let own = rest.iter().filter(|one| !is_common(one)).map(|(_, value)| value.as_str());
        match is_alone || group.is_empty() {
            true => title.clone(),
            false => std::iter::once(*group).chain(own).collect::<Vec<_>>().join(", "),
        }
    };
    let titled: Vec<String> =
        families.iter().zip(&titles).map(|(family, title)| full(family, title)).collect();
    titled.into_iter().zip(families).map(|(title, (_, items))| (title, items)).collect()
}

fn cpu(run: &Run) -> Result<Section, DrawError> {
    let mut groups: Vec<&str> = Vec::new();
    for item in &run.items {
        if !groups.contains(&item.group.as_str()) {
            groups.push(&item.group);
        }
    }
    let mut plots = Vec::new();
    for group in groups {
        let items: Vec<&Item> = run.items.iter().filter(|item| item.group == group).collect();
        let title = if group.is_empty() { "CPU per request" } else { group };
        let cost = |measured: &Measured| Some(measured.cpu_ns_per_request()? / 1e3);
        let about = (title, "µs of CPU per request");
        plots.extend(figures::bars(run, about, &items, cost, number::ratio)?);
    }
    Ok(Section {
        id: "cpu",
        title: "CPU per request",
        says: vec![
            "Processor time of the tested processes alone, in user mode and in the kernel, for \
             each request; less is better. Boxes go from the cheapest round to the dearest."
                .to_owned(),
        ],
        folds: plain(plots),
    })
}

fn percentiles(run: &Run) -> Result<Section, DrawError> {
    let mut plots = Vec::new();
    for item in run.items.iter().take(ITEMS_MAX) {
        plots.extend(figures::percentiles(run, item)?);
    }
    let mut says = vec![
        "Latencies of all rounds together, on a logarithmic axis. A percentile is drawn where at \
         least one request lies beyond it."
            .to_owned(),
    ];
    says.extend(left_out(run));
    Ok(Section { id: "latency", title: "Latency percentiles", says, folds: plain(plots) })
}

fn heat(run: &Run) -> Result<Section, DrawError> {
    let mut folds = Vec::new();
    for item in run.items.iter().take(ITEMS_MAX) {
        let figures = figures::heat_maps(run, item)?;
        if !figures.is_empty() {
            let is_open = folds.is_empty();
            folds.push(Fold { title: run.label(item), is_open, figures });
        }
    }
    let mut says = vec![
        "The round with the median throughput of each system, second by second: the stronger the \
         colour, the larger the share of that second's requests. Maps of one work have the same \
         axis of latency."
            .to_owned(),
    ];
    says.extend(left_out(run));
    Ok(Section { id: "heat", title: "Latency over time", says, folds })
}

fn left_out(run: &Run) -> Option<String> {
    let more = run.items.len().checked_sub(ITEMS_MAX).filter(|more| *more > 0)?;
    Some(format!("The first {ITEMS_MAX} works; {more} more are in the tables and in the JSON."))
}

/// For each system beside the baseline: how its medians stand to the baseline's, and in how many
/// works it is ahead in every round, behind in every round, or neither; and the same to the peer
/// where the baseline has no processor time of its own.
pub fn summary(run: &Run) -> Vec<String> {
    let Some(baseline) = run.baseline() else { return Vec::new() };
    let there = run.systems.iter().filter(|one| one.name != baseline && one.missing.is_none());
    let mut lines = Vec::new();
    for to in [Some(baseline), peer(run)].into_iter().flatten() {
        for system in there.clone().filter(|one| one.name != to) {
            for metric in [Metric::Throughput, Metric::PerCpuSecond] {
                lines.extend(standing(run, system, to, metric));
            }
        }
    }
    lines
}

fn standing(run: &Run, system: &System, to: &str, metric: Metric) -> Option<String> {
    let found: Vec<Spread> = run
        .items
        .iter()
        .filter_map(|item| {
            let figures = |name: &str| {
                let cell = run.cell(name, &item.id)?;
                Some(Figures::of(cell, |one| metric.of(one)).rounds)
            };
            ratios(&figures(&system.name)?, &figures(to)?)
        })
        .collect();
    let all = Spread::of(found.iter().map(|spread| spread.median))?;
    let least = number::ratio(all.min);
    let times = match number::ratio(all.max) {
        most if most == least => least,
        most => format!("{least} to {most}"),
    };
    let ahead = found.iter().filter(|spread| spread.min > 1.0).count();
    let behind = found.iter().filter(|spread| spread.max < 1.0).count();
    let neither = found.len() - ahead - behind;
    let counts = [
        (ahead, "more in every round of"),
        (behind, "less in every round of"),
        (neither, "no difference shown in"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{what} {count}")).collect();
    let works = if found.len() == 1 { "work" } else { "works" };
    Some(format!(
        "{}: {times} times {to}'s {} over {} {works} ({}).",
        system.name,
        metric.name(),
        found.len(),
        counts.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Scalar;

    /// With a title, and so many connections.
    fn item(title: &str, connections: f64) -> Item {
        Item {
            id: format!("{title}-{connections}"),
            title: title.to_owned(),
            parameters: [("connections".to_owned(), Scalar::Number(connections))].into(),
            ..Item::default()
        }
    }

    #[test]
    fn works_of_one_title_are_a_family_and_each_has_a_name_of_its_own() {
        let all =
            [("mget of 20", 1.0), ("mset of 20", 1.0), ("mget of 20", 9.0), ("mset of 20", 9.0)];
        let mut items = all.map(|(title, connections)| item(title, connections)).to_vec();
        items.push(item("alone", 1.0));
        let run = Run { items, ..Run::default() };
        let found = families(&run);
        let counts: Vec<(&str, usize)> =
            found.iter().map(|(title, items)| (title.as_str(), items.len())).collect();
        assert_eq!(counts, [("mget of 20", 2), ("mset of 20", 2), ("All", 1)]);
        let labels: Vec<String> = run.items.iter().map(|item| run.label(item)).collect();
        assert_eq!(labels[0], "mget of 20, connections 1");
        assert_eq!(labels[3], "mset of 20, connections 9");
        assert_eq!(labels[4], "alone");
    }
}
