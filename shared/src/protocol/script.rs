//! The Lua of the steps: assembled from `lua/`, with each header as data.

/// One step's script. Its header (the leading comment) lists FLAGS, USES, KEYS, ARGV and REPLY; the contract test holds
/// it to the Rust face.
pub struct Script {
    /// Stem of the file.
    pub name: &'static str,
    /// The step's own text.
    pub step: &'static str,
    /// Shared pieces it uses, in order, each with its name.
    pub libs: &'static [(&'static str, &'static str)],
}

/// Text of `lua/lib/<name>.lua`.
macro_rules! lib {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../lua/lib/", $name, ".lua")),
        )
    };
}

/// Declares the script of a step with the shared pieces it uses.
macro_rules! script {
    ($const:ident, $name:literal, [$($lib:literal),+]) => {
        #[doc = concat!("`lua/", $name, ".lua`")]
        pub static $const: Script = Script {
            name: $name,
            step: include_str!(concat!("../../../lua/", $name, ".lua")),
            libs: &[$(lib!($lib)),+],
        };
    };
}

script!(SUBMIT, "submit", ["base", "clock", "job"]);
script!(CLAIM, "claim", ["base", "clock", "job", "lapse", "take"]);
script!(RENEW, "renew", ["base", "clock", "job"]);
script!(SETTLE, "settle", ["base", "clock", "job", "lapse", "take"]);
script!(APPEND, "append", ["base", "clock"]);
script!(FOLLOW, "follow", ["base", "clock"]);
script!(CANCEL, "cancel", ["base", "clock", "job"]);
script!(REQUEUE, "requeue", ["base", "clock", "job"]);
script!(PURGE, "purge", ["base", "clock", "job"]);
script!(EXPIRE, "expire", ["base", "clock", "job", "lapse", "take"]);
script!(SNAPSHOT, "snapshot", ["base", "clock"]);
script!(READ, "read", ["base", "clock"]);
script!(LIST, "list", ["base", "clock"]);
script!(BEAT, "beat", ["base", "clock"]);
script!(APPLY, "apply", ["base"]);
script!(PAUSE, "pause", ["base", "clock", "job"]);
script!(INSPECT, "inspect", ["base", "clock"]);
script!(FETCH, "fetch", ["base", "clock"]);
script!(PIECES, "pieces", ["base", "clock"]);
script!(HOLDER, "holder", ["base", "clock"]);
script!(LINEAGE, "lineage", ["base", "clock"]);

/// Every step.
pub static ALL: [&Script; 21] = [
    &SUBMIT, &CLAIM, &RENEW, &SETTLE, &APPEND, &FOLLOW, &CANCEL, &REQUEUE, &PURGE, &EXPIRE,
    &SNAPSHOT, &READ, &LIST, &BEAT, &APPLY, &PAUSE, &INSPECT, &FETCH, &PIECES, &HOLDER, &LINEAGE,
];

/// Put around a step where a run is recorded.
const AUDIT: &str = include_str!("../../../lua/lib/audit.lua");

impl Script {
    /// The text that the server runs. `#!lua` makes it refuse a step that adds while memory is full before the step has
    /// written anything.
    pub fn source(&self) -> String {
        self.first_line() + &self.body()
    }

    /// The same with one entry of the run's record written at its end; a step that reads alone stays as it is.
    pub fn audited_source(&self) -> String {
        if !self.writes() {
            return self.source();
        }
        let (before, after) = AUDIT
            .split_once("-- STEP\n")
            .expect("lua/lib/audit.lua has a place for the step");
        let after = after.replace("'NAME'", &format!("'{}'", self.name));
        self.first_line() + before + &self.body() + &after
    }

    /// Whether it may change anything.
    pub fn writes(&self) -> bool {
        self.flags() != "no-writes"
    }

    fn flags(&self) -> &'static str {
        self.header("FLAGS").next().unwrap_or("")
    }

    fn first_line(&self) -> String {
        match self.flags() {
            "" => "#!lua\n".to_owned(),
            flags => format!("#!lua flags={flags}\n"),
        }
    }

    fn body(&self) -> String {
        let mut body = String::new();
        for (_, text) in self.libs {
            body.push_str(text);
        }
        body.push_str(self.step);
        body
    }

    /// Lines of the header that start with `kind`, without it.
    pub fn header(&self, kind: &'static str) -> impl Iterator<Item = &'static str> {
        self.step
            .lines()
            .take_while(|line| line.starts_with("--"))
            .filter_map(move |line| {
                let rest = line.strip_prefix("-- ")?.strip_prefix(kind)?;
                (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim())
            })
    }

    /// Names of the arguments; a trailing `...` marks the one that repeats.
    pub fn arg_names(&self) -> impl Iterator<Item = &'static str> {
        self.header("ARGV")
            .map(|line| line.split_whitespace().next().unwrap_or(""))
    }

    /// Tags that the step replies.
    pub fn reply_tags(&self) -> impl Iterator<Item = &'static str> {
        self.header("REPLY")
            .map(|line| line.split_whitespace().next().unwrap_or(""))
    }

    /// Whether the header has `name` at `index` (from 0), or repeats it from an earlier place on.
    pub fn names_arg(&self, index: usize, name: &str) -> bool {
        let names: Vec<_> = self.arg_names().collect();
        match names.get(index) {
            Some(&at) if at == name => true,
            _ => names.last().is_some_and(|last| {
                index + 1 >= names.len() && last.strip_suffix("...") == Some(name)
            }),
        }
    }
}
