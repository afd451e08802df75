/// Every bound of the data plane, in one place. All are per worker unless
/// named otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients connected at once, per worker. Larger costs file descriptors
    /// and under 1 KiB each; smaller refuses clients with an error reply.
    pub clients_max: u32,
    /// Longest argument of a request, in bytes (Redis: `proto-max-bulk-len`).
    pub bulk_len_max: u32,
    /// Most arguments of one request. Redis takes 1,048,576.
    pub request_args_max: u32,
    /// Longest whole request, in bytes. Must hold one `bulk_len_max`.
    pub request_len_max: u32,
    /// Longest inline request line, in bytes (Redis: 64 KiB).
    pub inline_len_max: u32,
    /// Longest reply accepted from a backend, in bytes.
    pub reply_len_max: u32,
    /// Deepest nesting accepted in a backend's reply. What a script returns to
    /// Redis may be nested 7,995 deep.
    pub reply_depth_max: u32,
    /// Requests of one client in flight before its input is left unread.
    /// Smaller starves deep pipelines; larger lets one client hold more
    /// memory in undelivered replies.
    pub session_in_flight_max: u32,
    /// Undelivered reply bytes of one client above which its input is left
    /// unread.
    pub session_output_len_soft: u32,
    /// Length from which a reply is not copied on its way through, in bytes. A shorter one
    /// costs less copied than sent as a piece of its own; the shorter, the more of what was
    /// read with it is held for it.
    pub refer_len: u32,
    /// Undelivered reply bytes of one client above which it is disconnected:
    /// reached only when replies to requests already in flight are far larger
    /// than those before them and the client does not read.
    pub session_output_len_hard: u64,
    /// Exchanges queued on one link before clients that need it are left
    /// unread.
    pub link_in_flight_max: u32,
    /// Unsent bytes on one link before clients that need it are left unread.
    pub link_output_len_max: u32,
    /// Bytes of the commands of all clients that wait for `EXEC`, over all
    /// workers. Larger lets clients that open transactions and do not end them
    /// hold more memory; smaller refuses large transactions.
    pub transactions_len_max: u64,
    /// Bytes read from one connection in a turn before others get theirs.
    pub read_len_per_turn: u32,
    /// Undelivered bytes of one subscriber above which it is disconnected; 0
    /// for no such bound. Larger forgives longer pauses in reading and costs
    /// memory for each subscriber that does not read.
    pub pubsub_output_len_hard: u64,
    /// Undelivered bytes of one subscriber above which it is disconnected once
    /// they have been that many for `pubsub_output_soft_secs`; 0 for no such
    /// bound.
    pub pubsub_output_len_soft: u64,
    /// How long a subscriber may stay above `pubsub_output_len_soft`, in
    /// seconds.
    pub pubsub_output_soft_secs: u32,
    /// Keys of one embedded store that clients with tracking have read and are
    /// to be told of. Above it some are told that a key has changed when it has
    /// not, and read it again. So are they when keys with long names or many
    /// readers take more than [`Limits::TRACKING_KEY_LEN`] bytes each on the
    /// average.
    pub tracking_keys_max: u32,
    /// Logins of one user from one address that may fail one after the other before no
    /// more are looked at for a second; 0 for no bound.
    pub failed_logins_max: u32,
    /// MONITOR shows one in this many requests, by chance; 0 refuses MONITOR.
    pub monitor_every: u32,
    /// One request in this many is looked at for the keys that are asked for most, by chance; 0
    /// for none. Smaller costs time, larger makes the estimates of pools with little to do
    /// coarse.
    pub hot_keys_every: u32,
    /// Bytes of a value from which its key is one with a large value; 0 to look for none.
    /// Smaller has more of them looked at.
    pub big_values_from: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients_max: 100_000,
            bulk_len_max: 512 << 20,
            request_args_max: 1 << 20,
            request_len_max: (512 << 20) + (64 << 20),
            inline_len_max: 64 << 10,
            reply_len_max: 1 << 30,
            reply_depth_max: 10_000,
            session_in_flight_max: 1024,
            session_output_len_soft: 1 << 20,
            refer_len: 12 << 10,
            session_output_len_hard: 1 << 30,
            link_in_flight_max: 64 << 10,
            link_output_len_max: 16 << 20,
            transactions_len_max: 256 << 20,
            read_len_per_turn: 256 << 10,
            pubsub_output_len_hard: 32 << 20,
            pubsub_output_len_soft: 8 << 20,
            pubsub_output_soft_secs: 60,
            tracking_keys_max: 1_000_000,
            failed_logins_max: 10,
            monitor_every: 1,
            hot_keys_every: 200,
            big_values_from: 64 << 10,
        }
    }
}

impl Limits {
    /// What a key of `tracking_keys_max` may take on the average, in bytes: a
    /// name of 100 bytes with two clients to be told.
    pub const TRACKING_KEY_LEN: usize = 256;

    /// From how many bytes on a request or reply has a large value; never, if none is looked for.
    #[inline]
    pub fn big_reply_len(&self) -> usize {
        match self.big_values_from {
            0 => usize::MAX,
            len => len as usize,
        }
    }

    /// What the keys that clients of one store are to be told of may take.
    pub fn tracking_bytes(&self) -> u64 {
        u64::from(self.tracking_keys_max) * Self::TRACKING_KEY_LEN as u64
    }

    /// What the replies to one client's requests in flight may take, judged by
    /// the largest of its recent replies: requests are started accordingly.
    pub fn session_replies_len_max(&self) -> u64 {
        4 * u64::from(self.session_output_len_soft)
    }

    /// Length from which replies pass through to their clients as they come, in bytes,
    /// and how much of one waits here until its client takes it.
    #[inline]
    pub fn pass_len(&self) -> usize {
        const LARGEST: usize = 512 << 10;
        (self.session_output_len_soft as usize / 2).clamp(64, LARGEST)
    }

    /// Bound of the large replies that wait in one worker for clients that take nothing, in bytes.
    /// Above it such clients are disconnected. A larger bound costs memory, a smaller one ends
    /// clients that have only paused.
    pub fn released_len_max(&self) -> u64 {
        64 * u64::from(self.session_output_len_soft)
    }

    /// How many replies of one client may lie where they were read, each of which may pin all
    /// that was read with it, `block_len` bytes: together what undelivered replies may take.
    #[inline]
    pub fn parts_max(&self, block_len: usize) -> usize {
        self.session_output_len_soft as usize / block_len.max(1)
    }

    /// What one client may pin beyond its own large requests and replies:
    /// undelivered replies up to the soft bound, as much that was read with them, those
    /// still to come, and one read's worth of input.
    pub fn session_overhead_bytes(&self) -> u64 {
        2 * u64::from(self.session_output_len_soft)
            + self.session_replies_len_max()
            + u64::from(self.read_len_per_turn)
    }

    /// What `links` connections to backends may pin in unsent requests.
    pub fn links_overhead_bytes(&self, links: usize) -> u64 {
        links as u64 * u64::from(self.link_output_len_max)
    }
}
