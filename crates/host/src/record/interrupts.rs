//! The kernel's own count of flush requests: the line `TLB` of `/proc/interrupts`, which counts those that were received.

/// All CPUs together; nothing if the host does not say.
pub fn shootdowns() -> Option<u64> {
    sum(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

fn sum(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_is_added_up() {
        let text = "           CPU0       CPU1\n LOC:  1  2   Local timer interrupts\n TLB:     159596     160409   TLB shootdowns\n";
        assert_eq!(super::sum(text), Some(320_005));
        assert_eq!(super::sum("LOC: 1 2"), None);
    }
}
