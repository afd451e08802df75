//! Positions on the earth, which are scores of sorted sets.

pub(super) mod search;

use super::call::{Call, Fault, Outcome, SYNTAX};
use super::sorted::{self, Options};
use crate::algorithms::extended::Extended;
use crate::algorithms::geo::Position;
use crate::collections::score;
use crate::collections::sorted::Sorted;
use keyway_resp::reply;

/// Reads the longitude at `index` and the latitude behind it.
fn parse_position(call: &Call<'_>, index: usize) -> Result<Position, Fault> {
    let degrees = |index| score::parse(call.arg(index)).ok_or(sorted::NOT_A_FLOAT);
    let (longitude, latitude) = (degrees(index)?, degrees(index + 1)?);
    Position::new(longitude, latitude).ok_or_else(|| {
        Fault::Message(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
    })
}

/// The meters of the unit that argument `index` names.
fn parse_unit(call: &Call<'_>, index: usize) -> Result<f64, Fault> {
    match () {
        () if call.is(index, "m") => Ok(1.0),
        () if call.is(index, "km") => Ok(1000.0),
        () if call.is(index, "ft") => Ok(0.3048),
        () if call.is(index, "mi") => Ok(1609.34),
        () => Err(Fault::Text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// A distance with four decimals.
fn write_distance(distance: f64, out: &mut Vec<u8>) {
    const SCALE: u64 = 10_000;
    let scaled = (distance * SCALE as f64).round_ties_even() as u64;
    reply::bulk(out, format!("{}.{:04}", scaled / SCALE, scaled % SCALE).as_bytes());
}

fn write_position(call: &Call<'_>, position: Position, out: &mut Vec<u8>) {
    reply::array(out, 2);
    for degrees in [position.longitude, position.latitude] {
        call.turn.protocol.double(out, &Extended::of(degrees).format());
    }
}

/// GEOADD.
pub(super) fn geoadd(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut options = Options::default();
    let mut index = 2;
    loop {
        match () {
            () if call.is(index, "nx") => options.only_new = true,
            () if call.is(index, "xx") => options.only_old = true,
            () if call.is(index, "ch") => options.counts_changes = true,
            () => break,
        }
        index += 1;
    }
    let left = call.args.len().saturating_sub(index);
    if !left.is_multiple_of(3) || (options.only_new && options.only_old) {
        return Err(SYNTAX);
    }
    let places = (index..call.args.len()).step_by(3);
    let scores: Result<Vec<f64>, Fault> =
        places.map(|index| Ok(parse_position(call, index)?.score())).collect();
    let scores = scores?;
    if scores.is_empty() {
        return Err(SYNTAX);
    }
    sorted::add_all(call, options, scores, call.args_from(index + 2, 3), out)
}

/// GEODIST.
pub(super) fn geodist(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let unit = match call.args.len() {
        4 => 1.0,
        5 => parse_unit(call, 4)?,
        _ => return Err(SYNTAX),
    };
    sorted::read(call, |set| {
        let place = |index| set?.score(call.arg(index)).map(Position::of_score);
        match (place(2), place(3)) {
            (Some(one), Some(other)) => write_distance(one.distance(other) / unit, out),
            _ => call.turn.protocol.null(out),
        }
    })
}

/// Answers for each member from argument 2 on: where it is, or null.
fn answer_each(
    call: &Call<'_>,
    out: &mut Vec<u8>,
    mut answer: impl FnMut(Option<Position>, &mut Vec<u8>),
) -> Outcome {
    sorted::read(call, |set| {
        reply::array(out, call.args.len() - 2);
        for member in call.args_from(2, 1) {
            let score = set.as_ref().and_then(|set: &Sorted<'_>| set.score(member));
            answer(score.map(Position::of_score), out);
        }
    })
}

/// GEOHASH.
pub(super) fn geohash(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    answer_each(call, out, |position, out| match position {
        Some(position) => reply::bulk(out, &position.geohash()),
        None => call.turn.protocol.null(out),
    })
}

/// GEOPOS.
pub(super) fn geopos(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    answer_each(call, out, |position, out| match position {
        Some(position) => write_position(call, position, out),
        None => call.turn.protocol.null_array(out),
    })
}
