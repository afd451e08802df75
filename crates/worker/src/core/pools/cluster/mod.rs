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

mod discover;
mod displaced;
mod follow_map;
mod gone;
mod groups;
mod hedge;
mod hedging;
mod lags;
mod named;
mod notices;
mod readers;
mod redirect;
mod repeat;
mod replicas;
mod rounds;
mod sent_on;
mod split;
mod state;
mod unowned;

pub(in crate::core) use hedging::Hedging;
pub(in crate::core) use replicas::{Reader, Readers};
pub(in crate::core) use state::{ClusterState, State, Waits};

#[cfg(test)]
mod tests;
