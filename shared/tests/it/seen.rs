//! What a run met, so that a test can say that it met everything.

use std::collections::BTreeMap;

use tidegate_shared::domain::step::{Reply, State};
use tidegate_shared::protocol::ClaimReply;

/// How often each kind of reply and turn came.
pub(crate) type Seen = BTreeMap<String, u64>;

/// Notes what a command met.
pub(crate) fn note(reply: &Reply, before: &State, after: &State, seen: &mut Seen) {
    let text = format!("{reply:?}");
    let mut words: Vec<String> = vec![
        text.split(|c: char| !c.is_alphanumeric() && c != '(')
            .next()
            .unwrap_or_default()
            .to_owned(),
    ];
    match reply {
        Reply::Settle(s) => words.push(format!("settle {:?} {:?} {:?}", s.tag, s.state, s.dead)),
        Reply::Renew(all) => words.extend(all.iter().map(|s| format!("renew {s:?}"))),
        Reply::Claim(ClaimReply::None { reason, .. }) => words.push(format!("claim {reason:?}")),
        Reply::Expire(e) => {
            words.extend((e.bodies > 0).then(|| "expire bodies".to_owned()));
            words.extend((e.records > 0).then(|| "expire records".to_owned()));
            words.extend((e.letters > 0).then(|| "expire letters".to_owned()));
            words.extend((e.overdue > 0).then(|| "expire overdue".to_owned()));
            words.extend(e.began.then(|| "epoch".to_owned()));
        }
        _ => {}
    }
    let (was, is) = (before.counters, after.counters);
    words.extend((is.lapsed > was.lapsed).then(|| "lapsed".to_owned()));
    words.extend((is.poisoned > was.poisoned).then(|| "poisoned".to_owned()));
    words.extend((is.evicted > was.evicted).then(|| "evicted".to_owned()));
    words.extend((after.clock.grace_until > before.clock.grace_until).then(|| "grace".to_owned()));
    words.extend((!after.suspects.is_empty()).then(|| "suspect".to_owned()));
    words.extend(
        (before.idempotency.len() > after.idempotency.len()).then(|| "idempotency over".to_owned()),
    );
    for word in words {
        *seen.entry(word).or_default() += 1;
    }
}
