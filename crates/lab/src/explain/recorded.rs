//! What was recorded: who interrupts whom, by which call, and what it cost.

use quietmm_host::blame::{Blame, Group, Whom};
use quietmm_host::summary::several;
use quietmm_sim::machine::Machine;
use quietmm_workloads::trace::Recording;
use serde_json::{Value, json};

use crate::cost;
use crate::show::table::grid;
use crate::show::units::{grouped, time};
use crate::show::wrap::hanging;

/// Groups that are shown.
pub const MOST: usize = 10;
/// Those interrupted that are named of each.
const MOST_VICTIMS: usize = 3;

/// Nanoseconds of CPU time that one flush request costs, sender and receiver together.
pub fn each(machine: &Machine) -> f64 {
    cost::received(machine) + cost::sent(machine)
}

/// How many of those whom a group interrupted had nothing to do.
pub fn idle(group: &Group) -> u64 {
    group.victims.iter().filter(|(whom, _)| *whom == Whom::Idle).map(|(_, count)| count).sum()
}

/// What was recorded, and what to know of it: sentences.
pub fn about(recording: &Recording<'_>, machine: &Machine) -> Vec<String> {
    let about = recording.header().about;
    let part = if about.bounded { ", a part of its run" } else { "" };
    let mut said = vec![format!(
        "{}: {} on {}{part}, {} ({}).",
        program(recording),
        time(about.duration as f64),
        several(about.cpus.into(), "CPU"),
        several(recording.header().sums.threads.into(), "thread"),
        about.method
    )];
    if about.lost > 0 {
        let were = if about.lost == 1 { "event was" } else { "events were" };
        said.push(format!("{} {were} lost: the counts below are too low.", grouped(&about.lost.to_string())));
    }
    if machine.cpus != u32::from(about.cpus) {
        let (name, cpus) = (&machine.name, machine.cpus);
        said.push(format!(
            "Costs are those of {name}, which has {} and is another machine: `quietmm machine measure` describes this one.",
            several(cpus.into(), "CPU")
        ));
    }
    said
}

/// The program's name.
pub fn program<'a>(recording: &Recording<'a>) -> &'a str {
    let program = recording.header().about.program;
    if program.is_empty() { "the program" } else { program }
}

/// How often somebody was interrupted and what that cost; or that it was not recorded.
pub fn summary(recording: &Recording<'_>, blame: &Blame, machine: &Machine) -> String {
    let about = recording.header().about;
    if !about.shootdowns {
        return "Who was interrupted was not recorded: that needs `quietmm record --by perf`. What follows are the calls that may have \
                interrupted somebody, because other threads lived in the space."
            .to_owned();
    }
    let seconds = about.duration as f64 / 1e9;
    let idle: u64 = blame.groups.iter().map(idle).sum();
    let spent = blame.shootdowns as f64 * each(machine) + idle as f64 * cost::answers(machine);
    let all = about.duration as f64 * f64::from(about.cpus);
    let count = grouped(&blame.shootdowns.to_string());
    let times = if blame.shootdowns == 1 { "time" } else { "times" };
    if about.duration == 0 {
        return format!(
            "CPUs were interrupted {count} {times} to flush for it, in no time: no rate can be told."
        );
    }
    format!(
        "CPUs were interrupted {count} {times} to flush for it, {:.0} a second. On {} that takes {} of CPU time each, who interrupts and \
         who is interrupted together{}: {}, {:.2} % of all CPUs' time.",
        blame.shootdowns as f64 / seconds,
        machine.name,
        time(each(machine)),
        match idle {
            0 => String::new(),
            _ => format!(
                ", and {} more where one is idle ({})",
                time(cost::answers(machine)),
                grouped(&idle.to_string())
            ),
        },
        time(spent),
        100.0 * spent / all
    )
}

/// In words and a table.
pub fn text(recording: &Recording<'_>, blame: &Blame, machine: &Machine, width: usize) -> String {
    let mut text: String = about(recording, machine).iter().map(|said| hanging(width, "", said)).collect();
    text.push('\n');
    text += &hanging(width, "", &summary(recording, blame, machine));
    text.push('\n');
    match (recording.header().about.shootdowns, blame.shootdowns) {
        (false, _) => text + &calls(blame, width),
        (true, 0) => text,
        (true, _) => text + &who(blame, width),
    }
}

/// Who interrupts whom, a line each, and below it what is known beside.
fn who(blame: &Blame, width: usize) -> String {
    let head = ["who", "by", "calls", "interrupting", "interrupts", "share"].map(String::from).to_vec();
    let mut rows = vec![head];
    let guilty: Vec<&Group> = blame.groups.iter().filter(|group| group.shootdowns > 0).collect();
    let shown = &guilty[..guilty.len().min(MOST)];
    for group in shown {
        let share = 100.0 * group.shootdowns as f64 / blame.shootdowns as f64;
        rows.push(vec![
            group.name.clone(),
            group.cause.name().to_owned(),
            grouped(&group.calls.to_string()),
            grouped(&group.guilty.to_string()),
            grouped(&group.shootdowns.to_string()),
            format!("{share:.0} %"),
        ]);
    }
    let rest: u64 = guilty[shown.len()..].iter().map(|group| group.shootdowns).sum();
    if rest > 0 {
        let mut row = vec![String::new(); 6];
        (row[0], row[4]) = (format!("{} more", guilty.len() - shown.len()), grouped(&rest.to_string()));
        rows.push(row);
    }
    let mut text = grid("llrrrr", &rows);
    text.push('\n');
    for group in shown {
        text += &hanging(width, "  ", &format!("{}, {}: {}", group.name, group.cause.name(), beside(group)));
    }
    text.push('\n');
    text
}

