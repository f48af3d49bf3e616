//! A sorted set: members by score, ties by member, as Redis orders them.

use std::collections::{BTreeMap, BTreeSet};

/// Members with a score each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scored {
    scores: BTreeMap<String, u64>,
    order: BTreeSet<(u64, String)>,
}

impl Scored {
    /// Adds a member or moves it.
    pub fn put(&mut self, member: &str, score: u64) {
        self.drop(member);
        self.scores.insert(member.to_owned(), score);
        self.order.insert((score, member.to_owned()));
    }

    /// Removes a member; says whether it was there.
    pub fn drop(&mut self, member: &str) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_owned()))
    }

    /// A member's score.
    pub fn score(&self, member: &str) -> Option<u64> {
        self.scores.get(member).copied()
    }

    /// Number of members.
    pub fn len(&self) -> u64 {
        self.scores.len() as u64
    }

    /// Whether nothing is in it; Redis drops such a key.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Members and scores, lowest score first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.order
            .iter()
            .map(|(score, member)| (member.as_str(), *score))
    }

    /// The first `limit` members.
    pub fn first(&self, limit: u64) -> Vec<String> {
        self.iter()
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|(member, _)| member.to_owned())
            .collect()
    }

    /// The first member, or the one behind another; that one need not be in the set any more.
    pub fn next(&self, after: Option<&(u64, String)>) -> Option<(u64, String)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.order
            .range::<(u64, String), _>((from, Unbounded))
            .next()
            .cloned()
    }

    /// The first `limit` members with a score up to `most`.
    pub fn up_to(&self, most: u64, limit: u64) -> Vec<(String, u64)> {
        self.iter()
            .take_while(|&(_, score)| score <= most)
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|(member, score)| (member.to_owned(), score))
            .collect()
    }

    /// Removes every member with a score up to `most`.
    pub fn drop_up_to(&mut self, most: u64) {
        for (member, _) in self.up_to(most, u64::MAX) {
            self.drop(&member);
        }
    }
}
