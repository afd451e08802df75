use crate::Server;
use crate::hash::md5_digest_words;

/// How the hash of a key leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Consistent hashing: a server that comes or goes moves only its own
    /// share of the keys.
    Ketama,
    /// The hash modulo the sum of the weights: a server that comes or goes
    /// moves nearly every key.
    Modula,
    /// Any server, whatever the key and whatever the weights.
    Random,
}

impl Distribution {
    /// Every distribution.
    pub const ALL: [Distribution; 3] =
        [Distribution::Ketama, Distribution::Modula, Distribution::Random];

    /// The name in configuration files, ours and twemproxy's.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Ketama => "ketama",
            Distribution::Modula => "modula",
            Distribution::Random => "random",
        }
    }

    /// The distribution called `name`.
    pub fn from_name(name: &str) -> Option<Distribution> {
        Distribution::ALL.into_iter().find(|distribution| distribution.name() == name)
    }
}

/// The servers of a pool that take requests, arranged for lookup by hash.
/// Built anew whenever a server is ejected or rejoins.
///
/// Servers are named by their index in the slice the ring was built from, live
/// or not. With no live server nothing is picked: as in twemproxy, requests are
/// then refused rather than sent to an ejected server.
#[derive(Clone, Debug)]
pub struct Ring {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Empty,
    Ketama(Points),
    Modula(Shares),
    Random(Vec<u16>),
}

impl Ring {
    /// Arranges those of `servers` for which `live` holds.
    ///
    /// # Panics
    /// With more than 65,535 servers: the configuration bounds them.
    pub fn build(
        distribution: Distribution,
        servers: &[Server],
        live: impl Fn(usize) -> bool,
    ) -> Ring {
        assert!(servers.len() <= usize::from(u16::MAX), "more servers than an index can name");
        let members: Vec<u16> = (0..servers.len() as u16).filter(|&i| live(i.into())).collect();
        let kind = match distribution {
            _ if members.is_empty() => Kind::Empty,
            Distribution::Ketama => Kind::Ketama(Points::build(servers, &members)),
            Distribution::Modula => Kind::Modula(Shares::build(servers, &members)),
            Distribution::Random => Kind::Random(members),
        };
        Ring { kind }
    }

    /// The index of the server for a key of this `hash`; `None` when no server
    /// is live. `random` is a fresh number of uniform distribution, used by
    /// [`Distribution::Random`] alone.
    #[inline]
    pub fn pick(&self, hash: u32, random: u32) -> Option<u16> {
        match &self.kind {
            Kind::Empty => None,
            Kind::Ketama(points) => Some(points.pick(hash)),
            Kind::Modula(shares) => Some(shares.pick(hash)),
            Kind::Random(members) => {
                let chosen = (u64::from(random) * members.len() as u64) >> 32;
                Some(members[chosen as usize])
            }
        }
    }

    /// Whether no server is live.
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }
}

/// Points of the average server; one of twice the weight gets twice as many.
const POINTS_PER_SERVER: u32 = 160;
/// Points that one MD5 digest yields.
const POINTS_PER_DIGEST: u32 = 4;
/// twemproxy formats the text of a point into 273 bytes, the last one a NUL.
const POINT_NAME_LEN_MAX: usize = 272;

/// One server's claim to the hashes up to and including `value`, from the point
/// before.
#[derive(Clone, Copy, Debug)]
struct Point {
    value: u32,
    server: u16,
}

/// A ketama continuum. Points are looked up from a table that knows, for each
/// value of a hash's top bits, the first point that can matter; MD5 spreads the
/// points so evenly that the answer is rarely more than two steps on. A binary
/// search over 640 points takes ten mispredicted ones.
#[derive(Clone, Debug)]
struct Points {
    /// By value, no value twice, then one at `u32::MAX` that leads back to the
    /// first.
    points: Vec<Point>,
    /// For each bucket of hashes, the first point not below all of them.
    starts: Vec<u32>,
    /// From a hash to its bucket.
    shift: u32,
}

impl Points {
    fn build(servers: &[Server], members: &[u16]) -> Points {
        let mut points = place_points(servers, members);
        // Stable: of two equal points the one placed first counts.
        points.sort_by_key(|point| point.value);
        points.dedup_by_key(|point| point.value);
        points.push(Point { value: u32::MAX, server: points[0].server });
        let bits = (points.len() * 2).next_power_of_two().ilog2();
        let shift = u32::BITS - bits;
        let starts = (0..1u64 << bits)
            .map(|bucket| {
                let lowest = (bucket << shift) as u32;
                points.partition_point(|point| point.value < lowest) as u32
            })
            .collect();
        Points { points, starts, shift }
    }

    #[inline]
    fn pick(&self, hash: u32) -> u16 {
        let start = self.starts[(hash >> self.shift) as usize] as usize;
        for point in &self.points[start..] {
            if point.value >= hash {
                return point.server;
            }
        }
        // No hash is above the last point, `u32::MAX`.
        self.points[0].server
    }
}

/// The points of every member, in the order of the servers.
fn place_points(servers: &[Server], members: &[u16]) -> Vec<Point> {
    let weight = |&member: &u16| servers[usize::from(member)].weight;
    let total_weight = members.iter().map(|member| u64::from(weight(member))).sum();
    let mut points = Vec::new();
    for &server in members {
        let ring_name = servers[usize::from(server)].ring_name();
        for digest in 0..digests_of_share(weight(&server), total_weight, members.len()) {
            let name = format!("{ring_name}-{digest}");
            let name = &name.as_bytes()[..name.len().min(POINT_NAME_LEN_MAX)];
            points.extend(md5_digest_words(name).map(|value| Point { value, server }));
        }
    }
    if points.is_empty() {
        points.extend(members.iter().map(|&server| Point { value: 0, server }));
    }
    points
}

/// How many digests' worth of points a server of `weight` gets. The rounding is
/// part of the placement: single precision throughout but for one addition in
/// double precision.
fn digests_of_share(weight: u32, total_weight: u64, live_count: usize) -> u32 {
    let share = weight as f32 / total_weight as f32;
    let digests = share * POINTS_PER_SERVER as f32 / POINTS_PER_DIGEST as f32 * live_count as f32;
    (f64::from(digests) + 0.000_000_000_1) as f32 as u32
}

/// The hash modulo the sum of the weights, each server owning as many remainders
/// in a row as its weight.
#[derive(Clone, Debug)]
struct Shares {
    /// One past each member's last remainder, with the member.
    ends: Vec<(u64, u16)>,
    total: u64,
}

impl Shares {
    fn build(servers: &[Server], members: &[u16]) -> Shares {
        let mut total = 0;
        let ends = members
            .iter()
            .map(|&member| {
                total += u64::from(servers[usize::from(member)].weight);
                (total, member)
            })
            .collect();
        Shares { ends, total }
    }

    #[inline]
    fn pick(&self, hash: u32) -> u16 {
        let remainder = u64::from(hash) % self.total;
        self.ends[self.ends.partition_point(|&(end, _)| end <= remainder)].1
    }
}
