//! Policies are values: every mechanism has the behaviour from before and the better one.

use core::fmt;

use crate::error::Error;
use crate::platform::Guarantees;

/// How reclaim flushes the pages that it unmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmap {
    /// Flush each page on every CPU that may hold it, before the next.
    PerPage,
    /// Defer clean entries to one flush per batch, flush dirty ones at once (Linux 4.3).
    BatchClean,
    /// Defer both, and flush before any page is written out or freed (Linux 4.4).
    Batch,
    /// Take only what no CPU can have cached: not used since all CPUs last flushed, each by itself (INV-13).
    Quiet,
}

/// How other CPUs are made to flush what must be gone at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Interrupt those that may have it.
    Ipi,
    /// By hardware that flushes all CPUs ([`Broadcast`](crate::platform::Broadcast)). Refused without such hardware.
    Broadcast,
    /// The same where there is such hardware, else as `Ipi`.
    BroadcastOrIpi,
}

/// How the free frames on per-CPU lists go back to their zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Interrupt every CPU that is online.
    #[doc(alias = "drain_all_pages")]
    AllCpus,
    /// Interrupt those that have frames on their lists (Linux 3.4).
    HoldingCpus,
    /// Take the frames without an interrupt: each CPU's lists have a lock (Linux 6.2 does likewise).
    Remote,
}

/// How aging clears accessed bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aging {
    /// Clear and flush the page.
    #[doc(alias = "ptep_clear_flush_young")]
    Flush,
    /// Clear only (Linux 3.15 on x86): a page may look idle while its entry stays cached (INV-10).
    NoFlush,
}

/// How kernel addresses are given out, and flushed when they are unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmapPolicy {
    /// One lock, a list of areas walked first fit, a flush on every CPU per unmap.
    Eager,
    /// Trees of extents; one flush for many unmaps; small maps from per-CPU blocks (Linux 2.6.28).
    #[doc(alias = "purge_vmap_area_lazy")]
    Lazy,
    /// The same, where each CPU flushes by itself, and is interrupted only when addresses or frames are short.
    Sweep,
}

/// When a page that a program unmaps, or drops, is gone for all its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Free {
    /// When the operation returns.
    Flush,
    /// For the caller's CPU when it returns, for other CPUs after their next sweep: until then their threads may use the old
    /// page where the program has raced with itself, and nobody else can have its frame (INV-14). No other CPU is interrupted.
    Sweep,
}

/// When page tables go that a program's drop has emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emptied {
    /// With the drop, if its flush takes everything and interrupts nobody more for them; else when memory is short.
    Quietly,
    /// Those that lie in the dropped range as a whole, with its flush: lazy CPUs are interrupted, too (Linux 6.14, `CONFIG_PT_RECLAIM`).
    AtOnce,
}

/// One mechanism that has policies.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// Its name, before the `=`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its choices: name and a line.
    pub choices: &'static [(&'static str, &'static str)],
}

/// The choice for every mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Reclaim's flush.
    pub unmap: Unmap,
    /// How a flush reaches other CPUs.
    pub flush: Flush,
    /// The drain of the per-CPU lists.
    pub drain: Drain,
    /// Aging's flush.
    pub aging: Aging,
    /// Kernel addresses.
    pub vmap: VmapPolicy,
    /// What programs unmap and drop.
    pub free: Free,
    /// Page tables that a drop has emptied.
    pub emptied: Emptied,
}

const BUNDLES: &[(&str, &str, Policy)] = &[
    ("vanilla", "every mechanism as it was before", Policy::VANILLA),
    ("linux", "the published mechanisms", Policy::LINUX),
    ("quiet", "the best we have", Policy::QUIET),
];

