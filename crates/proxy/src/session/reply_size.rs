use keyway_base::Limits;

/// The length of the largest of a client's recent replies, in bytes, which decays. It limits the
/// number of requests in flight of a client that asks for large values.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplySize(u32);

/// Smallest number of requests in flight of a session, however large its replies are.
const IN_FLIGHT_MIN: usize = 4;

/// Largest number of requests in flight before the first reply. It is large enough not to slow down
/// the start of a pipeline, and too small to fill the memory with large replies.
const IN_FLIGHT_UNKNOWN: usize = 64;

impl ReplySize {
    /// Returns how many requests may be in flight.
    #[inline]
    pub fn in_flight_max(self, limits: &Limits) -> usize {
        let most = limits.session_in_flight_max as usize;
        match self.0 {
            0 => IN_FLIGHT_UNKNOWN.min(most),
            1..=1024 => most,
            len => {
                let budget = limits.session_replies_len_max();
                ((budget / u64::from(len)) as usize).clamp(IN_FLIGHT_MIN.min(most), most)
            }
        }
    }

    /// Returns the length of the largest one, as far as it has not decayed.
    pub fn largest(self) -> usize {
        self.0 as usize
    }

    /// Notes the length of a reply.
    #[inline]
    pub fn note(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.0 = len.max(self.0 - self.0 / 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_replies_narrow_the_pipeline_and_small_ones_widen_it_again() {
        let limits = Limits::default();
        let mut size = ReplySize::default();
        assert_eq!(size.in_flight_max(&limits), 64);
        size.note(5);
        assert_eq!(size.in_flight_max(&limits), 1024);
        size.note(64 << 10);
        assert_eq!(size.in_flight_max(&limits), 64);
        size.note(512 << 20);
        assert_eq!(size.in_flight_max(&limits), 4);
        (0..300).for_each(|_| size.note(5));
        assert_eq!(size.in_flight_max(&limits), 1024);
        let small = Limits { session_in_flight_max: 2, ..limits };
        assert_eq!(ReplySize::default().in_flight_max(&small), 2);
    }
}
