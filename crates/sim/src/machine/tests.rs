use super::error::one_line;
use super::key::{KEYS, Key, Need, SLOW, SWAP, has_section};
use super::quantity::{Kind, Refusal, base_units, split_number};
use super::*;

fn good() -> &'static str {
    Machine::builtin_text("numa-4x12").unwrap()
}

/// The message about `text`, which must be refused, without the origin of its first line.
fn refusal(text: &str) -> String {
    let error = Machine::parse(text, "m.toml").unwrap_err();
    let message = error.to_string();
    for line in message.lines() {
        assert_eq!(one_line(line, usize::MAX), line);
        assert!(line.starts_with("m.toml:"), "{message}");
    }
    message.strip_prefix("m.toml:").unwrap().to_owned()
}

/// The good file with one text replaced, which must be there once.
fn with(from: &str, to: &str) -> String {
    assert_eq!(good().matches(from).count(), 1, "{from}");
    good().replace(from, to)
}

/// The line of the good file in which `text` first stands.
fn line_of(text: &str) -> usize {
    good()[..good().find(text).unwrap()].matches('\n').count() + 1
}

/// Every line of the file that starts with `key = `, replaced.
fn with_line(key: &str, to: &str) -> String {
    let start = format!("{key} = ");
    assert_eq!(good().lines().filter(|line| line.starts_with(&start)).count(), 1);
    good().lines().map(|line| if line.starts_with(&start) { to } else { line }).collect::<Vec<_>>().join("\n")
}

#[test]
fn builtin_machines_are_good_and_named_as_they_are_found() {
    for name in Machine::builtin_names() {
        let machine =
            Machine::parse(Machine::builtin_text(name).unwrap(), name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.name, name);
        assert_eq!(Machine::load(name).unwrap(), machine);
        assert_eq!(Machine::builtin_about(name).unwrap(), machine.about);
        let there = |key: &&Key| has_section(&machine, key.section);
        let due = KEYS.iter().filter(there).filter(|key| !matches!(key.need, Need::Optional)).count();
        assert!(machine.constants().len() >= due, "{name}");
    }
    assert!(Machine::builtin("none").is_none());
}

#[test]
fn numbers_of_the_reference_machine_are_exact() {
    let machine = Machine::builtin("numa-4x12").unwrap();
    assert_eq!((machine.cpus, machine.nodes, machine.memory), (48, 4, 64 << 30));
    assert_eq!(machine.cost.user_access, 6_950);
    assert_eq!(machine.cost.invlpg, 100_000);
    assert_eq!(machine.cost.ipi_send, 450_000);
    // 1144 cycles of 1866 MHz are 613076.10 ps.
    assert_eq!(machine.cost.trap_enter, 613_076);
    assert_eq!(machine.device.bandwidth, 500_000_000);
    assert_eq!(machine.kernel, Kernel::default());
    assert_eq!(machine.distance[0], [10, 20, 20, 20]);
}

#[test]
fn at_most_two_constants_are_fitted_and_all_have_a_source() {
    for name in Machine::builtin_names() {
        let constants = Machine::builtin(name).unwrap().constants();
        assert!(
            constants.iter().all(|c| !c.source.is_empty() && !c.unit.is_empty() && !c.value_text.is_empty())
        );
        let fitted = constants.iter().filter(|c| c.source.contains("fitted to")).count();
        let most = match name {
            "numa-4x12" => 2,
            "numa-8x15" | "opteron-2x4" => 1,
            _ => 0,
        };
        assert_eq!(fitted, most, "{name}");
    }
}

#[test]
fn guarantees_are_those_of_x86_unless_the_file_withdraws_them() {
    assert_eq!(Machine::parse(good(), "m").unwrap().guarantees, Guarantees::default());
    let file = |value: &str| {
        format!(
            "{}\n[guarantees]\nclean_write_walks = {{ value = {value}, unit = \"bool\", source = \"x\" }}\n",
            good()
        )
    };
    let machine = Machine::parse(&file("false"), "m").unwrap();
    assert_eq!(machine.guarantees, Guarantees { clean_write_walks: false, unflushed_accessed: true });
    assert!(refusal(&file("1")).contains("`1` is no bool; true or false"), "{}", refusal(&file("1")));
    assert!(refusal(&file("\"no\"")).contains("is the string `no`; true or false"));
}

