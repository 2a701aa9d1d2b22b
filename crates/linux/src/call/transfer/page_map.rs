//! `/proc/*/pagemap`: a word for each page of a process, and what it says.

use alloc::sync::Weak;
use alloc::vec::Vec;

use quietmm::PageNumber;

use crate::areas::{PAGE, What};
use crate::capabilities::OWNS;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Open;
use crate::process::{Memory, Thread};

/// Bytes of a page's word.
const WORD: u64 = 8;
/// Words of all pages that a program can name.
const ALL: u64 = ((1 << 47) - PAGE) / PAGE * WORD;
/// Words that are made at a time.
const PIECE: u64 = 512;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It is of a file, or of memory that others share.
const OF_FILE: u64 = 1 << 61;

impl<M: Machine> Linux<'_, M> {
    /// Reads whole words, from the place of one. Frames are told to whoever owns the machine.
    pub(super) fn read_page_map(
        &self,
        thread: &Thread,
        open: &Open,
        memory: &Weak<Memory>,
        (to, bytes): (u64, u64),
        at: Option<u64>,
    ) -> Answer {
        let tells_frames = thread.process.owner.with(|owner| owner.may(OWNS));
        self.at_place(open, at, |from| {
            if from % WORD != 0 || bytes % WORD != 0 {
                return Err(Errno::EINVAL);
            }
            let Some(memory) = memory.upgrade() else { return Ok(0) };
            let (all, mut done) = (ALL.saturating_sub(from).min(bytes), 0);
            while done < all && !thread.is_dying() {
                let first = (from + done) / WORD;
                let pages = first..first + PIECE.min((all - done) / WORD);
                let words: Vec<u8> = pages
                    .flat_map(|page| self.page_word(&memory, page, tells_frames).to_le_bytes())
                    .collect();
                if let Err(error) = self.machine.write_user(to + done, &words) {
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
                done += words.len() as u64;
                self.machine.cond_resched();
            }
            Ok(done)
        })
    }

    fn page_word(&self, memory: &Memory, page: u64, tells_frames: bool) -> u64 {
        let Ok(entry) = self.mm.space(memory.space).lookup(PageNumber(page)) else { return 0 };
        let there = match (entry.is_present(), entry.is_swapped()) {
            (true, _) if tells_frames => PRESENT | u64::from(entry.frame().0),
            (true, _) => PRESENT,
            (false, true) => SWAPPED,
            (false, false) => return 0,
        };
        let of_file = memory.layout.with(self.machine, |layout| {
            layout.areas.at(page * PAGE).is_some_and(|(_, area)| matches!(area.what, What::File { .. }))
        });
        there | if of_file { OF_FILE } else { 0 }
    }
}
