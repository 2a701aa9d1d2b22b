//! The first line of a file: what was asked, so that nothing else is put into it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::REVISION;
use crate::process::{plain, sealed};
use crate::sweep::part::Part;
use crate::sweep::values::Value;

/// The form of these files.
pub const FORM: u32 = 1;
/// What is told of one value of the header, in characters.
const LONGEST: usize = 60;
/// Differences that are told.
const MOST: usize = 3;

/// What was asked, and of whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The form of the file, which also says that it is one.
    pub sweep: u32,
    /// The program.
    pub program: String,
    /// Its revision: another may come to other figures.
    pub revision: String,
    /// What is varied, and its values: the last goes round first.
    pub vary: Map<String, serde_json::Value>,
    /// What stays.
    pub with: Map<String, serde_json::Value>,
    /// Checksums of machines and traces that are files.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub files: Map<String, serde_json::Value>,
    /// Points of the whole grid.
    pub points: u64,
    /// Which of them are in this file, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// The values of an axis, by its name.
pub type Values = (String, Vec<Value>);

impl Header {
    /// Of this program.
    pub fn of(axes: &[Values], with: Map<String, serde_json::Value>, part: Option<Part>) -> Header {
        let vary = axes.iter().map(|(name, values)| (name.clone(), serde_json::json!(values)));
        Header {
            sweep: FORM,
            program: format!("quietmm {}", env!("CARGO_PKG_VERSION")),
            revision: REVISION.to_string(),
            vary: vary.collect(),
            with,
            files: Map::new(),
            points: axes.iter().map(|(_, values)| values.len() as u64).product(),
            shard: part.map(|part| part.to_string()),
        }
    }

    /// Reads the first line of a file, or says what it is instead.
    pub fn read(line: &[u8]) -> Result<Header, String> {
        let json: serde_json::Value =
            serde_json::from_slice(line).map_err(|_| "it is no file of a sweep; another name".to_string())?;
        match json.get("sweep").and_then(serde_json::Value::as_u64) {
            None => return Err("it is no file of a sweep; another name".to_string()),
            Some(form) if form != u64::from(FORM) => {
                return Err(format!(
                    "it is of form {form}, and this program writes form {FORM}; another name"
                ));
            }
            Some(_) => {}
        }
        let damaged = || "its first line is damaged; another name".to_string();
        // Files of before have no checksum there.
        let text = str::from_utf8(line).map_err(|_| damaged())?;
        if sealed::has_sum(text) && sealed::opened(line).is_none() {
            return Err(damaged());
        }
        let header: Header = serde_json::from_value(json).map_err(|_| damaged())?;
        let product = header
            .axes()
            .ok_or_else(damaged)?
            .iter()
            .try_fold(1u64, |all, (_, values)| all.checked_mul(values.len() as u64));
        if product != Some(header.points) || header.points == 0 || header.part().is_none() {
            return Err(damaged());
        }
        Ok(header)
    }

