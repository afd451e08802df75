/// Every bound of the data plane, in one place. All are per worker unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most clients connected at once, per worker. A larger bound costs file descriptors and under
    /// 1 KiB each; a smaller one refuses clients with an error reply.
    pub clients_max: u32,
    /// Longest argument of a request, in bytes (Redis: `proto-max-bulk-len`).
    pub bulk_len_max: u32,
    /// Most arguments of one request. Redis takes 1,048,576.
    pub request_args_max: u32,
    /// Longest whole request, in bytes. Must have room for one argument of `bulk_len_max`.
    pub request_len_max: u32,
    /// Longest inline request line, in bytes (Redis: 64 KiB).
    pub inline_len_max: u32,
    /// Longest reply accepted from a backend, in bytes.
    pub reply_len_max: u32,
    /// Deepest nesting accepted in a backend's reply. A script in Redis may return a reply nested
    /// 7,995 deep.
    pub reply_depth_max: u32,
    /// Requests of one client in flight before its input is left unread. A smaller bound slows deep
    /// pipelines; a larger one lets one client hold more memory in undelivered replies.
    pub session_in_flight_max: u32,
    /// Undelivered reply bytes of one client above which its input is left
    /// unread.
    pub session_output_len_soft: u32,
    /// Length from which a reply is not copied on its way through, in bytes. Copying a shorter
    /// reply costs less than sending it as a piece of its own. The smaller this is, the more bytes
    /// that were read with a reply are held for it.
    pub refer_len: u32,
    /// Undelivered reply bytes of one client above which it is disconnected. This is reached only
    /// if replies to requests already in flight are far larger than those before them and the
    /// client does not read.
    pub session_output_len_hard: u64,
    /// Exchanges queued on one link before clients that need it are left unread.
    pub link_in_flight_max: u32,
    /// Unsent bytes on one link before clients that need it are left unread.
    pub link_output_len_max: u32,
    /// Bytes of the commands of all clients that wait for `EXEC`, over all workers. A larger bound
    /// lets clients that do not end their transactions hold more memory; a smaller one refuses
    /// large transactions.
    pub transactions_len_max: u64,
    /// Bytes read from one connection in a turn before others get their turn.
    pub read_len_per_turn: u32,
    /// Undelivered bytes of one subscriber above which it is disconnected; 0: no such bound. A
    /// larger bound permits longer pauses in reading and costs memory for each subscriber that does
    /// not read.
    pub pubsub_output_len_hard: u64,
    /// Undelivered bytes of one subscriber above which it is disconnected once they have exceeded
    /// it for `pubsub_output_soft_secs`; 0: no such bound.
    pub pubsub_output_len_soft: u64,
    /// Time for which a subscriber may exceed `pubsub_output_len_soft`, in seconds.
    pub pubsub_output_soft_secs: u32,
    /// Most keys of one embedded store that clients with tracking have read and must be told of.
    /// Above it some clients are told that a key has changed although it has not, and read it
    /// again. The same happens if keys with long names or many readers take more than
    /// [`Limits::TRACKING_KEY_LEN`] bytes each on average.
    pub tracking_keys_max: u32,
    /// Failed logins in a row of one user from one address before further ones are refused for a
    /// second; 0: no bound.
    pub failed_logins_max: u32,
    /// MONITOR shows one in this many requests, chosen at random; 0 refuses MONITOR.
    pub monitor_every: u32,
    /// One request in this many, chosen at random, is counted for hot keys; 0: none. A smaller
    /// number costs time; a larger one makes the estimates of pools with few requests coarse.
    pub hot_keys_every: u32,
    /// Length in bytes from which a value counts as large, so that its key is noted; 0: none. With
    /// a smaller length more values are checked.
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
    /// Average memory of a key of `tracking_keys_max`, in bytes: a name of 100 bytes with two
    /// clients to be told.
    pub const TRACKING_KEY_LEN: usize = 256;

    /// Returns the length in bytes from which a request or reply has a large value; unreachable if
    /// none is noted.
    #[inline]
    pub fn big_reply_len(&self) -> usize {
        match self.big_values_from {
            0 => usize::MAX,
            len => len as usize,
        }
    }

    /// Returns the memory of the keys that clients of one store are to be told of, in bytes.
    pub fn tracking_bytes(&self) -> u64 {
        u64::from(self.tracking_keys_max) * Self::TRACKING_KEY_LEN as u64
    }

    /// Returns the most memory of the replies to one client's requests in flight, judged by the
    /// largest of its recent replies. Requests are started accordingly.
    pub fn session_replies_len_max(&self) -> u64 {
        4 * u64::from(self.session_output_len_soft)
    }

    /// Returns the length from which replies are streamed to their clients, in bytes. It is also
    /// how much of one waits here until its client reads it.
    #[inline]
    pub fn pass_len(&self) -> usize {
        const LARGEST: usize = 512 << 10;
        (self.session_output_len_soft as usize / 2).clamp(64, LARGEST)
    }

    /// Returns the bound on large replies that wait in one worker for clients that do not read, in
    /// bytes. Above it such clients are disconnected. A larger bound costs memory, a smaller one
    /// disconnects clients that have only paused.
    pub fn released_len_max(&self) -> u64 {
        64 * u64::from(self.session_output_len_soft)
    }

    /// Returns how many replies of one client may stay where they were read. Each may pin all bytes
    /// that were read with it, `block_len` bytes; together they take as much as undelivered replies
    /// may.
    #[inline]
    pub fn parts_max(&self, block_len: usize) -> usize {
        self.session_output_len_soft as usize / block_len.max(1)
    }

    /// Returns the memory that one client may pin beyond its own large requests and replies:
    /// undelivered replies up to the soft bound, as many bytes read with them, replies still to
    /// come, and one read's worth of input.
    pub fn session_overhead_bytes(&self) -> u64 {
        2 * u64::from(self.session_output_len_soft)
            + self.session_replies_len_max()
            + u64::from(self.read_len_per_turn)
    }

    /// Returns the memory that `links` connections to backends may pin in unsent requests.
    pub fn links_overhead_bytes(&self, links: usize) -> u64 {
        links as u64 * u64::from(self.link_output_len_max)
    }
}
