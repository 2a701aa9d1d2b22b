//! Who asked for a call, as captures print it: a function in each line below the call.

/// Functions that are kept.
const MOST: usize = 16;

/// The functions of a stack so far, innermost first.
#[derive(Default)]
pub struct Stack {
    text: String,
    functions: usize,
}

impl Stack {
    /// A function, as `name+0x12` or less, of a file; where it has no name the file's stands for it.
    pub fn push(&mut self, symbol: &str, path: &str) {
        if self.functions == MOST {
            return;
        }
        let symbol = symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name).trim();
        let unknown = symbol.is_empty() || symbol == "[unknown]";
        let shown = if unknown { path.rsplit('/').next().unwrap_or("") } else { symbol };
        if self.functions > 0 {
            self.text.push(';');
        }
        // A semicolon would be two functions.
        self.text.extend(shown.chars().filter(|&c| c != ';'));
        self.functions += 1;
    }

    /// Their names, with `;` between them.
    pub fn text(&self) -> &str {
        &self.text
    }
}
