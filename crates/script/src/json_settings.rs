//! The settings of `cjson` that a script has changed.

use std::cell::Cell;

/// Largest depth of nesting of values, whatever a script sets: each level takes stack.
pub(crate) const DEPTH_MAX: usize = 1_000;

/// The settings of a script. They are reset at its end.
#[derive(Clone, Debug)]
pub(crate) struct JsonSettings {
    pub(crate) converts_sparse: Cell<bool>,
    pub(crate) sparse_ratio: Cell<usize>,
    pub(crate) sparse_safe: Cell<usize>,
    pub(crate) encode_depth: Cell<usize>,
    pub(crate) decode_depth: Cell<usize>,
    pub(crate) precision: Cell<usize>,
    pub(crate) keeps_buffer: Cell<bool>,
    /// `None`: written as null.
    pub(crate) encodes_invalid: Cell<Option<bool>>,
    pub(crate) decodes_invalid: Cell<bool>,
}

impl JsonSettings {
    /// Resets all settings.
    pub(crate) fn reset(&self) {
        let all = Self::default();
        self.converts_sparse.set(all.converts_sparse.get());
        self.sparse_ratio.set(all.sparse_ratio.get());
        self.sparse_safe.set(all.sparse_safe.get());
        self.encode_depth.set(all.encode_depth.get());
        self.decode_depth.set(all.decode_depth.get());
        self.precision.set(all.precision.get());
        self.keeps_buffer.set(all.keeps_buffer.get());
        self.encodes_invalid.set(all.encodes_invalid.get());
        self.decodes_invalid.set(all.decodes_invalid.get());
    }
}

impl Default for JsonSettings {
    fn default() -> Self {
        Self {
            converts_sparse: Cell::new(false),
            sparse_ratio: Cell::new(2),
            sparse_safe: Cell::new(10),
            encode_depth: Cell::new(DEPTH_MAX),
            decode_depth: Cell::new(DEPTH_MAX),
            precision: Cell::new(14),
            keeps_buffer: Cell::new(true),
            encodes_invalid: Cell::new(Some(false)),
            decodes_invalid: Cell::new(true),
        }
    }
}
