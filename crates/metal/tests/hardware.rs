//! The core on real page tables, real interrupts and real concurrency, each test in a fresh machine, with its negative
//! control: the same test with a step of the core left out must fail. `scripts/test-metal` runs them: they need the emulator
//! and the image.

mod machine;

use machine::{End, Machine, stretches};

/// What the timer's periods are, in instructions: primes, so that no loop of the core falls into step with them.
const PERIODS: [u32; 10] = [211, 307, 401, 503, 701, 907, 1201, 1511, 2003, 3001];
const WRONG: &str = "\"wrong\":";

fn is_soak() -> bool {
    std::env::var_os("QUIETMM_SOAK").is_some()
}

/// The shortest and the longest; all of them in the soak.
fn periods() -> Vec<u32> {
    if is_soak() { PERIODS.to_vec() } else { vec![PERIODS[0], PERIODS[9]] }
}

/// With 4 and with 48 CPUs, each a thread of the host.
fn concurrently(run: impl Fn(Machine)) {
    [4, 48].map(Machine::threads).into_iter().for_each(run);
}

/// With as much memory as reclaim's tests need: what they do goes round it twice, and many CPUs on few processors take long for each page.
fn scarce(m: Machine) -> Machine {
    m.with_mib(if m.cpus == 4 { 64 } else { 26 })
}

