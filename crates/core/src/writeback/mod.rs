//! Pages on their way to what keeps them.

mod backoff;
mod dirty;
mod out;
mod pageout;

pub(crate) use backoff::Backoff;
pub(crate) use dirty::Dirty;
pub(crate) use out::Writing;
pub(crate) use pageout::{write, write_all};
