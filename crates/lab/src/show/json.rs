//! JSON for programs, that people can read too.

use serde::Serialize;

/// With a newline at the end. Keys keep the order of the fields.
pub fn pretty(value: &impl Serialize) -> String {
    // Never fails: keys are texts, and what is serialised is numbers, texts, lists and maps of them.
    serde_json::to_string_pretty(value).map_or_else(|error| format!("{error}\n"), |text| text + "\n")
}
