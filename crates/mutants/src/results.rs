//! What is known of mutants, in a file that grows by a line for each: whoever stops it loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::{fs, mem};

use serde::{Deserialize, Serialize};

use crate::judges::Set;
use crate::mutant::Key;

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A test saw it, and how.
    Killed { by: String, how: String },
    /// None of these sets did; so many tests of them reach it, and some of these are named.
    Survived { sets: BTreeSet<Set>, reached: usize, tests: Vec<String> },
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Record {
    pub key: Key,
    pub verdict: Verdict,
}

/// All that is known, the newest for each mutant.
pub struct Results {
    pub known: BTreeMap<Key, Verdict>,
    file: File,
}

impl Results {
    pub fn open(path: &Path) -> io::Result<Results> {
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last line may be half written.
        let records = text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok());
        let known = records.map(|record| (record.key, record.verdict)).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Results { known, file })
    }

    pub fn add(&mut self, key: &Key, verdict: Verdict) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Record { key: key.clone(), verdict: verdict.clone() })?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        drop(mem::replace(self.known.entry(key.clone()).or_insert(verdict.clone()), verdict));
        Ok(())
    }
}
