//! Whole-system scenarios over the real binary: every role a process of its own, a private store, a scripted model server.
//! Most are from the public faults that others met; each ends with the rig's settle check.

#![allow(clippy::unwrap_used)]

mod harness;