const MECHANISMS: &[Mechanism] = &[
    Mechanism {
        name: "unmap",
        about: "how reclaim flushes the pages that it unmaps",
        choices: &[
            ("per-page", "flush each page on every CPU that may hold it"),
            ("batch-clean", "one flush per batch for clean entries, dirty ones at once (Linux 4.3)"),
            ("batch", "one flush per batch, before I/O and before freeing"),
            ("quiet", "none: take what was not used since every CPU last flushed by itself"),
        ],
    },
    Mechanism {
        name: "flush",
        about: "how other CPUs are made to flush what must be gone at once",
        choices: &[
            ("ipi", "interrupt those that may have it"),
            ("broadcast", "by hardware that flushes all CPUs (AMD's INVLPGB); refused without it"),
            ("broadcast-or-ipi", "the same where the machine has that hardware, else interrupt"),
        ],
    },
    Mechanism {
        name: "drain",
        about: "how free frames on per-CPU lists go back to where others find them",
        choices: &[
            ("all-cpus", "interrupt every CPU that is online"),
            ("holding-cpus", "interrupt the CPUs that have frames on their lists (Linux 3.4)"),
            ("remote", "take them without an interrupt"),
        ],
    },
    Mechanism {
        name: "aging",
        about: "how aging clears accessed bits",
        choices: &[
            ("flush", "clear the bit and flush the page"),
            ("no-flush", "clear the bit only (Linux 3.15, x86)"),
        ],
    },
    Mechanism {
        name: "vmap",
        about: "how kernel addresses are given out, and flushed when they are unmapped",
        choices: &[
            ("eager", "one lock, a list, a flush on every CPU per unmap"),
            ("lazy", "trees of extents, one flush for many unmaps, per-CPU blocks (Linux 2.6.28)"),
            ("sweep", "the same, and each CPU flushes by itself: none is interrupted while addresses last"),
        ],
    },
    Mechanism {
        name: "free",
        about: "when an anonymous page that a program unmaps or drops is gone for all its threads",
        choices: &[
            ("flush", "when the operation returns"),
            (
                "sweep",
                "on other CPUs a tick or two later: weaker than POSIX where threads race; no interrupt",
            ),
        ],
    },
    Mechanism {
        name: "emptied",
        about: "when page tables go that a program's drop has emptied",
        choices: &[
            ("quietly", "with the drop, if nobody more is interrupted for them; else when memory is short"),
            ("at-once", "with the drop: CPUs that are lazy are interrupted too (Linux 6.14)"),
        ],
    },
];

impl Policy {
    /// Every mechanism as it was before: a platform comes up with this, since it asks for no guarantee.
    pub const VANILLA: Policy = Policy {
        unmap: Unmap::PerPage,
        flush: Flush::Ipi,
        drain: Drain::AllCpus,
        aging: Aging::Flush,
        vmap: VmapPolicy::Eager,
        free: Free::Flush,
        emptied: Emptied::Quietly,
    };

    /// The published mechanisms, as Linux has them.
    pub const LINUX: Policy = Policy {
        unmap: Unmap::Batch,
        flush: Flush::Ipi,
        drain: Drain::HoldingCpus,
        aging: Aging::NoFlush,
        vmap: VmapPolicy::Lazy,
        free: Free::Flush,
        emptied: Emptied::AtOnce,
    };

    /// The best there is: nobody is interrupted where it can be proved that nobody need be.
    pub const QUIET: Policy = Policy {
        unmap: Unmap::Quiet,
        flush: Flush::BroadcastOrIpi,
        drain: Drain::Remote,
        aging: Aging::NoFlush,
        vmap: VmapPolicy::Sweep,
        free: Free::Flush,
        emptied: Emptied::Quietly,
    };

    /// The bundles: name and a line.
    pub fn bundles() -> impl Iterator<Item = (&'static str, &'static str)> {
        BUNDLES.iter().map(|&(name, about, _)| (name, about))
    }

