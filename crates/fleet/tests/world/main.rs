//! Whole fleets on virtual time: the simulator's own, compiled without the rest of it.

#[path = "../../../sim/src/fleet/mod.rs"]
mod fleet;
#[path = "../../../sim/src/random.rs"]
#[allow(dead_code, reason = "the simulator uses all of it")]
mod random;

use fleet::{run_fleet, run_many_fleets};

#[test]
fn no_seed_breaks_a_law() {
    let (total, violations) = run_many_fleets(0, 300);
    println!("{total}");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    // A world in which nothing goes wrong proves nothing.
    assert!(total.elections > 900 && total.documents > 900 && total.kills > 900, "{total}");
    assert!(total.rivals > 30 && total.refusals > 100 && total.unknown > 10, "{total}");
    assert!(total.restores > 20, "{total}");
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..5 {
        assert_eq!(run_fleet(seed, false).ok(), run_fleet(seed, true).ok());
    }
}
