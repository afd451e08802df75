//! A scenario without surprises, in which what a request costs can be counted.

use super::*;

impl Scenario {
    /// Creates a scenario of some clients that ask one kind of request without end, on a network
    /// and servers without surprises.
    pub fn steady(mix: Mix, depth: usize, is_store: bool) -> Self {
        let pool = Pool { name: "pool".to_owned(), kind: steady_kind(is_store) };
        let client = steady_habits(mix, depth, is_store);
        Self {
            limits: Limits::default(),
            network: steady_network(),
            topology: Topology::new(Epoch(1), vec![pool]),
            knows_hello: vec![true],
            passwords: vec![None],
            workers: 1,
            clients: vec![client; 8],
            visitors: 0,
            last_clients: Vec::new(),
            starts: vec![START; 8],
            faults: Vec::new(),
            service: 5 * MICRO,
            drain_at: None,
            handovers: Vec::new(),
            exhaustions: Vec::new(),
            value_len_max: 4096,
            cluster: None,
            has_mutes: false,
            unread_max: 0,
            bound: None,
        }
    }
}

/// Returns a store, or a pool of three servers.
fn steady_kind(is_store: bool) -> PoolKind {
    let servers = ["10.0.0.0:6379", "10.0.0.1:6379", "10.0.0.2:6379"];
    let servers = servers.map(|line| Server::parse(line).expect("a server line")).to_vec();
    match is_store {
        true => PoolKind::Store,
        false => {
            let mut set = ServerSet::new(servers);
            set.options.timeout = Duration::from_secs(5);
            PoolKind::Sharded(set)
        }
    }
}

/// Returns the habits of a client that asks for ever, `depth` requests at a time.
fn steady_habits(mix: Mix, depth: usize, is_store: bool) -> Habits {
    Habits {
        pool: 0,
        listener: 0,
        is_store,
        mix,
        requests: u32::MAX,
        connections: 1,
        depth,
        batch: depth,
        pause: 100 * MICRO,
        read_len: 1 << 40,
        // Requests arrive whole.
        write_len: 1 << 40,
        value_len: 100,
        large_len: 100,
        keys: 20,
        tagged: false,
        databases: 1,
        password: None,
        cut_percent: 0,
        local_commands: false,
        may_move: false,
        may_be_killed: false,
        silences: false,
        stateful: false,
        channels: false,
        greets: false,
        tracks: false,
        lists: true,
        staleness: Staleness::Never,
        transaction_len_max: 0,
        prompt: None,
        may_be_ended: false,
        mute: None,
        is_loud: false,
        hoard: None,
    }
}

/// Returns a network that delivers every byte, soon and in whole pieces.
fn steady_network() -> NetworkOptions {
    NetworkOptions {
        latency: (10 * MICRO, 30 * MICRO),
        capacity: 64 << 10,
        read_len: 64 << 10,
        events_max: 256,
        short_writes: 0,
        splits: 0,
        reset_discards: false,
        dropped_edge: None,
        ring: None,
    }
}
