//! Tracepoints by their names: the number of each, and where its fields lie.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted, if somewhere it can be read.
pub fn folder() -> Result<PathBuf, io::Error> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let mut why = None;
    for place in places {
        match fs::metadata(Path::new(place).join("events/raw_syscalls")) {
            Ok(_) => return Ok(PathBuf::from(place)),
            Err(error) if why.is_none() => why = Some(error),
            Err(_) => {}
        }
    }
    Err(why.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// A tracepoint.
#[derive(Clone, Debug)]
pub struct Tracepoint {
    pub id: u64,
    fields: Vec<(String, usize, usize)>,
}

impl Tracepoint {
    /// By its group and name.
    pub fn find(tracefs: &Path, group: &str, name: &str) -> io::Result<Tracepoint> {
        let folder = tracefs.join("events").join(group).join(name);
        let id = fs::read_to_string(folder.join("id"))?.trim().parse().map_err(io::Error::other)?;
        Ok(Tracepoint { id, fields: fields(&fs::read_to_string(folder.join("format"))?) })
    }

    /// A field of a sample, as a number.
    pub fn field(&self, name: &str, raw: &[u8]) -> Option<u64> {
        let (_, offset, size) = self.fields.iter().find(|(field, ..)| field == name)?;
        number(raw.get(*offset..offset + size.min(&8))?)
    }

    /// The nth word of a field that is an array of them.
    pub fn word(&self, name: &str, nth: usize, raw: &[u8]) -> Option<u64> {
        let (_, offset, size) = self.fields.iter().find(|(field, ..)| field == name)?;
        let from = offset + 8 * nth;
        if 8 * nth >= *size { None } else { number(raw.get(from..from + 8)?) }
    }

    /// A field that lies elsewhere in the sample, whose place the field has.
    pub fn located<'a>(&self, name: &str, raw: &'a [u8]) -> Option<&'a [u8]> {
        let place = self.field(name, raw)? as u32;
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
        raw.get(offset..offset + size)
    }
}

/// A filter for events of the kernel's function by which CPUs flush for others, if it says where that is.
pub fn flush_functions() -> Option<String> {
    filter(&fs::read_to_string("/proc/kallsyms").ok()?)
}

/// The compiler may have made several of one.
fn filter(symbols: &str) -> Option<String> {
    let place = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let known = crate::seen::is_flush(name) && address.bytes().any(|digit| digit != b'0');
        known.then(|| format!("func == 0x{address}"))
    };
    let all: Vec<String> = symbols.lines().filter_map(place).collect();
    (!all.is_empty()).then(|| all.join(" || "))
}

fn number(bytes: &[u8]) -> Option<u64> {
    let mut value = [0; 8];
    value.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(value))
}

/// The names, offsets and sizes of lines such as `field:unsigned long args[6]; offset:16; size:48; signed:0;`.
fn fields(format: &str) -> Vec<(String, usize, usize)> {
    let field = |line: &str| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let name = parts.next()?.rsplit(' ').next()?.split('[').next()?.to_owned();
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        Some((name, offset, size))
    };
    format.lines().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_flush_are_found_by_name_unless_the_kernel_hides_where_they_are() {
        let symbols = "ffffffff81000000 T _stext\nffffffff8108a1b0 t flush_tlb_func\nffffffff8108a9c0 t flush_tlb_func.cold\n\
            ffffffff8108b000 t flush_tlb_func_other\n";
        let both = "func == 0xffffffff8108a1b0 || func == 0xffffffff8108a9c0";
        assert_eq!(filter(symbols).as_deref(), Some(both));
        assert_eq!(filter("0000000000000000 t flush_tlb_func\n"), None);
        assert_eq!(filter(""), None);
    }

    const FORMAT: &str = "name: sys_enter\nID: 22\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\
        \tfield:__data_loc cpumask_t cpumask;\toffset:64;\tsize:4;\tsigned:0;\n";

    #[test]
    fn fields_are_found_where_the_kernel_says() {
        let point = Tracepoint { id: 22, fields: fields(FORMAT) };
        let mut raw = vec![0; 76];
        raw[8] = 9;
        raw[24..32].copy_from_slice(&0x2000u64.to_le_bytes());
        raw[64..68].copy_from_slice(&(8u32 << 16 | 68).to_le_bytes());
        raw[68] = 2;
        assert_eq!(point.field("id", &raw), Some(9));
        assert_eq!(point.word("args", 1, &raw), Some(0x2000));
        assert_eq!(point.word("args", 6, &raw), None);
        assert_eq!(point.located("cpumask", &raw), Some([2, 0, 0, 0, 0, 0, 0, 0].as_slice()));
        assert_eq!(point.field("nothing", &raw), None);
        assert_eq!(point.field("id", &raw[..10]), None, "a sample that is cut");
    }
}
