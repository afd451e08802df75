use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// The hash of keys and fields, which a secret decides.
pub(crate) struct Hasher(RapidSecrets);

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RapidSecrets::seed(seed))
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_micro_inline::<true, true>(key, &self.0)
    }
}
