use super::*;

#[test]
fn each_fault_label_has_one_counter_of_its_own() {
    let counters = FaultCounters::default();
    for (n, fault) in FAULTS.iter().enumerate() {
        counters.of(*fault).add(n as u64 + 1);
    }
    for (n, fault) in FAULTS.iter().enumerate() {
        assert_eq!(counters.of(*fault).get(), n as u64 + 1, "{}", fault.label());
    }
    let mut labels: Vec<_> = FAULTS.iter().map(|fault| fault.label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), FAULTS.len());
}

#[test]
fn faults_with_one_label_share_a_counter() {
    let counters = FaultCounters::default();
    let timeout = |sent| Fault::Backend { fault: BackendFault::Timeout, sent };
    counters.of(timeout(Sent::No)).add(1);
    counters.of(timeout(Sent::Maybe)).add(1);
    assert_eq!(counters.of(timeout(Sent::No)).get(), 2);
    assert_eq!(counters.sum(), 2);
}

#[test]
fn each_close_reason_has_one_counter_of_its_own() {
    let counters = CloseCounters::default();
    for reason in CloseReason::ALL {
        counters.of(reason).add(1);
    }
    assert!(CloseReason::ALL.iter().all(|reason| counters.of(*reason).get() == 1));
}

#[test]
fn cells_stay_within_their_memory() {
    assert!(std::mem::size_of::<ClassCells>() <= 1600);
    assert!(std::mem::size_of::<BackendCells>() <= 1664);
}
