//! Values of labels. None is ever made from a caller's string: a label is a word of this program, or a name out of the
//! settings which passed the allow-list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// What stands for a name that is not configured.
pub const OTHER: &str = "other";

/// Most pools that get labels of their own: each is a few dozen series.
const MAX_POOLS: usize = 256;
/// Most classes of one pool that get labels of their own.
const MAX_CLASSES: usize = 32;

/// A configured name, or [`OTHER`]; only the allow-list makes one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(Arc<str>);

impl Name {
    /// The name's text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The configured pools and their classes.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    pools: RwLock<BTreeMap<Name, BTreeSet<Name>>>,
}

impl Allowed {
    /// Makes a pool's name and its classes values of labels, in place of what was known of the pool. Beyond the bounds
    /// they stay `other`.
    pub(crate) fn allow<'a>(&self, pool: &str, classes: impl IntoIterator<Item = &'a str>) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let name = Name(pool.into());
        if pools.len() < MAX_POOLS || pools.contains_key(&name) {
            let classes = classes
                .into_iter()
                .take(MAX_CLASSES)
                .map(|class| Name(class.into()))
                .collect();
            pools.insert(name, classes);
        }
    }

    /// Takes a pool out.
    pub(crate) fn forget(&self, pool: &str) {
        self.pools
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&Name(pool.into()));
    }

    /// Every configured pool.
    pub(crate) fn pools(&self) -> Vec<Name> {
        self.pools
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .cloned()
            .collect()
    }

    /// The label of a pool.
    pub(crate) fn pool(&self, pool: &str) -> Name {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let name = Name(pool.into());
        if pools.contains_key(&name) {
            name
        } else {
            Name(OTHER.into())
        }
    }

    /// The labels of a pool and of a class of it.
    pub(crate) fn class(&self, pool: &str, class: &str) -> PoolClass {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let (pool, class) = (Name(pool.into()), Name(class.into()));
        let other = || Name(OTHER.into());
        match pools.get(&pool) {
            Some(classes) if classes.contains(&class) => PoolClass { pool, class },
            Some(_) => PoolClass {
                pool,
                class: other(),
            },
            None => PoolClass {
                pool: other(),
                class: other(),
            },
        }
    }
}

/// Makes an enumeration of fixed words a label's value.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// The word itself.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
                encoder.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// How a job ended.
    Outcome {
        /// The model's answer is there.
        Succeeded => "succeeded",
        /// It failed, and its request is to blame.
        Failed => "failed",
        /// Its submitter took it back.
        Cancelled => "cancelled",
        /// Its deadline came while it waited.
        Expired => "expired",
        /// It failed, and a person may requeue it.
        Dead => "dead",
    }
}

words! {
    /// Where a job of the store is.
    State {
        /// Waits for a slot.
        Queued => "queued",
        /// Waits for its time.
        Scheduled => "scheduled",
        /// Is with a worker.
        Running => "running",
        /// Is a dead letter.
        Dead => "dead",
    }
}

words! {
    /// Which figure of slots.
    SlotKind {
        /// Taken now.
        Used => "used",
        /// The most there are.
        Limit => "limit",
    }
}

words! {
    /// Which tokens.
    Direction {
        /// Read by the model.
        Input => "input",
        /// Written by it.
        Output => "output",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Pool {
    pub(crate) pool: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub(crate) struct PoolClass {
    pub(crate) pool: Name,
    pub(crate) class: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolClassOutcome {
    pub(crate) pool: Name,
    pub(crate) class: Name,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolClassState {
    pub(crate) pool: Name,
    pub(crate) class: Name,
    pub(crate) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolClassKind {
    pub(crate) pool: Name,
    pub(crate) class: Name,
    pub(crate) kind: SlotKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolReason {
    pub(crate) pool: Name,
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolStep {
    pub(crate) pool: Name,
    pub(crate) step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolDirection {
    pub(crate) pool: Name,
    pub(crate) direction: Direction,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Step {
    pub(crate) step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ErrorClass {
    pub(crate) class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Version {
    pub(crate) version: &'static str,
}
