//! Who interrupts whom: what each CPU sends and receives, and from where to where.

use maud::{Markup, html};
use plotters::style::text_anchor::HPos;
use quietmm_sim::Traffic;

use super::plot::axis::said;
use super::plot::{Canvas, Drawn, LETTER, Picture, WIDE, cells, draw};
use crate::study::result::Column;

/// CPUs that have a cell each; of more several share one.
const MOST_CELLS: usize = 256;
/// Units left of a row, for its name.
const NAMES: i32 = 72;
/// A row's height, and that of a policy's name.
const ROW: i32 = 16;
const NAME: i32 = 22;
/// The length of a matrix's side, at most, and that of a cell.
const SIDE: i32 = 288;
const LARGEST: i32 = 24;
/// Rows of a matrix that is a table.
const BLOCKS: usize = 8;

/// A policy's first run.
struct First<'a> {
    policy: usize,
    name: &'a str,
    seed: u64,
    traffic: &'a Traffic,
}

/// The pictures, and their numbers.
pub fn part(columns: &[Column<'_>]) -> Drawn<Markup> {
    let mut firsts: Vec<First<'_>> = Vec::new();
    for column in columns {
        let Some(run) = column.runs.first() else { continue };
        if let Some(traffic) = &run.traffic {
            firsts.push(First { policy: column.policy, name: column.name, seed: run.seed, traffic });
        }
    }
    let Some(one) = firsts.first() else { return Ok(html! {}) };
    if firsts.iter().all(|first| first.traffic.sent.iter().all(|sent| *sent == 0)) {
        return Ok(
            html! { h3 { "Who interrupts whom" } p { "Nobody: no CPU sent an interrupt to another." } },
        );
    }
    let group = one.traffic.group;
    let most = firsts.iter().flat_map(|first| &first.traffic.pairs).copied().max().unwrap_or(0);
    let each = if group == 1 { "CPU".to_string() } else { format!("{group} CPUs") };
    let busy = firsts.iter().filter(|first| first.traffic.pairs.iter().any(|pair| *pair > 0));
    let matrices = busy.map(|first| matrix(first, most)).collect::<Drawn<Vec<Picture>>>()?;
    let silent: Vec<&str> = firsts
        .iter()
        .filter(|first| first.traffic.pairs.iter().all(|pair| *pair == 0))
        .map(|first| first.name)
        .collect();
    Ok(html! {
        h3 { "Who interrupts whom" }
        p class="dim" {
            "Interrupts that the memory manager sends from CPU to CPU; seed " (one.seed)
            ". The darker the more, by the square root, on one scale for all policies."
        }
        div class="pictures" { (strips(&firsts)?) }
        p class="dim" { "From where to where: a cell for each " (each) " that sends, from top to bottom, and each that receives, from left to right." }
        div class="pictures" { @for matrix in &matrices { (matrix) } }
        @if !silent.is_empty() { p { "With " (silent.join(" and with ")) " nobody interrupts anybody." } }
        details {
            summary { "The numbers" }
            @for first in &firsts { (blocks(first)) }
        }
    })
}

/// What each CPU sends and receives: two rows for each policy.
fn strips(firsts: &[First<'_>]) -> Drawn<Picture> {
    let cpus = firsts[0].traffic.sent.len();
    let share = cpus.div_ceil(MOST_CELLS);
    let width = ((WIDE as i32 - NAMES - 16) / cpus.div_ceil(share) as i32).clamp(1, 40);
    let means = |all: &[u64]| -> Vec<f64> {
        all.chunks(share).map(|some| some.iter().sum::<u64>() as f64 / some.len() as f64).collect()
    };
    let rows: Vec<[Vec<f64>; 2]> =
        firsts.iter().map(|first| [means(&first.traffic.sent), means(&first.traffic.received)]).collect();
    let most = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let about = firsts.iter().map(|first| {
        let told = |all: &[u64]| {
            let most = all.iter().max().copied().unwrap_or(0);
            let some = all.iter().filter(|count| **count > 0).count();
            format!("by {some} of {cpus} CPUs, at most {most} by one")
        };
        format!(
            "{}: sent {}; received {}",
            first.name,
            told(&first.traffic.sent),
            told(&first.traffic.received)
        )
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join(". "));
    let each = NAME + 2 * (ROW + 2) + 8;
    let height = each * firsts.len() as i32 + 62;
    let title = match share {
        1 => "Sent and received by each CPU".to_string(),
        share => format!("Sent and received by each CPU, means of {share} side by side"),
    };
    let cells = cpus.div_ceil(share) as i32;
    draw(title, about, (WIDE, height as u32), |canvas| {
        for (nth, (first, rows)) in firsts.iter().zip(&rows).enumerate() {
            let top = each * nth as i32;
            cells::words(canvas, first.name, (NAMES, top + NAME / 2), HPos::Left)?;
            for (row, (what, values)) in ["sent", "received"].iter().zip(rows).enumerate() {
                let y = top + NAME + (ROW + 2) * row as i32;
                cells::words(canvas, what, (NAMES - 8, y + ROW / 2), HPos::Right)?;
                cells::ground(canvas, (NAMES, y), (width * cells, ROW))?;
                cells::row(canvas, (NAMES, y), (width, ROW), values, most)?;
            }
        }
        let below = each * firsts.len() as i32 + 6;
        let place = |cpu: usize| NAMES + width * (cpu / share) as i32 + width.min(12) / 2;
        cells::words(canvas, "CPU", (NAMES - 8, below), HPos::Right)?;
        numbers(canvas, firsts[0].traffic, &|cpu| (place(cpu), below), true)?;
        cells::key(canvas, (NAMES, below + 32), &format!("{} interrupts", said(most.round())))
    })
}

/// The first CPU of nodes: of as many as there is room for.
fn numbers(canvas: &Canvas<'_>, of: &Traffic, at: &dyn Fn(usize) -> (i32, i32), across: bool) -> Drawn<()> {
    let cpus = of.sent.len();
    // A machine of one node has numbers too.
    let node = if of.nodes > 1 { cpus / of.nodes as usize } else { cpus.div_ceil(8) }.max(1);
    let needed = if across { cpus.to_string().len() as i32 * LETTER as i32 + 8 } else { 18 };
    let along = |cpu: usize| if across { at(cpu).0 } else { at(cpu).1 };
    let room = (along(node.min(cpus - 1)) - along(0)).max(1);
    let step = node * ((needed + room - 1) / room) as usize;
    for cpu in (0..cpus).step_by(step) {
        cells::words(canvas, &cpu.to_string(), at(cpu), if across { HPos::Center } else { HPos::Right })?;
    }
    Ok(())
}

/// From where to where.
fn matrix(first: &First<'_>, most: u64) -> Drawn<Picture> {
    let traffic = first.traffic;
    let groups = traffic.groups as usize;
    let cell = (SIDE / groups as i32).clamp(1, LARGEST);
    let side = cell * groups as i32;
    let (left, top) = (52, 26);
    let size = (370, (top + side + 40) as u32);
    let (rows, total) = (traffic.pairs.chunks(groups), traffic.pairs.iter().sum::<u64>());
    let own: u64 = (0..groups).map(|nth| traffic.pairs[nth * groups + nth]).sum();
    let within = if traffic.group == 1 { String::new() } else { format!(", {own} of them within a group") };
    let about = format!(
        "{} interrupts between {groups} groups of {} CPUs{within}; at most {} from one to one.",
        total,
        traffic.group,
        traffic.pairs.iter().max().copied().unwrap_or(0)
    );
    draw(first.name, about, size, |canvas| {
        cells::ground(canvas, (left, top), (side, side))?;
        for (nth, row) in rows.enumerate() {
            let values: Vec<f64> = row.iter().map(|pair| *pair as f64).collect();
            cells::row(canvas, (left, top + cell * nth as i32), (cell, cell), &values, most as f64)?;
        }
        let group = traffic.group as usize;
        let middle = |cpu: usize| cell * (cpu / group) as i32 + cell / 2;
        numbers(canvas, traffic, &|cpu| (left + middle(cpu).max(4), 14), true)?;
        numbers(canvas, traffic, &|cpu| (left - 8, top + middle(cpu)), false)?;
        cells::key(canvas, (left, top + side + 22), &format!("{} interrupts", said(most as f64)))
    })
}

/// The same as a table of few rows.
fn blocks(first: &First<'_>) -> Markup {
    let traffic = first.traffic;
    let groups = traffic.groups as usize;
    let size = groups.div_ceil(BLOCKS);
    let count = groups.div_ceil(size);
    let mut sums = vec![0u64; count * count];
    for (nth, pair) in traffic.pairs.iter().enumerate() {
        sums[nth / groups / size * count + nth % groups / size] += pair;
    }
    let cpus = traffic.sent.len();
    let name = |block: usize| {
        let each = size * traffic.group as usize;
        let (from, to) = (block * each, ((block + 1) * each).min(cpus) - 1);
        if from == to { format!("CPU {from}") } else { format!("CPUs {from}–{to}") }
    };
    let total = |key: &str, all: &[u64]| {
        let sum = all.iter().sum::<u64>();
        html! { span data-sum=(key) data-policy=(first.policy) data-seed=(first.seed) data-value=(sum) { (said(sum as f64)) } }
    };
    html! {
        div class="wide" {
            table {
                caption {
                    (first.name) ": rows send, columns receive. In all "
                    (total("ipis_sent", &traffic.pairs)) " sent and " (total("ipis_received", &traffic.received)) " received."
                }
                thead { tr { td {} @for block in 0..count { th scope="col" { (name(block)) } } } }
                tbody {
                    @for (block, row) in sums.chunks(count).enumerate() {
                        tr { th scope="row" { (name(block)) } @for sum in row { td { (said(*sum as f64)) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Run;

    #[test]
    fn four_thousand_cpus_that_all_interrupt_all_are_not_long_to_tell() {
        let (cpus, groups) = (4096, 48);
        // No two cells side by side are alike.
        let traffic = |policy: u64| Traffic {
            sent: (0..cpus).map(|cpu| cpu * 7919 % 4093 * policy).collect(),
            received: (0..cpus).map(|cpu| cpu * 104_729 % 4091 * policy).collect(),
            group: 86,
            groups,
            pairs: (0..u64::from(groups * groups)).map(|pair| pair * 7919 % 2311 * policy).collect(),
            nodes: 32,
            frames: 1 << 20,
            moments: Vec::new(),
        };
        let runs: Vec<Run> =
            (1..=5).map(|policy| Run { traffic: Some(traffic(policy)), ..Run::default() }).collect();
        let column = |(policy, run)| Column {
            policy,
            name: "a policy",
            runs: vec![run],
            samples: vec![],
            simulated: vec![],
        };
        let columns: Vec<Column<'_>> = runs.iter().enumerate().map(column).collect();
        let page = part(&columns).unwrap().into_string();
        let cells = page.matches("<rect ").count();
        assert!(cells > 10_000 && page.len() < 2 << 20, "{cells} cells, {} bytes", page.len());
    }
}
