//! The rig of the tests over the real binary: a private store, a simulated GPU server, and every role as a process of its
//! own, with a proxy in between that can delay, hold, lose and reset.
//!
//! Only public faces are used: HTTP, the command line, `/metrics`, health, exit codes. What goes wrong in the rig itself
//! panics with what was seen, as an assertion does.

mod ask;
mod binary;
mod client;
mod commands;
mod layout;
mod preload;
mod process;
mod proxy;
mod rig;
mod settle;
pub mod soak;
mod store_faults;
mod wait;

pub use ask::{Ask, Held as HeldDelivery, RESULT, TENANT};
pub use client::{Api, Reply, chat, job, terminal};
pub use commands::CliReply;
pub use layout::Layout;
pub use preload::{Clock, Synced};
pub use process::{Proc, Signal};
pub use proxy::{Direction, Fault, Held, Hits, Of, Proxy, Rule, Upstream, step};
pub use rig::{Options, Rig};
pub use settle::Allow;
pub use store_faults::{FILLABLE, Replica, Spinning, free_port, redis_cli, socket};
pub use wait::{LONG, SOON, until};
