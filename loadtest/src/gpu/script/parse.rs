//! From the text of a script to the typed one. Strict on purpose: a mistyped key in a test must be loud.

use std::fmt;
use std::str::FromStr;

use super::super::http::is_header_name;
use super::{ANSWER_MAX_BYTES, CHUNKS_MAX, CutHow, Finish, PAUSE_MAX_MS, Script};

const OPEN: &str = "[[sim";
const CLOSE: &str = "]]";
/// Longest tag, so that the log's size follows from its number of calls.
const TAG_MAX_BYTES: usize = 128;
/// Most scripts in one prompt: each call with a longer sequence would cost more to parse than to answer.
const SCRIPTS_MAX: usize = 64;

/// A script that cannot be obeyed, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError(String);

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim script: {}", self.0)
    }
}

impl std::error::Error for ScriptError {}

fn wrong<T>(why: impl Into<String>) -> Result<T, ScriptError> {
    Err(ScriptError(why.into()))
}

pub(super) fn parse_all(prompt: &str) -> Result<Vec<Script>, ScriptError> {
    let mut scripts = Vec::new();
    let mut rest = prompt;
    while let Some(at) = rest.find(OPEN) {
        rest = &rest[at + OPEN.len()..];
        if !rest.starts_with(CLOSE) && !rest.starts_with(char::is_whitespace) {
            continue;
        }
        let Some(end) = rest.find(CLOSE) else {
            return wrong("`[[sim` is never closed by `]]`");
        };
        scripts.push(parse_one(&rest[..end])?);
        rest = &rest[end + CLOSE.len()..];
        if scripts.len() > SCRIPTS_MAX {
            return wrong(format!("more than {SCRIPTS_MAX} scripts in one prompt"));
        }
    }
    let tag = scripts.first().and_then(|s| s.tag.clone());
    if scripts.len() > 1 && (tag.is_none() || scripts.iter().any(|s| s.tag != tag)) {
        return wrong("the scripts of a sequence need one `tag`, the same in each");
    }
    Ok(scripts)
}

fn parse_one(inside: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in inside.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .map_or((part, None), |(k, v)| (k.trim_end(), Some(v.trim_start())));
        if seen.contains(&key) && !key.starts_with("header.") {
            return wrong(format!("`{key}` stands twice"));
        }
        seen.push(key);
        match value {
            Some(value) => set_value(&mut script, key, value)?,
            None => set_switch(&mut script, key)?,
        }
    }
    check_together(&script)?;
    Ok(script)
}

fn set_switch(script: &mut Script, key: &str) -> Result<(), ScriptError> {
    let switch = match key {
        "no_usage" => &mut script.no_usage,
        "no_done" => &mut script.no_done,
        "no_finish" => &mut script.no_finish,
        "hold" => &mut script.hold,
        "comments_only" => &mut script.comments_only,
        "plain" => &mut script.plain,
        "refuse" => &mut script.refuse,
        _ => return wrong(format!("`{key}` is not a key that stands alone")),
    };
    *switch = true;
    Ok(())
}

fn set_value(script: &mut Script, key: &str, value: &str) -> Result<(), ScriptError> {
    match key {
        "tag" => script.tag = Some(tag(value)?),
        "sleep_ms" => script.sleep_ms = Some(number(key, value, 0, PAUSE_MAX_MS)?),
        "first_ms" => script.first_ms = Some(number(key, value, 0, PAUSE_MAX_MS)?),
        "chunk_ms" => script.chunk_ms = Some(number(key, value, 0, PAUSE_MAX_MS)?),
        "chunks" => script.chunks = Some(number(key, value, 1, CHUNKS_MAX)?),
        "text" => script.text = Some(text(key, value)?),
        "bytes" => script.bytes = Some(number(key, value, 0, ANSWER_MAX_BYTES)?),
        "status" => script.status = Some(number(key, value, 200, 599)?),
        "body" => script.body = Some(decoded(key, value)?),
        "cut" => script.cut = Some(number(key, value, 0, u64::MAX)?),
        "cut_chunks" => script.cut_chunks = Some(number(key, value, 0, u32::MAX)?),
        "cut_how" => script.cut_how = Some(cut_how(value)?),
        "finish" => script.finish = Some(finish(value)?),
        "raw" => script.raw = Some(decoded(key, value)?),
        "usage_in" => script.usage_in = Some(number(key, value, 0, u64::MAX)?),
        "usage_out" => script.usage_out = Some(number(key, value, 0, u64::MAX)?),
        "short_by" => script.short_by = Some(number(key, value, 1, ANSWER_MAX_BYTES)?),
        "fail_times" => script.fail_times = Some(number(key, value, 0, u32::MAX)?),
        _ => {
            let Some(name) = key.strip_prefix("header.") else {
                return wrong(format!("unknown key `{key}`"));
            };
            script.headers.push(header(name, value)?);
        }
    }
    Ok(())
}

