//! What C sees of the core. That it works in C is shown by `scripts/c-library`.

mod errors;
mod header;
mod reach;
