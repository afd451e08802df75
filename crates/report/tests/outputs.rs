//! What a result becomes: tables, Markdown, CSV, JSON and the page.

mod sample;

use keyway_report::*;

#[test]
fn zz_write_samples() {
    let dir = std::path::Path::new("/tmp/lab/plots");
    write(&sample::proxies(5), &dir.join("proxies.json")).unwrap();
    for run in sample::others() {
        write(&run, &dir.join(format!("{}.json", run.scenario))).unwrap();
    }
}
