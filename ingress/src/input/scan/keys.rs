//! The keys of an open object, in their decoded form.

use std::borrow::Cow;
use std::collections::HashSet;

/// Keys of one object that are compared one by one; beyond them a set is kept.
const FEW_KEYS: usize = 16;

/// The keys of one object so far.
#[derive(Default)]
pub(super) struct Keys<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> Keys<'a> {
    /// False where the key was there.
    pub(super) fn add(&mut self, key: Cow<'a, str>) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&key) {
                return false;
            }
            if self.few.len() < FEW_KEYS {
                self.few.push(key);
                return true;
            }
            self.many = self.few.drain(..).collect();
        }
        self.many.insert(key)
    }
}
