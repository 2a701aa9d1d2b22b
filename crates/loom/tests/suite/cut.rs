//! A page is cut off a file while another CPU's fault maps it (INV-12).
use quietmm::{Backing, Error, FileId, PageNumber, PageRange, Prot, Rule, SpaceId, UserAccess};
use quietmm_loom::case::{PAGE, bare};
use quietmm_loom::{Fault, Model, Setup};

const TWO: Setup = Setup { cpus: 2, tags: 1 };
/// Far from the other: it has tables of its own.
const FAR: PageNumber = PageNumber(PAGE + (1 << 18));

/// A page of a file that is in memory, mapped by a space of CPU 0 and not yet by one of CPU 1, in which it is shown so.
fn cut_and_fault(shown: fn(FileId) -> Backing) -> Model<(FileId, SpaceId)> {
    Model::new(TWO, bare("vanilla"), move |mm| {
        let file = mm.create_file(1).unwrap();
        let (near, far) = (mm.create_space().unwrap(), mm.create_space().unwrap());
        let shared = Backing::File { file, offset: 0 };
        mm.space(near).map(PageRange::new(PageNumber(PAGE), 1), shared, Prot::ReadWrite).unwrap();
        mm.space(far).map(PageRange::new(FAR, 1), shown(file), Prot::ReadWrite).unwrap();
        mm.space(near).switch_to().unwrap();
        mm.space(near).fault(PageNumber(PAGE).addr(), UserAccess::Read).unwrap();
        mm.platform().on(1, || mm.space(far).switch_to().unwrap());
        (file, far)
    })
    .cpu(|mm, (file, _)| mm.file(file).set_size(0).unwrap())
    .cpu(|mm, (_, id)| match mm.space(id).fault(FAR.addr(), UserAccess::Read) {
        Ok(()) | Err(Error::BeyondFile) => {}
        Err(error) => panic!("{error:?}"),
    })
    .after(|mm, (_, id)| {
        let entry = mm.space(id).lookup(FAR).unwrap();
        assert!(!entry.is_present(), "what was cut off is mapped");
    })
    .bound(1)
}

fn shared(file: FileId) -> Backing {
    Backing::File { file, offset: 0 }
}

fn private(file: FileId) -> Backing {
    Backing::Private { file, offset: 0 }
}

#[test]
fn what_is_cut_off_is_not_mapped_by_a_fault_on_its_way() {
    cut_and_fault(shared).holds();
    cut_and_fault(private).holds();
}

#[test]
fn broken_rules_are_seen() {
    cut_and_fault(shared).fails(Fault::Broken(Rule::LookForCut));
    cut_and_fault(private).fails(Fault::Broken(Rule::LookForCut));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    let fence = || Fault::without_fence("space/fault.rs", "INV-2: before the look at the page's lock");
    cut_and_fault(shared).fails(fence());
    cut_and_fault(private).fails(fence());
}
