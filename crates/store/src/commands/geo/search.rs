//! GEOSEARCH, GEORADIUS and their forms.

use super::super::call::{Call, Fault, Outcome, SYNTAX};
use super::super::sorted;
use super::{parse_position, parse_unit, write_distance, write_position};
use crate::algorithms::geo::{Extent, Position, Shape};
use crate::algorithms::partial_sort::sort_first;
use crate::collections::score;
use crate::collections::score::Bound;
use crate::collections::sorted::{ScoreRange, Sorted};
use crate::items::Kind;
use keyway_resp::reply;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// The form of the command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Form {
    Search,
    SearchStore,
    /// GEORADIUS, and if it stores nothing GEORADIUS_RO.
    Radius {
        stores: bool,
    },
    /// The same with BYMEMBER.
    RadiusByMember {
        stores: bool,
    },
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }

    /// Returns whether its options may name a key to store to.
    fn takes_target(self) -> bool {
        matches!(self, Self::Radius { stores: true } | Self::RadiusByMember { stores: true })
    }

    /// Arguments of the key to search and of the first option.
    fn layout(self) -> (usize, usize) {
        match self {
            Self::Search => (1, 2),
            Self::SearchStore => (2, 3),
            Self::Radius { .. } => (1, 6),
            Self::RadiusByMember { .. } => (1, 5),
        }
    }
}

/// The options of a search.
struct Query<'a> {
    form: Form,
    center: Option<Position>,
    from: Option<From>,
    /// With the meters of its unit.
    extent: Option<(Extent, f64)>,
    with_distance: bool,
    with_score: bool,
    with_position: bool,
    /// True if the last ones come first.
    reverse: Option<bool>,
    count: usize,
    any: bool,
    target: Option<&'a [u8]>,
    stores_distances: bool,
}

/// The way in which the center is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Member,
    Coordinates,
}

fn position_of(set: &Sorted<'_>, member: &[u8]) -> Result<Position, Fault> {
    let score = set.score(member);
    let score = score.ok_or(Fault::Text("ERR could not decode requested zset member"))?;
    Ok(Position::of_score(score))
}

fn parse_length(call: &Call<'_>, index: usize, fault: &'static str) -> Result<f64, Fault> {
    score::parse(call.arg(index)).ok_or(Fault::Text(fault))
}

fn parse_circle(call: &Call<'_>, index: usize) -> Result<(Extent, f64), Fault> {
    let radius = parse_length(call, index, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Fault::Text("ERR radius cannot be negative"));
    }
    Ok((Extent::Circle { radius }, parse_unit(call, index + 1)?))
}

fn parse_rectangle(call: &Call<'_>, index: usize) -> Result<(Extent, f64), Fault> {
    let width = parse_length(call, index, "ERR need numeric width")?;
    let height = parse_length(call, index + 1, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Fault::Text("ERR height or width cannot be negative"));
    }
    Ok((Extent::Rectangle { width, height }, parse_unit(call, index + 2)?))
}

impl<'a> Query<'a> {
    /// Reads the arguments, which may be about members of `set`.
    fn parse(call: &Call<'a>, form: Form, set: Option<&Sorted<'_>>) -> Result<Self, Fault> {
        let mut query = Self {
            form,
            center: None,
            from: None,
            extent: None,
            with_distance: false,
            with_score: false,
            with_position: false,
            reverse: None,
            count: 0,
            any: false,
            target: (form == Form::SearchStore).then(|| call.arg(1)),
            stores_distances: false,
        };
        match (form, set) {
            (Form::Radius { .. }, _) => {
                query.center = Some(parse_position(call, 2)?);
                query.extent = Some(parse_circle(call, 4)?);
            }
            (Form::RadiusByMember { .. }, Some(set)) => {
                query.center = Some(position_of(set, call.arg(2))?);
                query.extent = Some(parse_circle(call, 3)?);
            }
            _ => {}
        }
        let mut index = form.layout().1;
        while index < call.args.len() {
            index += match query.parse_plain(call, index) {
                true => 1,
                false => query.parse_option(call, index, set)?,
            };
        }
        query.check(call)?;
        Ok(query)
    }

