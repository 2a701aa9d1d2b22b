//! The results as one table: a line for each point, a column for each coordinate and each figure.

use std::io;

use csv::Writer;

use crate::process::ending::Failure;
use crate::study::file::Target;
use crate::sweep::header;
use crate::sweep::lines::Lines;
use crate::sweep::point::Read;
use crate::sweep::tally::Tally;

/// Writes it.
pub fn write(target: &Target, lines: &mut Lines, tally: &Tally) -> Result<(), Failure> {
    let axes = lines.axes().to_vec();
    target.write("table", |to| {
        let mut writer = Writer::from_writer(to);
        let names = axes.iter().map(|(name, _)| name.as_str());
        let head =
            ["point"].into_iter().chain(names).chain(["error"]).chain(tally.keys.iter().map(String::as_str));
        writer.write_record(head)?;
        for point in lines.there() {
            let read = Read::of(&lines.line(point)?).ok_or(io::ErrorKind::InvalidData)?;
            let place = header::coordinates(&axes, point).into_iter().map(ToString::to_string);
            let figures =
                tally.keys.iter().map(|key| read.metrics.get(key).map_or(String::new(), ToString::to_string));
            let error = read.error.clone().unwrap_or_default();
            writer
                .write_record([point.to_string()].into_iter().chain(place).chain([error]).chain(figures))?;
        }
        writer.flush()
    })
}
