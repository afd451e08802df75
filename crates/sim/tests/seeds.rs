//! Many seeds, each a whole life of one or two workers.

use keyway_sim::{Options, run_many, run_seed};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 600;

#[test]
fn no_seed_breaks_a_law() {
    let summary = run_many(0, SEEDS);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation}");
    }
    assert_eq!(summary.violation_count, 0);
    // A simulator in which nothing goes wrong proves nothing.
    assert!(summary.total.excused > 10 * summary.seeds);
    assert!(summary.total.commits > 5 * summary.seeds);
    assert!(summary.total.deliveries > summary.seeds);
    assert!(summary.total.messages > 5 * summary.seeds);
    assert!(summary.total.invalidations > 3 * summary.seeds);
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..30 {
        let once = run_seed(seed, &Options::default()).map_err(|violation| violation.text);
        let told = Options { story: true, ..Options::default() };
        let again = run_seed(seed, &told).map_err(|violation| violation.text);
        assert_eq!(once, again, "seed {seed}");
    }
}
