//! Processes that are killed, stopped, frozen and thawed, and the new ones in their place.

use std::time::Instant;

use super::fault::{Fault, Role};
use super::nemesis::{Heal, Nemesis};
use crate::Signal;

impl Nemesis<'_> {
    pub(super) fn thaw(&mut self, role: Role, label: &str) {
        self.frozen.remove(label);
        if role == Role::Worker {
            self.absent.push(Instant::now());
        }
        let process = self.rig.processes().find(|process| process.label == label);
        if let Some(process) = process {
            process.signal(Signal::Cont);
        }
    }

    /// Which process of a role is hit: one that is up. None where there is none.
    fn victim(&self, role: Role, pick: u64) -> Option<usize> {
        let labels: Vec<&str> = match role {
            Role::Ingress => self
                .rig
                .ingress
                .iter()
                .map(|(p, _)| p.label.as_str())
                .collect(),
            Role::Worker => self.rig.workers.iter().map(|p| p.label.as_str()).collect(),
            Role::Reaper => self.rig.reapers.iter().map(|p| p.label.as_str()).collect(),
        };
        let up: Vec<usize> = (0..labels.len())
            .filter(|at| !self.frozen.contains(labels[*at]))
            .collect();
        let at = usize::try_from(pick).ok()?.checked_rem(up.len())?;
        Some(up[at])
    }

    pub(super) fn freeze(&mut self, role: Role, pick: u64, ms: u64, fault: &Fault) -> String {
        let Some(at) = self.victim(role, pick) else {
            return String::new();
        };
        let process = match role {
            Role::Ingress => &mut self.rig.ingress[at].0,
            Role::Worker => &mut self.rig.workers[at],
            Role::Reaper => &mut self.rig.reapers[at],
        };
        process.signal(Signal::Stop);
        let label = process.label.clone();
        self.frozen.insert(label.clone());
        self.after(ms, fault, Heal::Thaw(role, label.clone()));
        label
    }

    /// Kills a process, or asks it to stop, and starts another in its place.
    pub(super) fn end(&mut self, role: Role, pick: u64, politely: bool) -> String {
        let Some(at) = self.victim(role, pick) else {
            return String::new();
        };
        let (mut process, url) = match role {
            Role::Ingress => self.rig.ingress.remove(at),
            Role::Worker => (self.rig.workers.remove(at), String::new()),
            Role::Reaper => (self.rig.reapers.remove(at), String::new()),
        };
        if politely {
            process.signal(Signal::Term);
        } else {
            process.kill();
        }
        if role == Role::Worker && !politely {
            self.absent.push(Instant::now());
        }
        let label = process.label.clone();
        self.rig.gone.push(process);
        let new = self.rig.launch(role.as_str(), &[]);
        self.starting.push((role, new, url));
        label
    }

    /// Processes that listen by now take their place; clients are told where a new ingress is.
    pub(super) fn take_in_started(&mut self) {
        let mut at = 0;
        while at < self.starting.len() {
            let Some(url) = self.starting[at].1.listens() else {
                at += 1;
                continue;
            };
            let (role, process, old) = self.starting.remove(at);
            match role {
                Role::Worker => self.rig.workers.push(process),
                Role::Reaper => self.rig.reapers.push(process),
                Role::Ingress => {
                    let mut bases = self
                        .bases
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    bases.retain(|base| *base != old);
                    bases.push(url.clone());
                    drop(bases);
                    self.rig.ingress.push((process, url));
                }
            }
        }
    }

    /// A process that ended by itself is noted, and another started, as whoever runs it would.
    pub(super) fn replace_ended(&mut self) {
        let mut dead = Vec::new();
        for at in (0..self.rig.workers.len()).rev() {
            if let Some(how) = self.rig.workers[at].ended_by_itself() {
                dead.push((
                    Role::Worker,
                    self.rig.workers.remove(at),
                    String::new(),
                    how,
                ));
            }
        }
        for at in (0..self.rig.reapers.len()).rev() {
            if let Some(how) = self.rig.reapers[at].ended_by_itself() {
                dead.push((
                    Role::Reaper,
                    self.rig.reapers.remove(at),
                    String::new(),
                    how,
                ));
            }
        }
        for at in (0..self.rig.ingress.len()).rev() {
            if let Some(how) = self.rig.ingress[at].0.ended_by_itself() {
                let (process, url) = self.rig.ingress.remove(at);
                dead.push((Role::Ingress, process, url, how));
            }
        }
        for at in (0..self.starting.len()).rev() {
            if let Some(how) = self.starting[at].1.ended_by_itself() {
                let (role, process, url) = self.starting.remove(at);
                dead.push((role, process, url, how));
            }
        }
        for (role, process, url, how) in dead {
            self.ended.push(how);
            self.rig.gone.push(process);
            let new = self.rig.launch(role.as_str(), &[]);
            self.starting.push((role, new, url));
        }
    }
}
