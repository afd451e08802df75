//! Every bound of the crate. Each comment says what breaks if the bound is larger or smaller.

use std::time::Duration;

/// Bytes of a document. A transaction of the coordinator has 448 KiB, and holds the document once.
pub const DOCUMENT_LEN_MAX: usize = 256 << 10;

/// Bytes of the line in front of a document.
pub const HEAD_LEN_MAX: usize = 4 << 10;

/// Bytes of what a leader publishes: the document, and that of a rollout.
pub const PUBLISHED_LEN_MAX: usize = 2 * DOCUMENT_LEN_MAX + HEAD_LEN_MAX;

/// Bytes of the file in which a member keeps its documents: two of them with their heads.
pub const SAVED_LEN_MAX: usize = 2 * DOCUMENT_LEN_MAX + 2 * HEAD_LEN_MAX;

/// Bytes of a report that are read. More would let one member fill control's memory.
pub const REPORT_LEN_MAX: usize = 192 << 10;

/// Names in each list of a report. With the longest names a report fits into [`REPORT_LEN_MAX`].
pub const NAMES_MAX: usize = 128;

/// Bytes of a name in a report. A longer one is cut.
pub const NAME_LEN_MAX: usize = 128;

/// Bytes of the reason in a report. A longer one is cut.
pub const WHY_LEN_MAX: usize = 2 << 10;

/// Members of a cluster. Each is an entry of the coordinator, which has at most 16,384.
pub const MEMBERS_MAX: usize = 4096;

/// Documents that the coordinator keeps. More would fill it: 20 of the longest have 5 MiB.
pub const DOCUMENTS_KEPT: u64 = 20;

/// Members whose entries one transaction writes. A transaction has at most 64 operations.
pub const MEMBERS_PER_WRITE: usize = 32;

/// Bytes of the members' entries that one transaction writes. A transaction has at most 448 KiB.
pub const WRITE_LEN_MAX: usize = 256 << 10;

/// Orders of operators that wait for control. More are refused.
pub const ORDERS_MAX: usize = 8;

/// Largest epoch and revision that control believes a member. A lie of one member so leaves enough
/// numbers for all later documents.
pub const BELIEVED_MAX: u64 = 1 << 48;

/// Time between two writes of members' entries. A shorter time costs the coordinator more when a
/// document reaches a thousand members.
pub const MEMBERS_EVERY: Duration = Duration::from_secs(1);

/// Time after which control forgets a silent member.
pub const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Time until a report is sent again that did not arrive.
pub const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// Time for the acknowledgement of a report. Then it is sent again.
pub const REPORT_WITHIN: Duration = Duration::from_secs(5);

/// The same for a report that has another view of a group's servers, or that holds one up. A longer time
/// delays a fail-over when an acknowledgement is lost; a shorter one has a leader that is busy get more
/// reports.
pub const NEWS_WITHIN: Duration = Duration::from_millis(500);

/// Time until a member tries again to save a document, as when its disk was full.
pub const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// Time until a control node asks the coordinator again after a failed write.
pub const WRITE_AGAIN: Duration = Duration::from_millis(200);

/// Shortest time for which the leader watches a rollout. A shorter one has too few measures.
pub const WATCH_MIN: Duration = Duration::from_secs(1);

/// Longest time for which the leader watches a rollout. No other document can be stored meanwhile.
pub const WATCH_MAX: Duration = Duration::from_secs(24 * 3600);

/// Time for which the leader watches a rollout if the operator names none.
pub const WATCH_DEFAULT: Duration = Duration::from_secs(120);

/// Least and largest time between two measures of a member during a rollout. More measures find
/// errors earlier, and cost the leader more with a thousand members.
pub const MEASURE_EVERY_MIN: Duration = Duration::from_millis(200);
/// See [`MEASURE_EVERY_MIN`].
pub const MEASURE_EVERY_MAX: Duration = Duration::from_secs(5);

/// Errors of a share from which a rollout may go back. With fewer, chance would decide.
pub const ERRORS_MIN: u64 = 10;

