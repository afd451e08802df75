//! Geo commands: distances and searches against plain trigonometry over all
//! places.

use crate::common::{Reply, run_words};
use crate::{START, words};
use keyway_store::{Store, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The radius of the earth that Redis takes, in metres.
const RADIUS: f64 = 6_372_797.560_856;
/// Largest distance of a position from where it was put: a cell of 52 bits is less than a metre
/// wide and long.
const CELL: f64 = 1.0;

type Place = (f64, f64);

fn distance(one: Place, other: Place) -> f64 {
    let (one, other) =
        ((one.0.to_radians(), one.1.to_radians()), (other.0.to_radians(), other.1.to_radians()));
    let across = ((other.0 - one.0) / 2.0).sin();
    let along = ((other.1 - one.1) / 2.0).sin();
    let chord = along * along + one.1.cos() * other.1.cos() * across * across;
    2.0 * RADIUS * chord.sqrt().min(1.0).asin()
}

fn any_place() -> impl Strategy<Value = Place> {
    prop_oneof![
        3 => (10.0..14.0f64, 50.0..53.0f64),
        1 => (-180.0..180.0f64, -85.0..85.0f64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_search_finds_what_plain_trigonometry_finds(
        places in proptest::collection::vec(any_place(), 1..150),
        center in any_place(),
        // Beyond some thousand kilometres Redis leaves some out near the poles.
        radius in prop_oneof![1.0..1000.0f64, 1000.0..500_000.0f64],
    ) {
        let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
        for (nth, (east, north)) in places.iter().enumerate() {
            let line = words(&format!("geoadd k {east} {north} p{nth}"));
            let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(run_words(&store, START, &line), Reply::Integer(1));
        }
        let line = format!("geosearch k fromlonlat {} {} byradius {radius} m", center.0, center.1);
        let line = words(&line);
        let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        let found: BTreeSet<Vec<u8>> = run_words(&store, START, &line).strings().into_iter().collect();
        for (nth, place) in places.iter().enumerate() {
            let away = distance(center, *place);
            let is_found = found.contains(format!("p{nth}").as_bytes());
            // At the very border either is right.
            let slack = CELL + away * 1e-9;
            prop_assert!(is_found == (away <= radius) || (away - radius).abs() <= slack, "{place:?}: {away}");
        }
        for (nth, place) in places.iter().enumerate().skip(1).step_by(7) {
            let line = words(&format!("geodist k p0 p{nth} m"));
            let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
            let Reply::Bulk(Some(text)) = run_words(&store, START, &line) else { panic!("no distance") };
            let told: f64 = String::from_utf8_lossy(&text).parse().expect("a number");
            let away = distance(places[0], *place);
            prop_assert!((told - away).abs() <= 2.0 * CELL + away * 1e-6, "{told} for {away}");
        }
    }
}
