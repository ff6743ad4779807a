//! The soak: one process with everything in it, under load and a fault each minute, and a check of each response. `tests/soak` runs it for
//! as long as one likes and draws its curves; docs/internals/soak.md explains it.

mod plan;
mod fault;
mod ledger;
mod truth;
mod client;
mod log;
mod setup;
mod stage;
mod proxy_callers;
mod token_callers;
mod server_callers;
mod outputs;
mod sampler;
mod disturb;
mod run;
