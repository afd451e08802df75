//! Whole fleets on virtual time: the simulator's own, compiled without the rest of it.

#[path = "../../../sim/src/fleet/mod.rs"]
mod fleet;
#[path = "../../../sim/src/random.rs"]
#[allow(dead_code, reason = "the simulator uses all of it")]
mod random;

use fleet::{run_fleet, run_many_fleets};

/// The simulator runs more.
const SEEDS: u64 = 60;

#[test]
fn no_seed_breaks_a_law() {
    let (total, violations) = run_many_fleets(0, SEEDS);
    println!("{total}");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    // A world in which nothing goes wrong proves nothing.
    assert!(total.elections > SEEDS && total.documents > SEEDS && total.kills > SEEDS, "{total}");
    assert!(total.refusals > SEEDS / 10 && total.rivals > 0 && total.unknown > 0, "{total}");
    assert!(total.restores > 0, "{total}");
    assert!(total.failovers > SEEDS / 2 && total.switches > 0, "{total}");
    assert!(total.audited > 5 * SEEDS && total.refused > SEEDS && total.events > SEEDS, "{total}");
    assert!(total.rollouts > SEEDS / 4 && total.went_on > 0 && total.went_back > 0, "{total}");
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..5 {
        assert_eq!(run_fleet(seed, false).ok(), run_fleet(seed, true).ok());
    }
}
