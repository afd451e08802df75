//! Puts a server under a load of reads and a few writes.

use keyway_load::{Flow, Plan, Protocol, Target, Watch, Workload, parse_mix, run};

fn main() -> Result<(), keyway_load::Error> {
    let target = Target::new("127.0.0.1:6379".parse().expect("an address"), Protocol::Resp2);
    let workload = Workload::new("mixed", parse_mix("set:1,get:10")?);
    let watches: Vec<Watch> = Watch::of(&target.address).into_iter().collect();
    let outcome = run(&workload, &target, &Plan::default(), &watches, &mut |_| Flow::Continue)?;
    println!("{} requests/s, p99 {} us", outcome.totals.per_second, outcome.latency.p99_us);
    Ok(())
}
