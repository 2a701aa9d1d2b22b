//! A run as people read it: what each CPU did, in order, what led from one CPU to another, and what was broken in the end.
//!
//! [`Story`] is all there is to say. Whoever draws it, here as [text](Story::text) or elsewhere as a picture, adds nothing to it.

mod names;
mod text;

use std::collections::BTreeMap;

use crate::machine::{LogEntry, What};
use crate::runner::Outcome;
use crate::scenario::Scenario;
use crate::violation::Violation;
use names::Names;

/// Things that happened, at most, that are looked at.
const ROWS: usize = 4000;

/// What a run has to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Story {
    /// CPUs, each with a column.
    pub cpus: u16,
    /// What happened, in order.
    pub rows: Vec<Row>,
    /// What one CPU did to another, in the order in which it was begun.
    pub arrows: Vec<Arrow>,
    /// What lasted.
    pub spans: Vec<Span>,
    /// What was broken, if anything.
    pub broken: Option<Broken>,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Row {
    /// Words across all columns.
    Across(&'static str),
    /// Something that a CPU did.
    Of(Event),
}

/// Something that a CPU did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The point of the run.
    pub step: u32,
    /// Which CPU.
    pub cpu: u16,
    /// What kind of thing.
    pub kind: Kind,
    /// What, in words.
    pub said: String,
}

/// Kinds of things that happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A program, or hardware, used a page.
    Access {
        /// Written.
        write: bool,
    },
    /// A TLB was flushed, by its CPU or by hardware.
    Flush,
    /// A step was left out.
    Skip,
    /// This is where an invariant was broken.
    Broken,
    /// Somebody waits.
    Waits,
    /// Anything else.
    Other,
}

/// Something that one CPU did to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// What it is.
    pub what: Reach,
    /// The row in which it was begun.
    pub from: usize,
    /// The CPU that it is for.
    pub cpu: u16,
    /// The row in which it was there; `None` if that was not before the end.
    pub to: Option<usize>,
}

/// What reaches other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// An interrupt.
    Interrupt,
    /// A flush by hardware, which is there when somebody has waited for it.
    Broadcast,
}

/// Something that lasted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where.
    pub cpu: u16,
    /// What it is.
    pub what: Lasting,
    /// Its first row.
    pub from: usize,
    /// Its last; `None` if it had not ended.
    pub to: Option<usize>,
}

/// What lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasting {
    /// A call into the core.
    Call,
    /// The handler of an interrupt.
    Handler,
    /// A sleep.
    Sleep,
}

/// What was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The invariant's number, or the word for what has none.
    pub invariant: &'static str,
    /// What it says.
    pub sentence: &'static str,
    /// What was seen, and which step was left out: sentences.
    pub said: Vec<String>,
}

impl Broken {
    /// The invariant with its sentence.
    pub fn law(&self) -> String {
        format!("{}: {}", self.invariant, self.sentence)
    }
}

/// Draws what happened, in lines of at most `width` characters.
pub fn draw(scenario: &Scenario, outcome: &Outcome, width: usize) -> String {
    Story::of(scenario, outcome).text(width)
}

impl Story {
    /// What this run has to tell.
    pub fn of(scenario: &Scenario, outcome: &Outcome) -> Story {
        let seen = outcome.violation.as_ref().map_or("", |violation| &violation.what);
        let begins = outcome.log.iter().position(|entry| matches!(entry.what, What::Begins));
        // A run that ends before any script begins is told from its start, and of one that has no end the last part.
        let first = begins.unwrap_or(0).max(outcome.log.len().saturating_sub(ROWS));
        let mut names = Names::default();
        let mut teller = Teller { cpus: scenario.setup.cpus, ..Teller::default() };
        for (n, entry) in outcome.log.iter().enumerate() {
            if Some(n) == begins {
                teller.across("the scripts begin");
                continue;
            }
            if n == first && begins.is_none_or(|begins| begins < first) {
                teller.across(if first == 0 { "before the scripts begin" } else { "much is left out here" });
            }
            // Before that, only what came of it.
            if n < first && !matches!(entry.what, What::Has(_)) {
                continue;
            }
            if let Some(said) = names.tell(&entry.what, seen) {
                teller.event(entry, said);
            }
        }
        let broken = outcome.violation.as_ref().map(|violation| broken(violation, &names));
        let Teller { rows, arrows, spans, .. } = teller;
        Story { cpus: scenario.setup.cpus, rows, arrows, spans, broken }
    }
}

fn broken(violation: &Violation, names: &Names) -> Broken {
    let mut said = vec![format!("Here: {}.", names.in_words(&violation.what))];
    if let Some(skipped) = violation.skipped {
        let (cpu, step, about) = (skipped.cpu, skipped.step, skipped.rule.about());
        said.push(format!("CPU {cpu} left out, at step {step}: {about} (`{}`).", skipped.rule));
    }
    Broken { invariant: violation.invariant, sentence: violation.sentence(), said }
}

