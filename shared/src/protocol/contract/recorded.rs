//! A recorded command is read back as it was sent.

use super::samples::{Visitor, each_step};
use crate::audit;
use crate::domain::step::Action;
use crate::protocol::{Call, Op, Step};

/// The command that `action` is sent as.
fn bind(action: &Action, deadline_ms: u64) -> Call {
    match action {
        Action::Submit(step) => step.bind(deadline_ms),
        Action::Claim(step) => step.bind(deadline_ms),
        Action::Renew(step) => step.bind(deadline_ms),
        Action::Settle(step) => step.bind(deadline_ms),
        Action::Append(step) => step.bind(deadline_ms),
        Action::Follow(step) => step.bind(deadline_ms),
        Action::Cancel(step) => step.bind(deadline_ms),
        Action::Requeue(step) => step.bind(deadline_ms),
        Action::Purge(step) => step.bind(deadline_ms),
        Action::Expire(step) => step.bind(deadline_ms),
        Action::Beat(step) => step.bind(deadline_ms),
        Action::Apply(step) => step.bind(deadline_ms),
        Action::Pause(step) => step.bind(deadline_ms),
        Action::TakeMarker | Action::Jump { .. } => panic!("{action:?} is no step"),
    }
}

#[test]
fn every_step_that_writes_is_read_back_from_its_arguments_as_it_was() {
    struct Check;
    impl Visitor for Check {
        fn visit<S: Step>(&mut self, step: &S) {
            let (call, op) = (step.bind(7), Op::mint());
            let mut values = call.args.clone();
            values.push(op.as_str().as_bytes().to_vec());
            let read = audit::recorded(S::SCRIPT.name, step.pool(), values);
            if !S::SCRIPT.writes() {
                assert!(read.is_err(), "{}: nothing to record", S::SCRIPT.name);
                return;
            }
            let (command, sent_as) = read.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(sent_as, op);
            assert_eq!(
                bind(&command.action, command.deadline_ms).args,
                call.args,
                "{}",
                S::SCRIPT.name
            );
        }
    }
    each_step(&mut Check);
}

#[test]
fn what_is_shipped_records_nothing_and_what_reads_alone_is_never_changed() {
    for script in super::ALL {
        assert!(!script.source().contains(":audit'"), "{}", script.name);
        let audited = script.audited_source();
        assert_eq!(
            audited.contains(&format!("'step', '{}'", script.name)),
            script.writes(),
            "{}",
            script.name
        );
        if !script.writes() {
            assert_eq!(audited, script.source());
        }
    }
}
