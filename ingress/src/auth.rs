//! Who calls, and what they may do. A request's tenant is its key's, never a header's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use tidegate_shared::config::AuthMode;
use tidegate_shared::store::{ApiKeyRecord, Scope, Store};

use crate::error::{Code, Problem};

/// How long a verified key is taken at its word: a revoked one is out within it, and a busy client costs the store one
/// look-up in that time.
const KEY_TTL: Duration = Duration::from_secs(2);
/// Keys remembered at once; beyond it all are forgotten and asked for again.
const MAX_KEYS: usize = 10_000;
/// Longest key that is looked at, in bytes; ours have 85.
const MAX_KEY_BYTES: usize = 256;
/// Tenant of everybody where no keys are asked for.
const OPEN_TENANT: &str = "default";

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Who pays.
    pub(crate) tenant: String,
    scopes: Vec<Scope>,
}

impl Caller {
    /// Whether the caller may do everything.
    pub(crate) fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// Whose things the caller sees; none: everybody's.
    pub(crate) fn sees(&self) -> Option<String> {
        (!self.is_admin()).then(|| self.tenant.clone())
    }

    /// Refuses a caller whose key has not this scope.
    pub(crate) fn need(&self, scope: Scope) -> Result<(), Problem> {
        if self.is_admin() || self.scopes.contains(&scope) {
            return Ok(());
        }
        let name = match scope {
            Scope::Jobs => "jobs",
            Scope::Read => "read",
            Scope::Admin => "admin",
        };
        Err(Problem::new(
            Code::Forbidden,
            format!("the API key lacks the scope `{name}`"),
        ))
    }
}

type Verified = HashMap<[u8; 32], (Arc<Caller>, Instant)>;

/// Verifies keys.
pub(crate) struct Auth {
    mode: AuthMode,
    store: Store,
    /// By digest: no key is kept in memory as it is.
    verified: Mutex<Verified>,
    /// Stands in for a key that is not there, so that an unknown id takes the same work as a wrong secret.
    nobody: ApiKeyRecord,
}

impl Auth {
    /// Keys as `mode` wants them, out of `store`.
    pub(crate) fn new(mode: AuthMode, store: Store) -> Self {
        let (nobody, _) = ApiKeyRecord::mint("nobody", Vec::new(), 0, None);
        Self {
            mode,
            store,
            verified: Mutex::default(),
            nobody,
        }
    }

    /// Who sent a request with these headers.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Problem> {
        if self.mode == AuthMode::Open {
            let scopes = vec![Scope::Jobs, Scope::Read, Scope::Admin];
            return Ok(Arc::new(Caller {
                tenant: OPEN_TENANT.into(),
                scopes,
            }));
        }
        let key = presented(headers)?;
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        if let Some(caller) = self.remembered(&digest) {
            return Ok(caller);
        }
        let (id, secret) = ApiKeyRecord::split(key).unwrap_or(("", ""));
        let record = if id.is_empty() {
            None
        } else {
            self.store.key(id).await?
        };
        let matches = record.as_ref().unwrap_or(&self.nobody).matches(secret);
        match record {
            Some(record) if matches && !record.expired(wall_ms()) => {
                let caller = Arc::new(Caller {
                    tenant: record.tenant,
                    scopes: record.scopes,
                });
                self.remember(digest, &caller);
                Ok(caller)
            }
            _ => Err(refused("the API key is not valid")),
        }
    }

    fn remembered(&self, digest: &[u8; 32]) -> Option<Arc<Caller>> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let (caller, since) = verified.get(digest)?;
        (since.elapsed() < KEY_TTL).then(|| Arc::clone(caller))
    }

    fn remember(&self, digest: [u8; 32], caller: &Arc<Caller>) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= MAX_KEYS {
            verified.clear();
        }
        verified.insert(digest, (Arc::clone(caller), Instant::now()));
    }
}

fn refused(detail: &str) -> Problem {
    Problem::new(
        Code::Unauthorized,
        format!("{detail}; send `Authorization: Bearer tgk_…`"),
    )
}

/// The key in the request's header.
fn presented(headers: &HeaderMap) -> Result<&str, Problem> {
    let value = headers
        .get(AUTHORIZATION)
        .ok_or_else(|| refused("there is no API key"))?;
    let text = value
        .to_str()
        .map_err(|_| refused("the API key is not valid"))?;
    match text.split_once(' ') {
        Some((scheme, key))
            if scheme.eq_ignore_ascii_case("bearer") && key.len() <= MAX_KEY_BYTES =>
        {
            Ok(key.trim())
        }
        _ => Err(refused("the API key is not valid")),
    }
}

/// Wall clock in ms since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the expiry of a key is a date, not a time that elapses"
)]
fn wall_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn caller(scopes: &[Scope]) -> Caller {
        Caller {
            tenant: "acme".into(),
            scopes: scopes.to_vec(),
        }
    }

    #[test]
    fn a_scope_opens_its_own_routes_and_admin_opens_all() {
        for scope in [Scope::Jobs, Scope::Read, Scope::Admin] {
            assert!(caller(&[scope]).need(scope).is_ok());
            assert!(caller(&[Scope::Admin]).need(scope).is_ok());
            assert_eq!(caller(&[]).need(scope).unwrap_err().code(), "forbidden");
        }
        assert!(
            caller(&[Scope::Jobs, Scope::Read])
                .need(Scope::Admin)
                .is_err()
        );
        assert_eq!(caller(&[Scope::Jobs]).sees(), Some("acme".into()));
        assert_eq!(caller(&[Scope::Admin]).sees(), None);
    }

    #[test]
    fn only_a_bearer_is_a_key() {
        let key = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            presented(&headers).map(str::to_owned)
        };
        assert_eq!(key("Bearer tgk_a_b"), Ok("tgk_a_b".into()));
        assert_eq!(key("bearer tgk_a_b"), Ok("tgk_a_b".into()));
        for bad in [
            "Basic eDp5",
            "tgk_a_b",
            "",
            &format!("Bearer {}", "x".repeat(300)),
        ] {
            assert_eq!(key(bad).unwrap_err().code(), "unauthorized", "{bad}");
        }
        assert_eq!(
            presented(&HeaderMap::new()).unwrap_err().code(),
            "unauthorized"
        );
    }
}
