//! Positions on the earth as scores of sorted sets, and the cells around a
//! place that a search has to look at.
//!
//! A score has 26 bits of longitude and 26 of latitude in turn, so that scores
//! with the same first bits are in the same cell of a grid. Everything is
//! computed in the order in which Redis computes it: results are compared to
//! its last bit.

use std::f64::consts::PI;

const RADIANS_PER_DEGREE: f64 = PI / 180.0;
const EARTH_RADIUS_METERS: f64 = 6_372_797.560_856;
/// The half width of the projection that gives cells their size, in meters.
const PROJECTION_METERS: f64 = 20_037_726.37;
/// Bits of each coordinate in a score.
const STEPS_MAX: u32 = 26;

/// The coordinates that can be told, by degrees.
#[derive(Clone, Copy)]
struct Bounds {
    longitude: f64,
    latitude: f64,
}

/// The coordinates that the projection covers.
const WORLD: Bounds = Bounds { longitude: 180.0, latitude: 85.051_128_78 };
/// The coordinates that a geohash as text covers.
const GLOBE: Bounds = Bounds { longitude: 180.0, latitude: 90.0 };

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

/// Every other bit, the lowest included.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The bits of a number, with a gap behind each.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in SPREADS {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The bits at even places, without the gaps.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN;
    for (at, (shift, _)) in SPREADS.iter().enumerate().rev() {
        let mask = if at == 0 { u64::from(u32::MAX) } else { SPREADS[at - 1].1 };
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

const SPREADS: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, EVEN),
];

/// As the processor makes integers of numbers that may not fit.
fn to_bits(score: f64) -> u64 {
    const TOP: f64 = (1u64 << 63) as f64;
    let convert =
        |number: f64| if (-TOP..TOP).contains(&number) { number as i64 } else { i64::MIN };
    if score < TOP { convert(score) as u64 } else { convert(score - TOP) as u64 ^ 1 << 63 }
}

impl Position {
    /// The position of a pair of numbers, if it can be told.
    pub(crate) fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_known = longitude.abs() <= WORLD.longitude && latitude.abs() <= WORLD.latitude;
        is_known.then_some(Self { longitude, latitude })
    }

    /// The middle of the cell of a score, which may be any number.
    pub(crate) fn of_score(score: f64) -> Self {
        let area = Cell { bits: to_bits(score), steps: STEPS_MAX }.area();
        let middle = |(min, max): (f64, f64), bound: f64| ((min + max) / 2.0).clamp(-bound, bound);
        Self {
            longitude: middle(area.longitude, WORLD.longitude),
            latitude: middle(area.latitude, WORLD.latitude),
        }
    }

    /// The score of a member that is here.
    pub(crate) fn score(self) -> f64 {
        self.cell(STEPS_MAX, WORLD).bits as f64
    }

    fn cell(self, steps: u32, bounds: Bounds) -> Cell {
        let scale = |coordinate: f64, bound: f64| {
            let share = (coordinate + bound) / (bound + bound);
            (share * (1u64 << steps) as f64) as u32
        };
        let latitude = spread(scale(self.latitude, bounds.latitude));
        let longitude = spread(scale(self.longitude, bounds.longitude));
        Cell { bits: latitude | longitude << 1, steps }
    }

    /// The geohash that is known elsewhere: ten letters, and a last one that
    /// says nothing.
    pub(crate) fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = self.cell(STEPS_MAX, GLOBE).bits;
        let mut letters = [b'0'; 11];
        for (at, letter) in letters[..10].iter_mut().enumerate() {
            *letter = LETTERS[(bits >> (47 - 5 * at) & 0x1f) as usize];
        }
        letters
    }

    /// Returns the distance to another position, in meters.
    pub(crate) fn distance(self, other: Self) -> f64 {
        let radians = |degrees: f64| degrees * RADIANS_PER_DEGREE;
        let across = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if across == 0.0 {
            return self.distance_north(other);
        }
        let (one, two) = (radians(self.latitude), radians(other.latitude));
        let along = ((two - one) / 2.0).sin();
        let square = along * along + one.cos() * two.cos() * across * across;
        // Rounding must not send anything beyond the other end of the earth.
        2.0 * EARTH_RADIUS_METERS * square.sqrt().min(1.0).asin()
    }

    fn distance_north(self, other: Self) -> f64 {
        let (one, two) = (self.latitude * RADIANS_PER_DEGREE, other.latitude * RADIANS_PER_DEGREE);
        EARTH_RADIUS_METERS * (two - one).abs()
    }
}

