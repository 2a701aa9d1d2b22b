//! What a run has to tell, as a sequence diagram: a lane for each CPU, time downwards, arrows from who interrupts to where it
//! arrives. Of the machine without time it draws [`Story`] as [`Story::text`] does, and knows nothing else of the run; of the simulation it
//! draws the lines that the terminal has, for those CPUs that are in them.

use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quietmm_check::timeline::Broken;
use quietmm_check::timeline::{Arrow, Event, Kind, Lasting, Reach, Row, Span, Story};
use quietmm_check::violation::sentence;
use quietmm_sim::story::{self, StepKind};
use textwrap::{Options, WordSplitter};

use super::palette::{EMPTY, GRID, INK, QUIET, REST, colour};
use super::{Canvas, Drawn, LETTER, LETTERS, Picture, WIDE, draw, letters};

/// Units left of the lanes, for the steps, at least.
const STEPS: i32 = 48;
/// From the steps to the lanes.
const APART: i32 = 12;
/// A lane is at least so wide.
const LANE: i32 = 172;
/// From a lane's left edge to its line, and from that to its words.
const LINE: i32 = 16;
const WORDS: i32 = 11;
/// A line of words, what is between two rows, and what arrows need below the words.
const PITCH: i32 = 16;
const GAP: i32 = 6;
const BELOW: i32 = 9;
/// Above the first row.
const HEAD: i32 = 30;
/// How far beside a CPU's line is what is on its way to it.
const BESIDE: i32 = 12;
/// Strokes of a broken line, and what is between them.
const STROKE: (i32, i32) = (4, 3);
/// Rows that are read aloud; of more only the last.
const READ: usize = 250;

/// What was left out, and what that broke.
fn wrong() -> RGBColor {
    colour(0)
}

/// The picture.
pub fn picture(title: impl Into<String>, story: &Story) -> Drawn<Picture> {
    let step = |event: &Event| event.step.to_string();
    drawn(title, story, &Names { steps: "step", step: &step, cpus: (0..story.cpus).collect() })
}

/// That of the simulation, if it says how it came to what was seen.
pub fn of_run(title: impl Into<String>, told: &story::Story) -> Drawn<Option<Picture>> {
    if told.steps.is_empty() {
        return Ok(None);
    }
    let mut cpus: Vec<u16> = told.steps.iter().map(|step| step.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let row = |(nth, step): (usize, &story::Step)| {
        let kind = match step.kind {
            StepKind::Skip => Kind::Skip,
            StepKind::Use { .. } => Kind::Broken,
            StepKind::Other => Kind::Other,
        };
        let cpu = cpus.binary_search(&step.cpu).unwrap_or(0) as u16;
        Row::Of(Event { step: nth as u32, cpu, kind, said: step.said.clone() })
    };
    let broken = told.broken.map(|rule| {
        let said = vec![format!("Left out: {} (`{rule}`).", rule.about()), format!("Seen: {}", told.said)];
        Broken { invariant: rule.invariant(), sentence: sentence(rule.invariant()), said }
    });
    let rows = told.steps.iter().enumerate().map(row).collect();
    let same = Story { cpus: cpus.len() as u16, rows, arrows: Vec::new(), spans: Vec::new(), broken };
    let step = |event: &Event| {
        let at = story::us(told.steps[event.step as usize].at);
        at.trim_end_matches(" us").to_string()
    };
    drawn(title, &same, &Names { steps: "us", step: &step, cpus }).map(Some)
}

fn drawn(title: impl Into<String>, story: &Story, names: &Names<'_>) -> Drawn<Picture> {
    let plan = Plan::of(story, names);
    let size = (plan.width as u32, plan.height as u32);
    draw(title, about(story, names), size, |canvas| plan.draw(canvas))
}

/// How steps and lanes are called.
struct Names<'a> {
    /// What steps are counted in.
    steps: &'static str,
    /// When something happened.
    step: &'a dyn Fn(&Event) -> String,
    /// The number of each lane's CPU.
    cpus: Vec<u16>,
}

