//! Whole-system scenarios live in tests/.
