//! How the members of a stream's chunks grow together: one table.

use super::super::raw;
use serde_json::value::RawValue;

/// Where in a chunk a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The chunk itself.
    Chunk,
    /// An item of `choices`.
    Choice,
    /// `delta` of a choice.
    Delta,
    /// An item of `tool_calls`.
    ToolCall,
    /// `function` or `custom` of a tool call, or the older `function_call`.
    Function,
    /// `logprobs` of a choice.
    Logprobs,
    /// `audio` of a delta.
    Audio,
}

/// What a new value does to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The first that says something stays.
    First,
    /// The new one replaces it.
    Last,
    /// Texts are joined.
    Join,
    /// Texts are joined, unless the new one only says the same again.
    JoinNew,
    /// Lists are joined.
    Append,
    /// Objects grow together by the rules of that place.
    Grow(Place),
    /// List items grow together by their `index`.
    GrowByIndex,
    /// Not kept here: written, or counted, by other code.
    Skip,
}

/// The rule for one member. What is not named here is kept as well: a text of a delta is taken for a piece and joined,
/// any other value replaces the one before.
pub(super) fn rule(place: Place, name: &str, value: &RawValue) -> Rule {
    use Place::{Audio, Choice, Chunk, Delta, Function, Logprobs, ToolCall};
    let kind = value.get().as_bytes().first().copied().unwrap_or(b'n');
    let (text, list, object) = (kind == b'"', kind == b'[', kind == b'{');
    match (place, name) {
        (Chunk, "choices" | "usage") | (Choice | ToolCall, "index") => Rule::Skip,
        (Chunk, "id" | "created" | "model" | "object") => Rule::First,
        (Choice, "delta" | "message") if object => Rule::Grow(Delta),
        (Choice, "text") if text => Rule::Join,
        (Choice, "logprobs") if object => Rule::Grow(Logprobs),
        // Servers that send the ids of their pieces send them piece by piece.
        (Choice | Delta, "token_ids") | (Delta, "annotations") if list => Rule::Append,
        (Delta, "tool_calls") if list => Rule::GrowByIndex,
        (Delta, "function_call") | (ToolCall, "function" | "custom") if object => {
            Rule::Grow(Function)
        }
        (Delta, "audio") if object => Rule::Grow(Audio),
        (Delta, "role") | (ToolCall, "id" | "type") | (Audio, "id") => Rule::Last,
        // Some servers repeat the name with every piece of the arguments.
        (Function, "name") if text => Rule::JoinNew,
        (Delta | ToolCall | Function | Audio, _) if text => Rule::Join,
        (Logprobs, _) if list => Rule::Append,
        _ => Rule::Last,
    }
}

/// Whether a value says nothing, so that a later one may take the place of the first.
pub(super) fn says_nothing(text: &str) -> bool {
    matches!(text, "null" | "\"\"" | "0")
}

/// The `index` of a list item.
pub(super) fn index_of(item: &raw::RawObject<'_>) -> Option<u64> {
    item.get("index").and_then(raw::whole_number)
}
