//! What a command prints on standard output, in the format asked for.

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::exit::Failure;
use crate::text;

/// Widest value that a detailed view puts behind its name, in characters; longer ones get lines of their own.
const INLINE_CHARS: usize = 100;

/// Formats of `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// One JSON document; of a list the array alone.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Ids alone, one a line.
    Name,
}

impl Format {
    /// Whether a program reads it.
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl)
    }
}

/// One column of a table.
pub(crate) struct Column {
    /// Its heading.
    pub(crate) name: &'static str,
    /// Shown with `-o wide` alone.
    pub(crate) wide: bool,
    /// Its text for an object.
    pub(crate) show: fn(&Value) -> String,
}

/// A column of every table.
pub(crate) const fn column(name: &'static str, show: fn(&Value) -> String) -> Column {
    Column {
        name,
        wide: false,
        show,
    }
}

/// A column of wide tables.
pub(crate) const fn wide(name: &'static str, show: fn(&Value) -> String) -> Column {
    Column {
        name,
        wide: true,
        show,
    }
}

/// Writes lists and objects of one kind.
pub(crate) struct Printer<'a> {
    format: Format,
    columns: &'a [Column],
    /// Rows so far.
    written: usize,
}

impl<'a> Printer<'a> {
    /// A printer of objects with these columns.
    pub(crate) fn new(format: Format, columns: &'a [Column]) -> Self {
        Self {
            format,
            columns,
            written: 0,
        }
    }

    /// One object alone: a row, or the object itself in JSON.
    pub(crate) fn one(mut self, value: &Value) -> Result<(), Failure> {
        if self.format == Format::Json {
            return document(value);
        }
        self.page(std::slice::from_ref(value))
    }

    /// A whole list.
    pub(crate) fn list(mut self, rows: &[Value]) -> Result<(), Failure> {
        self.page(rows)?;
        self.finish()
    }

    /// A piece of a list; [`Printer::finish`] closes it.
    pub(crate) fn page(&mut self, rows: &[Value]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Json => {
                for row in rows {
                    let open = if self.written == 0 { "[\n" } else { ",\n" };
                    let json = serde_json::to_string_pretty(row).expect("JSON always serialises");
                    write!(out, "{open}  {}", json.replace('\n', "\n  "))?;
                    self.written += 1;
                }
            }
            Format::Jsonl => {
                for row in rows {
                    writeln!(out, "{row}")?;
                }
            }
            Format::Name => {
                for row in rows {
                    writeln!(out, "{}", text::cell(&row["id"]))?;
                }
            }
            Format::Table | Format::Wide => {
                let heading = self.written == 0;
                if heading || !rows.is_empty() {
                    write!(out, "{}", self.table(rows, heading))?;
                }
                self.written += rows.len().max(1);
            }
        }
        Ok(out.flush()?)
    }

    /// Ends a list.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match (self.format, self.written) {
            (Format::Json, 0) => writeln!(out, "[]")?,
            (Format::Json, _) => writeln!(out, "\n]")?,
            _ => {}
        }
        Ok(out.flush()?)
    }

    fn table(&self, rows: &[Value], heading: bool) -> String {
        let shown: Vec<&Column> = self
            .columns
            .iter()
            .filter(|column| !column.wide || self.format == Format::Wide)
            .collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if heading {
            table.add_row(shown.iter().map(|column| column.name));
        }
        for row in rows {
            table.add_row(shown.iter().map(|column| (column.show)(row)));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }
}

/// A value as one JSON document.
pub(crate) fn document(value: &Value) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).expect("JSON always serialises");
    line(&json)
}

/// Everything of one object: a line for each member.
pub(crate) fn detail(format: Format, value: &Value) -> Result<(), Failure> {
    exact(format, value, &value.to_string())
}

/// The same; for programs by its own text, number for number.
pub(crate) fn exact(format: Format, value: &Value, text: &str) -> Result<(), Failure> {
    match format {
        Format::Json => line(&crate::pretty::indented(text)),
        Format::Jsonl => line(&crate::pretty::compact(text)),
        Format::Name => line(&text::cell(&value["id"])),
        Format::Table | Format::Wide => {
            let mut out = io::stdout().lock();
            let members = value.as_object().into_iter().flatten();
            for (name, member) in members {
                writeln!(out, "{}", member_line(name, member))?;
            }
            Ok(out.flush()?)
        }
    }
}

fn member_line(name: &str, value: &Value) -> String {
    let name = text::visible(name);
    let is_time = name.ends_with("_at_ms") && value.is_number();
    let shown = match value {
        Value::Null => "-".into(),
        _ if is_time => format!("{value} ({})", text::time(value)),
        Value::String(text) => text::visible(text),
        other => text::visible(&other.to_string()),
    };
    if shown.chars().count() <= INLINE_CHARS {
        return format!("{name:<26}{shown}");
    }
    let long = match value {
        Value::String(text) => text::readable(text),
        other => {
            text::readable(&serde_json::to_string_pretty(other).expect("JSON always serialises"))
        }
    };
    format!("{name}\n    {}", long.replace('\n', "\n    "))
}

/// One line on standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Bytes on standard output, as they are.
pub(crate) fn bytes(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data)?;
    Ok(out.flush()?)
}

/// A note on standard error. Nobody may be there to read it, which is no reason to stop.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether a person can be asked: standard input and standard error are a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether a person reads standard output.
pub(crate) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Asks before something that cannot be undone. Off a terminal only `yes` lets it pass.
pub(crate) async fn confirm(question: String, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !can_ask() {
        return Err(Failure::Usage(format!(
            "{question} Not asked, because this is no terminal: give --yes"
        )));
    }
    // Beside the runtime: Ctrl-C must be seen while a person thinks.
    let asked = tokio::task::spawn_blocking(move || {
        let _ = write!(io::stderr().lock(), "{question} [y/N] ");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = asked
        .await
        .map_err(|error| Failure::Error(error.to_string()))??;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Refused("nothing was done".into())),
    }
}
