//! Who asked for shared memory and is given none is told so, once for each place.
#![allow(
    clippy::disallowed_types,
    reason = "taken when there is no shared memory, and for no longer than a look"
)]

use keyway_ring::Refusal;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Places that are remembered: of more nothing is told.
const PLACES_MAX: usize = 256;

type Hear = Arc<dyn Fn(&Path, Refusal) + Send + Sync>;

struct Told {
    places: BTreeSet<PathBuf>,
    /// A line on standard error without one.
    hear: Option<Hear>,
}

static TOLD: Mutex<Told> = Mutex::new(Told { places: BTreeSet::new(), hear: None });

/// Has `hear` told, instead of a line on standard error, that a server shares no memory with this process and is
/// spoken to over the unix socket of the same path: once for each path, by the thread that connects.
pub fn on_fallback(hear: impl Fn(&Path, Refusal) + Send + Sync + 'static) {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.hear = Some(Arc::new(hear));
}

/// Tells, if it was not told before.
pub fn tell(path: &Path, why: Refusal) {
    let hear = {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.places.len() >= PLACES_MAX || !told.places.insert(path.to_owned()) {
            return;
        }
        told.hear.clone()
    };
    match hear {
        Some(hear) => hear(path, why),
        None => eprintln!("keyway-client: {}", text(path, why)),
    }
}

/// What is told, as a line.
pub fn text(path: &Path, why: Refusal) -> String {
    format!("no shared memory at {}: {why}; its unix socket is used instead", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_place_is_told_of_once() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        on_fallback(|path, why| {
            assert_eq!(why, Refusal::User);
            assert!(text(path, why).contains("the user of this process may not"));
            COUNT.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..3 {
            tell(Path::new("/run/one"), Refusal::User);
            tell(Path::new("/run/other"), Refusal::User);
        }
        assert_eq!(COUNT.load(Ordering::Relaxed), 2);
        (0..2 * PLACES_MAX)
            .for_each(|nth| tell(&PathBuf::from(format!("/run/{nth}")), Refusal::User));
        assert_eq!(COUNT.load(Ordering::Relaxed), PLACES_MAX);
    }
}
