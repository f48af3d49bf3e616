//! Directory data under its own hash tag: the names of pools, and API keys by id.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Store, StoreError};
use crate::config::PoolConfig;
use crate::domain::{PoolName, UnknownWord};
use crate::protocol::{Apply, ApplyReply, SCHEMA};

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Submit, read and cancel its tenant's jobs.
    Jobs,
    /// Read what operators see.
    Read,
    /// Everything.
    Admin,
}

impl FromStr for Scope {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "jobs" => Ok(Self::Jobs),
            "read" => Ok(Self::Read),
            "admin" => Ok(Self::Admin),
            other => Err(UnknownWord {
                kind: "scope",
                word: other.to_owned(),
            }),
        }
    }
}

/// An API key as stored: its secret only as a digest. The secret has 256 random bits, so a slow hash would add nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyRecord {
    /// Public part of the key.
    pub id: String,
    /// Who the key speaks for.
    pub tenant: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// SHA-256 of the secret, in hex.
    pub hash: String,
    /// Wall clock, in ms since 1970.
    pub created_at_ms: u64,
    /// Wall clock, in ms since 1970.
    pub expires_at_ms: Option<u64>,
}

impl ApiKeyRecord {
    /// Mints a key. Returns its record, and the key itself, which is shown this once.
    pub fn mint(
        tenant: &str,
        scopes: Vec<Scope>,
        now_ms: u64,
        expires_at_ms: Option<u64>,
    ) -> (Self, String) {
        let id = hex(&rand::random::<[u8; 8]>());
        let secret = hex(&rand::random::<[u8; 32]>());
        let record = Self {
            hash: digest(&secret),
            tenant: tenant.to_owned(),
            scopes,
            created_at_ms: now_ms,
            expires_at_ms,
            id: id.clone(),
        };
        (record, format!("tgk_{id}_{secret}"))
    }

    /// Whether `secret` is this key's, in constant time.
    pub fn matches(&self, secret: &str) -> bool {
        digest(secret).as_bytes().ct_eq(self.hash.as_bytes()).into()
    }

    /// Whether the key is over at `now_ms`.
    pub fn expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at| at <= now_ms)
    }

    /// Splits a presented key into id and secret.
    pub fn split(key: &str) -> Option<(&str, &str)> {
        key.strip_prefix("tgk_")?.split_once('_')
    }
}

fn digest(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A pool as defined in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDef {
    /// Rises with each change.
    pub version: u64,
    /// No claims.
    pub paused: bool,
    /// No submits.
    pub draining: bool,
    /// Its settings.
    pub config: PoolConfig,
}

/// A pool's name may not start with `_`, so this tag is nobody else's.
pub(super) fn key(name: &str) -> String {
    format!("tg{SCHEMA}:{{_directory}}:{name}")
}

impl Store {
    /// Names of all pools, sorted.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn pools(&self) -> Result<Vec<PoolName>, StoreError> {
        let key = self::key("pools");
        let names: Vec<String> = self.command(redis::cmd("SMEMBERS").arg(key)).await?;
        let mut pools: Vec<PoolName> = names.iter().filter_map(|name| name.parse().ok()).collect();
        pools.sort();
        Ok(pools)
    }

    /// A pool's definition; none where there is no such pool.
    ///
    /// # Errors
    /// Where the store cannot say, or the definition is not readable.
    pub async fn pool(&self, pool: &PoolName) -> Result<Option<PoolDef>, StoreError> {
        let key = format!("{}:pool", crate::protocol::base(pool));
        type Fields = (Option<String>, Option<u64>, Option<String>, Option<String>);
        let (def, version, paused, draining): Fields = self
            .command(
                redis::cmd("HMGET")
                    .arg(key)
                    .arg(&["def", "version", "paused", "draining"]),
            )
            .await?;
        let Some(def) = def else { return Ok(None) };
        let config = serde_json::from_str(&def)
            .map_err(|e| StoreError::Corrupt(format!("definition of pool {pool}: {e}")))?;
        let on = |switch: Option<String>| switch.as_deref() == Some("1");
        Ok(Some(PoolDef {
            version: version.unwrap_or(0),
            paused: on(paused),
            draining: on(draining),
            config,
        }))
    }

    /// Gives a pool its settings and enters it in the directory.
    ///
    /// # Errors
    /// Where the store cannot say; sent again it does the rest.
    pub async fn apply(
        &self,
        pool: &PoolName,
        config: &PoolConfig,
    ) -> Result<ApplyReply, StoreError> {
        let step = Apply {
            pool: pool.clone(),
            config: config.clone(),
        };
        let reply = self.run(&step).await?;
        let (key, name) = (self::key("pools"), pool.to_string());
        self.command::<()>(redis::cmd("SADD").arg(key).arg(name))
            .await?;
        Ok(reply)
    }

    /// Stores an API key's record.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn put_key(&self, record: &ApiKeyRecord) -> Result<(), StoreError> {
        let (key, id) = (self::key("keys"), record.id.clone());
        let json = serde_json::to_string(record).expect("records always serialise");
        self.command::<()>(redis::cmd("HSET").arg(key).arg(id).arg(json))
            .await
    }

    /// An API key's record.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn key(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreError> {
        let (key, id) = (self::key("keys"), id.to_owned());
        let json: Option<String> = self.command(redis::cmd("HGET").arg(key).arg(id)).await?;
        json.map(|json| read_key(&json)).transpose()
    }

    /// Every API key's record, by id.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        let key = self::key("keys");
        let all: Vec<String> = self.command(redis::cmd("HVALS").arg(key)).await?;
        let mut records = all
            .iter()
            .map(|json| read_key(json))
            .collect::<Result<Vec<_>, _>>()?;
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(records)
    }

    /// Ends an API key. False where there is none of that id.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn revoke_key(&self, id: &str) -> Result<bool, StoreError> {
        let (key, id) = (self::key("keys"), id.to_owned());
        let gone: u64 = self.command(redis::cmd("HDEL").arg(key).arg(id)).await?;
        Ok(gone == 1)
    }
}

fn read_key(json: &str) -> Result<ApiKeyRecord, StoreError> {
    serde_json::from_str(json)
        .map_err(|e| StoreError::Corrupt(format!("record of an API key: {e}")))
}
