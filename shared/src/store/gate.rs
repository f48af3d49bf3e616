//! The one place that says when a connection may be made.
//!
//! A store that comes back is met by every process that uses it at once. Each process therefore makes at most a burst and
//! two for each second of any stretch of time, over all lanes, hints and waiters together: a bucket of permits that regains
//! two in a second. The burst is what one process needs to begin: [`BURST`] permits, and as many again for each listed
//! address, as each node of a cluster has lanes of its own and each Sentinel is asked. The last permits are for renewals
//! alone: after outages in a row they must not wait behind those who can.
//!
//! An address that failed is tried by one connection at a time, after a pause with jitter; the others wait for it. So an
//! outage costs fewer permits than the bucket regains, and at its end there are enough for every lane at once. Pauses grow
//! with the number of addresses that fail, so that together they are tried at most twice in a second.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng as _;
use tokio::time::Instant;

use super::slots::Address;

/// Connections at once to one node: up to 4 for steps, 2 for renewals, 1 for large replies, and a waiter; and as many again
/// for hints, the look for the nodes and waiters for further pools.
const BURST: u32 = 8;
/// Permits that only renewals may take: as many as they have connections.
const KEPT: u32 = 2;
/// Time in which the bucket regains one permit.
const REGAIN: Duration = Duration::from_millis(500);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Leases are lost while it is not there.
    Renewals,
    /// Everything else can wait.
    Other,
}

/// Lets connections through. One for each store of a process.
#[derive(Debug)]
pub(super) struct Gate {
    bucket: Mutex<Bucket>,
    doors: Mutex<HashMap<Address, Arc<Door>>>,
    /// See [`REGAIN`].
    regain: Duration,
}

/// One address.
#[derive(Debug, Default)]
struct Door {
    /// Held while a connection is made.
    turn: tokio::sync::Mutex<()>,
    /// When it may be tried again; none while it works.
    after: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Bucket {
    permits: u32,
    most: u32,
    /// When the last permit was regained.
    at: Instant,
}

impl Bucket {
    /// Takes a permit, or says when to ask again.
    fn take(&mut self, need: Need, now: Instant, regain: Duration) -> Result<(), Instant> {
        let regained = now.saturating_duration_since(self.at).as_millis() / regain.as_millis();
        let regained = u32::try_from(regained).unwrap_or(u32::MAX);
        if regained >= self.most - self.permits {
            self.permits = self.most;
            self.at = now;
        } else {
            self.permits += regained;
            self.at += regain * regained;
        }
        let kept = if need == Need::Renewals { 0 } else { KEPT };
        if self.permits <= kept {
            return Err(self.at + regain);
        }
        self.permits -= 1;
        Ok(())
    }
}

impl Gate {
    /// A gate with a full bucket, for so many listed addresses.
    pub(super) fn new(listed: usize) -> Self {
        Self::regaining(listed, REGAIN)
    }

    fn regaining(listed: usize, regain: Duration) -> Self {
        let most = BURST.saturating_mul(1 + u32::try_from(listed).unwrap_or(u32::MAX - 1));
        Self {
            bucket: Mutex::new(Bucket {
                permits: most,
                most,
                at: Instant::now(),
            }),
            doors: Mutex::default(),
            regain,
        }
    }

    /// Makes a connection to `address` when its turn has come. Safe to cancel.
    pub(super) async fn pass<T, E>(
        &self,
        address: &Address,
        need: Need,
        connect: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let door = self.door(address);
        let _turn = self.turn(&door, need).await;
        let made = connect.await;
        match made {
            Ok(_) => *lock(&door.after) = None,
            Err(_) => self.failed(address),
        }
        made
    }

