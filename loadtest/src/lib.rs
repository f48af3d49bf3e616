//! Load and test tools for Tidegate.
//!
//! [`gpu`] is a simulated GPU server: it speaks the OpenAI shapes, keeps a timing model instead of a model, and misbehaves
//! on request. The tests use it as their model server and `tidegate dev` falls back on it when no real server is found.

pub mod gpu;
