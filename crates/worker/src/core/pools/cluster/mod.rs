//! Pools that are a Redis Cluster: who has which slot is asked of the servers, and
//! a request that one of them sends elsewhere follows.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `state` | what is remembered of clusters and of requests to them |
//! | `follow_map` | this worker follows the latest map |
//! | `discover` | a server is asked about the cluster |
//! | `groups` | the same for primaries with replicas: sentinels, or all of them, are asked |
//! | `rounds` | questions that are not answered yet, and what is done about them |
//! | `notices` | sentinels tell that there is something to ask them |
//! | `readers` | which server a read goes to |
//! | `lags` | how far replicas are behind is asked |
//! | `hedge` | which second server a read goes to, and when |
//! | `repeat` | reads whose connection was lost, and how often anything is sent again |
//! | `redirect` | requests that a server did not take go out again |
//! | `displaced` | commands that wait go on waiting where their keys are now |
//! | `named` | whether a server is one of the cluster that another one names |
//! | `split` | one request becomes one fragment per slot |
//! | `unowned` | requests wait for their slot to have a server |
//! | `gone` | requests wait for a primary that cannot be reached |
//! | `fence` | commands for slots that move are held, and those before them end |
//! | `own_keys` | keys that a server tells of and that are of another group are left out |
//! | `steady` | which requests do not wait while the primary of a group hands over |
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `discover`: `tend_clusters`, `hear_of_cluster`, `miss_of_cluster`, `write_unrouted`,
//!   `unrouted_words`, `request_view_for_unowned`, `request_view`
//! - `follow_map`: `end_cluster`, `follow_clusters`, `next_left`, `address_of`, `server_address`,
//!   `awaits_map`, `awaits_map_for`, `unknown_server`, `has_left`
//! - `gone`: `primary_wait`, `is_gone`, `holds_private`, `holds_unsent`, `note_patience`,
//!   `note_gone`, `waits_for_primary`, `look_after_gone`, `waited_in_vain`, `end_wait_in_vain`,
//!   `note_in_vain`, `waited_words`, `end_waits_for_primaries`
//! - `hedge`: `send_hedges`, `next_hedge`, `note_read`, `on_hedged_reply`,
//!   `settle_hedge`
//! - `lags`: `next_name`, `note_resolved`
//! - `notices`: `hear_notice`, `note_listening`
//! - `readers`: `reads_replicas`, `note_write`, `reader_of`, `set_reading`
//! - `redirect`: `redirect_all`, `end_retries_of`, `send_retries`, `give_up_private`,
//!   `retry_private`, `on_name_astray`, `each_command`
//! - `repeat`: `repeat_reads`
//! - `sent_on`: `forget_order`
//! - `split`: `split_by_slot`
//! - `fence`: `is_fenced`, `is_fenced_for`, `look_at_fences`
//! - `own_keys`: `own_keys`, `is_foreign_key`, `shares_slots`
//! - `steady`: `spares`, `spares_keys`
//! - `unowned`: `awaits_owner`, `awaits_owner_of`, `await_owner`, `forget_wait`, `bring_wait`,
//!   `end_wait_for_server`, `end_overdue_waits_for_maps`

mod discover;
mod displaced;
mod fence;
mod follow_map;
mod gone;
mod groups;
mod hedge;
mod hedging;
mod lags;
mod named;
mod notices;
mod own_keys;
mod readers;
mod redirect;
mod repeat;
mod replicas;
mod rounds;
mod sent_on;
mod split;
mod state;
mod steady;
mod unowned;

pub(in crate::core) use fence::{FENCE_LOOK, Fenced};
pub(in crate::core) use hedging::Hedging;
pub(in crate::core) use replicas::{Reader, Readers};
pub(in crate::core) use state::{ClusterState, State, Waits};

#[cfg(test)]
mod tests;