#[test]
fn the_kernel_section_may_be_left_out() {
    let start = good().find("[kernel]").unwrap();
    let machine = Machine::parse(&good()[..start], "m").unwrap();
    assert_eq!(machine.kernel, Kernel::default());
    let batch = machine.constants().into_iter().find(|c| c.key == "kernel.lru_batch").unwrap();
    assert_eq!((batch.value_text.as_str(), batch.unit.as_str()), ("14", "pages"));
    // The defaults as text are the defaults as numbers.
    let mut again = machine.clone();
    for c in machine.constants().iter().filter(|c| c.key.starts_with("kernel.")) {
        again.set(&c.key, &format!("{} {}", c.value_text, c.unit)).unwrap();
    }
    assert_eq!(again.kernel, Kernel::default());
}

#[test]
fn wrong_files_are_refused_with_the_line_and_what_would_be_right() {
    let invlpg = line_of("invlpg = ");
    for (line, part) in [
        ("invlpg = 100", "`invlpg` is the number 100, without unit and source"),
        ("invlpg = \"100 ns\"", "`invlpg` is the string `100 ns`"),
        ("invlpg = { value = 100, unit = \"ns\" }", "`invlpg` has no source"),
        ("invlpg = { value = 100, source = \"x\" }", "`invlpg` has no unit"),
        ("invlpg = { unit = \"ns\", source = \"x\" }", "`invlpg` has no value"),
        ("invlpg = { value = 100, unit = \"ns\", source = \"  \" }", "`invlpg.source` is empty"),
        ("invlpg = { value = 100, unit = \"\", source = \"x\" }", "`invlpg.unit` is empty"),
        ("invlpg = { value = 100, unit = 3, source = \"x\" }", "`invlpg.unit` is the number 3"),
        (
            "invlpg = { value = \"100\", unit = \"ns\", source = \"x\" }",
            "the value of `invlpg` is the string",
        ),
        (
            "invlpg = { value = true, unit = \"ns\", source = \"x\" }",
            "the value of `invlpg` is the boolean true",
        ),
        ("invlpg = { value = [1], unit = \"ns\", source = \"x\" }", "the value of `invlpg` is an array"),
        ("invlpg = { value = 1979-05-27, unit = \"ns\", source = \"x\" }", "the value of `invlpg` is a date"),
        ("invlpg = { value = 100, unit = \"MiB\", source = \"x\" }", "has the unit `MiB`; ps, ns, us, ms, s"),
        ("invlpg = { value = -100, unit = \"ns\", source = \"x\" }", "`-100` is negative; 0 ns to 1 s"),
        ("invlpg = { value = nan, unit = \"ns\", source = \"x\" }", "`nan` is not finite"),
        ("invlpg = { value = -inf, unit = \"ns\", source = \"x\" }", "is not finite"),
        ("invlpg = { value = 1.5, unit = \"s\", source = \"x\" }", "`invlpg` of 1.5 s; 0 ns to 1 s"),
        ("invlpg = { value = 1e300, unit = \"s\", source = \"x\" }", "absurdly large"),
        (
            "invlpg = { value = 0.1, unit = \"ps\", source = \"x\" }",
            "not a whole number of the smallest unit",
        ),
        ("invlpg = { value = 1, unit = \"ns\", source = \"x\", why = 1 }", "unknown key `why` in `invlpg`"),
        ("invlpg = { value = 1, unit = \"ns\", sorce = \"x\" }", "unknown key `sorce` in `invlpg`; `source`"),
        ("invpg = { value = 1, unit = \"ns\", source = \"x\" }", "unknown key `invpg` in [cost]; `invlpg`"),
        ("tags = { value = 1, unit = \"tags\", source = \"x\" }", "`tags` stands in [tlb]"),
        ("invlpg = { value = 1 unit }", "not TOML"),
    ] {
        let message = format!("m.toml:{}", refusal(&with_line("invlpg", line)));
        let there = format!("m.toml:{invlpg}: ");
        let found = message.lines().any(|line| line.starts_with(&there) && line.contains(part));
        assert!(found, "{message}\n{part}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let cpus = |n: &str| format!("cpus = {{ value = {n}, unit = \"CPUs\", source = \"x\" }}");
    assert!(refusal(&with_line("cpus", &cpus("0"))).contains("1 to 4096 CPUs"));
    assert!(refusal(&with_line("cpus", &cpus("4097"))).contains("1 to 4096 CPUs"));
    let message = refusal(&with_line("cpus", &cpus("3")));
    assert!(message.starts_with(&format!("{}: 4 nodes for 3 CPUs", line_of("nodes = "))), "{message}");
    let nodes = |n: u32| format!("nodes = {{ value = {n}, unit = \"nodes\", source = \"x\" }}");
    let message = refusal(&with_line("nodes", &nodes(3)));
    assert!(
        message.starts_with(&format!("{}: a distance matrix of 4 rows", line_of("distance = "))),
        "{message}"
    );
    assert!(
        refusal(&with("[20, 10, 20, 20]", "[20, 10, 20]")).contains("row 1 of the distance matrix has 3")
    );
    assert!(
        refusal(&with("[20, 10, 20, 20]", "[20, 11, 20, 20]"))
            .contains("node 1 is at distance 11 from itself")
    );
    assert!(refusal(&with("[20, 10, 20, 20]", "[30, 10, 20, 20]")).contains("the same distance both ways"));
    assert!(refusal(&with("[20, 10, 20, 20]", "[20, 10, -20, 20]")).contains("in the distance matrix"));
    assert!(refusal(&with("[20, 10, 20, 20]", "[20, 10, 255, 20]")).contains("10 (local) to 254"));
    let size = |v: &str| format!("size = {{ value = {v}, source = \"x\" }}");
    assert!(
        refusal(&with_line("size", &size("8, unit = \"MiB\"")))
            .contains("4 nodes and 48 CPUs need; at least 16 MiB")
    );
    assert!(refusal(&with_line("size", &size("65, unit = \"TiB\""))).contains("4 MiB to 64 TiB"));
    assert!(refusal(&with_line("size", &size("17000001, unit = \"B\""))).contains("end inside a frame"));
    let ways = "l1_ways = { value = 5, unit = \"ways\", source = \"x\" }";
    assert!(refusal(&with_line("l1_ways", ways)).contains("5 ways do not divide 32 entries"));
    assert!(
        refusal(&with_line("pause", "pause = { value = 0, unit = \"ns\", source = \"x\" }"))
            .contains("`pause` of 0 ns")
    );
}

#[test]
fn whole_files_that_are_wrong_are_refused() {
    assert!(refusal("").starts_with("1: nothing in it"));
    assert!(refusal("# only this\n").starts_with("1: nothing in it"));
    assert!(refusal("name = \"x\"").contains("no `about`"));
    assert!(refusal("name = \"X y\"").contains("the name `X y`"));
    assert!(refusal(&with_line("year", "year = 15")).contains("a year from 1980 to 2100"));
    assert!(refusal(&with_line("year", "yeer = 2015")).contains("unknown key `yeer`; `year`"));
    assert!(refusal(&with("[device]", "[devise]")).contains("unknown key `devise`; `device`"));
    assert!(refusal(&with("[cpu]", "[cpu]\n[cpu]")).contains("not TOML"));
    let message = refusal(&with_line("invlpg", ""));
    assert!(message.starts_with(&format!("{}: no `invlpg` in [cost]", line_of("[cost]"))), "{message}");
    let message = refusal(&with_line("mhz", ""));
    assert!(
        message.contains("in cycles, but the clock is not given; `mhz` in [cpu], or a unit of time"),
        "{message}"
    );
    assert!(refusal(&good()[..good().find("[device]").unwrap()]).contains("no section [device]"));
    assert!(refusal("cost = 1\nname = \"a\"\nabout = \"b\"\nyear = 2000").contains("no section [cpu]"));
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let dir = std::env::temp_dir().join(format!("quietmm-machine-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.join(name), bytes).unwrap();
        Machine::load(&path(name)).map_err(|e| e.to_string())
    };
    assert_eq!(write("good.toml", good().as_bytes()).unwrap(), Machine::builtin("numa-4x12").unwrap());
    let latin = write("latin.toml", b"name = \"x\"\n# caf\xe9\n").unwrap_err();
    assert!(latin.ends_with("latin.toml:2: not UTF-8; a text file in UTF-8"), "{latin}");
    let huge = write("huge.toml", &vec![b'#'; (1 << 20) + 1]).unwrap_err();
    assert!(huge.contains("larger than 1 MiB"), "{huge}");
    let missing = Machine::load(&path("missing.toml")).unwrap_err().to_string();
    assert!(missing.contains("cannot be read"), "{missing}");
    let directory = Machine::load(dir.to_str().unwrap()).unwrap_err().to_string();
    assert!(directory.contains(": a directory; a machine file"), "{directory}");
    let device = Machine::load("/dev/zero").unwrap_err().to_string();
    assert!(device.contains("not a regular file"), "{device}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_unknown_name_lists_the_near_ones() {
    let message = |name: &str| Machine::load(name).unwrap_err().to_string();
    assert!(message("numa-4x21").contains("`numa-4x12`"), "{}", message("numa-4x21"));
    assert!(message("uma8").contains("`uma-8`"), "{}", message("uma8"));
    let unlike = message("zzzzzzzzz");
    assert!(Machine::builtin_names().all(|name| unlike.contains(&format!("`{name}`"))), "{unlike}");
    assert!(message("").contains("no machine is called"));
    assert!(!message("a\nb\u{1b}[31m").contains(['\n', '\u{1b}']));
}

#[test]
fn a_constant_can_be_set_in_any_spelling() {
    let base = Machine::builtin("numa-4x12").unwrap();
    let set = |key: &str, value: &str| {
        let mut machine = base.clone();
        machine.set(key, value).unwrap_or_else(|e| panic!("{e}"));
        machine
    };
    assert_eq!(set("invlpg", "120ns").cost.invlpg, 120_000);
    assert_eq!(set("cost.invlpg", "120 ns").cost.invlpg, 120_000);
    assert_eq!(set("invlpg", "0").cost.invlpg, 0);
    assert_eq!(set("invlpg", "0.12us").cost.invlpg, 120_000);
    assert_eq!(set("invlpg", "1e2ns").cost.invlpg, 100_000);
    assert_eq!(set("trap_enter", "1866 cycles").cost.trap_enter, 1_000_000);
    assert_eq!(set("tlb.tags", "6").tlb.tags, 6);
    assert_eq!(set("kernel.lru_batch", "7").kernel.lru_batch, 7);
    assert_eq!(set("lru_batch", "7 pages").kernel.lru_batch, 7);
    assert_eq!(set("memory", "2GiB").memory, 2 << 30);
    assert_eq!(set("memory.size", "2.5 GiB").memory, 5 << 29);
    assert_eq!(set("min_free_kib", "4096").kernel.min_free_kib, Some(4096));
    assert_eq!(set("min_free_kib", "8MiB").kernel.min_free_kib, Some(8192));
    assert!(!set("guarantees.clean_write_walks", "no").guarantees.clean_write_walks);
    assert!(set("clean_write_walks", "true bool").guarantees.clean_write_walks);
    assert!(!set("unflushed_accessed", "false").guarantees.unflushed_accessed);
    assert_eq!(set("stall_every", "1ms").cost.stall_every, 1_000_000_000);
    assert_eq!(set("other_kernel_work_irqs_off", "30%").cost.other_kernel_work_irqs_off, 30);
    assert_eq!(set("bandwidth", "1.5GB/s").device.bandwidth, 1_500_000_000);
    assert_eq!(set("mhz", "933").cost.trap_enter, 1_226_152);
    let shown = set("invlpg", "120ns").constants().into_iter().find(|c| c.key == "cost.invlpg").unwrap();
    assert_eq!((shown.value_text.as_str(), shown.unit.as_str()), ("120", "ns"));
    assert_eq!(shown.source, "set for this run");
}

#[test]
fn a_bad_set_says_what_would_be_right_and_changes_nothing() {
    let base = Machine::builtin("numa-4x12").unwrap();
    for (key, value, part) in [
        ("invpg", "1ns", "unknown constant `invpg`; `invlpg`"),
        ("tlb.invlpg", "1ns", "`cost.invlpg`"),
        ("batch", "1", "`lru_batch` or `scan_batch`"),
        ("qqqqqqqq", "1", "a constant of the machine's file"),
        ("invlpg", "120", "`invlpg` of 120 has no unit; `invlpg=120ns`; ps, ns, us, ms, s, or cycles"),
        ("memory", "32", "`size` of 32 has no unit; `size=32B`; B, KiB, MiB"),
        ("bandwidth", "1e6", "has no unit; `bandwidth=1e6B/s`"),
        ("invlpg", "2s", "0 ns to 1 s"),
        ("invlpg", "-1ns", "is negative"),
        ("invlpg", "fast", "`fast` is not a decimal number"),
        ("invlpg", "", "is not a decimal number"),
        ("invlpg", "1.2.3ns", "is not a decimal number"),
        ("invlpg", "1MiB", "has the unit `MiB`"),
        ("invlpg", "nan", "not finite"),
        ("l1_ways", "5", "do not divide"),
        ("memory", "1MiB", "4 MiB to 64 TiB"),
        ("cpus", "0", "1 to 4096 CPUs"),
        ("nodes", "5", "the distances of only 4 nodes are known"),
        ("distance", "10", "a machine file"),
        ("name", "x", "is no constant"),
    ] {
        let mut machine = base.clone();
        let message = machine.set(key, value).unwrap_err().to_string();
        assert!(message.contains(part), "{message}\n{part}");
        assert!(message.starts_with("--set "), "{message}");
        assert_eq!(machine, base);
    }
}

#[test]
fn cpus_spread_over_the_nodes_in_contiguous_blocks() {
    for cpus in [1, 2, 3, 4, 5, 7, 47, 48, 49, 512, 4096] {
        let machine = Machine::builtin("numa-4x12").unwrap().with_cpus(cpus).unwrap();
        assert_eq!(machine.cpus, cpus);
        assert_eq!(machine.nodes, cpus.min(4));
        assert_eq!(machine.distance.len() as u32, machine.nodes);
        let nodes: Vec<u32> = (0..cpus).map(|cpu| machine.node_of(cpu)).collect();
        assert!(nodes.is_sorted());
        let sizes: Vec<usize> =
            (0..machine.nodes).map(|node| nodes.iter().filter(|&&n| n == node).count()).collect();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        let shown = machine.constants().into_iter().find(|c| c.key == "cpu.cpus").unwrap();
        assert_eq!(shown.value_text, cpus.to_string());
        assert_eq!(
            Machine::builtin("numa-4x12").map(|mut m| m.set("cpus", &cpus.to_string()).map(|()| m)),
            Some(Ok(machine))
        );
    }
    for cpus in [0, 4097, u32::MAX] {
        let message = Machine::builtin("uma-8").unwrap().with_cpus(cpus).unwrap_err().to_string();
        assert!(message.contains("1 to 4096 CPUs"), "{message}");
    }
    assert_eq!(Machine::builtin("numa-4x12").unwrap().node_of(u32::MAX), 3);
    let mut small = Machine::builtin("uma-8").unwrap();
    small.set("memory", "8MiB").unwrap();
    assert!(small.with_cpus(4096).unwrap_err().to_string().contains("at least 512 MiB"));
}

#[test]
fn decimals_are_exact() {
    let time = |text: &str, unit: &str| base_units(Kind::Time, text, unit, Some(3_000_000_000));
    assert_eq!(time("2.7", "ns"), Ok(2_700));
    assert_eq!(time("0.1", "us"), Ok(100_000));
    assert_eq!(time("0.3", "s"), Ok(300_000_000_000));
    assert_eq!(time("1_000.50", "ns"), Ok(1_000_500));
    assert_eq!(time("2.7e-3", "us"), Ok(2_700));
    assert_eq!(time("+5E1", "ps"), Ok(50));
    assert_eq!(time("-0.0", "ps"), Ok(0));
    assert_eq!(time("0e999999999999", "ps"), Err(Refusal::TooLarge));
    assert_eq!(time("1", "cycles"), Ok(333));
    assert_eq!(time("2", "cycles"), Ok(667));
    assert_eq!(time("1.5", "cycles"), Ok(500));
    assert_eq!(base_units(Kind::Time, "1", "cycles", None), Err(Refusal::NoClock));
    assert_eq!(time("2.7001", "ns"), Err(Refusal::TooFine));
    assert_eq!(time("1e-2147483648", "ns"), Err(Refusal::TooFine));
    assert_eq!(time("1e2147483647", "ns"), Err(Refusal::TooLarge));
    assert_eq!(time("1e-99999999999", "ns"), Err(Refusal::TooFine));
    assert_eq!(time("9999999999999999999999", "ns"), Err(Refusal::TooLarge));
    assert_eq!(time("999999999999999999", "s"), Err(Refusal::TooLarge));
    for text in ["", ".", "e5", "1e", "--1", "1-", "\u{663}", "1 2", "0x10", "+", "1e+", "_"] {
        assert_eq!(time(text, "ns"), Err(Refusal::NotANumber), "{text}");
    }
    assert_eq!(split_number(" 12.5us "), ("12.5", "us"));
    assert_eq!(split_number("1e3"), ("1e3", ""));
    assert_eq!(split_number("1e-3 s"), ("1e-3", "s"));
    assert_eq!(split_number("3 entries"), ("3", "entries"));
    assert_eq!(split_number("3entries"), ("3", "entries"));
    assert_eq!(split_number("30%"), ("30", "%"));
    assert_eq!(Kind::Time.show(1_500_000), "1500 ns");
    assert_eq!(Kind::Size.show(64 << 40), "64 TiB");
}

#[test]
fn every_constant_has_its_own_name_and_keeps_both_ends_of_its_range() {
    let base = Machine::builtin("ssd-8").unwrap();
    for (at, key) in KEYS.iter().enumerate() {
        let first = KEYS[..at].iter().all(|other| other.name != key.name);
        assert!(first || [SWAP, SLOW].contains(&key.section), "{}", key.name);
        assert!(KEYS[..at].iter().all(|other| other.full_name() != key.full_name()), "{}", key.name);
        assert_eq!(super::key::find(key.name) == Some(at), first);
        assert_eq!(super::key::find(&key.full_name()), Some(at));
        assert!(key.least < key.most);
        // `put` converts to the field's type and stores 0 for what does not fit.
        let stored = |value: u64| {
            let mut machine = base.clone();
            (key.put)(&mut machine, value);
            machine
        };
        assert!(key.least == 0 || stored(key.least) != stored(0) || matches!(key.need, Need::Optional));
        assert_ne!(stored(key.most), stored(0), "{}", key.name);
    }
}

#[test]
fn every_constant_can_be_set_to_what_it_is() {
    for name in Machine::builtin_names() {
        let base = Machine::builtin(name).unwrap();
        for c in base.constants().iter().filter(|c| c.key != "memory.distance") {
            let mut machine = base.clone();
            machine.set(&c.key, &format!("{}{}", c.value_text, c.unit)).unwrap_or_else(|e| panic!("{e}"));
            // Without a unit it is the same, or refused.
            let mut bare = base.clone();
            if bare.set(&c.key, &c.value_text).is_ok() && c.value_text != "0" {
                assert_eq!(machine, bare);
            }
            assert_eq!((&machine.cost, &machine.tlb, &machine.device), (&base.cost, &base.tlb, &base.device));
        }
    }
}

#[test]
fn swap_devices_are_optional_but_whole() {
    let text = Machine::builtin_text("ssd-8").unwrap();
    let (start, rest) = text.split_once("[swap]").unwrap();
    let (section, end) = rest.split_once("[kernel]").unwrap();
    let without = Machine::parse(&format!("{start}[kernel]{end}"), "m.toml").unwrap();
    assert!(without.swap.is_none() && without.constants().iter().all(|c| !c.key.starts_with("swap.")));
    let swap = Machine::parse(text, "m.toml").unwrap().swap.unwrap();
    assert_eq!((swap.devices, swap.size, swap.read_latency), (4, 4 << 30, 76_000_000));
    assert_eq!((swap.read_errors, swap.gone_at, swap.priority_step), (0, 0, 0), "nothing fails by default");

    let refused = |section: &str| refusal(&format!("{start}[swap]{section}[kernel]{end}"));
    assert!(refused("\n").contains("no `devices`, `size`, `read_latency`"));
    let lines =
        |name: &str| section.lines().filter(|line| !line.starts_with(name)).collect::<Vec<_>>().join("\n");
    for name in ["devices", "size", "read_latency", "write_latency", "parallel", "read_bandwidth"] {
        assert!(refused(&format!("{}\n", lines(name))).contains(&format!("no `{name}` in [swap]")), "{name}");
    }
    assert!(
        refused(&section.replace("value = 4, unit = \"devices\"", "value = 0, unit = \"devices\""))
            .contains("devices")
    );
    let odd = section.replace("value = 4, unit = \"GiB\"", "value = 4000001, unit = \"B\"");
    assert!(refused(&odd).contains("inside a page"));
    assert!(
        refused(&section.replace("read_bandwidth", "bandwith")).contains("unknown key `bandwith` in [swap]")
    );
}

#[test]
fn what_files_and_swap_both_have_is_set_by_its_full_name() {
    let mut ssd = Machine::builtin("ssd-8").unwrap();
    let error = ssd.set("read_latency", "5us").unwrap_err().to_string();
    assert!(error.contains("`device.read_latency` or `swap.read_latency`"), "{error}");
    ssd.set("swap.read_latency", "5us").unwrap();
    ssd.set("read_errors", "5").unwrap();
    ssd.set("gone_at", "3ms").unwrap();
    ssd.set("memory", "2GiB").unwrap();
    let swap = ssd.swap.as_ref().unwrap();
    assert_eq!((swap.read_latency, swap.read_errors, swap.gone_at), (5_000_000, 5, 3_000_000_000));
    assert_eq!((ssd.device.read_latency, ssd.memory), (100_000_000, 2 << 30));

    let mut without = Machine::builtin("uma-8").unwrap();
    without.set("read_latency", "5us").unwrap();
    assert_eq!(without.device.read_latency, 5_000_000);
    let error = without.set("read_errors", "5").unwrap_err().to_string();
    assert!(error.contains("uma-8 has no swap devices; a machine with a section [swap]"), "{error}");
    assert!(without.swap.is_none());
}

/// Any text gives a machine or a line for each fault, about a line that is there.
fn survives(text: &str) {
    if let Err(error) = Machine::parse(text, "m.toml") {
        let message = error.to_string();
        assert!(!message.contains(['\r', '\u{1b}']), "{message:?}");
        assert!(message.lines().all(|line| line.starts_with("m.toml") && line.contains("; ")), "{message}");
        assert!(message.lines().count() <= 21 && !error.faults().is_empty(), "{message}");
        for fault in error.faults() {
            let line = fault.line.unwrap();
            assert!(line >= 1 && line <= text.matches('\n').count() + 1, "{message}");
        }
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once_in_the_order_of_lines() {
    let text = with_line("invlpg", "invlpg = 100")
        .replace("[device]", "[devise]")
        .replace("year = 2015", "year = 15")
        .replace("l1_ways = { value = 4,", "l1_ways = { value = \"4\",");
    let message = format!("m.toml:{}", refusal(&text));
    let lines: Vec<&str> = message.lines().collect();
    for part in ["no section [device]", "`year`", "unknown key `devise`", "`invlpg` is the number 100"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {message}");
    }
    let numbers: Vec<usize> =
        lines.iter().map(|line| line.split(':').nth(1).unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.len() >= 4, "{message}");
    // What constants are together is judged once each is right alone.
    let conflicts = with_line("l1_ways", "l1_ways = { value = 5, unit = \"ways\", source = \"x\" }")
        .replace("[20, 10, 20, 20]", "[20, 11, 20, 20]");
    assert_eq!(Machine::parse(&conflicts, "m.toml").unwrap_err().faults().len(), 2);
    // And of thousands the first say enough.
    let many = (0..100).map(|n| format!("k{n} = 1\n")).collect::<String>();
    let message = Machine::parse(&many, "m.toml").unwrap_err().to_string();
    assert!(message.lines().count() == 21 && message.ends_with("more; mend these first"), "{message}");
}

#[test]
fn a_file_with_a_base_gives_only_what_differs() {
    let uma = Machine::builtin("uma-8").unwrap();
    let of = |text: &str| Machine::parse(text, "m.toml").unwrap_or_else(|e| panic!("{e}"));
    let constant = |key: &str, value: &str| format!("{key} = {{ {value}, source = \"measured\" }}\n");
    let same = of("name = \"mine\"\nbase = \"uma-8\"\n");
    assert_eq!(Machine { name: uma.name.clone(), about: uma.about.clone(), ..same }, uma);
    let ipi = constant("ipi_send", "value = 1, unit = \"us\"");
    let mine = of(&format!("name = \"mine\"\nbase = \"uma-8\"\nyear = 2024\n[cost]\n{ipi}"));
    assert_eq!((mine.cost.ipi_send, mine.cost.invlpg, mine.year), (1_000_000, uma.cost.invlpg, 2024));
    let source = |key: &str| mine.constants().into_iter().find(|c| c.key == key).unwrap().source;
    assert_eq!(source("cost.ipi_send"), "measured");
    assert_ne!(source("cost.invlpg"), "measured");
    // Another clock: what the base has in cycles takes another time.
    let mhz = constant("mhz", "value = 1800, unit = \"MHz\"");
    let slow = of(&format!("name = \"slow\"\nbase = \"uma-8\"\n[cpu]\n{mhz}"));
    assert!(slow.cost.trap_enter.abs_diff(2 * uma.cost.trap_enter) <= 2);
    // A section that the base does not have must be whole, and there must be such a machine.
    let devices = constant("devices", "value = 1, unit = \"devices\"");
    let message = refusal(&format!("name = \"x\"\nbase = \"uma-8\"\n[swap]\n{devices}"));
    assert!(message.contains("no `size`, `read_latency`"), "{message}");
    let message = refusal("name = \"x\"\nbase = \"uma-9\"\n");
    assert_eq!(message, "2: no machine is called `uma-9`; `uma-8`", "and nothing that follows from it");
    assert!(refusal("base = \"uma-8\"\n").contains("no `name`"));
    let nodes = constant("nodes", "value = 2, unit = \"nodes\"");
    let message = refusal(&format!("name = \"x\"\nbase = \"uma-8\"\n[cpu]\n{nodes}"));
    assert!(message.contains("a distance matrix of 1 rows for 2 nodes"), "{message}");
}

/// The shortest good file, so that most changes hit something.
fn without_comments() -> String {
    good().lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_file_cut_off_anywhere_is_refused_or_read() {
    let text = without_comments();
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
        survives(&text[..end]);
    }
}

#[test]
fn a_file_with_wrong_bytes_is_refused_or_read() {
    let text = without_comments();
    // `make soak` has other seeds.
    let seed: u64 = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = 0x2545_f491_4f6c_dd1d_u64.wrapping_mul(2 * seed + 1);
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) as usize % below
    };
    let pieces = [
        "\n",
        "\"",
        "'",
        "=",
        "{",
        "}",
        "[",
        "]",
        "-",
        ".",
        "0",
        "9",
        "e",
        "_",
        "#",
        "\\",
        "nan",
        "inf",
        "\u{0}",
        "\u{e9}",
        "\"\"\"",
        "99999999999999999999",
        "1e400",
        "[[cost]]",
        "0x_",
        "\u{2028}",
        "\r",
        "true",
        "1979-05-27T00:00Z",
        " ",
    ];
    for _ in 0..1_500 {
        let mut mutant = text.clone();
        for _ in 0..=next(3) {
            let mut at = next(mutant.len());
            while !mutant.is_char_boundary(at) {
                at -= 1;
            }
            let mut end = (at + next(6)).min(mutant.len());
            while !mutant.is_char_boundary(end) {
                end += 1;
            }
            mutant.replace_range(at..end, pieces[next(pieces.len())]);
        }
        survives(&mutant);
        let mut machine = Machine::builtin("uma-8").unwrap();
        let (start, end) = (next(mutant.len()), next(40));
        if let Some(part) = mutant.get(start..(start + end).min(mutant.len())) {
            let (key, value) = part.split_once('=').unwrap_or(("invlpg", part));
            if let Err(error) = machine.set(key, value) {
                assert!(!error.to_string().contains(['\n', '\r', '\u{1b}']));
            }
        }
    }
}

#[test]
fn deep_and_long_files_are_refused() {
    survives(&"[".repeat(200_000));
    survives(&format!("a = {}", "[".repeat(200_000)));
    survives(&format!("a = {}", "{a=".repeat(100_000)));
    survives(&"a.".repeat(200_000));
    survives(&format!("{} = 1", "a".repeat(500_000)));
    survives(&format!("name = \"{}\"", "a".repeat(500_000)));
    survives(&"a = 1\n".repeat(20_000));
    survives(&(0..15_000).map(|n| format!("k{n} = 1\n")).collect::<String>());
}

#[test]
fn demotion_wants_a_slow_node() {
    let refused = |machine: &str, sets: &[(&str, &str)]| {
        let mut machine = Machine::builtin(machine).unwrap();
        let each = sets.iter().try_for_each(|(key, value)| machine.set(key, value));
        each.err().map(|error| error.to_string())
    };
    let without = refused("ssd-8", &[("demotion", "true")]).unwrap();
    assert!(without.contains("demotion without a slow node") && without.contains("cxl-16"), "{without}");
    assert_eq!(refused("cxl-16", &[("demotion", "true"), ("slow.size", "8GiB")]), None);
    assert!(refused("cxl-16", &[("slow.size", "0B"), ("demotion", "true")]).is_some());
    assert!(refused("cxl-16", &[("slow.size", "1MiB")]).unwrap().contains("at least 4 MiB"));
    let none = refused("ssd-8", &[("slow.latency", "1us")]).unwrap();
    assert!(none.contains("ssd-8 has no slow node") && none.contains("[slow]"), "{none}");
    // Its own constants have names that others have, too.
    let which = refused("cxl-16", &[("copy_frame", "1us")]).unwrap();
    assert!(which.contains("`cost.copy_frame` or `slow.copy_frame`"), "{which}");
    assert_eq!(refused("ssd-8", &[("copy_frame", "1us")]), None);
}

#[test]
fn the_slow_node_is_as_far_from_all_others() {
    let mut machine = Machine::builtin("cxl-16").unwrap();
    assert_eq!((machine.all_nodes(), machine.all_memory()), (2, 32 << 30));
    assert_eq!([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| machine.distance_of(a, b)), [10, 20, 20, 10]);
    machine.slow = None;
    assert_eq!((machine.all_nodes(), machine.all_memory(), machine.distance_of(0, 0)), (1, 16 << 30, 10));
}
