//! What a client submitted, stored once as MessagePack and never decoded by the store.

use serde::{Deserialize, Serialize};

/// A call of the OpenAI API that a job may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    #[serde(rename = "/v1/chat/completions")]
    ChatCompletions,
    /// `/v1/completions`
    #[serde(rename = "/v1/completions")]
    Completions,
    /// `/v1/embeddings`
    #[serde(rename = "/v1/embeddings")]
    Embeddings,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 3] = [Self::ChatCompletions, Self::Completions, Self::Embeddings];

    /// The path as it is written in requests.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
        }
    }

    /// The endpoint of a path.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.path() == path)
    }
}

/// The request of a job and what travels with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// What to call.
    pub endpoint: Endpoint,
    /// The caller's JSON object, byte for byte.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// The caller's `metadata` as JSON text; empty: none.
    #[serde(default)]
    pub metadata: String,
    /// Whom to tell of the terminal; empty: nobody.
    #[serde(default)]
    pub webhook_url: String,
    /// The submitter's W3C trace context; empty: none.
    #[serde(default)]
    pub traceparent: String,
}

impl Envelope {
    /// As stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("strings and bytes always serialise")
    }

    /// Reads what was stored.
    ///
    /// # Errors
    /// Where the bytes are no envelope.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }
}