    /// The mechanisms.
    pub fn mechanisms() -> &'static [Mechanism] {
        MECHANISMS
    }

    /// A bundle by name.
    pub fn bundle(name: &str) -> Option<Policy> {
        BUNDLES.iter().find(|b| b.0 == name).map(|b| b.2)
    }

    /// Reads `linux` or `linux+unmap=per-page+aging=flush`.
    pub fn parse(text: &str) -> Result<Policy, PolicyError<'_>> {
        let mut parts = text.split('+');
        let bundle = parts.next().unwrap_or("");
        let mut policy = Policy::bundle(bundle).ok_or(PolicyError::Bundle(bundle))?;
        for part in parts {
            let (name, choice) = part.split_once('=').ok_or(PolicyError::NoChoice(part))?;
            let mechanism = MECHANISMS.iter().find(|m| m.name == name).ok_or(PolicyError::Mechanism(name))?;
            let index = mechanism
                .choices
                .iter()
                .position(|c| c.0 == choice)
                .ok_or(PolicyError::Choice(mechanism, choice))?;
            match mechanism.name {
                "unmap" => {
                    policy.unmap = [Unmap::PerPage, Unmap::BatchClean, Unmap::Batch, Unmap::Quiet][index]
                }
                "flush" => policy.flush = [Flush::Ipi, Flush::Broadcast, Flush::BroadcastOrIpi][index],
                "vmap" => policy.vmap = [VmapPolicy::Eager, VmapPolicy::Lazy, VmapPolicy::Sweep][index],
                "drain" => {
                    policy.drain = [Drain::AllCpus, Drain::HoldingCpus, Drain::Remote][index];
                }
                "free" => policy.free = [Free::Flush, Free::Sweep][index],
                "emptied" => policy.emptied = [Emptied::Quietly, Emptied::AtOnce][index],
                _ => policy.aging = [Aging::Flush, Aging::NoFlush][index],
            }
        }
        Ok(policy)
    }

    /// The name of the choice for each mechanism, in the order of [`mechanisms`](Self::mechanisms).
    pub fn choices(&self) -> [&'static str; 7] {
        let chosen = [
            self.unmap as usize,
            self.flush as usize,
            self.drain as usize,
            self.aging as usize,
            self.vmap as usize,
            self.free as usize,
            self.emptied as usize,
        ];
        core::array::from_fn(|i| MECHANISMS[i].choices[chosen[i]].0)
    }

    /// Refuses a policy whose guarantee is not declared (PITFALLS 39), or whose hardware is not there.
    pub fn check(&self, given: Guarantees, broadcast: bool) -> Result<(), Error> {
        if self.flush == Flush::Broadcast && !broadcast {
            return Err(Error::GuaranteeMissing { policy: "flush=broadcast", guarantee: "broadcast" });
        }
        if self.unmap != Unmap::PerPage && !given.clean_write_walks() {
            let policy = match self.unmap {
                Unmap::Quiet => "unmap=quiet",
                Unmap::Batch => "unmap=batch",
                _ => "unmap=batch-clean",
            };
            return Err(Error::GuaranteeMissing { policy, guarantee: "with_clean_write_walks" });
        }
        if self.unmap == Unmap::Quiet && !given.accessed_before_cached() {
            return Err(Error::GuaranteeMissing {
                policy: "unmap=quiet",
                guarantee: "with_accessed_before_cached",
            });
        }
        if self.aging == Aging::NoFlush && !given.unflushed_accessed() {
            return Err(Error::GuaranteeMissing {
                policy: "aging=no-flush",
                guarantee: "with_unflushed_accessed",
            });
        }
        Ok(())
    }
}

impl fmt::Display for Policy {
    /// The shortest text that [`parse`](Policy::parse) reads as this: the nearest bundle, then what differs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mine = self.choices();
        let differs = |b: &Policy| b.choices().iter().zip(mine).filter(|(a, b)| **a != *b).count();
        // `linux` first: published figures are compared with one mechanism changed from it.
        let linux = &BUNDLES[1];
        let base = BUNDLES.iter().find(|b| differs(&b.2) == 0 && b.0 != "quiet").unwrap_or(linux);
        f.write_str(base.0)?;
        for ((mechanism, own), theirs) in MECHANISMS.iter().zip(mine).zip(base.2.choices()) {
            if own != theirs {
                write!(f, "+{}={own}", mechanism.name)?;
            }
        }
        Ok(())
    }
}