    /// Waits for the door, then for a permit. Who has to wait for a permit leaves the door to others.
    async fn turn<'a>(&self, door: &'a Door, need: Need) -> tokio::sync::MutexGuard<'a, ()> {
        loop {
            let turn = door.turn.lock().await;
            let after = *lock(&door.after);
            if let Some(at) = after {
                tokio::time::sleep_until(at).await;
            }
            let taken = lock(&self.bucket).take(need, Instant::now(), self.regain);
            let Err(at) = taken else { return turn };
            drop(turn);
            tokio::time::sleep_until(at).await;
        }
    }

    /// The server at `address` cannot serve, whatever its connections say: the next one waits.
    pub(super) fn failed(&self, address: &Address) {
        let failing = {
            let doors = lock(&self.doors);
            let others = doors
                .iter()
                .filter(|(at, door)| *at != address && lock(&door.after).is_some());
            1 + u32::try_from(others.count()).unwrap_or(u32::MAX - 1)
        };
        let pause = (self.regain * failing).mul_f64(rand::rng().random_range(1.0..1.5));
        *lock(&self.door(address).after) = Some(Instant::now() + pause);
    }

    /// Forgets addresses that nobody uses any more.
    pub(super) fn keep(&self, used: &[Address]) {
        lock(&self.doors).retain(|address, _| used.contains(address));
    }

    fn door(&self, address: &Address) -> Arc<Door> {
        Arc::clone(lock(&self.doors).entry(Arc::clone(address)).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    /// The real one is this much slower.
    const FASTER: f64 = 20.0;

    /// Tries of 12 lanes at each of `addresses` within `seconds`, each as its second; `works` may let one succeed.
    async fn tries(addresses: usize, seconds: f64, works: fn(f64) -> bool) -> Vec<f64> {
        let gate = Arc::new(Gate::regaining(1, REGAIN.div_f64(FASTER)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        let mut lanes = JoinSet::new();
        for lane in 0..12 * addresses {
            let address: Address = format!("n{}", lane % addresses).into();
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            lanes.spawn(async move {
                loop {
                    let one = async {
                        let at = start.elapsed().as_secs_f64() * FASTER;
                        lock(&seen).push(at);
                        if works(at) { Ok(()) } else { Err(()) }
                    };
                    // A connection that was made is lost at once, the worst there is.
                    let _ = gate.pass(&address, Need::Other, one).await;
                    tokio::task::yield_now().await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs_f64(seconds / FASTER)).await;
        lanes.shutdown().await;
        let seen = lock(&seen);
        seen.clone()
    }

    /// No stretch of time has more tries than `burst` and two for each of its seconds.
    fn bounded(at: &[f64], burst: f64) {
        for (n, from) in at.iter().enumerate() {
            for (m, to) in at.iter().enumerate().skip(n) {
                #[allow(clippy::cast_precision_loss, reason = "they are few")]
                let count = (m - n + 1) as f64;
                assert!(
                    count <= burst + 2.0 * (to - from) + 1.1,
                    "{count} from {from} to {to}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_store_that_cuts_every_connection_is_asked_twice_in_a_second() {
        let at = tries(1, 30.0, |_| true).await;
        bounded(&at, f64::from(2 * BURST));
        assert!(at.len() > 30, "{} in half a minute", at.len());
    }

    #[tokio::test]
    async fn addresses_that_fail_are_tried_twice_in_a_second_all_together() {
        for addresses in [1, 3] {
            let at = tries(addresses, 30.0, |_| false).await;
            #[allow(clippy::cast_precision_loss, reason = "they are few")]
            bounded(&at, addresses as f64);
            assert!(at.len() > 10, "{addresses}: {}", at.len());
        }
    }

    #[tokio::test]
    async fn after_an_outage_every_lane_is_back_at_once() {
        let at = tries(1, 30.0, |at| at >= 20.0).await;
        bounded(&at, f64::from(2 * BURST));
        let back = at.iter().find(|at| **at >= 20.0).copied();
        let back = back.expect("it is tried");
        // A burst lasts as long as the machine lets it; at two in a second these would take six.
        let with_it = at.iter().filter(|at| (back..back + 4.0).contains(*at));
        assert!(with_it.count() >= 16, "some lanes wait on");
    }
    #[tokio::test(start_paused = true)]
    async fn renewals_pass_where_all_others_have_to_wait() {
        let gate = Gate::new(1);
        let address: Address = "n".into();
        let works = || std::future::ready(Ok::<_, ()>(()));
        for _ in 0..2 * BURST - KEPT {
            gate.pass(&address, Need::Other, works()).await.unwrap();
        }
        let other = gate.pass(&address, Need::Other, works());
        let mut other = std::pin::pin!(other);
        let start = Instant::now();
        tokio::select! {
            biased;
            _ = &mut other => panic!("nothing is left for it"),
            () = async {
                for _ in 0..KEPT {
                    gate.pass(&address, Need::Renewals, works()).await.unwrap();
                }
            } => {}
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        other.await.unwrap();
        // The reserve is filled up first.
        assert_eq!(start.elapsed(), REGAIN * (KEPT + 1));
    }
}
