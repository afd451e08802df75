//! The kinds of pools.

use super::kind::Choices;
use crate::kinds::WORDS;

pub(super) const POOL_KINDS: Choices = Choices { now: &WORDS, later: &[] };