    /// Reads an option of one word; whether it is one.
    fn parse_plain(&mut self, call: &Call<'_>, index: usize) -> bool {
        match () {
            () if call.is(index, "withdist") => self.with_distance = true,
            () if call.is(index, "withhash") => self.with_score = true,
            () if call.is(index, "withcoord") => self.with_position = true,
            () if call.is(index, "any") => self.any = true,
            () if call.is(index, "asc") => self.reverse = Some(false),
            () if call.is(index, "desc") => self.reverse = Some(true),
            () if self.form == Form::SearchStore && call.is(index, "storedist") => {
                self.stores_distances = true;
            }
            () => return false,
        }
        true
    }

    /// Reads an option with arguments; how many they are, with itself.
    fn parse_option(
        &mut self,
        call: &Call<'a>,
        index: usize,
        set: Option<&Sorted<'_>>,
    ) -> Result<usize, Fault> {
        let left = call.args.len() - index - 1;
        let is = |word, args| left >= args && call.is(index, word);
        if is("count", 1) {
            let count = call.integer(index + 1)?;
            if count <= 0 {
                return Err(Fault::Text("ERR COUNT must be > 0"));
            }
            self.count = usize::try_from(count).unwrap_or(usize::MAX);
            return Ok(2);
        }
        if self.form.takes_target() && (is("store", 1) || is("storedist", 1)) {
            self.target = Some(call.arg(index + 1));
            self.stores_distances = call.is(index, "storedist");
            return Ok(2);
        }
        if !self.form.is_search() {
            return Err(SYNTAX);
        }
        let is_rectangle = matches!(self.extent, Some((Extent::Rectangle { .. }, _)));
        let is_circle = self.extent.is_some() && !is_rectangle;
        match () {
            () if is("frommember", 1) && self.from != Some(From::Coordinates) => {
                self.from = Some(From::Member);
                if let Some(set) = set {
                    self.center = Some(position_of(set, call.arg(index + 1))?);
                }
                Ok(2)
            }
            () if is("fromlonlat", 2) && self.from != Some(From::Member) => {
                self.center = Some(parse_position(call, index + 1)?);
                self.from = Some(From::Coordinates);
                Ok(3)
            }
            () if is("byradius", 2) && !is_rectangle => {
                self.extent = Some(parse_circle(call, index + 1)?);
                Ok(3)
            }
            () if is("bybox", 3) && !is_circle => {
                self.extent = Some(parse_rectangle(call, index + 1)?);
                Ok(4)
            }
            () => Err(SYNTAX),
        }
    }

    /// Refuses what does not go together.
    fn check(&self, call: &Call<'_>) -> Outcome {
        let extras = self.with_distance || self.with_score || self.with_position;
        if self.target.is_some() && extras {
            return Err(Fault::Text(match self.form {
                Form::SearchStore => {
                    "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
                _ => {
                    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
            }));
        }
        let name = || String::from_utf8_lossy(call.arg(0));
        if self.form.is_search() && self.from.is_none() {
            return Err(Fault::Message(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
                name()
            )));
        }
        if self.form.is_search() && self.extent.is_none() {
            return Err(Fault::Message(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {}",
                name()
            )));
        }
        if self.any && self.count == 0 {
            return Err(Fault::Text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let (extent, unit) = self.extent?;
        Some(Shape { center: self.center?, extent, unit })
    }

    /// Returns the members of `set` that are found, in the order of the reply.
    fn run<'s>(&self, set: &Sorted<'s>) -> Vec<Found<'s>> {
        let Some(shape) = self.shape() else { return Vec::new() };
        let limit = if self.any { self.count } else { usize::MAX };
        let mut found = find(set, &shape, limit);
        let wanted = match self.count {
            0 => found.len(),
            count => count.min(found.len()),
        };
        // The nearest ones are meant if only some are.
        let sorts = self.count != 0 && !self.any;
        if let Some(reverse) = self.reverse.or(sorts.then_some(false)) {
            let order = |one: &Found<'_>, other: &Found<'_>| -> Ordering {
                let order = one.distance.total_cmp(&other.distance);
                if reverse { order.reverse() } else { order }
            };
            // Where equally far ones end up depends on how they are sorted.
            match wanted == found.len() {
                true => found.sort_by(order),
                false => sort_first(&mut found, wanted, order),
            }
        }
        found.truncate(wanted);
        found.iter_mut().for_each(|found| found.distance /= shape.unit);
        found
    }

