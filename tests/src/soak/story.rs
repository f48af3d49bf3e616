//! What a client does with one job, and how the model answers it: drawn from the seed and the job's number alone.

use serde_json::{Value, json};
use tidegate_loadtest::gpu::{CutHow, Script};

use super::random::Random;

/// Tenants whose clients submit.
pub(crate) const TENANTS: [&str; 3] = ["acme", "birch", "cedar"];
/// Which stream of numbers stories are drawn from.
const PURPOSE: u64 = 1;
/// The rig's lease in milliseconds.
pub(crate) const LEASE_MS: u64 = 2_000;

/// How the model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Within 20 ms.
    Quick,
    /// A fraction of a lease.
    Slow,
    /// Several leases.
    Long,
    /// Fails so often, then answers.
    Flaky,
    /// Fails each time.
    Broken,
    /// A refusal that will never change.
    Refused,
    /// Never ends.
    Hangs,
}

/// When the client asks for a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// Never.
    Never,
    /// So many milliseconds after the job was accepted.
    After(u64),
}

/// One client's way with one job.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Number of the job in its run.
    pub(crate) n: u32,
    /// Index into [`TENANTS`].
    pub(crate) tenant: usize,
    /// Sent with an idempotency key, and sent again where the outcome is unknown.
    pub(crate) keyed: bool,
    /// The first try is given up after so long, in milliseconds; its outcome is then unknown.
    pub(crate) abandon_ms: Option<u64>,
    /// Sent twice at once under the same key.
    pub(crate) doubled: bool,
    /// A cancel.
    pub(crate) cancel: Cancel,
    /// Its events are read.
    pub(crate) follow: bool,
    /// Another tenant asks for it.
    pub(crate) peek: bool,
    /// A dead letter gets so many further lives.
    pub(crate) requeues: u32,
    /// Two requeues are sent at once.
    pub(crate) requeue_twice: bool,
    /// The client waits for the end; otherwise only the lists at the end of the run show it.
    pub(crate) watch: bool,
    submission: Value,
}

impl Story {
    /// The story of job `n`. Of a thousand clients `watch_permille` wait for the end of their job.
    pub(crate) fn draw(seed: u64, n: u32, watch_permille: u64) -> Self {
        let mut random = Random::new(seed, PURPOSE, n.into());
        let random = &mut random;
        let answer = random.pick(&[
            (739, Answer::Quick),
            (180, Answer::Slow),
            (4, Answer::Long),
            (45, Answer::Flaky),
            (12, Answer::Broken),
            (14, Answer::Refused),
            (6, Answer::Hangs),
        ]);
        let (prompt, work_ms) = prompt(random, n, answer);
        let cancel = match random.below(1_000) {
            0..10 => Cancel::After(0),
            10..30 => Cancel::After(random.below(400)),
            // About when the answer is due: it waits a little before, and is published a little after.
            30..70 => Cancel::After(work_ms.min(1_000) + random.below(25)),
            _ => Cancel::Never,
        };
        let keyed = random.chance(920);
        Self {
            n,
            tenant: usize::try_from(random.below(TENANTS.len() as u64)).unwrap_or(0),
            keyed,
            abandon_ms: (keyed && random.chance(25)).then(|| random.between(1, 30)),
            doubled: keyed && random.chance(10),
            cancel,
            follow: random.chance(12),
            peek: random.chance(15),
            requeues: if random.chance(600) { 1 } else { 0 },
            requeue_twice: random.chance(500),
            watch: random.chance(watch_permille),
            submission: submission(random, prompt, answer),
        }
    }

    /// The body of the submission.
    pub(crate) fn submission(&self) -> &Value {
        &self.submission
    }

    /// The idempotency key.
    pub(crate) fn key(&self) -> String {
        format!("soak-{}", self.n)
    }

    /// Stands in the model's good answer and in no other job's.
    pub(crate) fn mark(&self) -> String {
        mark(self.n)
    }
}

/// The text of job `n`'s good answer.
fn mark(n: u32) -> String {
    format!("answer-of-{n}.")
}

/// The prompt with its script, and how long the model works on a good answer, in milliseconds.
fn prompt(random: &mut Random, n: u32, answer: Answer) -> (String, u64) {
    let good = Script::tag(format!("j{n}")).text(&mark(n));
    let quick_ms = random.between(1, 20);
    let (script, work_ms) = match answer {
        Answer::Quick => (good.sleep_ms(quick_ms), quick_ms),
        Answer::Slow => {
            let ms = random.between(80, 320);
            (good.sleep_ms(ms), ms)
        }
        Answer::Long => {
            let ms = random.between(2 * LEASE_MS + 200, 3 * LEASE_MS);
            (good.sleep_ms(ms), ms)
        }
        Answer::Flaky => {
            let times = u32::try_from(random.between(1, 2)).unwrap_or(1);
            (misbehave(random, good).fail_times(times), quick_ms)
        }
        Answer::Broken => (misbehave(random, good), quick_ms),
        Answer::Refused => (good.status(400_u16), quick_ms),
        Answer::Hangs => (good.sleep_ms(600_000_u64), quick_ms),
    };
    (format!("{script} {}", mark(n)), work_ms)
}

/// One of the ways in which model servers fail.
fn misbehave(random: &mut Random, script: Script) -> Script {
    match random.below(8) {
        0 => script.status(500_u16),
        1 => script.status(429_u16),
        2 => script.status(503_u16).header("retry-after", "1"),
        3 => script.refuse(),
        4 => script.cut_chunks(0_u32).cut_how(CutHow::Reset),
        5 => script.cut_chunks(0_u32).cut_how(CutHow::Half),
        6 => script
            .raw(b"this is not what was asked for")
            .header("content-type", "application/json"),
        _ => script.status(529_u16),
    }
}

fn submission(random: &mut Random, prompt: String, answer: Answer) -> Value {
    let mut body =
        json!({"model": "m", "body": {"messages": [{"role": "user", "content": prompt}]}});
    if random.chance(400) {
        body["priority"] = random.below(10).into();
    }
    let delay_ms = if random.chance(60) {
        random.between(1, 800)
    } else {
        0
    };
    if delay_ms > 0 {
        body["delay_ms"] = delay_ms.into();
    }
    if random.chance(50) {
        // Beyond the delay: a job that cannot be in time is refused.
        body["deadline_ms"] = (delay_ms + random.between(30, 2_500)).into();
    }
    if random.chance(300) {
        body["max_attempts"] = random.between(1, 4).into();
    }
    if answer == Answer::Hangs {
        body["timeout_ms"] = random.between(300, 900).into();
        body["max_attempts"] = random.between(1, 2).into();
    }
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_story_follows_from_its_seed_and_names_its_job() {
        for n in 0..200 {
            let story = Story::draw(5, n, 1_000);
            let again = Story::draw(5, n, 1_000);
            assert_eq!(story.submission(), again.submission());
            let sent = story.submission().to_string();
            assert!(sent.contains(&story.mark()), "{sent}");
            Script::parse_all(&sent.replace("\\\"", "\"")).unwrap();
        }
    }
}