fn check_together(script: &Script) -> Result<(), ScriptError> {
    if script.tag.is_none() && (script.hold || script.fail_times.is_some()) {
        return wrong("`hold` and `fail_times` need a `tag`");
    }
    if matches!(script.cut_how, Some(CutHow::Error | CutHow::Half)) && script.cut_chunks.is_none() {
        return wrong("`cut_how=error` and `cut_how=half` need `cut_chunks`");
    }
    if script.cut_how.is_some()
        && script.cut.is_none()
        && script.cut_chunks.is_none()
        && !script.refuse
    {
        return wrong("`cut_how` needs `cut`, `cut_chunks` or `refuse`");
    }
    let one_of = |keys: &[(&str, bool)]| {
        let on: Vec<&str> = keys
            .iter()
            .filter(|(_, on)| *on)
            .map(|(key, _)| *key)
            .collect();
        if on.len() > 1 {
            wrong(format!("only one of `{}` can be obeyed", on.join("`, `")))
        } else {
            Ok(())
        }
    };
    one_of(&[
        ("cut", script.cut.is_some()),
        ("cut_chunks", script.cut_chunks.is_some()),
        ("short_by", script.short_by.is_some()),
    ])?;
    one_of(&[
        ("text", script.text.is_some()),
        ("bytes", script.bytes.is_some()),
    ])?;
    one_of(&[
        ("raw", script.raw.is_some()),
        ("body", script.body.is_some()),
        ("comments_only", script.comments_only),
        ("refuse", script.refuse),
    ])
}

fn number<N>(key: &str, value: &str, least: N, most: N) -> Result<N, ScriptError>
where
    N: FromStr + PartialOrd + fmt::Display,
{
    match value.parse::<N>() {
        Ok(n) if n >= least && n <= most => Ok(n),
        _ => wrong(format!(
            "`{key}={value}` is not a whole number from {least} to {most}"
        )),
    }
}

fn decoded(key: &str, value: &str) -> Result<Vec<u8>, ScriptError> {
    percent_decode(value).map_or_else(|why| wrong(format!("`{key}`: {why}")), Ok)
}

fn text(key: &str, value: &str) -> Result<String, ScriptError> {
    String::from_utf8(decoded(key, value)?)
        .or_else(|_| wrong(format!("`{key}` is not UTF-8 once decoded")))
}

fn tag(value: &str) -> Result<String, ScriptError> {
    let tag = text("tag", value)?;
    if tag.is_empty() || tag.len() > TAG_MAX_BYTES {
        return wrong(format!(
            "`tag` has {} bytes, 1 to {TAG_MAX_BYTES} are right",
            tag.len()
        ));
    }
    Ok(tag)
}

fn header(name: &str, value: &str) -> Result<(String, String), ScriptError> {
    let value = text("header", value)?;
    if !is_header_name(name) || value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        return wrong(format!(
            "`header.{name}` is not a header name with a value on one line"
        ));
    }
    Ok((name.to_owned(), value))
}

fn cut_how(value: &str) -> Result<CutHow, ScriptError> {
    let all = [CutHow::Close, CutHow::Reset, CutHow::Error, CutHow::Half];
    let known = all.into_iter().find(|how| how.word() == value);
    known.map_or_else(
        || {
            wrong(format!(
                "`cut_how={value}` is not close, reset, error or half"
            ))
        },
        Ok,
    )
}