/// What is known of a group beside its counts: whom it interrupts, how long its calls take, from where they come.
pub fn beside(group: &Group) -> String {
    let mut victims: Vec<String> = group.victims.iter().take(MOST_VICTIMS).map(victim).collect();
    if group.victims.len() > MOST_VICTIMS {
        victims.push("others".to_owned());
    }
    let mut said = format!("interrupts {}.", victims.join(", "));
    if let Some([guilty, innocent]) = group.took_each() {
        said += &format!(
            " Half of the calls that do take at most {}, half of those that do not {}.",
            time(guilty as f64),
            time(innocent as f64)
        );
    }
    if let Some(alike) = group.alike.filter(|alike| alike.longer > 0) {
        said += &format!(
            " Beside calls that found about as many pages there: {} longer.",
            time(alike.longer as f64)
        );
    }
    if let Some(from) = from(group) {
        said += &format!(" {from}");
    }
    said
}

/// From where most of its interrupts come, or of its calls that may interrupt, where call stacks were recorded.
pub fn from(group: &Group) -> Option<String> {
    let (stack, count) = group.stacks.first()?;
    Some(format!("Most often ({count}) from {}.", stack.replace(';', " < ")))
}

/// Without shootdowns: what may have interrupted.
fn calls(blame: &Blame, width: usize) -> String {
    let head = ["who", "by", "calls", "with others there"].map(String::from).to_vec();
    let (mut rows, mut beside) = (vec![head], String::new());
    for group in blame.groups.iter().filter(|group| group.shared > 0).take(MOST) {
        if let Some(from) = from(group) {
            beside += &hanging(width, "  ", &format!("{}, {}: {from}", group.name, group.cause.name()));
        }
        let counts = [group.calls, group.shared].map(|count| grouped(&count.to_string()));
        rows.push([&[group.name.clone(), group.cause.name().to_owned()][..], &counts[..]].concat());
    }
    if rows.len() == 1 {
        return "None.\n\n".to_owned();
    }
    let gap = if beside.is_empty() { "" } else { "\n" };
    grid("llrr", &rows) + gap + &beside + "\n"
}

fn victim((whom, count): &(Whom, u64)) -> String {
    format!("{} ({count})", name(whom))
}

/// Who was interrupted.
pub fn name(whom: &Whom) -> &str {
    match whom {
        Whom::Threads(name) => name,
        Whom::Idle => "idle CPUs",
        Whom::Left => "CPUs that had left its space",
        Whom::Others => "other programs",
    }
}

/// The recording, for programs.
pub fn json(recording: &Recording<'_>, machine: &Machine) -> Value {
    let about = recording.header().about;
    json!({
        "program": about.program,
        "command": about.command,
        "method": about.method,
        "bounded": about.bounded,
        "cpus": about.cpus,
        "threads": recording.header().sums.threads,
        "duration_ns": about.duration,
        "lost": about.lost,
        "shootdowns_recorded": about.shootdowns,
        "received": super::received(recording),
        "machine": machine.name,
        "ns_each": each(machine),
        "ns_each_sender": cost::sent(machine),
        "ns_each_sender_to_idle": cost::sent_to_idle(machine),
    })
}

/// A group, for programs.
pub fn group_json(group: &Group) -> Value {
    let victims = group.victims.iter().map(|(whom, count)| match whom {
        Whom::Threads(name) => json!({ "threads": name, "count": count }),
        Whom::Idle => json!({ "idle": true, "count": count }),
        Whom::Left => json!({ "left": true, "count": count }),
        Whom::Others => json!({ "others": true, "count": count }),
    });
    let stacks = group.stacks.iter().map(|(stack, count)| json!({ "stack": stack, "count": count }));
    json!({
        "name": group.name,
        "cause": group.cause.key(),
        "calls": group.calls,
        "calls_with_others_there": group.shared,
        "interrupting_calls": group.guilty,
        "shootdowns": group.shootdowns,
        "ns": group.took[0],
        "ns_interrupting": group.took[1],
        "median_ns_interrupting": group.medians[0],
        "median_ns_others": group.medians[1],
        "ns_longer_than_alike": group.alike.map(|alike| alike.longer),
        "calls_with_others_alike": group.alike.map(|alike| alike.calls),
        "bursts": group.bursts,
        "pages": group.pages,
        "victims": victims.collect::<Vec<_>>(),
        "stacks": stacks.collect::<Vec<_>>(),
    })
}