/// With some periods of the timer, or all.
fn preempted(run: impl Fn(Machine)) {
    periods().into_iter().map(Machine::instructions).for_each(run);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_stale_entry_is_seen_without_the_flush_and_gone_with_it() {
    concurrently(|m| {
        let sound = m.passes("test=stale-unmap");
        assert!(sound.counter("ipis_received") >= u64::from(m.cpus - 1), "all but one had the page");
        m.fails("test=stale-unmap break=flush-before-unmap-returns", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_stale_entry_is_gone_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.passes("test=stale-unmap")));
    Machine::instructions(PERIODS[0]).fails("test=stale-unmap break=flush-before-unmap-returns", WRONG);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn an_acknowledgement_before_the_flush_is_seen() {
    concurrently(|m| drop(m.fails("test=stale-unmap break=acknowledge-after-flush", WRONG)));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_write_through_a_clean_entry_faults_and_through_a_dirty_one_does_not() {
    let machines = [Machine::threads(4), Machine::threads(48), Machine::instructions(PERIODS[1])];
    for m in machines {
        m.passes("test=clean-write break=flush-before-unmap-returns");
        m.fails(
            "test=dirty-write break=flush-before-unmap-returns",
            "wrote through a page that is not there",
        );
        // With the flush nobody has a stale entry, and the test says that it shows nothing.
        m.fails("test=clean-write", "shows nothing");
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn data_is_not_executed_and_code_that_becomes_data_is_not_either() {
    concurrently(|m| {
        m.passes("test=execute");
        m.fails("test=execute break=flush-before-protect-returns", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_page_that_a_large_entry_shows_is_gone_after_the_flush_of_that_page() {
    concurrently(|m| {
        m.passes("test=large-file");
        m.fails("test=large-file break=flush-before-free", "instead of");
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_reclaim_takes_in_a_batch_is_gone_after_the_batchs_flush() {
    concurrently(|m| {
        let m = scarce(m);
        let sound = m.passes("test=batch heap=8");
        assert!(sound.counter("tlb_batch_pages") > 1000 && sound.counter("pages_checked") > 1000);
        // With many CPUs on few processors a hot page may not be taken while somebody has it cached.
        if m.cpus == 4 {
            m.fails("test=batch heap=8 break=flush-before-free", "does not show what the file holds");
        }
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_batch_is_flushed_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.with_mib(24).passes("test=batch heap=5")));
    // Where the timer falls decides whether a page is taken while somebody has it cached.
    let shows = |period| {
        let m = Machine::instructions(period).with_mib(24);
        let broken = m.boot("test=batch heap=5 break=flush-before-free");
        broken.end == End::Failed && broken.text.contains(WRONG)
    };
    assert!(PERIODS.into_iter().rev().any(shows), "nothing was seen with any period");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_page_does_not_change_while_it_is_written_out() {
    concurrently(|m| {
        let sound = m.passes("test=write-back");
        assert!(sound.counter("pgpgout") > u64::from(m.cpus));
        m.fails("test=write-back break=write-waits-for-io", "changed while they were written out");
        m.fails("test=write-back break=clean-protects", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_page_is_written_out_whole_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.passes("test=write-back")));
    Machine::instructions(PERIODS[2]).fails("test=write-back break=clean-protects", WRONG);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn lazy_cpus_are_left_alone_and_see_nothing_stale() {
    concurrently(|m| {
        let sound = m.passes("test=lazy");
        assert!(sound.counter("tlb_lazy_skipped") >= u64::from(m.cpus - 1));
        m.fails("test=lazy break=lazy-return-flush", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn lazy_cpus_see_nothing_stale_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.passes("test=lazy")));
    Machine::instructions(PERIODS[3]).fails("test=lazy break=lazy-return-flush", WRONG);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn cpus_that_go_and_come_back_see_nothing_stale() {
    concurrently(|m| {
        let sound = m.passes("test=hotplug");
        assert!(sound.counter("cpus_offline") >= 9 && sound.counter("cpus_online") >= 9);
        m.fails("test=hotplug break=offline-leaves-masks", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn cpus_go_and_come_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.passes("test=hotplug")));
    Machine::instructions(PERIODS[4]).fails("test=hotplug break=offline-leaves-masks", WRONG);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn cpus_that_come_late_do_as_the_others_do() {
    concurrently(|m| {
        assert_eq!(m.passes("test=late late=2").counter("cpus_online"), 2);
        m.fails("test=late", "all CPUs are early");
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn kernel_addresses_are_unmapped_with_interrupts_off_and_flushed_before_they_come_again() {
    concurrently(|m| {
        let sound = m.passes("test=vunmap");
        assert!(sound.counter("nr_tlb_local_flush_kernel") + sound.counter("nr_tlb_local_flush_one") > 0);
        m.fails("test=vunmap break=flush-before-reuse", WRONG);
    });
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn kernel_addresses_are_flushed_wherever_a_timer_interrupts() {
    preempted(|m| drop(m.passes("test=vunmap")));
    Machine::instructions(PERIODS[5]).fails("test=vunmap break=flush-before-reuse", WRONG);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn whoever_uses_a_page_after_a_flush_sets_the_accessed_bit_again() {
    let run = |m: Machine| {
        m.passes("test=accessed-first");
        m.fails("test=accessed-first-unflushed", "the accessed bit is clear");
    };
    concurrently(run);
    run(Machine::instructions(PERIODS[1]));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_is_taken_out_unaccessed_after_a_flush_is_used_by_nobody() {
    concurrently(|m| {
        let sound = m.passes("test=accessed-taken");
        assert!(sound.counter("taken") > 0);
        m.fails("test=accessed-taken-unflushed", "taken out unaccessed");
    });
    preempted(|m| drop(m.passes("test=accessed-taken")));
    Machine::instructions(PERIODS[2]).fails("test=accessed-taken-unflushed", "taken out unaccessed");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_sweep_ends_by_timers_alone_while_programs_neither_fault_nor_call() {
    concurrently(|m| {
        let sound = m.passes("test=sweep policy=quiet");
        assert_eq!(sound.counter("ipis_sent"), 0);
        assert!(sound.counter("tlb_sweep_flushes") >= sound.counter("tlb_sweeps") * u64::from(m.cpus - 1));
        m.fails("test=sweep policy=quiet break=flush-before-swept", "taken out unaccessed");
    });
    preempted(|m| drop(m.passes("test=sweep policy=quiet")));
    // On a busy host each CPU has ticked before it goes on, as a rule. Where instructions are counted, none has.
    Machine::instructions(PERIODS[4])
        .fails("test=sweep policy=quiet break=count-every-cpu", "taken out unaccessed");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_sweep_does_not_wait_for_lazy_cpus_and_they_flush_when_they_come_back() {
    let run = |m: Machine| {
        let sound = m.passes("test=lazy-sweep policy=quiet");
        assert_eq!(sound.counter("ipis_sent"), 0);
        m.fails("test=lazy-sweep policy=quiet break=lazy-return-sweep", "taken out unaccessed");
    };
    concurrently(run);
    run(Machine::instructions(PERIODS[3]));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_reclaim_takes_quietly_is_cached_by_nobody() {
    concurrently(|m| {
        let m = scarce(m);
        let sound = m.passes("test=batch heap=8 policy=quiet");
        assert!(sound.counter("pages_reclaimed") > 1000 && sound.counter("pages_checked") > 1000);
        if m.cpus == 4 {
            m.fails(
                "test=batch heap=8 policy=quiet break=flush-before-swept",
                "does not show what the file holds",
            );
        }
    });
    preempted(|m| drop(m.with_mib(24).passes("test=batch heap=5 policy=quiet")));
}

/// Unmaps, faults, protects, moves, forks, reclaims, write-back, and CPUs that go and come, all content checked.
#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn thousands_of_racing_operations_leave_every_content_right() {
    // The seed says how many CPUs take part: 16 at most.
    let seeds: &[u64] = if is_soak() { &[2, 6, 14, 29] } else { &[6, 29] };
    for seed in seeds {
        let few = Machine::threads(4).with_mib(64).passes(&format!("workload=churn heap=16 seed={seed}"));
        let many = Machine::threads(48).passes(&format!("workload=churn heap=16 seed={seed}"));
        assert!(few.counter("progress") > 500 && many.counter("progress") > 500);
    }
    let broken = "workload=churn heap=16 break=flush-before-unmap-returns";
    Machine::threads(4).with_mib(64).shows_harm(broken);
    Machine::threads(48).shows_harm(broken);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn racing_operations_leave_every_content_right_wherever_a_timer_interrupts() {
    for (i, period) in periods().into_iter().enumerate() {
        Machine::instructions(period).passes(&format!("workload=churn heap=16 seed={}", i + 1));
    }
    let m = Machine::instructions(PERIODS[0]);
    m.shows_harm_in_some("workload=churn heap=16 break=clean-protects", 12);
}

/// As above, with pages that go to a disk and come back from it.
#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_goes_to_the_disk_comes_back() {
    for m in [Machine::threads(4).with_mib(64), Machine::threads(48), Machine::instructions(PERIODS[7])] {
        let sound = m.with_disk().passes("workload=churn heap=16 seed=3");
        let (reads, writes) = (sound.counter("disk_reads"), sound.counter("disk_writes"));
        assert!(reads > 10 && writes > 10, "{reads} reads, {writes} writes");
    }
    let m = Machine::instructions(PERIODS[7]).with_disk();
    m.shows_harm("workload=churn heap=16 seed=3 break=clean-protects");
}

/// The same operations where reclaim interrupts nobody, and ranges owe no flush for what is not cached.
#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn quiet_operations_leave_every_content_right() {
    for (i, m) in [Machine::threads(4).with_mib(64), Machine::threads(48)].into_iter().enumerate() {
        m.passes(&format!("workload=churn heap=16 policy=quiet seed={}", i + 2));
        m.with_disk().passes(&format!("workload=churn heap=16 policy=quiet seed={}", i + 6));
        m.shows_harm("workload=churn heap=16 policy=quiet break=flush-before-unmap-returns");
    }
    for (i, period) in periods().into_iter().enumerate() {
        Machine::instructions(period).passes(&format!("workload=churn heap=16 policy=quiet seed={}", i + 1));
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn two_runs_that_count_instructions_print_the_same() {
    let run =
        |seed| Machine::instructions(PERIODS[6]).passes(&format!("workload=churn heap=16 seed={seed}")).text;
    // The emulator hands the processor on early where the host disturbs it: not every run is the same on a busy one.
    let mut runs = vec![run(3)];
    while !runs[..runs.len() - 1].contains(&runs[runs.len() - 1]) {
        assert!(runs.len() < 6, "six runs, and no two of them the same");
        runs.push(run(3));
    }
    assert!(!runs.contains(&run(4)), "the seed makes a difference: equal runs mean something");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn every_interrupt_is_noted_if_there_is_room_and_nothing_without_the_word() {
    let m = Machine::threads(4);
    let noted = |words: &str| {
        let ran = m.passes(words);
        let count = |what: &str| ran.text.matches(what).count() as u64;
        let lost = ran.text.lines().any(|line| line.contains("\"lost\":") && !line.contains("\"lost\":0,"));
        let sums = [ran.counter("ipis_sent"), ran.counter("ipis_received")];
        ([count("\"s\","), count("\"i\",0]")], sums, lost, count("\"timeline\""))
    };
    let (noted_all, counted, lost, _) = noted("test=stale-unmap timeline=60000");
    assert_eq!((noted_all, lost), (counted, false));
    assert!(counted[0] > 3, "{counted:?}");
    // The negative controls: with little room some are written over, and that is said.
    let (some, counted, lost, _) = noted("test=stale-unmap timeline=16");
    assert!(lost && some[0] < counted[0], "{some:?} of {counted:?}");
    let (none, _, _, lines) = noted("test=stale-unmap");
    assert_eq!((none, lines), ([0, 0], 0));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn readers_of_files_larger_than_memory_find_what_the_files_hold() {
    // Files of twice the memory.
    let m = Machine::threads(8).with_mib(64);
    let batch = m.passes("workload=lru-file-mmap-read work=2500 heap=16");
    assert!(batch.counter("pages_checked") >= 24_500 && batch.counter("pages_reclaimed") > 10_000);
    let page = m.passes("workload=lru-file-mmap-read work=2500 heap=16 policy=linux+unmap=per-page");
    let rate = |o: &machine::Outcome| {
        o.counter("nr_tlb_remote_flush_received") * 1000 / o.counter("pages_reclaimed")
    };
    assert!(rate(&batch) * 4 < rate(&page), "{} and {} in 1000 pages", rate(&batch), rate(&page));
    let quiet = m.passes("workload=lru-file-mmap-read work=2500 heap=16 policy=quiet");
    assert!(quiet.counter("pages_checked") >= 24_500 && quiet.counter("pages_reclaimed") > 10_000);
    // A CPU that the host keeps from its timer for long is asked.
    assert_eq!(rate(&quiet), 0, "in 1000 pages");
}

/// The most that a task uses of its stack on this machine, from its beginning to the deepest that a fault goes, and a disk's driver below that.
const STACK: u64 = 9 << 10;

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn the_deepest_way_takes_no_more_of_a_stack_than_the_guide_says() {
    let deep =
        |mib, words| Machine::threads(4).with_mib(mib).with_disk().passes(words).counter("stack_bytes");
    // So little memory that it goes to the disk soon.
    let most = [(96, "workload=churn heap=16"), (48, "workload=swap-threads heap=16 work=4000")]
        .map(|(mib, words)| deep(mib, words));
    assert!(most.iter().all(|&bytes| bytes <= STACK), "{most:?}");
    // The control: a stack that is used up is measured.
    assert!(most.iter().all(|&bytes| bytes > STACK / 2), "{most:?}: that cannot be all");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn nobody_waits_longer_than_the_document_says() {
    let mut longest = stretches::Longest::new();
    for policy in ["linux", "quiet+free=sweep+drain=remote"] {
        for (what, one) in stretches::measured(&format!("policy={policy}")) {
            let most = longest.entry(what).or_default();
            *most = one.max(std::mem::take(most));
        }
    }
    println!("{longest:#?}");
    stretches::the_document_says(&longest);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn memory_that_was_not_there_comes_and_is_used_as_any_other() {
    let m = Machine::threads(4).with_mib(96);
    let came = m.passes("workload=hotplug work=16000 later=32");
    assert!(came.counter("blocks_came") > 0 && came.counter("memory_blocks_online") > 0);
    // The controls: without it none comes, and so much there is not.
    assert!(!m.passes("workload=hotplug work=4000").text.contains("\"blocks_came\":"));
    m.boot("workload=hotplug later=96").ended(End::Failed).says("so many there are not");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_panic_says_where_on_which_cpu_and_ends_the_machine() {
    for m in [Machine::threads(4), Machine::threads(48)] {
        let last = format!("\"cpu\":{}", m.cpus - 1);
        m.boot("test=panics").ended(End::Panicked).says("as asked for").says("ends.rs").says(&last);
        m.boot("test=overflow").ended(End::Panicked).says("a stack's end").says(&last);
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_command_line_that_makes_no_sense_is_refused_with_a_word_on_why() {
    let m = Machine::threads(1);
    for (words, why) in [
        ("", "what is to run?"),
        ("workload=no-such", "no such workload"),
        ("workload=churn policy=linix", "unknown policy"),
        ("workload=churn seed=x", "not a number"),
        ("workload=churn nonsense", "key=value"),
        ("workload=churn break=no-such", "no such rule"),
    ] {
        m.boot(words).ended(End::Usage).says(why);
    }
}