/// Requests of a share from which a rollout may go on. With fewer, an error could stay unseen.
pub const REQUESTS_MIN: u64 = 100;

/// A rollout goes back if the share's rate of errors is larger than that of the rest times
/// [`ERROR_RATE_FACTOR`], plus [`ERROR_RATE_MORE`].
pub const ERROR_RATE_FACTOR: f64 = 1.5;
/// See [`ERROR_RATE_FACTOR`].
pub const ERROR_RATE_MORE: f64 = 0.01;

/// A rollout goes back if the share's p99 is larger than that of the rest times [`P99_FACTOR`], plus
/// [`P99_MORE_MICROS`]. p99 has steps of an eighth, and varies by chance.
pub const P99_FACTOR: f64 = 1.5;
/// See [`P99_FACTOR`].
pub const P99_MORE_MICROS: f64 = 5000.0;

/// Groups of servers of a cluster. Each has a thread of the leader, which asks its servers.
pub const GROUPS_MAX: usize = 64;

/// Servers of all groups in a report. With the longest names a report fits into [`REPORT_LEN_MAX`].
pub const SERVERS_MAX: usize = 128;

/// Bytes of a pool's name and of an address in a report about groups. A longer one is cut, and its
/// group is not watched.
pub const GROUP_NAME_LEN_MAX: usize = 96;

/// Bytes of the published decisions. The longest ones of [`GROUPS_MAX`] groups have fewer.
pub const GROUPS_LEN_MAX: usize = 64 << 10;

/// Time between two reports of a member about its groups while nothing changes. A longer time lets
/// the leader count on older views.
pub const SEEN_EVERY: Duration = Duration::from_secs(3);

/// Age from which a view of an observer counts for nothing: twice [`SEEN_EVERY`].
pub const VIEW_FRESH: Duration = Duration::from_secs(6);

/// Time for which a silent member counts as an observer that does not agree. A shorter time lets a
/// leader that is cut off from most members decide alone; a longer one keeps control from failing over
/// when many members were shut down.
pub const ABSENT_MAX: Duration = Duration::from_secs(600);

/// Time between two looks at which members use a group. With a shorter one a thousand members cost the
/// leader more.
pub const USERS_EVERY: Duration = Duration::from_secs(1);

/// Time between two orders to the servers of a group that have not had their effect.
pub const COMMAND_AGAIN: Duration = Duration::from_millis(500);

/// Longest wait for members to know that a primary hands over. Members that do not know it yet send
/// writes to the primary before, which refuses them until the decision.
pub const OBEYED_WITHIN: Duration = Duration::from_secs(1);

/// Entries of the audit log that the coordinator keeps. Each has 0.5 to 12 KiB, and every control
/// node holds them in memory.
pub const AUDIT_KEPT: u64 = 1000;

/// Entries of the audit log that leave in one transaction, which has at most 64 operations.
pub(crate) const AUDIT_DELETES_MAX: u64 = 8;

/// Differences in an entry of the audit log. With more lines a change of a hundred pools would
/// have a longer entry than others together.
pub const CHANGES_MAX: usize = 32;

/// Bytes of a difference in an entry. A longer one is cut.
pub const CHANGE_LEN_MAX: usize = 256;

/// Refused requests that wait for their entry. More are counted.
pub const REFUSED_WAITING_MAX: usize = 8;

/// Refused requests that get entries of their own at once; then one for each [`REFUSED_EVERY`]. A
/// flood of them so takes less than 150 entries a day, and changes stay.
pub const REFUSED_AT_ONCE: u32 = 16;
/// See [`REFUSED_AT_ONCE`].
pub const REFUSED_EVERY: Duration = Duration::from_secs(600);

/// Events of a member that wait for the leader. More lose the oldest ones: a member that is cut off
/// for an hour has room for one event in 14 s.
pub const EVENTS_WAITING_MAX: usize = 256;

/// Events in a report, which has at most [`REPORT_LEN_MAX`] with them.
pub const EVENTS_PER_REPORT: usize = 16;

/// Bytes of the text of an event. A longer one is cut.
pub const EVENT_TEXT_LEN_MAX: usize = 512;