/// A square of a grid with `2^steps` squares a side.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    bits: u64,
    steps: u32,
}

/// From where to where, in degrees.
#[derive(Clone, Copy)]
struct Area {
    longitude: (f64, f64),
    latitude: (f64, f64),
}

impl Cell {
    fn area(self) -> Area {
        let range = |index: u32, bound: f64| {
            let scale = bound + bound;
            let edge =
                |index: u32| -bound + (f64::from(index) / (1u64 << self.steps) as f64) * scale;
            (edge(index), edge(index.wrapping_add(1)))
        };
        Area {
            longitude: range(gather(self.bits >> 1), WORLD.longitude),
            latitude: range(gather(self.bits), WORLD.latitude),
        }
    }

    /// The cell some columns to the east and rows to the north, each -1 to 1,
    /// around the edges of the world.
    fn neighbor(self, east: i32, north: i32) -> Self {
        let ends = u64::MAX >> (64 - 2 * self.steps);
        let moved = |bits: u64, own: u64, by: i32| {
            let gaps = !own & ends;
            let bits = bits & own;
            match by {
                0 => bits,
                1 => bits.wrapping_add(gaps + 1) & own & ends,
                _ => (bits | gaps).wrapping_sub(gaps + 1) & own & ends,
            }
        };
        let longitude = moved(self.bits, !EVEN, east);
        Self { bits: longitude | moved(self.bits, EVEN, north), steps: self.steps }
    }

    /// The scores in it, the last one excluded.
    fn scores(self) -> (f64, f64) {
        let align = |bits: u64| (bits << (2 * (STEPS_MAX - self.steps))) as f64;
        (align(self.bits), align(self.bits + 1))
    }
}

/// The extent of a search, in the units of its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

/// An area around a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) center: Position,
    pub(crate) extent: Extent,
    /// Meters that one unit has.
    pub(crate) unit: f64,
}

impl Shape {
    /// Returns the distance of a position from the center, in meters, if the position is inside.
    pub(crate) fn distance(&self, place: Position) -> Option<f64> {
        let distance = self.center.distance(place);
        let is_inside = match self.extent {
            Extent::Circle { radius } => distance <= radius * self.unit,
            Extent::Rectangle { width, height } => {
                let beside = Position { longitude: self.center.longitude, ..place };
                place.distance_north(self.center) <= height * self.unit / 2.0
                    && place.distance(beside) <= width * self.unit / 2.0
            }
        };
        is_inside.then_some(distance)
    }

    /// Half its width and its height in meters.
    fn reach(&self) -> (f64, f64) {
        match self.extent {
            Extent::Circle { radius } => (self.unit * radius, self.unit * radius),
            Extent::Rectangle { width, height } => {
                (self.unit * (width / 2.0), self.unit * (height / 2.0))
            }
        }
    }

    /// The area that encloses it.
    fn area(&self) -> Area {
        let degrees = |radians: f64| radians / RADIANS_PER_DEGREE;
        let (width, height) = self.reach();
        let Position { longitude, latitude } = self.center;
        let north = degrees(height / EARTH_RADIUS_METERS);
        // Where the circles of latitude are shorter.
        let farthest = if latitude < 0.0 { latitude - north } else { latitude + north };
        let cosine = (farthest * RADIANS_PER_DEGREE).cos();
        let east = degrees(width / EARTH_RADIUS_METERS / cosine);
        Area {
            longitude: (longitude - east, longitude + east),
            latitude: (latitude - north, latitude + north),
        }
    }

    /// Returns the bits of each coordinate for a grid whose cells are about as large as the shape.
    fn steps(&self) -> u32 {
        let mut meters = match self.extent {
            Extent::Circle { radius } => radius,
            Extent::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        } * self.unit;
        if meters == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = -1;
        while meters < PROJECTION_METERS {
            meters *= 2.0;
            steps += 1;
        }
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }

    /// The scores that members inside can have, as ranges without their ends,
    /// in the order in which they are searched.
    pub(crate) fn score_ranges(&self) -> impl Iterator<Item = (f64, f64)> {
        let bounds = self.area();
        let mut cell = self.center.cell(self.steps(), WORLD);
        if cell.steps > 1 && !cell.surrounds(&bounds) {
            cell = self.center.cell(cell.steps - 1, WORLD);
        }
        let area = cell.area();
        let is_needed = move |(east, north): (i32, i32)| {
            cell.steps < 2
                || !(north < 0 && area.latitude.0 < bounds.latitude.0
                    || north > 0 && area.latitude.1 > bounds.latitude.1
                    || east < 0 && area.longitude.0 < bounds.longitude.0
                    || east > 0 && area.longitude.1 > bounds.longitude.1)
        };
        let around = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut last = None;
        let neighbors = around.into_iter().filter(move |place| is_needed(*place)).filter_map(
            move |(east, north)| {
                let neighbor = cell.neighbor(east, north);
                // In a coarse grid there is the same one on both sides.
                (last.replace(neighbor) != Some(neighbor)).then_some(neighbor)
            },
        );
        std::iter::once(cell).chain(neighbors).map(Cell::scores)
    }
}

impl Cell {
    /// Returns whether this cell and those beside it hold all of an area.
    fn surrounds(self, area: &Area) -> bool {
        let (north, south) = (self.neighbor(0, 1).area(), self.neighbor(0, -1).area());
        let (east, west) = (self.neighbor(1, 0).area(), self.neighbor(-1, 0).area());
        // An area without ends is held by any.
        !(north.latitude.1 < area.latitude.1
            || south.latitude.0 > area.latitude.0
            || east.longitude.1 < area.longitude.1
            || west.longitude.0 > area.longitude.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anywhere() -> impl Strategy<Value = Position> {
        (-180.0..180.0, -85.05..85.05)
            .prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    #[test]
    fn palermo_is_where_the_manual_says() {
        let palermo = Position::new(13.361_389, 38.115_556).unwrap();
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(&Position::of_score(palermo.score()).geohash(), b"sqc8b49rny0");
        let catania = Position::new(15.087_269, 37.502_669).unwrap();
        let (one, other) =
            (Position::of_score(palermo.score()), Position::of_score(catania.score()));
        assert_eq!(format!("{:.4}", one.distance(other)), "166274.1516");
    }

    #[test]
    fn what_is_off_the_map_is_no_position() {
        for (longitude, latitude) in
            [(180.1, 0.0), (0.0, 85.06), (f64::NAN, 0.0), (0.0, f64::NEG_INFINITY)]
        {
            assert_eq!(Position::new(longitude, latitude), None);
        }
        assert!(Position::new(-180.0, 85.051_128_78).is_some());
    }

    proptest! {
        #[test]
        fn a_score_is_less_than_a_meter_off(place in anywhere()) {
            prop_assert!(place.distance(Position::of_score(place.score())) < 1.0);
        }

        #[test]
        fn any_score_is_some_position(score in proptest::num::f64::ANY) {
            let place = Position::of_score(score);
            prop_assert!(Position::new(place.longitude, place.latitude).is_some());
            let far = Position { longitude: 180.0, latitude: 0.0 };
            prop_assert!(place.distance(far).is_finite());
        }

        #[test]
        fn bits_spread_and_gather(number: u32, other: u32) {
            let bits = spread(number) | spread(other) << 1;
            prop_assert_eq!((gather(bits), gather(bits >> 1)), (number, other));
        }

        #[test]
        fn what_is_near_is_in_a_range(
            center in anywhere(),
            turn in (-1.0..1.0, -1.0..1.0),
            meters in 1.0..300_000.0,
        ) {
            let (east, north): (f64, f64) = turn;
            let degrees = meters / 111_000.0;
            let place = Position {
                longitude: center.longitude + east * degrees,
                latitude: center.latitude + north * degrees,
            };
            prop_assume!(place.longitude.abs() < 180.0 && place.latitude.abs() < 85.0);
            // Near the poles the grid is too fine for wide areas, in Redis too.
            prop_assume!(center.latitude.abs() < 66.0);
            let shape = Shape { center, extent: Extent::Circle { radius: meters }, unit: 1.0 };
            let score = place.score();
            let is_found =
                shape.score_ranges().any(|(from, to)| (from..to).contains(&score));
            prop_assert!(is_found || shape.distance(Position::of_score(score)).is_none());
        }

        #[test]
        fn neighbors_are_neighbors(place in anywhere(), steps in 1..=26u32) {
            let cell = place.cell(steps, WORLD);
            for (east, north) in [(1, 0), (0, 1), (-1, 1), (1, -1), (-1, -1)] {
                let there = cell.neighbor(east, north);
                prop_assert_eq!(there.neighbor(-east, -north), cell);
            }
        }
    }
}
