//! What a process tells about itself: logs, traces and metrics, with every name in one place.

pub mod names;
