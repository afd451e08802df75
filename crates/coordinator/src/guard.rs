use crate::{Fault, FaultKind, Mark, Revision};
use parking_lot::Mutex;

/// Remembers the newest state that was seen, and refuses an older one.
#[derive(Debug)]
pub(crate) struct Guard {
    place: String,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    mark: Option<Mark>,
    /// Once refused, everything is: the state may have gone on from the old one meanwhile.
    refused: Option<Fault>,
}

impl Guard {
    /// Begins with what the caller has kept.
    pub(crate) fn new(place: impl Into<String>, mark: Option<Mark>) -> Guard {
        Guard { place: place.into(), seen: Mutex::new(Seen { mark, refused: None }) }
    }

    /// Returns the newest state that was seen.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.seen.lock().mark
    }

    /// Returns the revision that every answer to a request of now must have reached.
    ///
    /// # Errors
    /// Returns the earlier refusal.
    pub(crate) fn floor(&self) -> Result<Revision, Fault> {
        let seen = self.seen.lock();
        match &seen.refused {
            Some(fault) => Err(fault.clone()),
            None => Ok(seen.mark.map_or(Revision(0), |mark| mark.revision)),
        }
    }

    /// Takes the state of an answer whose request was sent at this [`Guard::floor`].
    ///
    /// # Errors
    /// Returns [`FaultKind::RolledBack`] if the state is older, or of another cluster.
    pub(crate) fn see(&self, floor: Revision, now: Mark) -> Result<(), Fault> {
        let mut seen = self.seen.lock();
        if let Some(fault) = &seen.refused {
            return Err(fault.clone());
        }
        let what = match seen.mark {
            Some(mark) if mark.cluster != now.cluster => {
                format!("this is cluster {:016x}, and it was {:016x}", now.cluster, mark.cluster)
            }
            _ if now.revision < floor => {
                format!("the revision is {}, and it was {floor} already", now.revision)
            }
            mark => {
                let newest = mark.map_or(now.revision, |mark| mark.revision.max(now.revision));
                seen.mark = Some(Mark { cluster: now.cluster, revision: newest });
                return Ok(());
            }
        };
        let fault = Fault::new(FaultKind::RolledBack, &self.place, "look at the state", what);
        seen.refused = Some(fault.clone());
        Err(fault)
    }

    /// Refuses everything from now on, as the state is gone.
    pub(crate) fn refuse(&self, fault: &Fault) {
        self.seen.lock().refused.get_or_insert_with(|| fault.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(cluster: u64, revision: u64) -> Mark {
        Mark { cluster, revision: Revision(revision) }
    }

    #[test]
    fn an_older_state_is_refused_for_good() {
        let guard = Guard::new("here", Some(mark(1, 10)));
        let floor = guard.floor().unwrap();
        assert_eq!(guard.see(floor, mark(1, 10)), Ok(()));
        assert_eq!(guard.see(floor, mark(1, 12)), Ok(()));
        // An answer that was late, to a request from before.
        assert_eq!(guard.see(floor, mark(1, 11)), Ok(()));
        let floor = guard.floor().unwrap();
        assert_eq!(floor, Revision(12));
        let fault = guard.see(floor, mark(1, 11)).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::RolledBack);
        assert_eq!(guard.see(floor, mark(1, 20)), Err(fault.clone()));
        assert_eq!(guard.floor(), Err(fault));
    }

    #[test]
    fn another_cluster_is_refused() {
        let guard = Guard::new("here", None);
        assert_eq!(guard.see(Revision(0), mark(1, 10)), Ok(()));
        let fault = guard.see(Revision(0), mark(2, 50)).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::RolledBack);
    }
}