/// The story in words, for whoever does not see it.
fn about(story: &Story, names: &Names<'_>) -> String {
    let row = |row: &Row| match row {
        Row::Across(said) => format!("Then {said}."),
        Row::Of(event) => {
            let (step, cpu) = ((names.step)(event), names.cpus[usize::from(event.cpu)]);
            let step = if names.steps == "step" {
                format!("Step {step}")
            } else {
                format!("At {step} {}", names.steps)
            };
            format!("{step}, CPU {cpu}: {}.", event.said)
        }
    };
    let skipped = story.rows.len().saturating_sub(READ);
    let mut text = format!("{} CPU{}, time downwards.", story.cpus, if story.cpus == 1 { "" } else { "s" });
    if skipped > 0 {
        text += &format!(" The first {skipped} rows are left out here.");
    }
    for one in &story.rows[skipped..] {
        text = format!("{text} {}", row(one));
    }
    for arrow in story.arrows.iter().filter(|arrow| arrow.to.is_none()) {
        let what = match arrow.what {
            Reach::Interrupt => "an interrupt",
            Reach::Broadcast => "a flush by hardware",
        };
        text += &format!(" In the end {what} to CPU {} is still on its way.", arrow.cpu);
    }
    match &story.broken {
        None => text + " Nothing was broken.",
        Some(broken) => format!("{text} {} {}", broken.law(), broken.said.join(" ")),
    }
}

/// Where everything is.
struct Plan<'a> {
    story: &'a Story,
    names: &'a Names<'a>,
    /// Where the lanes begin.
    lanes: i32,
    width: i32,
    height: i32,
    lane: i32,
    /// For each row where its first line of words is, and its arrows.
    rows: Vec<Place>,
    /// Where the rows end.
    end: i32,
    /// What stands in the box below, and whether it is bold.
    below: Vec<(String, bool)>,
}

struct Place {
    words: i32,
    arrow: i32,
    lines: Vec<String>,
}

