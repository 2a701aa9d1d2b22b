//! The parts of a line of `perf script` or ftrace: who, where, when, what.
//!
//! ```text
//! perf     sort  1234/1235 [001]  17284.993652:  raw_syscalls:sys_enter: NR 9 (0, 2000, 3, 22, ffffffff, 0)
//! ftrace       sort-1235  (   1234) [001] d.... 17284.993652: sys_enter: NR 9 (0, 2000, 3, 22, ffffffff, 0)
//! ```

/// A line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    pub name: &'a str,
    pub tid: i32,
    pub process: Option<i32>,
    pub cpu: u16,
    /// Nanoseconds.
    pub at: u64,
    /// Without its group.
    pub event: &'a str,
    pub payload: &'a str,
}

impl<'a> Line<'a> {
    /// Takes a line apart, if it is one.
    pub fn read(text: &'a str) -> Option<Line<'a>> {
        let (open, cpu, rest) = bracket(text)?;
        let (name, tid, process) = who(text[..open].trim())?;
        let rest = rest.trim_start();
        let mut words = rest.splitn(2, char::is_whitespace);
        let (first, after) = (words.next()?, words.next().unwrap_or("").trim_start());
        // Between CPU and time ftrace has flags.
        let (at, mut rest) = match seconds(first) {
            Some(at) => (at, after),
            None => {
                let (second, after) = after.split_once(char::is_whitespace)?;
                (seconds(second)?, after.trim_start())
            }
        };
        // A period that perf prints before the event.
        if let Some((word, after)) = rest.split_once(char::is_whitespace)
            && !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_digit())
        {
            rest = after.trim_start();
        }
        let end = rest.find([' ', '(']).unwrap_or(rest.len());
        let (word, payload) = rest.split_at(end);
        let event = word.trim_end_matches(':');
        let event = event.rsplit(':').next().unwrap_or(event);
        (!event.is_empty()).then(|| Line { name, tid, process, cpu, at, event, payload: payload.trim() })
    }
}

/// The first `[digits]`: where it begins, the number, what follows.
fn bracket(text: &str) -> Option<(usize, u16, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('[')?;
        let close = open + text[open..].find(']')?;
        let inside = text[open + 1..close].trim();
        if !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((open, inside.parse().ok()?, &text[close + 1..]));
        }
        from = open + 1;
    }
}

/// `comm tid`, `comm pid/tid`, `comm-tid` or `comm-tid ( pid)`.
fn who(text: &str) -> Option<(&str, i32, Option<i32>)> {
    let number = |text: &str| text.trim().parse::<i32>().ok().filter(|&number| number >= 0);
    if let Some(inner) = text.strip_suffix(')') {
        let (rest, process) = inner.rsplit_once('(')?;
        let (name, tid) = rest.trim().rsplit_once('-')?;
        return Some((name.trim(), number(tid)?, number(process)));
    }
    let last = text.rsplit(char::is_whitespace).next()?;
    if let Some((process, tid)) = last.split_once('/')
        && let (Some(process), Some(tid)) = (number(process), number(tid))
    {
        return Some((text[..text.len() - last.len()].trim(), tid, Some(process)));
    }
    if let Some(tid) = number(last) {
        let name = text[..text.len() - last.len()].trim();
        return (!name.is_empty()).then_some((name, tid, None));
    }
    let (name, tid) = text.rsplit_once('-')?;
    Some((name.trim(), number(tid)?, None))
}

/// `17284.993652:` in nanoseconds.
pub fn seconds(word: &str) -> Option<u64> {
    let (whole, fraction) = word.trim_end_matches(':').split_once('.')?;
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// What stands behind `key` up to a space, a comma or the end.
pub fn value<'a>(payload: &'a str, key: &str) -> Option<&'a str> {
    let at = payload.match_indices(key).find(|(at, _)| {
        // `pid=` is also the end of `child_pid=`.
        *at == 0 || !payload.as_bytes()[at - 1].is_ascii_alphanumeric() && payload.as_bytes()[at - 1] != b'_'
    })?;
    let rest = &payload[at.0 + key.len()..];
    Some(&rest[..rest.find([' ', ',']).unwrap_or(rest.len())])
}

/// A number that may begin with `0x`; with `bare` it is hexadecimal without, too.
pub fn hex(text: &str, bare: bool) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if bare => u64::from_str_radix(text, 16).ok(),
        None => text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(|value| value as u64)),
    }
}