fn finish(value: &str) -> Result<Finish, ScriptError> {
    let known = [Finish::Stop, Finish::Length]
        .into_iter()
        .find(|finish| finish.word() == value);
    known.map_or_else(
        || wrong(format!("`finish={value}` is not stop or length")),
        Ok,
    )
}

/// Decodes `%XX`; every other byte stands for itself.
pub(in super::super) fn percent_decode(value: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |d: Option<u8>| {
            d.and_then(|d| char::from(d).to_digit(16))
                .and_then(|d| u8::try_from(d).ok())
        };
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => out.push(high * 16 + low),
            _ => return Err("`%` is not followed by two hexadecimal digits".to_owned()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn only(prompt: &str) -> Script {
        let mut all = parse_all(prompt).unwrap();
        assert_eq!(all.len(), 1, "{prompt}");
        all.remove(0)
    }

    #[test]
    fn a_script_with_every_key_is_read_back_as_it_was_built() {
        let full = Script::tag("a b;]]=%")
            .sleep_ms(1)
            .first_ms(2)
            .chunk_ms(3)
            .chunks(4)
            .text("è ]] ; \"x\"\n")
            .status(503)
            .body(&[0, 255, b']', b']'])
            .header("Retry-After", "1")
            .header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")
            .cut_chunks(5)
            .cut_how(CutHow::Half)
            .finish(Finish::Length)
            .usage_in(6)
            .usage_out(7)
            .fail_times(8)
            .no_usage()
            .no_done()
            .no_finish()
            .hold()
            .plain();
        assert_eq!(only(&format!("before {full} after")), full);
        for other in [
            Script::tag("b").bytes(9).cut(10).cut_how(CutHow::Reset),
            Script::untagged().raw(b"data: x\n\n").short_by(3),
            Script::untagged().comments_only(),
            Script::untagged().refuse().cut_how(CutHow::Reset),
            Script::untagged(),
        ] {
            assert_eq!(only(&other.to_string()), other);
        }
    }

    #[test]
    fn a_wrong_script_is_refused_with_the_key_named() {
        for (prompt, says) in [
            ("[[sim slep_ms=5]]", "unknown key `slep_ms`"),
            ("[[sim no_usag]]", "`no_usag`"),
            ("[[sim sleep_ms=-1]]", "`sleep_ms=-1` is not a whole number"),
            ("[[sim chunks=0]]", "`chunks=0`"),
            ("[[sim status=99]]", "from 200 to 599"),
            ("[[sim tag=a", "never closed"),
            ("[[sim tag=a; tag=b]]", "`tag` stands twice"),
            ("[[sim text=%4]]", "two hexadecimal digits"),
            ("[[sim text=%FF]]", "not UTF-8"),
            ("[[sim header.a b=1]]", "`header.a b`"),
            ("[[sim header.a=%0D%0A]]", "`header.a`"),
            ("[[sim hold]]", "need a `tag`"),
            ("[[sim cut_how=half; cut=1]]", "need `cut_chunks`"),
            ("[[sim cut_how=reset]]", "needs `cut`"),
            ("[[sim cut_how=maybe; cut=1]]", "`cut_how=maybe`"),
            ("[[sim text=a; bytes=1]]", "only one of `text`, `bytes`"),
            ("[[sim tag=a]] [[sim tag=b]]", "one `tag`"),
        ] {
            let error = parse_all(prompt).unwrap_err().to_string();
            assert!(error.contains(says), "{prompt}: {error}");
        }
    }

    #[test]
    fn a_prompt_without_a_script_is_left_alone() {
        assert_eq!(parse_all("what does [[simple]] mean?").unwrap(), []);
    }

    #[test]
    fn after_fail_times_calls_only_the_description_of_a_good_answer_stays() {
        let script = Script::tag("a").text("ok").status(500).hold().fail_times(2);
        assert_eq!(script.at(1), script);
        assert_eq!(script.at(2), Script::tag("a").text("ok"));
    }
}
