//! What the server says of itself, against what we rest on.

use super::Finding;
use crate::config::Durability;
use crate::store::{Given, ServerFacts};

/// Above this share of its memory the server is close to refusing submits, in percent.
const NEARLY_FULL: u64 = 90;

/// Judges the server against the durability that was asked for, and its replicas where that is `replicated`.
pub(super) fn judge(server: &ServerFacts, asked: Durability, wanted: u32) -> Vec<Finding> {
    let mut found = vec![
        version(server),
        role(server),
        eviction(server),
        persistence(server, asked),
        memory(server),
    ];
    if asked == Durability::Replicated {
        found.push(replicas(server, wanted));
    }
    found
}

fn replicas(server: &ServerFacts, wanted: u32) -> Finding {
    let id = "redis.replicas";
    let text = format!(
        "{} of {wanted} replicas follow the primary",
        server.replicas
    );
    if server.replicas >= u64::from(wanted) {
        return Finding::pass(id, text);
    }
    Finding::fail(
        id,
        format!("{text}: submits, and reads of what ended, answer 503 until they do"),
        "bring the replicas back, or lower store.replicas",
    )
}

fn version(server: &ServerFacts) -> Finding {
    let text = format!("{} {}", server.server, server.version);
    if server.is_too_old() {
        return Finding::fail("redis.version", text, "use Redis 7.0 or newer, or Valkey");
    }
    Finding::pass("redis.version", text)
}

fn role(server: &ServerFacts) -> Finding {
    if server.role == "master" {
        return Finding::pass("redis.role", "primary");
    }
    let text = format!("the server is `{}`: it takes no writes", server.role);
    Finding::fail("redis.role", text, "point store.url at the primary")
}

fn eviction(server: &ServerFacts) -> Finding {
    let policy = &server.maxmemory_policy;
    if server.evicts() {
        let text = format!("maxmemory-policy is `{policy}`: accepted jobs may be dropped");
        return Finding::fail(
            "redis.eviction",
            text,
            "CONFIG SET maxmemory-policy noeviction",
        );
    }
    if policy != "noeviction" {
        let text =
            format!("maxmemory-policy is `{policy}`, harmless only while maxmemory is not set");
        return Finding::warn(
            "redis.eviction",
            text,
            "CONFIG SET maxmemory-policy noeviction",
        );
    }
    Finding::pass("redis.eviction", "noeviction")
}

fn persistence(server: &ServerFacts, asked: Durability) -> Finding {
    let id = "redis.persistence";
    // Replicas are a finding of their own.
    let on_disk = match asked {
        Durability::Replicated => Durability::Strict,
        asked => asked,
    };
    let (enough, line) = server.durability_line(on_disk, 0);
    if enough {
        return Finding::pass(id, line);
    }
    if server.given() == Given::Unknown {
        return Finding::warn(
            id,
            line,
            "allow CONFIG GET appendfsync, or check the server's settings by hand",
        );
    }
    let fsync = if asked == Durability::Relaxed {
        "everysec"
    } else {
        "always"
    };
    Finding::fail(
        id,
        line,
        format!("CONFIG SET appendonly yes; CONFIG SET appendfsync {fsync}"),
    )
}

fn memory(server: &ServerFacts) -> Finding {
    let id = "redis.memory";
    let used = server.used_memory;
    if server.maxmemory == 0 {
        let text = format!(
            "{used} bytes used; maxmemory is not set: the system ends the server when memory is short"
        );
        return Finding::warn(id, text, "set maxmemory below the memory of its host");
    }
    // In parts of a hundred, without overflow on any real machine.
    let share = used.saturating_mul(100) / server.maxmemory;
    let text = format!("{share}% of {} bytes used", server.maxmemory);
    match share {
        0..NEARLY_FULL => Finding::pass(id, text),
        NEARLY_FULL..100 => Finding::warn(
            id,
            text,
            "raise maxmemory, or lower max_queued_bytes and retentions",
        ),
        _ => Finding::fail(
            id,
            format!("{text}: submits are refused"),
            "raise maxmemory, or purge dead letters",
        ),
    }
}
