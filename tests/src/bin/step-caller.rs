//! A process with a store of its own that sends the steps it is told to: the caller that the matrix of faults kills,
//! freezes and cuts off.
//!
//! Arguments: the store's address, its command time-out in milliseconds, a pool. It says `ready` once it knows the pool's clock; then,
//! for each line with a step, `ok` and the reply, or `error` and what the trouble is. It ends with its input.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_shared::config::{StoreConfig, StoreUrl};
use tidegate_shared::domain::PoolName;
use tidegate_shared::store::{Store, StoreError};
use tidegate_shared::telemetry::Metrics;
use tidegate_tests::Ask;

/// Tries to reach the store at the start, each as long as the command time-out.
const CONNECTS: usize = 20;

fn main() -> ExitCode {
    // One thread beside this one, which waits for lines.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    match serve(&runtime) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            let _ = writeln!(std::io::stderr(), "step-caller: {what}");
            ExitCode::FAILURE
        }
    }
}

fn serve(runtime: &tokio::runtime::Runtime) -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, timeout_ms, pool] = args.as_slice() else {
        return Err("arguments: address, time-out, pool".into());
    };
    let config = StoreConfig {
        url: StoreUrl::new(url.as_str()),
        command_timeout_ms: timeout_ms.parse().map_err(|e| format!("{e}"))?,
        audit: true,
        ..StoreConfig::default()
    };
    let pool: PoolName = pool.parse().map_err(|e| format!("{e}"))?;
    let store = runtime.block_on(reach(&config, &pool))?;
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let ask: Ask = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
        let answer = match runtime.block_on(ask.send(&store)) {
            Ok(reply) => format!("ok {reply}"),
            Err(StoreError::Unavailable { trouble, detail }) => {
                format!("error {} {}", trouble.as_str(), detail.replace('\n', " "))
            }
            Err(other) => return Err(other.to_string()),
        };
        say(&answer)?;
    }
    Ok(())
}

/// Connects and learns the pool's clock. On a busy machine that may take longer than a command may.
async fn reach(config: &StoreConfig, pool: &PoolName) -> Result<Store, String> {
    let mut last = String::new();
    for _ in 0..CONNECTS {
        let metrics = Arc::new(Metrics::new("matrix"));
        let store = match Store::connect(config, metrics).await {
            Ok(store) => store,
            Err(error) => {
                last = error.to_string();
                continue;
            }
        };
        match store.snapshot(pool).await {
            Ok(_) => return Ok(store),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| e.to_string())
}
