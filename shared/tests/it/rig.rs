//! A private server, and steps sent to it one by one.

use std::collections::HashMap;

use redis::Connection;
use tidegate_shared::audit::dump::{self, Dump};
use tidegate_shared::audit::{self, Entry};
use tidegate_shared::domain::PoolName;
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{self, Op, Outcome, Step, Value, script};

/// A server of its own and a connection to it.
pub(crate) struct Rig {
    pub(crate) connection: Connection,
    hashes: HashMap<&'static str, String>,
    // Ends last.
    _server: LocalServer,
}

impl Rig {
    /// Starts a server and loads every step's script, which it must compile.
    pub(crate) fn start() -> Self {
        Self::start_with(|_, source| source)
    }

    /// The same with scripts that `change` may have changed; it gets each script's name and text.
    pub(crate) fn start_with(change: impl Fn(&str, String) -> String) -> Self {
        let server = LocalServer::start(LocalOptions::default()).unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut hashes = HashMap::new();
        for script in script::ALL {
            let hash: String = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(change(script.name, script.source()))
                .query(&mut connection)
                .unwrap_or_else(|e| panic!("{}: {e}", script.name));
            hashes.insert(script.name, hash);
        }
        Self {
            connection,
            hashes,
            _server: server,
        }
    }

    /// Starts a server whose scripts record what they do; `change` as above.
    pub(crate) fn start_audited_with(change: impl Fn(&str, String) -> String) -> Self {
        Self::start_with(|name, _| {
            let script = script::ALL.iter().find(|script| script.name == name);
            change(name, script.unwrap().audited_source())
        })
    }

    /// The record of a pool.
    pub(crate) fn record(&mut self, pool: &PoolName) -> Vec<Entry> {
        type Row = (String, Vec<(String, Vec<u8>)>);
        let rows: Vec<Row> = self.command(&["XRANGE", &audit::key(pool), "-", "+"]);
        rows.into_iter()
            .map(|(id, fields)| Entry::from_stream(&id, fields).unwrap())
            .collect()
    }

    /// Runs one step with exactly this deadline; gives the pool's time and the reply.
    pub(crate) fn send<S: Step>(&mut self, step: &S, deadline_ms: u64) -> (u64, Outcome<S::Reply>) {
        self.try_send(step, deadline_ms).unwrap()
    }

    /// The same where the script may be broken.
    pub(crate) fn try_send<S: Step>(
        &mut self,
        step: &S,
        deadline_ms: u64,
    ) -> Result<(u64, Outcome<S::Reply>), String> {
        let (call, op) = (step.bind(deadline_ms), Op::mint());
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.hashes[call.script.name])
            .arg(1)
            .arg(&call.base);
        for arg in &call.args {
            command.arg(arg.as_slice());
        }
        command.arg(op.as_str());
        let value = command
            .query(&mut self.connection)
            .map_err(|e| format!("{}: {e}", call.script.name))?;
        protocol::decode(step, &op, plain(value)).map_err(|e| e.to_string())
    }

    /// Reads all keys of a pool.
    pub(crate) fn dump(&mut self, base: &str) -> Dump {
        let (mut dump, mut cursor) = (Dump::default(), "0".to_owned());
        loop {
            let rows: Vec<dump::Row>;
            (cursor, rows, _) = redis::cmd("EVAL")
                .arg(dump::SCRIPT)
                .arg(1)
                .arg(base)
                .arg(&cursor)
                .arg(1000)
                .query::<(String, Vec<dump::Row>, u64)>(&mut self.connection)
                .unwrap();
            dump.extend(rows);
            if cursor == "0" {
                return dump;
            }
        }
    }

    /// Runs a plain command.
    pub(crate) fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.connection).unwrap()
    }
}

fn plain(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(n) => Value::Int(n),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes.to_vec()),
        redis::Value::SimpleString(text) => Value::Bytes(text.into_bytes()),
        redis::Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        _ => Value::Nil,
    }
}
