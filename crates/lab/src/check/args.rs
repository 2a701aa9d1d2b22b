//! `quietmm check`: what can be asked.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};
use quietmm_check::explore::Way;
use quietmm_sim::Architecture;

use crate::cli::flags;

/// Random schedules of each way and scenario, unless others are asked for.
pub const SCHEDULES: u64 = 4000;
/// Departures of the exhaustive way, unless others are asked for.
pub const DEPARTURES: u8 = 2;

const REPORT_HELP: &str = "\
Write a page to look at, beside what is printed: the verdict, what was tried, the counterexample as a picture, and the command that \
repeats it. One file of HTML that any browser shows without a network, that can be printed and read aloud. A file of that name is replaced, \
in one step at the end";
const SVG_HELP: &str = "\
Write the counterexample, or what a file of --replay does, as a sequence diagram to this file: the drawing of the terminal as a picture (SVG), \
with its words for those who do not see it, in light and dark. Of several counterexamples the first; where nothing is broken nothing is \
written, and that is said";

/// An architecture by its name.
fn architecture() -> impl TypedValueParser<Value = Architecture> {
    let named = |name: String| Architecture::parse(&name).ok_or("no architecture");
    PossibleValuesParser::new(Architecture::ALL.map(Architecture::name)).try_map(named)
}

/// A way to choose schedules by its name.
fn way() -> impl TypedValueParser<Value = Way> {
    let named = |name: String| Way::ALL.into_iter().find(|way| way.name() == name).ok_or("no way");
    PossibleValuesParser::new(Way::ALL.map(Way::name)).try_map(named)
}

/// `quietmm check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The scenarios (default: all; see `quietmm list`)
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Run them all on machines of this architecture (default: x86-64, but for the scenarios that are about another)
    #[arg(long, value_name = "NAME", value_parser = architecture(), conflicts_with = "replay")]
    pub architecture: Option<Architecture>,
    /// Break this rule, or each rule in turn, and look for a schedule that shows it
    #[arg(long, value_name = "RULE|all", conflicts_with_all = ["deep", "replay"])]
    pub mutant: Option<String>,
    /// Run a counterexample's file again, and draw what happens
    #[arg(long, value_name = "FILE", conflicts_with_all = ["deep", "scenarios"])]
    pub replay: Option<PathBuf>,
    /// Explore more and more until Ctrl-C, then report what was covered
    #[arg(long)]
    pub deep: bool,
    /// Choose schedules in these ways alone (default: all); the exhaustive one is the same with every seed
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', value_parser = way(), conflicts_with = "replay")]
    pub way: Vec<Way>,
    /// Random schedules of each way and scenario, at least 1; the exhaustive way gets twice as many for each kind of hardware
    #[arg(long, value_name = "N", default_value_t = SCHEDULES, value_parser = flags::schedules(), allow_negative_numbers = true)]
    pub schedules: u64,
    /// At how many decisions a schedule of the exhaustive way may depart from the ordinary one, 0 to 6
    #[arg(long, value_name = "N", default_value_t = DEPARTURES, value_parser = value_parser!(u8).range(0..=6), allow_negative_numbers = true)]
    pub departures: u8,
    /// The seed of the random ways: the same seed tries the same schedules on any host
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    /// Where files of counterexamples are put (default: where you are; of mutants none is kept)
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Write a page for a browser to this file: verdict, what was tried, and the counterexample as a picture
    #[arg(long, value_name = "FILE", long_help = REPORT_HELP)]
    pub report: Option<PathBuf>,
    /// Write the counterexample as a picture to this file
    #[arg(long, value_name = "FILE", long_help = SVG_HELP)]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print what depends on the host, too: schedules a second
    #[arg(long)]
    pub stats: bool,
    /// How many host threads search side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = flags::jobs(), allow_negative_numbers = true)]
    pub jobs: Option<u16>,
}

impl CheckArgs {
    /// The ways that were asked for, each once, in their order.
    pub fn ways(&self) -> impl Iterator<Item = Way> + Clone {
        Way::ALL.into_iter().filter(|way| self.way.is_empty() || self.way.contains(way))
    }
}