/// Makes rows, and sees what belongs together.
#[derive(Default)]
struct Teller {
    cpus: u16,
    rows: Vec<Row>,
    arrows: Vec<Arrow>,
    spans: Vec<Span>,
    /// What each CPU said last: not everything that is repeated is told.
    last: BTreeMap<u16, String>,
}

impl Teller {
    fn across(&mut self, said: &'static str) {
        self.rows.push(Row::Across(said));
    }

    fn event(&mut self, entry: &LogEntry, said: String) {
        let again = self.last.get(&entry.cpu).is_some_and(|last| *last == said);
        self.last.insert(entry.cpu, said.clone());
        if again && matches!(entry.what, What::Spins) {
            return;
        }
        self.connect(entry.cpu, &entry.what);
        let (step, cpu, kind) = (entry.step, entry.cpu, kind(&entry.what));
        self.rows.push(Row::Of(Event { step, cpu, kind, said }));
    }

    /// What begins or ends in the row that comes next.
    fn connect(&mut self, cpu: u16, what: &What) {
        let row = self.rows.len();
        let begins = |what| Span { cpu, what, from: row, to: None };
        match what {
            What::Call(_) => self.spans.push(begins(Lasting::Call)),
            What::Return(..) => self.ends(cpu, Lasting::Call),
            What::Sleeps(_) => self.spans.push(begins(Lasting::Sleep)),
            What::Wakes => self.ends(cpu, Lasting::Sleep),
            What::Ticks => self.spans.push(begins(Lasting::Handler)),
            What::Arrives => {
                self.spans.push(begins(Lasting::Handler));
                // One handler serves all that were on their way.
                self.arrive(|arrow, _| arrow.what == Reach::Interrupt && arrow.cpu == cpu);
            }
            What::Leaves => self.ends(cpu, Lasting::Handler),
            What::Interrupt(target) => self.begin(Reach::Interrupt, *target),
            What::Broadcast(_) => {
                (0..self.cpus)
                    .filter(|other| *other != cpu)
                    .for_each(|other| self.begin(Reach::Broadcast, other));
            }
            What::Synced(reached) => {
                let mine = |arrow: &Arrow, by| arrow.what == Reach::Broadcast && by == Some(cpu);
                // Who was offline had nothing to flush.
                self.drop_pending(|arrow, by| mine(arrow, by) && !reached.contains(&arrow.cpu));
                self.arrive(mine);
            }
            _ => {}
        }
    }

    fn begin(&mut self, what: Reach, cpu: u16) {
        self.arrows.push(Arrow { what, from: self.rows.len(), cpu, to: None });
    }

    /// What of all that is on its way is there now. `is` gets who began it, too.
    fn arrive(&mut self, is: impl Fn(&Arrow, Option<u16>) -> bool) {
        let row = self.rows.len();
        for arrow in self.arrows.iter_mut().filter(|arrow| arrow.to.is_none()) {
            let by = self.rows.get(arrow.from).and_then(Row::cpu);
            if is(arrow, by) {
                arrow.to = Some(row);
            }
        }
    }

    /// Nor will any of these be there, ever.
    fn drop_pending(&mut self, is: impl Fn(&Arrow, Option<u16>) -> bool) {
        let Teller { rows, arrows, .. } = self;
        arrows.retain(|arrow| arrow.to.is_some() || !is(arrow, rows.get(arrow.from).and_then(Row::cpu)));
    }

    /// The innermost of its kind that goes on there.
    fn ends(&mut self, cpu: u16, what: Lasting) {
        let row = self.rows.len();
        let open = |span: &&mut Span| span.cpu == cpu && span.what == what && span.to.is_none();
        if let Some(span) = self.spans.iter_mut().rev().find(open) {
            span.to = Some(row);
        }
    }
}

impl Row {
    /// The CPU that it is of.
    pub fn cpu(&self) -> Option<u16> {
        match self {
            Row::Across(_) => None,
            Row::Of(event) => Some(event.cpu),
        }
    }
}

fn kind(what: &What) -> Kind {
    match *what {
        What::Access { write, .. } => Kind::Access { write },
        What::Fetched { .. } => Kind::Access { write: false },
        What::FlushPage(_)
        | What::FlushSpace
        | What::FlushKernelPage(_)
        | What::FlushKernel
        | What::Broadcast(_)
        | What::Load(_, false)
        | What::Evicted => Kind::Flush,
        What::Skip(_) => Kind::Skip,
        What::Broken(_) => Kind::Broken,
        What::Sleeps(_) | What::Spins => Kind::Waits,
        _ => Kind::Other,
    }
}