impl<'a> Plan<'a> {
    fn of(story: &'a Story, names: &'a Names<'a>) -> Plan<'a> {
        let cpus = i32::from(story.cpus);
        let step = |row: &Row| match row {
            Row::Across(_) => 0,
            Row::Of(event) => LETTER as i32 * (names.step)(event).chars().count() as i32,
        };
        let lanes = (story.rows.iter().map(step).max().unwrap_or(0) + APART + 4).max(STEPS);
        let lane = ((WIDE as i32 - lanes) / cpus).max(LANE);
        let width = (lanes + lane * cpus).max(WIDE as i32);
        let mut y = HEAD;
        let mut rows = Vec::new();
        for (nth, row) in story.rows.iter().enumerate() {
            let lines = match row {
                Row::Across(said) => vec![(*said).to_string()],
                Row::Of(event) => wrapped(&event.said, lane - LINE - WORDS - BESIDE - 4),
            };
            let arrows = story.arrows.iter().any(|arrow| arrow.from == nth);
            let words = y + PITCH / 2;
            y += PITCH * lines.len() as i32;
            rows.push(Place { words, arrow: y + BELOW / 2 - 1, lines });
            y += GAP + if arrows { BELOW } else { 0 };
        }
        let end = y;
        let mut below = Vec::new();
        if let Some(broken) = &story.broken {
            let room = width - 40;
            below.push((format!("Broken here: {}", broken.invariant), true));
            let said = [broken.sentence.to_string()].into_iter().chain(broken.said.iter().cloned());
            below.extend(said.flat_map(|said| wrapped(&said, room)).map(|line| (line, false)));
            y += PITCH * below.len() as i32 + 3 * GAP;
        }
        let mut plan = Plan { story, names, lanes, width, height: 0, lane, rows, end, below };
        let key = plan.key().last().map_or(0, |(_, (_, row), _)| PITCH * (row + 1) + GAP);
        plan.height = y + 2 * GAP + key + GAP;
        plan
    }

    /// Where a CPU's line is.
    fn line(&self, cpu: u16) -> i32 {
        self.lanes + self.lane * i32::from(cpu) + LINE
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Drawn<()> {
        for cpu in 0..self.story.cpus {
            let x = self.line(cpu);
            canvas.draw(&PathElement::new([(x, HEAD - 6), (x, self.end)], REST.stroke_width(1)))?;
            let name = format!("CPU {}", self.names.cpus[usize::from(cpu)]);
            canvas.draw(&Text::new(name, (x - 5, 10), left(true, &INK)))?;
        }
        canvas.draw(&PathElement::new([(0, HEAD - 8), (self.width, HEAD - 8)], GRID.stroke_width(2)))?;
        canvas.draw(&Text::new(self.names.steps, (self.lanes - APART, 10), right()))?;
        for span in &self.story.spans {
            self.span(canvas, span)?;
        }
        for arrow in &self.story.arrows {
            self.arrow(canvas, arrow)?;
        }
        for (row, place) in self.story.rows.iter().zip(&self.rows) {
            match row {
                Row::Across(said) => self.across(canvas, said, place.words)?,
                Row::Of(event) => self.event(canvas, event, place)?,
            }
        }
        self.broken(canvas)?;
        self.legend(canvas)
    }

    fn across(&self, canvas: &Canvas<'_>, said: &str, y: i32) -> Drawn<()> {
        let half = LETTER as i32 * said.chars().count() as i32 / 2 + 8;
        let middle = self.lanes + (self.width - self.lanes) / 2;
        for ends in [(self.lanes, middle - half), (middle + half, self.width)] {
            broken_line(canvas, (ends.0, y), (ends.1, y), &REST)?;
        }
        let style = letters(&QUIET).pos(Pos::new(HPos::Center, VPos::Center));
        Ok(canvas.draw(&Text::new(said.to_string(), (middle, y), style))?)
    }

    fn event(&self, canvas: &Canvas<'_>, event: &Event, place: &Place) -> Drawn<()> {
        let (x, y) = (self.line(event.cpu), place.words);
        canvas.draw(&Text::new((self.names.step)(event), (self.lanes - APART, y), right()))?;
        let loud = matches!(event.kind, Kind::Skip | Kind::Broken);
        let ink = if event.kind == Kind::Waits { QUIET } else { INK };
        for (nth, line) in place.lines.iter().enumerate() {
            let at = (x + WORDS, y + PITCH * nth as i32);
            canvas.draw(&Text::new(line.clone(), at, left(loud, &ink)))?;
        }
        mark(canvas, event.kind, (x, y))
    }

    fn span(&self, canvas: &Canvas<'_>, span: &Span) -> Drawn<()> {
        let x = self.line(span.cpu);
        let (from, to) = (self.rows[span.from].words, span.to.map_or(self.end, |to| self.rows[to].words));
        bar(canvas, span.what, (x, from), to.max(from + 2))
    }

    /// Along the row in which it was begun, and down beside the other's line to where it arrived.
    fn arrow(&self, canvas: &Canvas<'_>, arrow: &Arrow) -> Drawn<()> {
        let Some(from) = self.story.rows[arrow.from].cpu() else { return Ok(()) };
        let colour = of_reach(arrow.what);
        let (sends, gets) = (self.line(from), self.line(arrow.cpu));
        let (y, beside) = (self.rows[arrow.from].arrow, gets - BESIDE);
        canvas.draw(&PathElement::new([(sends, y), (beside, y)], colour.stroke_width(1)))?;
        let end = arrow.to.map_or(self.end - GAP, |to| self.rows[to].words);
        broken_line(canvas, (beside, y), (beside, end), &colour)?;
        if arrow.to.is_some() {
            canvas.draw(&PathElement::new([(beside, end), (gets - 8, end)], colour.stroke_width(1)))?;
            let head = vec![(gets - 3, end), (gets - 11, end - 4), (gets - 11, end + 4)];
            canvas.draw(&Polygon::new(head, colour.filled()))?;
        } else {
            canvas.draw(&Circle::new((beside, end), 4, colour.stroke_width(1)))?;
        }
        Ok(())
    }

    /// The invariant, at the place where it broke.
    fn broken(&self, canvas: &Canvas<'_>) -> Drawn<()> {
        if self.below.is_empty() {
            return Ok(());
        }
        let (top, height) = (self.end + GAP, PITCH * self.below.len() as i32 + 2 * GAP);
        let at = self.story.rows.iter().zip(&self.rows).rev();
        let at = at.filter_map(|(row, place)| match row {
            Row::Of(event) if event.kind == Kind::Broken => Some((self.line(event.cpu), place.words)),
            _ => None,
        });
        if let Some((x, y)) = at.into_iter().next() {
            canvas.draw(&PathElement::new([(x, y), (x, top)], wrong().stroke_width(2)))?;
        }
        canvas.draw(&Rectangle::new([(0, top), (self.width, top + height)], wrong().mix(0.12).filled()))?;
        canvas.draw(&Rectangle::new([(0, top), (5, top + height)], wrong().filled()))?;
        for (nth, (line, bold)) in self.below.iter().enumerate() {
            let at = (16, top + GAP + PITCH * nth as i32 + PITCH / 2);
            canvas.draw(&Text::new(line.clone(), at, left(*bold, &INK)))?;
        }
        Ok(())
    }

    /// What the signs mean that occur: where each stands, by how far from the left and in which row.
    fn key(&self) -> Vec<(Sign, (i32, i32), &'static str)> {
        let story = self.story;
        let spans = |what| story.spans.iter().any(|span| span.what == what);
        let marks = |kind| story.rows.iter().any(|row| matches!(row, Row::Of(event) if event.kind == kind));
        let arrows = |what| story.arrows.iter().any(|arrow| arrow.what == what);
        let late = |arrow: &Arrow| arrow.to.is_none();
        let all = [
            (Sign::Bar(Lasting::Call), spans(Lasting::Call), "in a call into the core"),
            (Sign::Bar(Lasting::Handler), spans(Lasting::Handler), "in an interrupt"),
            (Sign::Bar(Lasting::Sleep), spans(Lasting::Sleep), "asleep"),
            (Sign::Way(Reach::Interrupt), arrows(Reach::Interrupt), "an interrupt on its way"),
            (Sign::Way(Reach::Broadcast), arrows(Reach::Broadcast), "a flush by hardware on its way"),
            (Sign::Late, story.arrows.iter().any(late), "not there in the end"),
            (Sign::Mark(Kind::Access { write: true }), marks(Kind::Access { write: true }), "writes"),
            (
                Sign::Mark(Kind::Access { write: false }),
                marks(Kind::Access { write: false }),
                "reads, or caches",
            ),
            (Sign::Mark(Kind::Flush), marks(Kind::Flush), "flushes"),
            (Sign::Mark(Kind::Skip), marks(Kind::Skip), "a step left out"),
        ];
        let (mut x, mut row) = (0, 0);
        let mut key = Vec::new();
        for (sign, _, said) in all.into_iter().filter(|(_, occurs, _)| *occurs) {
            let width = 22 + LETTER as i32 * said.chars().count() as i32 + 14;
            if x + width > self.width && x > 0 {
                (x, row) = (0, row + 1);
            }
            key.push((sign, (x, row), said));
            x += width;
        }
        key
    }

    fn legend(&self, canvas: &Canvas<'_>) -> Drawn<()> {
        let key = self.key();
        let rows = key.last().map_or(0, |(_, (_, row), _)| row + 1);
        let top = self.height - PITCH * rows - GAP;
        for (sign, (x, row), said) in key {
            let (x, y) = (x + 10, top + PITCH * row + PITCH / 2);
            match sign {
                Sign::Bar(what) => bar(canvas, what, (x, y - 6), y + 6)?,
                Sign::Mark(kind) => mark(canvas, kind, (x, y))?,
                Sign::Way(what) => broken_line(canvas, (x - 8, y), (x + 9, y), &of_reach(what))?,
                Sign::Late => {
                    canvas.draw(&Circle::new((x, y), 4, of_reach(Reach::Interrupt).stroke_width(1)))?
                }
            }
            canvas.draw(&Text::new(said, (x + 12, y), left(false, &QUIET)))?;
        }
        Ok(())
    }
}

/// A sign that the key explains.
enum Sign {
    Bar(Lasting),
    Way(Reach),
    Late,
    Mark(Kind),
}

fn of_reach(what: Reach) -> RGBColor {
    colour(match what {
        Reach::Interrupt => 1,
        Reach::Broadcast => 2,
    })
}

/// What lasts, on its CPU's line from here down to `to`.
fn bar(canvas: &Canvas<'_>, what: Lasting, (x, from): (i32, i32), to: i32) -> Drawn<()> {
    let (half, fill) = match what {
        Lasting::Call => (4, REST),
        Lasting::Handler => (4, colour(1)),
        Lasting::Sleep => (4, EMPTY),
    };
    canvas.draw(&Rectangle::new([(x - half, from), (x + half, to)], fill.filled()))?;
    if what == Lasting::Sleep {
        canvas.draw(&Rectangle::new([(x - half, from), (x + half, to)], REST.stroke_width(1)))?;
    }
    Ok(())
}

/// What happened, on its CPU's line.
fn mark(canvas: &Canvas<'_>, kind: Kind, (x, y): (i32, i32)) -> Drawn<()> {
    match kind {
        Kind::Access { write: true } => canvas.draw(&Circle::new((x, y), 4, INK.filled()))?,
        Kind::Access { write: false } => canvas.draw(&Circle::new((x, y), 4, INK.stroke_width(2)))?,
        Kind::Flush => canvas.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], colour(2).filled()))?,
        Kind::Skip => {
            let corners = vec![(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)];
            canvas.draw(&Polygon::new(corners, wrong().filled()))?;
        }
        Kind::Broken => {
            for end in [-6, 6] {
                let stroke = [(x - 6, y - end), (x + 6, y + end)];
                canvas.draw(&PathElement::new(stroke, wrong().stroke_width(3)))?;
            }
        }
        Kind::Waits | Kind::Other => {
            canvas.draw(&PathElement::new([(x, y), (x + 7, y)], REST.stroke_width(1)))?;
        }
    }
    Ok(())
}

