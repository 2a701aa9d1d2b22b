//! The files of the core.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use proc_macro2::Span;

/// A file of the core.
pub struct Source {
    /// Below `crates/core/src`.
    pub path: String,
    pub text: String,
    pub syntax: syn::File,
    lines: Vec<usize>,
}

impl Source {
    /// A file with this text.
    pub fn of(path: &str, text: String) -> io::Result<Source> {
        let syntax = syn::parse_file(&text).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Ok(Source { path: path.to_string(), text, syntax, lines })
    }

    /// Where a token stands in the text.
    pub fn range(&self, span: Span) -> Range<usize> {
        span.byte_range()
    }

    /// The line of a place in the text, counted from 1.
    pub fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|&start| start <= at)
    }
}

/// All files of the core, by their paths.
pub fn read_core(root: &Path) -> io::Result<Vec<Source>> {
    let root = root.join("crates/core/src");
    let mut paths = Vec::new();
    collect(&root, &mut paths)?;
    paths.sort();
    let read = |path: &PathBuf| {
        let below = path.strip_prefix(&root).expect("below it").to_string_lossy();
        Source::of(&below, fs::read_to_string(path)?)
    };
    paths.iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}
