//! What `heaptide heap` prints of a small heap.

use heaptide_analysis::capture::heap::{HeapBuilder, write_heap};

use crate::support::heaps::shop;
use crate::{Folder, error_text, printed};

pub fn write(folder: &Folder, name: &str, heap: HeapBuilder) {
    let bytes = write_heap(&heap.finish(), Vec::new()).expect("a vector takes everything");
    folder.write(name, &bytes);
}

fn with_shop() -> Folder {
    let folder = Folder::new();
    write(&folder, "job.heap", shop());
    folder
}

#[test]
fn show_is_laid_out_as_heapy_lays_out_partitions() {
    let folder = with_shop();
    assert_eq!(
        printed(&folder.heaptide("heap show job.heap -n 3")),
        "\
Partition of a set of 10 objects. Total size = 1160 bytes.
 Index  Count   %     Size   % Cumulative  % Kind (class / dict of class)
     0      1  10      400  34       400  34 dict (no owner)
     1      1  10      216  19       616  53 set
     2      1  10      200  17       816  70 dict of module
<4 more rows: -n 0 shows all.>
"
    );
    let via = printed(&folder.heaptide("heap show job.heap --kind shop.Order --by via"));
    assert!(
        via.contains("     0      1  50       48  50        48  50 \"['a']\", 'list(_)[0]'\n"),
        "{via}"
    );
    let one = printed(&folder.heaptide("heap show job.heap --kind set --by id"));
    assert!(one.starts_with("Set of 1 <mixed> object. Total size = 216 bytes.\n Index     Size   %   Cumulative  %   Brief\n     0      216 100.0       216 100.0 set: 0x"), "{one}");
}

#[test]
fn types_show_what_each_kind_keeps_alive() {
    let folder = with_shop();
    let text = printed(&folder.heaptide("heap types job.heap -n 2"));
    assert_eq!(
        text,
        "\
Partition of a set of 10 objects. Total size = 1160 bytes.
 Index  Count   %     Size   %  Retained   % Kind (class / dict of class)
     0      1  10       72   6      1160 100 module
     1      1  10      200  17      1088  94 dict of module
<5 more rows: -n 0 shows all.>
"
    );
    let json = printed(&folder.heaptide("heap types job.heap --json -n 1 --sort size"));
    assert!(json.contains("\"label\": \"dict (no owner)\""), "{json}");
    assert!(json.contains("\"retained_bytes\": 536"), "{json}");
}

#[test]
fn paths_are_expressions_and_patterns_are_trees() {
    let folder = with_shop();
    assert_eq!(
        printed(&folder.heaptide("heap paths job.heap --kind float -n 1")),
        " 0: sys.modules['job'].__dict__['cache']['a'].__dict__['price']\n<... 2 more paths ...>\n"
    );
    let pattern = printed(&folder.heaptide("heap paths job.heap --kind shop.Order --pattern"));
    let lines: Vec<&str> = pattern.lines().collect();
    assert_eq!(lines[0], "Reference Pattern by <[dict of] class>.");
    assert!(
        lines[1].starts_with(" 0: _ --- [-] 2 shop.Order: 0x"),
        "{pattern}"
    );
    assert!(
        lines[2].starts_with(" 1: a      [-] 1 dict (no owner): 0x"),
        "{pattern}"
    );
    assert!(lines[2].ends_with("*2"), "{pattern}");
    assert_eq!(lines[3], " 2: aa ----- [S] 1 dict of module: job");
    let long = printed(&folder.heaptide("heap paths job.heap --kind set --long"));
    assert!(long.contains("['open']"), "{long}");
    assert!(long.contains("retains 216 bytes"), "{long}");
}

#[test]
fn dominators_are_a_tree_with_its_largest_branches_first() {
    let folder = with_shop();
    let text = printed(&folder.heaptide("heap dominators job.heap"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Dominator tree of 10 objects. Total size = 1160 bytes."
    );
    assert!(
        lines[2].contains("1.160kB 100") && lines[2].ends_with("sys.modules['job']  module job"),
        "{text}"
    );
    assert!(
        lines[3].ends_with("  .__dict__  dict of module job"),
        "{text}"
    );
    assert!(
        lines[4].contains("536.000B") && lines[4].contains("['cache']"),
        "{text}"
    );
}

#[test]
fn diff_is_laid_out_as_heapy_lays_out_differences() {
    let folder = with_shop();
    let mut later = shop();
    let extra = later.object_at(0x9000, "shop.Order", 48);
    later.root(heaptide_analysis::capture::heap::RootKind::C, "", extra);
    write(&folder, "later.heap", later);
    assert_eq!(
        printed(&folder.heaptide("heap diff job.heap later.heap")),
        "\
Summary of difference operation (A-B).
        Count     Size
  A        11     1208
  B        10     1160
  A-B       1       48  =      4.14 % of B

Differences by kind, largest absolute size diffs first.
 Index  Count     Size  Cumulative  % of B Kind (class / dict of class)
     0      1       48        48      4.14 shop.Order

1 objects of 48 bytes are new, 0 of 0 bytes went.
"
    );
    let leaked = printed(&folder.heaptide("heap diff job.heap later.heap later.heap"));
    assert!(
        leaked.starts_with("Came with the load and stayed.\nPartition of a set of 1 object."),
        "{leaked}"
    );
}

#[test]
fn mistakes_are_one_sentence_and_a_code() {
    let folder = with_shop();
    let unknown = folder.heaptide("heap paths job.heap --kind Order");
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(
        error_text(&unknown),
        "heaptide: no object is of the kind Order: there is dict of shop.Order, shop.Order\n"
    );
    let nothing = folder.heaptide("heap paths job.heap");
    assert_eq!(nothing.status.code(), Some(2));
    let nowhere = folder.heaptide("heap show job.heap --address 0x1");
    assert_eq!(nowhere.status.code(), Some(3));
    let missing = folder.heaptide("heap types no.heap");
    assert_eq!(missing.status.code(), Some(1));
    assert!(error_text(&missing).starts_with("heaptide: there is no file no.heap"));
}
