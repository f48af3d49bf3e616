//! Whole-system scenarios over the real binary: every role a process of its own, a private store, a scripted model server.
//! Most are from the public faults that others met; each ends with the rig's settle check.

#![allow(clippy::unwrap_used)]

mod audited;
mod cancel;
mod cancel_race;
mod clocks;
mod common;
mod dead_letters;
mod deploy;
mod deploy_ingress;
mod docs;
mod durability;
mod durability_replicated;
mod failover;
mod frozen_worker;
mod harness;
mod input;
mod input_numbers;
mod input_shapes;
mod killed_workers;
mod load;
mod long_jobs;
mod lost_claims;
mod matrix;
mod memory_full;
mod poison;
mod proxy;
mod recovery;
mod same_name;
mod script_cache;
mod slot_leaks;
mod slots;
mod soak;