/// A line of strokes, across or down.
fn broken_line(canvas: &Canvas<'_>, from: (i32, i32), to: (i32, i32), colour: &RGBColor) -> Drawn<()> {
    let (along, down) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
    let length = along.max(down);
    // A line over hundreds of rows needs no thousand strokes.
    let times = 1 + length / 700;
    let (stroke, gap) = (STROKE.0 * times, STROKE.1 * times);
    let at = |far: i32| {
        let share = |from: i32, to: i32| from + (to - from).signum() * far.min((to - from).abs());
        (share(from.0, to.0), share(from.1, to.1))
    };
    for begin in (0..length).step_by((stroke + gap) as usize) {
        let ends = [at(begin), at((begin + stroke).min(length))];
        canvas.draw(&PathElement::new(ends, colour.stroke_width(1)))?;
    }
    Ok(())
}

/// Words that begin here.
fn left(bold: bool, colour: &RGBColor) -> TextStyle<'static> {
    let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
    let font = ("sans-serif", LETTERS, style).into_font().color(colour);
    font.pos(Pos::new(HPos::Left, VPos::Center))
}

/// Numbers that end here.
fn right() -> TextStyle<'static> {
    letters(&QUIET).pos(Pos::new(HPos::Right, VPos::Center))
}

/// Lines of words that are no wider than this; further ones are indented.
fn wrapped(text: &str, width: i32) -> Vec<String> {
    let options = Options::new((width / LETTER as i32).max(8) as usize)
        .subsequent_indent("\u{2002}")
        .word_splitter(WordSplitter::HyphenSplitter);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}
