//! Which figures a table shows, in which order.

use quietmm_sim::{Figure, Group, figures};

use crate::study::result::Column;

/// The figures of a table that belong together.
pub type Rows = Vec<&'static Figure>;

/// The groups of rows; `all` adds every counter. What is zero everywhere, and what only repeats another row, is left out.
pub fn groups(columns: &[Column<'_>], all: bool) -> Vec<Rows> {
    let known: Rows = columns.first().map_or(Vec::new(), |first| {
        let mut known: Rows = first.samples.iter().map(|sample| sample.figure).collect();
        known.retain(|figure| says_something(figure, columns));
        known
    });
    // Without swap devices what swap counts is one of the rest.
    let swaps = columns.iter().any(|column| column.get(figures::SWAPOUTS_PER_S.key).is_some());
    let group = |figure: &Figure| match figure.group {
        Group::Swap if !swaps => Group::Rest,
        Group::Harm => Group::Traffic,
        // It explains nothing that a table is about.
        Group::Times if figure.key == figures::IDLE.key => Group::Rest,
        group => group,
    };
    let of = |wanted| known.iter().copied().filter(|figure| group(figure) == wanted).collect::<Rows>();
    let mut groups: Vec<Rows> =
        [Group::Ops, Group::Times, Group::Traffic, Group::Swap, Group::Own, Group::Image].map(of).to_vec();
    if all {
        groups.push(of(Group::Rest));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Whether any column has something else than nothing, or than the row that this one repeats.
fn says_something(figure: &Figure, columns: &[Column<'_>]) -> bool {
    let zero = columns.iter().all(|column| column.number(figure).is_none_or(|value| value == 0.0));
    let repeats = !figure.twin.is_empty()
        && columns.iter().all(|column| {
            let pair = (column.get(figure.key), column.get(figure.twin));
            matches!(pair, (Some(a), Some(b)) if a.number() == b.number() && a.spread == b.spread)
        });
    !zero && !repeats
}