    fn write(&self, call: &Call<'_>, found: &[Found<'_>], out: &mut Vec<u8>) {
        let extras = [self.with_distance, self.with_score, self.with_position];
        let extras = extras.into_iter().filter(|wanted| *wanted).count();
        reply::array(out, found.len());
        for found in found {
            if extras > 0 {
                reply::array(out, extras + 1);
            }
            reply::bulk(out, found.member);
            if self.with_distance {
                write_distance(found.distance, out);
            }
            if self.with_score {
                reply::integer(out, found.score as i64);
            }
            if self.with_position {
                write_position(call, found.position, out);
            }
        }
    }
}

/// A member in the area.
struct Found<'a> {
    member: &'a [u8],
    score: f64,
    position: Position,
    /// In meters, and in the end in the unit that was asked for.
    distance: f64,
}

/// The members of `set` in the area, in the order in which its cells are
/// looked at, until there are `limit`.
fn find<'a>(set: &Sorted<'a>, shape: &Shape, limit: usize) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for (from, to) in shape.score_ranges() {
        if found.len() >= limit {
            break;
        }
        let bound = |score, excluded| Bound { score, excluded };
        let ranks = set.ranks_of(&ScoreRange { min: bound(from, false), max: bound(to, true) });
        set.visit_ranks(ranks, false, |member, score| {
            let position = Position::of_score(score);
            if let Some(distance) = shape.distance(position) {
                found.push(Found { member, score, position, distance });
            }
            match found.len() >= limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    }
    found
}

/// The keys that a command may be about: more of them than it is if words of
/// options are names.
fn keys<'a>(call: &Call<'a>, form: Form) -> impl Iterator<Item = &'a [u8]> {
    let (call, (source_at, options_at)) = (*call, form.layout());
    let targets = (options_at..call.args.len()).filter(move |index| {
        form.takes_target() && (call.is(*index, "store") || call.is(*index, "storedist"))
    });
    let targets = targets.map(move |index| call.arg(index + 1));
    (1..=source_at).map(move |index| call.arg(index)).chain(targets)
}

/// All of them.
pub(in super::super) fn search(call: &Call<'_>, form: Form, out: &mut Vec<u8>) -> Outcome {
    let source = call.arg(form.layout().0);
    let mut locked = call.store.lock_keys(keys(call, form));
    locked.entry(call.turn, source).read_as::<Sorted<'_>>()?;
    let set = locked.look_at::<Sorted<'_>>(call.turn, source)?;
    let query = Query::parse(call, form, set.as_ref())?;
    let found = set.map_or_else(Vec::new, |set| query.run(&set));
    let Some(target) = query.target else {
        query.write(call, &found, out);
        return Ok(());
    };
    // The target may be the one that was searched.
    let pairs: Vec<(f64, Vec<u8>)> = found
        .iter()
        .map(|found| {
            let score = if query.stores_distances { found.distance } else { found.score };
            (score, found.member.to_vec())
        })
        .collect();
    let event = if form.is_search() { "geosearchstore" } else { "georadiusstore" };
    let len = sorted::stored_len(pairs.iter().map(|(_, member)| &member[..]));
    let _room = call.reserve_for_made(&mut locked, target, len)?;
    locked.entry(call.turn, target).replace(Kind::Sorted, event, |editor| {
        for (score, member) in &pairs {
            sorted::set_score(editor, member, *score);
        }
    });
    reply::integer(out, pairs.len() as i64);
    Ok(())
}
