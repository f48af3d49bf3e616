//! Identities. All are minted by the caller before sending, from the operating system's random source.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::names;

/// Crockford's base 32 in lower case: no two letters look alike, and a double click takes the whole id.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Letters of 128 bits.
const BARE_LEN: usize = 26;

/// Letters of a worker's id, 80 bits: it names a process and guards nothing.
const WORKER_LEN: usize = 16;

/// An id that cannot be one of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}")]
pub struct BadId {
    /// What was expected.
    pub what: &'static str,
}

fn random_base32() -> String {
    let mut bits = uuid_bits();
    let mut letters = [0u8; BARE_LEN];
    for letter in letters.iter_mut().rev() {
        *letter = ALPHABET[usize::from((bits & 31) as u8)];
        bits >>= 5;
    }
    letters.iter().map(|&letter| char::from(letter)).collect()
}

/// 128 random bits. (Not a UUID's: those have 122.)
fn uuid_bits() -> u128 {
    rand::random::<u128>()
}

fn is_bare(text: &str) -> bool {
    text.len() == BARE_LEN && text.bytes().all(|b| ALPHABET.contains(&b))
}

/// Name of a pool: `[a-z0-9][a-z0-9-]{0,31}`. It is the hash tag of all keys of the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(String);

impl PoolName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PoolName {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        match names::pool_name(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(BadId { what: "pool name" }),
        }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Public id of a job, `job_<pool>_<26 letters>`: unguessable (128 random bits), and any ingress can route it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    pool: PoolName,
    bare: String,
}

impl JobId {
    /// A new id in `pool`.
    pub fn mint(pool: &PoolName) -> Self {
        Self {
            pool: pool.clone(),
            bare: random_base32(),
        }
    }

    /// The id of a queue's member.
    ///
    /// # Errors
    /// Where `bare` is not 26 letters of the alphabet.
    pub fn from_bare(pool: &PoolName, bare: &str) -> Result<Self, BadId> {
        if !is_bare(bare) {
            return Err(BadId { what: "job id" });
        }
        Ok(Self {
            pool: pool.clone(),
            bare: bare.to_owned(),
        })
    }

    /// The pool that the job waits in.
    pub fn pool(&self) -> &PoolName {
        &self.pool
    }

    /// The part that is stored: unique inside the pool.
    pub fn bare(&self) -> &str {
        &self.bare
    }
}

impl FromStr for JobId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = BadId { what: "job id" };
        let rest = text.strip_prefix("job_").ok_or_else(|| bad.clone())?;
        let (pool, bare) = rest.split_once('_').ok_or_else(|| bad.clone())?;
        let pool: PoolName = pool.parse().map_err(|_| bad)?;
        Self::from_bare(&pool, bare)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{}_{}", self.pool, self.bare)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// 128 random bits minted for one delivery: whoever holds them owns it. Never derived from the store's state, which a
/// failover can rewind.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// A new owner.
    pub fn mint() -> Self {
        Self(random_base32())
    }

    /// An owner as the store replies it.
    ///
    /// # Errors
    /// Where the text is not an owner.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        if is_bare(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadId { what: "owner" })
        }
    }

    /// The secret itself, for the store.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(***)")
    }
}

/// Raised at every claim of a job; starts at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fence(pub u64);

/// A worker's process life, `w_<16 letters>`: random, so a restart or a twin of the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkerId(String);

impl WorkerId {
    /// A new identity.
    pub fn mint() -> Self {
        let letters = random_base32();
        Self(format!("w_{}", &letters[BARE_LEN - WORKER_LEN..]))
    }

    /// A worker's id as a command carried it.
    ///
    /// # Errors
    /// Where the text is no worker's id.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let letters = text.strip_prefix("w_").unwrap_or("");
        if letters.len() == WORKER_LEN && letters.bytes().all(|b| ALPHABET.contains(&b)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadId { what: "worker id" })
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_id_reads_back_with_its_pool() {
        let pool: PoolName = "gpu-a100".parse().unwrap();
        let id = JobId::mint(&pool);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert!(id.to_string().len() <= 64);
        assert_eq!(id.pool().as_str(), "gpu-a100");
    }

    #[test]
    fn what_is_not_a_job_id_is_refused() {
        for text in [
            "",
            "job_",
            "job_default_",
            "job_default_short",
            "job_{x}_0123456789abcdefghjkmnpqrs",
            "job_default_0123456789abcdefghjkmnpqr*",
            "job_default_0123456789abcdefghjkmnpqrU",
            "0123456789abcdefghjkmnpqrs",
            "job_a:b_0123456789abcdefghjkmnpqrs",
        ] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_owner_is_never_shown() {
        assert_eq!(format!("{:?}", Owner::mint()), "Owner(***)");
    }
}
