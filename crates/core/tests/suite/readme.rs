//! The code in README.md compiles and does what is said there: it stands here line by line, with what it needs around it.

use crate::machine;

use machine::{Host, Setup};
use quietmm::{
    Advice, Backing, Config, Error, FrameNumber, Manager, NodeId, PageNumber, PageRange, Policy, Prot,
    Region, UserAccess,
};

const README: &str = include_str!("../../../../README.md");
const HERE: &str = include_str!("readme.rs");

fn what_a_kernel_does() -> Result<(), Error> {
    let host = Host::new(Setup { base: 0, frames: 2048, ..Setup::default() });
    // README.md, the first piece.
    #[rustfmt::skip]
    let regions = [Region { start: FrameNumber(0), frames: 2048, node: NodeId(0) }];
    // SAFETY: this memory is nobody else's, and goes to one manager.
    let mm = unsafe { Manager::new(&host, &regions, Config::new(Policy::VANILLA))? };

    let space = mm.space(mm.create_space()?);
    let file = mm.file(mm.create_file(4096)?);
    let text = PageRange::new(PageNumber(0x40000), 4096);
    space.map(text, Backing::File { file: file.id(), offset: 0 }, Prot::Read)?;
    space.switch_to()?;
    space.fault(text.start.addr(), UserAccess::Read)?; // from your page-fault handler
    assert!(space.lookup(text.start).is_ok());
    assert_eq!(mm.validate().broken, None);
    Ok(())
}

#[rustfmt::skip]
fn the_other_operations() -> Result<(), Error> {
    let half = |start, node| Region { start: FrameNumber(start), frames: 2048, node: NodeId(node) };
    let regions = Some(vec![half(0, 0), half(2048, 1)]);
    let host = Host::new(Setup { cpus: 2, nodes: 2, base: 0, frames: 4096, regions, ..Setup::default() });
    host.run(Config::new(Policy::VANILLA), |mm| {
        let space = mm.space(mm.create_space()?);
        let file = mm.file(mm.create_file(4096)?);
        let text = PageRange::new(PageNumber(0x40000), 4096);
        space.map(text, Backing::File { file: file.id(), offset: 0 }, Prot::ReadWrite)?;
        space.switch_to()?;
        host.write(mm, space.id(), text.start.0, 7)?;
        // README.md, the second piece.
        let heap = PageRange::new(PageNumber(0x400), 16); // a second range, mapped as Backing::Anonymous
        space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
        space.fault(heap.start.addr(), UserAccess::Write)?;
        space.protect(text, Prot::None)?;                 // mprotect
        space.move_range(text, PageNumber(0x80000))?;     // mremap
        let child = space.fork()?;                        // copied when written
        space.advise(heap, Advice::Drop)?;                // madvise: Drop, Large, Small
        space.fault(heap.start.addr(), UserAccess::Write)?;
        space.migrate(heap, NodeId(1))?;                  // move_pages
        file.write(100, b"by copy")?;                     // write(2); also read, set_size, punch_hole
        file.write_back()?;                               // fsync, while programs go on writing
        space.unmap(heap)?;                               // when it returns, no CPU can use it
        mm.enter_lazy();                                  // the idle loop: leave this CPU alone
        host.on(1, || {
            mm.cpu_offline()?;                                // on the CPU that goes; cpu_online() when it is back
            mm.cpu_online()
        })?;
        // What the comments say.
        assert!(space.fault(text.start.addr(), UserAccess::Read).is_err(), "it was moved");
        assert!(space.fault(heap.start.addr(), UserAccess::Read).is_err(), "it was unmapped");
        assert_eq!(host.on_disk(file.id(), 0), Some(7), "it was written back");
        mm.space(child).switch_to()?;
        mm.space(child).fault(heap.start.addr(), UserAccess::Read)?;
        Ok(())
    })
}

#[test]
fn the_code_in_the_readme_does_what_it_says() {
    what_a_kernel_does().expect("the first piece");
    the_other_operations().expect("the second piece");
}

/// Lines of the README's Rust code that do not stand in `source` in the same order.
fn missing<'a>(readme: &'a str, source: &str) -> Vec<&'a str> {
    let pieces = readme.split("```").skip(1).step_by(2).filter_map(|piece| piece.strip_prefix("rust\n"));
    let mut source = source.lines().map(str::trim);
    let lines = pieces.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty());
    lines.filter(|line| !source.any(|ours| ours == *line)).collect()
}

#[test]
fn every_line_of_the_readmes_code_is_compiled_here() {
    assert!(README.matches("```rust\n").count() >= 2, "README.md has no code any more");
    assert_eq!(missing(README, HERE), Vec::<&str>::new());
    // The control: a line that nobody compiles is found.
    let other = README.replacen("space.fork()?", "space.spoon()?", 1);
    assert!(missing(&other, HERE).first().is_some_and(|line| line.contains("spoon")));
}
