//! `/proc/cpuinfo`: what the CPUs say of themselves, by `cpuid`, in Linux's words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Where a feature's bit is: the leaf, and the word of `eax`, `ebx`, `ecx`, `edx`.
type Word = (u32, usize);

/// Of leaf 1: the kernel saves all registers of vectors. What uses the wider ones is of no use without.
const SAVES_ALL: u32 = 1 << 27;

/// Features by the word that has them, in Linux's order, each by its bit; but for those that this kernel would have to turn on, and does not.
const FEATURES: [(Word, &[(u32, &str)]); 7] = [
    (
        (1, 3),
        &[
            (0, "fpu"),
            (1, "vme"),
            (2, "de"),
            (3, "pse"),
            (4, "tsc"),
            (5, "msr"),
            (6, "pae"),
            (7, "mce"),
            (8, "cx8"),
            (9, "apic"),
            (11, "sep"),
            (12, "mtrr"),
            (13, "pge"),
            (14, "mca"),
            (15, "cmov"),
            (16, "pat"),
            (17, "pse36"),
            (19, "clflush"),
            (23, "mmx"),
            (24, "fxsr"),
            (25, "sse"),
            (26, "sse2"),
            (27, "ss"),
            (28, "ht"),
        ],
    ),
    (
        (0x8000_0001, 3),
        &[
            (11, "syscall"),
            (20, "nx"),
            (22, "mmxext"),
            (25, "fxsr_opt"),
            (26, "pdpe1gb"),
            (27, "rdtscp"),
            (29, "lm"),
        ],
    ),
    (
        (1, 2),
        &[
            (0, "pni"),
            (1, "pclmulqdq"),
            (3, "monitor"),
            (9, "ssse3"),
            (12, "fma"),
            (13, "cx16"),
            (17, "pcid"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (21, "x2apic"),
            (22, "movbe"),
            (23, "popcnt"),
            (24, "tsc_deadline_timer"),
            (25, "aes"),
            (26, "xsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
            (31, "hypervisor"),
        ],
    ),
    (
        (0x8000_0001, 2),
        &[
            (0, "lahf_lm"),
            (1, "cmp_legacy"),
            (4, "cr8_legacy"),
            (5, "abm"),
            (6, "sse4a"),
            (7, "misalignsse"),
            (8, "3dnowprefetch"),
        ],
    ),
    (
        (7, 1),
        &[
            (3, "bmi1"),
            (5, "avx2"),
            (7, "smep"),
            (8, "bmi2"),
            (9, "erms"),
            (10, "invpcid"),
            (16, "avx512f"),
            (18, "rdseed"),
            (19, "adx"),
            (20, "smap"),
            (23, "clflushopt"),
            (24, "clwb"),
            (29, "sha_ni"),
        ],
    ),
    ((7, 2), &[(2, "umip"), (9, "vaes"), (10, "vpclmulqdq"), (22, "rdpid")]),
    ((7, 3), &[(4, "fsrm")]),
];

/// What cannot be used where the wide registers of vectors are not saved.
const WIDE: [&str; 8] = ["fma", "xsave", "avx", "f16c", "avx2", "avx512f", "vaes", "vpclmulqdq"];

/// The file, of so many CPUs that are alike, each a package of its own. `cpuid` returns the four words of a leaf.
pub(crate) fn cpuinfo(cpus: u32, cpuid: impl Fn(u32) -> [u32; 4]) -> String {
    let leaf = |number: u32| {
        let most = cpuid(number & 0x8000_0000)[0];
        if number <= most { cpuid(number) } else { [0; 4] }
    };
    let [first, signature] = [leaf(0), leaf(1)];
    let vendor = text(&[first[1], first[3], first[2]]);
    let name: Vec<u32> = (0x8000_0002..=0x8000_0004).flat_map(leaf).collect();
    let [family, model, stepping] = family_of(signature[0]);
    let (flags, sizes) = (flags(&leaf), leaf(0x8000_0008)[0]);
    let [physical, linear] = [sizes & 0xff, sizes >> 8 & 0xff];
    let line = signature[1] >> 8 & 0xff;
    (0..cpus)
        .map(|cpu| {
            format!(
                "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {}\nstepping\t: {stepping}\n\
                 cpu MHz\t\t: 1000.000\nphysical id\t: {cpu}\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\napicid\t\t: {cpu}\ninitial apicid\t: {cpu}\n\
                 fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t: {flags}\nbugs\t\t:\nbogomips\t: 2000.00\n\
                 clflush size\t: {}\ncache_alignment\t: {}\naddress sizes\t: {physical} bits physical, {linear} bits virtual\npower management:\n\n",
                text(&name),
                first[0],
                line * 8,
                line * 8,
            )
        })
        .collect()
}

/// Names of what there is, in one line.
fn flags(leaf: &impl Fn(u32) -> [u32; 4]) -> String {
    let saves_all = leaf(1)[2] & SAVES_ALL != 0;
    let mut names: Vec<&str> = Vec::new();
    for ((number, word), bits) in FEATURES {
        let has = leaf(number)[word];
        let usable = |name: &str| saves_all || !WIDE.contains(&name);
        names.extend(
            bits.iter().filter(|(bit, name)| has >> bit & 1 != 0 && usable(name)).map(|(_, name)| name),
        );
    }
    names.join(" ")
}

/// Family, model and stepping, as the first word of leaf 1 has them in parts.
fn family_of(signature: u32) -> [u32; 3] {
    let part = |shift: u32, mask: u32| signature >> shift & mask;
    let family = part(8, 0xf);
    let model = part(4, 0xf) | if family == 6 || family == 0xf { part(16, 0xf) << 4 } else { 0 };
    [family + if family == 0xf { part(20, 0xff) } else { 0 }, model, part(0, 0xf)]
}

/// Words of four characters each, up to the first zero.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let all: String = bytes.take_while(|&byte| byte != 0).map(char::from).collect();
    String::from(all.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An AMD of family 25 with AVX, if its kernel saves such registers.
    fn epyc(saves: bool) -> impl Fn(u32) -> [u32; 4] {
        let word = |text: &str| u32::from_le_bytes(text.as_bytes().try_into().unwrap());
        move |leaf| match leaf {
            0 => [7, word("Auth"), word("cAMD"), word("enti")],
            1 => [0x00a1_0f11, 8 << 8, 1 << 28 | 1 << 19 | if saves { SAVES_ALL } else { 0 }, 1 | 1 << 26],
            7 => [0, 1 << 5 | 1 << 8, 0, 0],
            0x8000_0000 => [0x8000_0008, 0, 0, 0],
            0x8000_0001 => [0, 0, 1, 1 << 29],
            0x8000_0002 => [word("AMD "), word("EPYC"), word(" 9  "), 0],
            0x8000_0008 => [0x3030, 0, 0, 0],
            _ => [u32::MAX; 4],
        }
    }

    fn value<'a>(all: &'a str, key: &str) -> Vec<&'a str> {
        let of = |line: &'a str| line.split_once(':').filter(|(name, _)| name.trim() == key);
        all.lines().filter_map(of).map(|(_, value)| value.trim()).collect()
    }

    #[test]
    fn each_cpu_says_what_it_is_and_has() {
        let all = cpuinfo(2, epyc(true));
        assert_eq!(value(&all, "processor"), ["0", "1"]);
        assert_eq!(value(&all, "vendor_id"), ["AuthenticAMD"; 2]);
        assert_eq!(value(&all, "model name"), ["AMD EPYC 9"; 2]);
        let numbers =
            ["cpu family", "model", "stepping", "cpuid level", "clflush size"].map(|key| value(&all, key)[1]);
        assert_eq!(numbers, ["25", "17", "1", "7", "64"]);
        assert_eq!(value(&all, "flags")[0], "fpu sse2 lm sse4_1 avx lahf_lm avx2 bmi2");
        assert_eq!(value(&all, "address sizes")[0], "48 bits physical, 48 bits virtual");
        assert_eq!(value(&all, "physical id"), ["0", "1"]);
    }

    #[test]
    fn what_needs_registers_that_are_not_saved_is_not_there() {
        assert_eq!(value(&cpuinfo(1, epyc(false)), "flags"), ["fpu sse2 lm sse4_1 lahf_lm bmi2"]);
    }

    #[test]
    fn a_leaf_that_there_is_not_has_no_features() {
        // Beyond the highest leaf a CPU says what it has for another one.
        let all = cpuinfo(1, |leaf| if leaf == 1 { [0, 0, 0, 1] } else { [u32::from(leaf == 0), 0, 0, 0] });
        assert_eq!((value(&all, "flags"), value(&all, "model name")), (vec!["fpu"], vec![""]));
    }
}