    /// As it stands in the file.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        sealed::sealed(&plain::plain(&json))
    }

    /// The axes, from the outermost; `None` if one has no values of these kinds.
    pub fn axes(&self) -> Option<Vec<Values>> {
        let values = |json: &serde_json::Value| serde_json::from_value::<Vec<Value>>(json.clone()).ok();
        self.vary.iter().map(|(name, json)| Some((name.clone(), values(json)?))).collect()
    }

    /// Which points are in this file.
    pub fn part(&self) -> Option<Part> {
        self.shard.as_ref().map_or(Some(Part::ALL), |text| text.parse().ok())
    }

    /// The same of the whole grid.
    pub fn whole(&self) -> Header {
        Header { shard: None, ..self.clone() }
    }

    /// How `there` differs from it, in words; empty if it does not.
    pub fn differences(&self, there: &Header) -> String {
        let (here, there) = (self.flat(), there.flat());
        let mut keys: Vec<&String> = here.keys().chain(there.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let told = |side: &BTreeMap<String, String>, key: &String| {
            side.get(key).map_or("nothing".to_string(), |text| plain::short(text, LONGEST).into_owned())
        };
        let differ: Vec<String> = keys
            .into_iter()
            .filter(|&key| here.get(key) != there.get(key))
            .map(|key| format!("{key} is {} there and {} here", told(&there, key), told(&here, key)))
            .collect();
        let more = differ.len().saturating_sub(MOST);
        let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
        differ[..differ.len() - more].join(", ") + &rest
    }

    /// All that was asked, name by name.
    fn flat(&self) -> BTreeMap<String, String> {
        let text = |json: &serde_json::Value| match json {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(all) => {
                let texts = all.iter().map(|one| one.as_str().map_or(one.to_string(), str::to_string));
                texts.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        let order = self.vary.keys().cloned().collect::<Vec<_>>().join(",");
        let mut flat: BTreeMap<String, String> = [
            ("the program".to_string(), self.program.clone()),
            ("the revision".to_string(), self.revision.clone()),
            ("the order of --vary".to_string(), order),
        ]
        .into();
        flat.extend(self.vary.iter().map(|(name, json)| (format!("--vary {name}"), text(json))));
        flat.extend(self.with.iter().map(|(name, json)| (format!("--{name}"), text(json))));
        flat.extend(self.files.iter().map(|(name, json)| (format!("the checksum of {name}"), text(json))));
        flat.extend(self.shard.iter().map(|shard| ("--shard".to_string(), shard.clone())));
        flat
    }
}

/// Where a point stands: which value of each axis, the last going round first.
pub fn places(axes: &[Values], point: u64) -> Vec<usize> {
    let mut rest = point;
    let mut all: Vec<usize> = axes
        .iter()
        .rev()
        .map(|(_, values)| {
            let (whole, nth) = (rest / values.len() as u64, rest % values.len() as u64);
            rest = whole;
            nth as usize
        })
        .collect();
    all.reverse();
    all
}

/// The same as values.
pub fn coordinates(axes: &[Values], point: u64) -> Vec<&Value> {
    axes.iter().zip(places(axes, point)).map(|((_, values), nth)| &values[nth]).collect()
}

/// The same as it stands in the point's line.
pub fn at(axes: &[Values], point: u64) -> Map<String, serde_json::Value> {
    let values = coordinates(axes, point);
    axes.iter().zip(values).map(|((name, _), value)| (name.clone(), serde_json::json!(value))).collect()
}

/// The same for people.
pub fn said(axes: &[Values], point: u64) -> String {
    let values = coordinates(axes, point);
    let each = axes.iter().zip(values).map(|((name, _), value)| format!("{name}={value}"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<Values> {
        let text = |text: &str| Value::Text(text.to_string());
        vec![
            ("policy".to_string(), vec![text("linux"), text("quiet")]),
            ("cpus".to_string(), vec![Value::Number(1), Value::Number(2), Value::Number(4)]),
        ]
    }

    #[test]
    fn the_last_axis_goes_round_first_and_each_point_is_another() {
        let all: Vec<String> = (0..6).map(|point| said(&axes(), point)).collect();
        assert_eq!(all[..3], ["policy=linux, cpus=1", "policy=linux, cpus=2", "policy=linux, cpus=4"]);
        assert_eq!(all[5], "policy=quiet, cpus=4");
        assert_eq!(serde_json::json!(at(&axes(), 4)).to_string(), r#"{"policy":"quiet","cpus":2}"#);
    }

    #[test]
    fn a_header_reads_back_and_tells_how_another_differs() {
        let header = Header::of(&axes(), Map::new(), None);
        assert_eq!(header.points, 6);
        assert_eq!(Header::read(header.line().trim_end().as_bytes()), Ok(header.clone()));
        assert_eq!(header.differences(&header), "");
        let mut other = axes();
        other[1].1.push(Value::Number(8));
        let other = Header::of(&other, Map::new(), "2/3".parse().ok());
        let told = header.differences(&other);
        assert_eq!(
            told,
            "--shard is 2/3 there and nothing here, --vary cpus is 1,2,4,8 there and 1,2,4 here"
        );
        assert_eq!(
            header.differences(&Header { revision: "x".into(), ..header.clone() }).matches(" is ").count(),
            1
        );
    }

    #[test]
    fn what_is_no_header_says_what_it_is() {
        for (line, why) in [
            ("{}", "no file of a sweep"),
            ("name = \"mine\"", "no file of a sweep"),
            (r#"{"sweep":2}"#, "form 2"),
            (r#"{"sweep":1}"#, "damaged"),
        ] {
            assert!(Header::read(line.as_bytes()).unwrap_err().contains(why), "{line}");
        }
        let header = Header::of(&axes(), Map::new(), None);
        let without = header.line().split(",\"sum\"").next().unwrap().to_string() + "}";
        assert_eq!(Header::read(without.as_bytes()), Ok(header.clone()), "files of before");
        let other = without.replace("\"points\":6", "\"points\":7");
        assert!(Header::read(other.as_bytes()).unwrap_err().contains("damaged"), "a grid of another size");
        let other = header.line().replace("[1,2,4]", "[1,2,5]");
        assert!(Header::read(other.as_bytes()).unwrap_err().contains("damaged"), "another grid of that size");
    }
}
