//! The live view of programs with many functions.

use heaptide_analysis::LiveReader;
use heaptide_analysis::model::Live;
use heaptide_testkit::{capture_bytes, header};

/// The largest number of functions that a live view lists.
const MAX_FUNCTIONS: usize = 1_500;

fn live(name: &str, script: &str) -> Live {
    let path = std::env::temp_dir().join(format!("heaptide-live-{}-{name}", std::process::id()));
    std::fs::write(&path, capture_bytes(&header(), script)).expect("a capture");
    let live = LiveReader::open(&path).expect("a reader").refresh(true);
    let _ = std::fs::remove_file(&path);
    live
}

#[test]
fn functions_that_are_largest_by_any_number_are_kept() {
    // 600 functions each are large by their own bytes, by the bytes of a common callee, and by their number of blocks.
    let script = (0..600).map(|n| {
        let (own, total) = (10_000 + n, 20_000 + n);
        let blocks = ["a", "b", "c"].map(|one| format!("alloc {one}{n} 1 at blocks{n}:3; "));
        let blocks = blocks.concat();
        format!(
            "alloc o{n} {own} at own{n}:1; alloc t{n} {total} at total{n}:2 > callee:9; {blocks}"
        )
    });
    let live = live("many.tide", &script.collect::<String>());
    // `callee` is the largest by each number, so a third of the others less one are kept by each.
    let n_kept = MAX_FUNCTIONS / 3 - 1;
    let kept = |n: usize| n >= 600 - n_kept;
    let mut expected = vec!["callee".to_owned()];
    expected.extend((0..600).filter(|&n| kept(n)).map(|n| format!("own{n}")));
    expected.extend((0..600).filter(|&n| kept(n)).map(|n| format!("total{n}")));
    // All of these have the same number of blocks.
    expected.extend((0..n_kept).map(|n| format!("blocks{n}")));
    let mut names: Vec<String> = live
        .functions
        .iter()
        .map(|it| it.function.clone())
        .collect();
    assert!(names.len() <= MAX_FUNCTIONS);
    assert_eq!(live.n_more, (1 + 3 * 600 - names.len()) as u64);
    assert_eq!(names[..3], ["callee", "total599", "total598"]);
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn all_functions_are_kept_up_to_the_maximum() {
    let script = |n_functions: usize| {
        let functions = (0..n_functions).map(|n| format!("alloc a{n} {} at f{n}:1; ", 100 + n));
        functions.collect::<String>()
    };
    let all = live("all.tide", &script(MAX_FUNCTIONS));
    assert_eq!((all.functions.len(), all.n_more), (MAX_FUNCTIONS, 0));
    let more = live("more.tide", &script(MAX_FUNCTIONS + 1));
    assert!(more.functions.len() < MAX_FUNCTIONS && more.n_more > 0);
}