/// Why a text is not a policy.
#[derive(Clone, Copy, Debug)]
pub enum PolicyError<'t> {
    /// No bundle of this name.
    Bundle(&'t str),
    /// A part without `=`.
    NoChoice(&'t str),
    /// No mechanism of this name.
    Mechanism(&'t str),
    /// No choice of this name.
    Choice(&'static Mechanism, &'t str),
}

impl PolicyError<'_> {
    /// The names that would have been right.
    pub fn candidates(&self) -> impl Iterator<Item = &'static str> {
        let bundles = matches!(self, Self::Bundle(_));
        let mechanisms = matches!(self, Self::Mechanism(_) | Self::NoChoice(_));
        let choices = if let Self::Choice(m, _) = self { m.choices } else { &[] };
        BUNDLES
            .iter()
            .filter(move |_| bundles)
            .map(|b| b.0)
            .chain(MECHANISMS.iter().filter(move |_| mechanisms).map(|m| m.name))
            .chain(choices.iter().map(|c| c.0))
    }
}

impl fmt::Display for PolicyError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundle(name) => write!(f, "unknown policy '{name}'; bundles are")?,
            Self::NoChoice(part) => write!(f, "'{part}' is not MECHANISM=CHOICE; mechanisms are")?,
            Self::Mechanism(name) => write!(f, "unknown mechanism '{name}'; mechanisms are")?,
            Self::Choice(m, name) => write!(f, "unknown choice '{name}' for {}; choices are", m.name)?,
        }
        for (i, name) in self.candidates().enumerate() {
            write!(f, "{} {name}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn policies_read_back_as_written() {
        for text in [
            "vanilla",
            "linux",
            "linux+unmap=per-page",
            "linux+unmap=batch-clean+aging=flush",
            "linux+drain=remote",
            "linux+flush=broadcast",
            "linux+unmap=per-page+flush=broadcast-or-ipi",
            "linux+free=sweep",
            "linux+emptied=quietly",
        ] {
            assert_eq!(Policy::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Policy::parse("vanilla+unmap=batch+drain=holding-cpus+aging=no-flush+vmap=lazy+emptied=at-once")
                .unwrap()
                .to_string(),
            "linux"
        );
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let text = |t| Policy::parse(t).unwrap_err().to_string();
        assert!(text("linix").contains("linux"));
        assert!(text("linux+unmap=perpage").contains("per-page"));
        assert!(text("linux+unmp=batch").contains("unmap"));
        assert!(text("linux+batch").contains("MECHANISM=CHOICE"));
        assert!(text("").contains("bundles"));
    }

    #[test]
    fn a_policy_without_its_guarantee_is_refused() {
        let none = Guarantees::none();
        assert!(Policy::parse("vanilla").unwrap().check(none, false).is_ok());
        assert!(matches!(
            Policy::parse("vanilla+unmap=batch").unwrap().check(none, true),
            Err(Error::GuaranteeMissing { policy: "unmap=batch", .. })
        ));
        assert!(Policy::parse("vanilla+aging=no-flush").unwrap().check(none, true).is_err());
        let broadcast = Policy::parse("vanilla+flush=broadcast").unwrap();
        assert!(broadcast.check(none, true).is_ok());
        assert!(matches!(
            broadcast.check(none, false),
            Err(Error::GuaranteeMissing { policy: "flush=broadcast", .. })
        ));
        assert!(Policy::parse("vanilla+flush=broadcast-or-ipi").unwrap().check(none, false).is_ok());
    }
}
