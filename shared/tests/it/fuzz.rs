//! What a store, a file or a client may hold in place of what we wrote, damaged: nothing panics, and what is read is what
//! was written.

use serde_json::Value;
use tidegate_shared::config::{Config, PoolConfig};
use tidegate_shared::domain::{Envelope, JobId, Owner, PoolName, WorkerId};

use self::mutate::fuzz;

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

#[test]
fn damaged_ids_are_refused_or_the_same_text_again() {
    fuzz("id", |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        if let Ok(id) = text.parse::<JobId>() {
            assert_eq!(id.to_string(), text);
            let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            assert!(
                id.bare().chars().all(safe) && id.pool().as_str().chars().all(safe),
                "{text}"
            );
        }
        if let Ok(pool) = text.parse::<PoolName>() {
            assert_eq!(pool.as_str(), text);
            assert!(
                !text.contains(['{', '}', ':', '\r', '\n', '\0']),
                "{text:?}"
            );
        }
        assert!(
            Owner::parse(text).is_ok_and(|owner| owner.expose() == text)
                || Owner::parse(text).is_err()
        );
        assert!(
            WorkerId::parse(text).is_ok_and(|id| id.as_str() == text)
                || WorkerId::parse(text).is_err()
        );
    });
}

#[test]
fn damaged_files_are_settings_or_named_problems() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    fuzz("config", |input| {
        std::fs::write(&file, input).unwrap();
        match Config::load(Some(&file), std::iter::empty(), &[]) {
            Ok(loaded) => {
                for pool in loaded.config.pools.values() {
                    assert!(pool.lease_ms > pool.renew_ms, "{pool:?}");
                }
            }
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    });
}

#[test]
fn damaged_pools_of_the_api_are_settings_or_named_problems() {
    fuzz("pool", |input| {
        let Ok(Value::Object(settings)) = serde_json::from_slice(input) else {
            return;
        };
        match PoolConfig::from_json("gpu", &settings) {
            Ok(pool) => assert!(pool.lease_ms > pool.renew_ms, "{pool:?}"),
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    });
}

#[test]
fn damaged_envelopes_are_refused_or_read_the_same_again() {
    fuzz("envelope", |input| {
        if let Ok(envelope) = Envelope::from_bytes(input) {
            assert_eq!(
                Envelope::from_bytes(&envelope.to_bytes()).unwrap(),
                envelope
            );
        }
    });
    let written = Envelope::from_bytes(&mutate::corpus("envelope")[1]);
    assert!(written.is_ok(), "the corpus has a good one: {written:?}");
}
