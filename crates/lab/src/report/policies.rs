//! What the work is about, by policy: a picture for each figure.

use maud::{Markup, html};
use quietmm_sim::{Better, Figure, Group, figures};

use super::plot::axis::{Axis, scaled};
use super::plot::bars::{self, Bar};
use super::plot::{Drawn, Picture, draw, palette};
use crate::show::rows;
use crate::show::units::Scale;
use crate::study::result::Column;
use crate::study::sample::Sample;

/// The width of one picture: two stand side by side.
const WIDTH: u32 = 370;
/// Pictures of what only this workload measures, at most.
const OWN: usize = 4;

/// All of them.
pub fn pictures(columns: &[Column<'_>]) -> Drawn<Markup> {
    let pictures =
        chosen(&rows::groups(columns, true).concat()).into_iter().map(|figure| picture(figure, columns));
    let pictures = pictures.collect::<Drawn<Vec<Picture>>>()?;
    Ok(html! {
        @if !pictures.is_empty() { div class="pictures" { @for picture in &pictures { (picture) } } }
    })
}

/// The figures that are drawn, of all that say something: time, interrupts, and what is the workload's own.
pub fn chosen(shown: &[&'static Figure]) -> Vec<&'static Figure> {
    let find = |figure: &Figure| shown.iter().copied().find(|known| known.key == figure.key);
    // Where nothing is reclaimed nothing goes by pages; where nobody is interrupted there is no picture.
    let ipis = find(&figures::IPIS_PER_PAGE)
        .or_else(|| find(&figures::IPIS_RECEIVED))
        .or_else(|| find(&figures::IPIS_SENT));
    let times = [&figures::ELAPSED, &figures::INSTRUCTIONS].map(find);
    let costs = [&figures::SYSTEM, &figures::INTERRUPTS_PER_S].map(find);
    let own =
        shown.iter().copied().filter(|figure| figure.group == Group::Own && figure.better != Better::Neither);
    times.into_iter().chain([ipis]).chain(costs).flatten().chain(own.take(OWN)).collect()
}

fn picture(figure: &'static Figure, columns: &[Column<'_>]) -> Drawn<Picture> {
    let samples: Vec<(&Column<'_>, &Sample)> =
        columns.iter().filter_map(|column| Some((column, column.get(figure.key)?))).collect();
    let scale = Scale::of(figure, &samples.iter().map(|(_, sample)| *sample).collect::<Vec<_>>());
    let most = samples.iter().map(|(_, sample)| sample.number()).fold(0.0, f64::max);
    let (factor, unit) = scaled(figure.unit, most);
    let bar = |(column, sample): &(&Column<'_>, &Sample)| Bar {
        name: column.name.to_string(),
        pieces: vec![(sample.number() * factor, palette::colour(column.policy))],
        spread: sample.spread.unwrap_or(0.0) * factor,
        value: scale.show(sample),
    };
    let bars: Vec<Bar> = samples.iter().map(bar).collect();
    let about: Vec<String> =
        bars.iter().map(|bar| format!("{} {} {}", bar.name, bar.value, scale.unit)).collect();
    let about =
        format!("{}: {}.", figure.about, about.iter().map(|said| said.trim()).collect::<Vec<_>>().join("; "));
    let title = title(figure);
    let axis = Axis::from_zero(if unit.is_empty() { figure.label } else { &unit }, bars::most(&bars), 4);
    draw(title, about, (WIDTH, bars::height(bars.len())), |canvas| bars::draw(canvas, &bars, &axis, WIDTH))
}

/// What a picture of it is called.
pub fn title(figure: &Figure) -> String {
    match figure.better {
        Better::Less => format!("{} (less is better)", figure.label),
        Better::More => format!("{} (more is better)", figure.label),
        Better::Neither => figure.label.to_string(),
    }
}
