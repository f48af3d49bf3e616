//! From what was written to a value of a setting's kind. Pure; a refusal says what is wrong and what would be right.

use serde_json::Value;

use super::schema::{Kind, Unit, shorten};

/// What was written, before its kind is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    /// An integer that fits; the file's and the API's.
    Int(i128),
    /// A number with a fraction or an exponent.
    Number(f64),
    Flag(bool),
    /// A string in quotes.
    Text(String),
    /// A word of the environment or of a flag, which has no type of its own.
    Word(String),
    List(Vec<Raw>),
    /// Something no setting takes.
    Other(&'static str),
}

impl Raw {
    /// The value as an error shows it.
    fn shown(&self) -> String {
        match self {
            Self::Int(value) => value.to_string(),
            Self::Number(value) => format!("{value:?}"),
            Self::Flag(value) => value.to_string(),
            Self::Text(text) | Self::Word(text) => format!("\"{}\"", shorten(text)),
            Self::List(_) => "a list".into(),
            Self::Other(what) => (*what).into(),
        }
    }
}

impl From<&Value> for Raw {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Other("null"),
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(float)) => Self::Number(float),
                (None, None) => Self::Other("a number out of range"),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(_) => Self::Other("an object"),
        }
    }
}

/// The value `raw` stands for in a setting of this kind.
///
/// # Errors
/// What is wrong and what would be right. Never shows the value when `hide` is set: it may hold a password.
pub(crate) fn convert(kind: Kind, raw: &Raw, hide: bool) -> Result<Value, String> {
    match kind {
        Kind::Int { min, max, unit } => int(raw, min, max, unit),
        Kind::Number { min, max, open } => number(raw, min, max, open),
        Kind::Flag => flag(raw),
        Kind::Text(rule) => {
            let shown = if hide {
                "the value given".into()
            } else {
                raw.shown()
            };
            let (Raw::Text(text) | Raw::Word(text)) = raw else {
                return Err(format!("must be a string, not {shown}"));
            };
            rule(text).map_err(|right| format!("must be {right}, not {shown}"))?;
            Ok(Value::from(text.as_str()))
        }
        Kind::Choice(values) => choice(raw, values),
        Kind::List { min, max, item } => list(raw, min, max, item),
    }
}

fn int(raw: &Raw, min: u64, max: u64, unit: Unit) -> Result<Value, String> {
    let (what, counted) = match unit {
        Unit::Ms => (
            "an integer number of milliseconds, e.g. 30000",
            " milliseconds",
        ),
        Unit::Bytes => ("an integer number of bytes, e.g. 16777216", " bytes"),
        Unit::Count => ("an integer", ""),
    };
    let value = match raw {
        Raw::Int(value) => *value,
        Raw::Word(word) => word
            .parse::<i128>()
            .map_err(|_| format!("must be {what}, not {}", raw.shown()))?,
        _ => return Err(format!("must be {what}, not {}", raw.shown())),
    };
    match u64::try_from(value) {
        Ok(value) if (min..=max).contains(&value) => Ok(Value::from(value)),
        _ => Err(format!(
            "{value} is out of range; it must be {min} to {max}{counted}"
        )),
    }
}

fn number(raw: &Raw, min: f64, max: f64, open: bool) -> Result<Value, String> {
    let wrong = || format!("must be a number, e.g. 0.9, not {}", raw.shown());
    let value = match raw {
        // Exact below 2^53; anything larger is out of every range here and only its size matters.
        #[allow(clippy::cast_precision_loss)]
        Raw::Int(value) => *value as f64,
        Raw::Number(value) => *value,
        Raw::Word(word) => word.parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    let inside = if open {
        min < value && value < max
    } else {
        (min..=max).contains(&value)
    };
    if inside {
        return Ok(Value::from(value));
    }
    let range = if open {
        format!("above {min} and below {max}")
    } else {
        format!("{min} to {max}")
    };
    Err(format!("{value} is out of range; it must be {range}"))
}

fn flag(raw: &Raw) -> Result<Value, String> {
    match raw {
        Raw::Flag(value) => Ok(Value::from(*value)),
        Raw::Word(word) if word == "true" => Ok(Value::from(true)),
        Raw::Word(word) if word == "false" => Ok(Value::from(false)),
        _ => Err(format!("must be true or false, not {}", raw.shown())),
    }
}

fn choice(raw: &Raw, values: &[&str]) -> Result<Value, String> {
    if let Raw::Text(text) | Raw::Word(text) = raw
        && values.contains(&text.as_str())
    {
        return Ok(Value::from(text.as_str()));
    }
    let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    Err(format!(
        "must be one of {}, not {}",
        quoted.join(", "),
        raw.shown()
    ))
}

fn list(raw: &Raw, min: usize, max: usize, item: super::names::Rule) -> Result<Value, String> {
    let items: Vec<Raw> = match raw {
        Raw::List(items) => items.clone(),
        Raw::Word(word) => word
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| Raw::Word(part.into()))
            .collect(),
        _ => {
            return Err(format!(
                "must be a list of strings, e.g. [\"a\", \"b\"], not {}",
                raw.shown()
            ));
        }
    };
    if items.len() < min || items.len() > max {
        return Err(format!(
            "has {} entries; it must have {min} to {max}",
            items.len()
        ));
    }
    let mut texts: Vec<&str> = Vec::with_capacity(items.len());
    for (index, entry) in items.iter().enumerate() {
        let (Raw::Text(text) | Raw::Word(text)) = entry else {
            return Err(format!(
                "entry {} must be a string, not {}",
                index + 1,
                entry.shown()
            ));
        };
        item(text).map_err(|right| {
            format!("entry {} must be {right}, not {}", index + 1, entry.shown())
        })?;
        if texts.contains(&text.as_str()) {
            return Err(format!(
                "entry {} is there twice: {}",
                index + 1,
                entry.shown()
            ));
        }
        texts.push(text);
    }
    Ok(Value::from(texts))
}
