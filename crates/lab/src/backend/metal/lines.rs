//! What a machine prints: a JSON object a line. `crates/metal/README.md` has the list; what is not known is skipped.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::timeline::Part;
use crate::study::result::Operation;

/// Contents that were wrong, as they are told: so many are kept.
const STORIES: usize = 8;

/// What one boot printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    /// What runs, if it got so far.
    pub head: Option<Head>,
    /// All counters by their names, in order; empty if it did not get so far.
    pub counters: Vec<(String, u64)>,
    /// How long operations took.
    pub operations: Vec<(String, Operation)>,
    /// What workloads report as it happens, as it was printed.
    pub shootdowns: Vec<Json>,
    /// See `shootdowns`.
    pub paces: Vec<Json>,
    /// What each CPU did when, if that was asked for.
    pub timeline: Vec<Part>,
    /// Contents that were not what they should be, and the CPU that saw it.
    pub wrong: Vec<String>,
    /// The last word.
    pub last: Option<Last>,
    /// The first line that was no JSON object.
    pub strange: Option<String>,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// The workload.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// CPUs that the image found.
    pub cpus: u64,
    /// Frames that the core was given.
    pub frames: u64,
}

/// How it ended, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    Well,
    Failed(String),
    Refused(String),
    Panicked { text: String, cpu: Option<u64> },
    Usage(String),
}

/// A line, by what it has.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Head(Head),
    Counters { counters: Map<String, Json> },
    Operation { operation: String, count: u64, mean_ns: f64, least_ns: u64, most_ns: u64 },
    Shootdown { shootdown: Json },
    Pace { pace: Json },
    Timeline { timeline: Part },
    Wrong { wrong: String, cpu: Option<u64> },
    Panic { panic: String, cpu: Option<u64> },
    Usage { usage: String },
    End { end: String, why: Option<String> },
}

/// Reads all lines.
pub fn read(text: &str) -> Printed {
    let mut printed = Printed::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match serde_json::from_str::<Map<String, Json>>(line).map(Json::Object) {
            // What has another shape is not for us.
            Ok(object) => serde_json::from_value(object).into_iter().for_each(|line| printed.take(line)),
            Err(_) => drop(printed.strange.get_or_insert_with(|| line.to_string())),
        }
    }
    printed
}

impl Printed {
    fn take(&mut self, line: Line) {
        match line {
            Line::Head(head) => self.head = Some(head),
            Line::Counters { counters } => {
                let counts = counters.iter().filter_map(|(key, value)| Some((key.clone(), value.as_u64()?)));
                self.counters = counts.collect();
            }
            Line::Operation { operation, count, mean_ns: mean, least_ns: least, most_ns: most } => {
                self.operations.push((operation, Operation { count, mean, least, most }));
            }
            Line::Shootdown { shootdown } => self.shootdowns.push(shootdown),
            Line::Pace { pace } => self.paces.push(pace),
            Line::Timeline { timeline } => self.timeline.push(timeline),
            Line::Wrong { wrong, cpu } => {
                let cpu = cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}: "));
                if self.wrong.len() < STORIES {
                    self.wrong.push(cpu + &wrong);
                }
            }
            // The first one is the cause.
            Line::Panic { .. } if matches!(self.last, Some(Last::Panicked { .. })) => {}
            Line::Panic { panic: text, cpu } => {
                // Before CPUs have numbers it says the largest there is.
                let cpu = cpu.filter(|&cpu| cpu < u64::from(u32::MAX));
                self.last = Some(Last::Panicked { text, cpu });
            }
            Line::Usage { usage } => self.last = Some(Last::Usage(usage)),
            Line::End { end, why } => {
                let why = why.unwrap_or_default();
                match end.as_str() {
                    "well" => self.last = Some(Last::Well),
                    "failed" => self.last = Some(Last::Failed(why)),
                    "refused" => self.last = Some(Last::Refused(why)),
                    _ => {}
                }
            }
        }
    }

    /// A counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(key, _)| key == name).map(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
{"workload":"vmap-touch","policy":"linux","seed":1,"cpus":8,"frames":121742}
{"pace":{"parts":1,"operations":20,"ns":300}}
{"timeline":{"cpu":1,"lost":3,"notes":[[17,"e",4]]}}
{"wrong":"0x1000 shows \"2\"","cpu":3}
{"counters":{"ipis_sent":10,"brand_new":18446744073709551615,"ticks":4}}
{"flushes_received_per_reclaimed_page":0.016379}
{"operation":"map-cycle","count":4,"mean_ns":2994.250,"least_ns":2146,"most_ns":9000}
{"end":"failed","why":"1 contents were not what they should be"}
"#;

    #[test]
    fn every_line_finds_its_place_and_unknown_ones_are_skipped() {
        let printed = read(WHOLE);
        let head = printed.head.as_ref().unwrap();
        assert_eq!((head.workload.as_str(), head.cpus, head.frames), ("vmap-touch", 8, 121_742));
        assert_eq!(printed.counter("ipis_sent"), Some(10));
        assert_eq!(printed.counter("brand_new"), Some(u64::MAX));
        assert_eq!(printed.counter("ipis_received"), None);
        let (name, operation) = &printed.operations[0];
        assert_eq!((name.as_str(), operation.count, operation.mean), ("map-cycle", 4, 2994.25));
        assert_eq!(printed.wrong, ["CPU 3: 0x1000 shows \"2\""]);
        assert_eq!(printed.paces.len(), 1);
        assert_eq!(printed.timeline, [Part::Notes { cpu: 1, lost: 3, notes: vec![(17, 'e', 4)] }]);
        assert!(matches!(&printed.last, Some(Last::Failed(why)) if why.starts_with("1 contents")));
        assert_eq!(printed.strange, None);
    }

    #[test]
    fn what_is_no_object_or_half_a_line_is_strange_and_nothing_is_taken_from_it() {
        for text in ["BIOS v1.2", "{\"counters\":{\"ipis_sent\":1", "[1,2]", "\u{fffd}\u{0}", "17", "{}{}"] {
            let printed = read(text);
            assert_eq!(printed.strange.as_deref(), Some(text.trim()), "{text}");
            assert_eq!(Printed { strange: None, ..printed }, Printed::default());
        }
        assert_eq!(read(""), Printed::default());
    }

    #[test]
    fn values_of_the_wrong_kind_are_not_taken() {
        let printed = read(
            "{\"workload\":\"churn\",\"policy\":1,\"cpus\":-1}\n{\"counters\":{\"a\":-1,\"b\":1.5,\"c\":2}}\n{\"end\":3}",
        );
        assert_eq!((printed.head, printed.last), (None, None));
        assert_eq!(printed.counters, [("c".to_string(), 2)]);
    }

    #[test]
    fn a_panic_says_where_and_the_first_one_counts() {
        let printed =
            read("garbage {\n{\"panic\":\"at a.rs:1: first\",\"cpu\":3}\n{\"panic\":\"second\",\"cpu\":1}\n");
        let first = Last::Panicked { text: "at a.rs:1: first".to_string(), cpu: Some(3) };
        assert_eq!(printed.last, Some(first));
        let early = read("{\"panic\":\"no memory\",\"cpu\":4294967295}");
        assert_eq!(early.last, Some(Last::Panicked { text: "no memory".to_string(), cpu: None }));
    }
}
