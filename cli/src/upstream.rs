//! The model server of `tidegate dev`: the one named, else one on the usual local ports, else a simulated one.

use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use tidegate_loadtest::gpu;

use crate::exit::Failure;

/// Where model servers listen by default.
const USUAL: [(u16, &str); 4] = [
    (8000, "vLLM"),
    (30000, "SGLang"),
    (8080, "llama.cpp"),
    (11434, "Ollama"),
];
/// A server on this machine answers within it, or is not there.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);
/// For a server that was named: it may be far away.
const NAMED_TIMEOUT: Duration = Duration::from_secs(5);
/// Models kept of a server's list: what a pool may have.
const MAX_MODELS: usize = 256;
/// Largest list of models that is read, in bytes.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// The simulated server's model.
const SIMULATED_MODEL: &str = "sim-8b";

/// A model server and what it serves.
pub(crate) struct Upstream {
    /// Address without a slash at its end.
    pub(crate) url: String,
    /// Its models, at least one.
    pub(crate) models: Vec<String>,
    /// What it is, for people.
    pub(crate) what: String,
    /// Keeps the simulated server alive.
    pub(crate) simulated: Option<gpu::Server>,
}

impl Upstream {
    /// The model that a sample job asks: the first that is not for embeddings.
    pub(crate) fn chat_model(&self) -> &str {
        let chat = self
            .models
            .iter()
            .find(|model| !model.to_lowercase().contains("embed"));
        chat.or(self.models.first())
            .map_or(SIMULATED_MODEL, String::as_str)
    }
}

/// Finds the model server.
pub(crate) async fn find(named: Option<&str>) -> Result<Upstream, Failure> {
    if let Some(url) = named {
        let url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let models = models(&url, NAMED_TIMEOUT).await.map_err(|why| {
            Failure::Unreachable(format!(
                "--upstream: {url} is no model server that can be used: {why}"
            ))
        })?;
        return Ok(Upstream {
            what: "the one named".into(),
            url,
            models,
            simulated: None,
        });
    }
    for (port, what) in USUAL {
        let url = format!("http://127.0.0.1:{port}");
        if let Ok(models) = models(&url, PROBE_TIMEOUT).await {
            return Ok(Upstream {
                what: format!("{what}, by its port"),
                url,
                models,
                simulated: None,
            });
        }
    }
    let config = gpu::Config {
        models: vec![SIMULATED_MODEL.into()],
        ..gpu::Config::default()
    };
    let server = gpu::Server::start(config)
        .await
        .map_err(|error| Failure::Error(format!("{error:#}")))?;
    Ok(Upstream {
        url: server.url(),
        models: vec![SIMULATED_MODEL.into()],
        what: "simulated: none was found on the usual local ports".into(),
        simulated: Some(server),
    })
}

/// The models that the server at `url` says it has.
async fn models(url: &str, limit: Duration) -> Result<Vec<String>, String> {
    let text = |error: reqwest::Error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(below) = cause.source() {
            cause = below;
        }
        cause.to_string()
    };
    let client = Client::builder()
        .timeout(limit)
        .no_proxy()
        .build()
        .map_err(text)?;
    let mut answer = client
        .get(format!("{url}/v1/models"))
        .send()
        .await
        .map_err(text)?;
    if !answer.status().is_success() {
        return Err(format!("GET /v1/models answers {}", answer.status()));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(text)? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_LIST_BYTES {
            return Err("its list of models is too large".into());
        }
    }
    let list: Value =
        serde_json::from_slice(&body).map_err(|_| "GET /v1/models answers no JSON".to_owned())?;
    match ids(&list) {
        models if models.is_empty() => Err("it serves no model".into()),
        models => Ok(models),
    }
}

fn ids(list: &Value) -> Vec<String> {
    let models = list["data"].as_array().into_iter().flatten();
    models
        .filter_map(|model| model["id"].as_str())
        .take(MAX_MODELS)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sample_job_asks_a_model_that_chats() {
        let models = ids(&json!({"data": [{"id": "nomic-Embed"}, {"id": "llama"}, {"no": 1}]}));
        let upstream = Upstream {
            url: String::new(),
            models,
            what: String::new(),
            simulated: None,
        };
        assert_eq!(upstream.models, ["nomic-Embed", "llama"]);
        assert_eq!(upstream.chat_model(), "llama");
        assert!(ids(&json!({"object": "error"})).is_empty());
    }
}
