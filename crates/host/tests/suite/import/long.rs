//! Captures that are long, of many threads or of long lines: memory stays bounded.

use std::io::{self, BufRead, Read};

use quietmm_host::import::{Form, Options, import};

use super::{Place, imported, maps, notes};

/// So many rounds of a map and an unmap, made as they are read.
struct Endless {
    round: u64,
    rounds: u64,
    line: Vec<u8>,
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

impl BufRead for Endless {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.line.len() && self.round < self.rounds {
            let (s, us, tid) = (self.round / 10_000, self.round % 10_000 * 100, 100 + self.round % 7);
            self.line = format!(
                " p 100/{tid} [001] {s}.{us:06}: raw_syscalls:sys_enter: NR 11 ({:x}000, 1000, 0, 0, 0, 0)\n\
                  p 100/{tid} [001] {s}.{:06}: raw_syscalls:sys_exit: NR 11 = 0\n",
                self.round % 1000,
                us + 9
            )
            .into_bytes();
            (self.at, self.round) = (0, self.round + 1);
        }
        Ok(&self.line[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_long_capture_takes_no_more_memory_than_a_short_one() {
    // In a process of its own: other tests take memory too.
    const ALONE: &str = "QUIETMM_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "import::long::a_long_capture_takes_no_more_memory_than_a_short_one";
        let own = std::env::current_exe().unwrap();
        let alone = std::process::Command::new(own).args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        return;
    }
    let import_of = |rounds| {
        let mut input = Endless { round: 0, rounds, line: Vec::new(), at: 0 };
        let place = Place::new(&format!("long-{rounds}"));
        let options = Options { source: "long".into(), ..Options::default() };
        import(&mut input, Form::Events, &options, &place.0).unwrap().sums.events
    };
    import_of(1000);
    let before = resident();
    // About 40 MB of text, by seven threads that each begin and have a name.
    assert_eq!(import_of(300_000), 300_000 + 2 * 7);
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
}

#[test]
fn threads_that_nobody_made_are_taken_in_however_many_they_are() {
    // Each in a process of its own: to look through all for each would take minutes.
    let threads = 150_000;
    let line =
        |nth: u32| format!("{} 1700000000.{nth:06} munmap(0x7f0000000000, 4096) = 0 <0.000001>\n", 100 + nth);
    let text: String = (0..threads).map(line).collect();
    let (imported, _) = imported("strangers", &mut text.as_bytes(), Form::Strace).unwrap();
    assert_eq!(imported.sums.threads, 1 << 17);
    assert!(notes(&imported).iter().any(|(.., note)| note.starts_with("more threads at once")), "{imported}");
}

#[test]
fn long_lines_that_wait_for_their_thread_and_halves_of_calls_do_not_fill_the_memory() {
    let long = "x".repeat(60_000);
    let waits =
        |nth: u32| format!("101 1700000000.{nth:06} munmap(0x7f0000000000, 4096) = 0 {long} <0.000001>\n");
    let text = maps(1_700_000_000.0, 1) + &(0..400).map(waits).collect::<String>();
    let (imported_waits, _) = imported("waits", &mut text.as_bytes(), Form::Strace).unwrap();
    let told = notes(&imported_waits).into_iter().find(|(.., note)| note.starts_with("threads that nobody"));
    assert!(matches!(told, Some((200..300, 1, _))), "{imported_waits}");
    let half = |nth: u32| format!("{} 1700000001.{nth:06} execve(\"{long}\" <unfinished ...>\n", 200 + nth);
    let text = text + &(0..400).map(half).collect::<String>();
    let (imported, _) = imported("halves", &mut text.as_bytes(), Form::Strace).unwrap();
    assert!(notes(&imported).iter().any(|(.., note)| note.starts_with("too many calls")), "{imported}");
}
