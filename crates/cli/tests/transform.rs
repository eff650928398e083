//! `transform`: the exact text of each format, for a capture small enough to be checked by hand.

use crate::{Folder, error_text, printed};

/// The peak is 2100 bytes, 1100 are alive at the end.
const SCRIPT: &str = "\
    alloc a 100 at main:3 > load:7
    time 1000; resident 7000
    alloc b 1000 at main:3 > load:8
    alloc c 1000 calloc
    free c
    time 2000
    alloc d 5 at main:4
    free d
    thread 2 pool,1
    alloc a2 30 at main:3 > load:7
    free a2
    end 3000";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.capture("heaptide-job.4711.tide", SCRIPT);
    folder
}

fn exported(arguments: &str) -> String {
    printed(&folder().heaptide(&format!(
        "transform {arguments} -o - heaptide-job.4711.tide"
    )))
}

#[test]
fn collapsed_stacks_begin_with_the_outermost_frame_and_end_with_bytes() {
    assert_eq!(
        exported("collapsed"),
        "<stack trace unavailable> 1000\n\
         main (/srv/job/job.py:3);load (/srv/job/job.py:7) 100\n\
         main (/srv/job/job.py:3);load (/srv/job/job.py:8) 1000\n"
    );
    assert_eq!(
        exported("collapsed --leaks"),
        "main (/srv/job/job.py:3);load (/srv/job/job.py:7) 100\n\
         main (/srv/job/job.py:3);load (/srv/job/job.py:8) 1000\n"
    );
}

#[test]
fn separators_and_control_characters_in_collapsed_names_are_replaced() {
    let folder = Folder::new();
    folder.capture(
        "x.tide",
        "alloc a 7 at main@/srv/a\u{1}b,c%3bd.py:3 > <a%3bb>:4",
    );
    let text = printed(&folder.heaptide("transform collapsed -o - x.tide"));
    assert_eq!(
        text,
        "main (/srv/a b,c:d.py:3);<a:b> (/srv/job/job.py:4) 7\n"
    );
}

#[test]
fn csv_has_the_columns_of_memray_and_the_largest_first() {
    assert_eq!(
        exported("csv"),
        "allocator,num_allocations,size,tid,thread_name,stack_trace\n\
         MALLOC,1,1000,4711,MainThread,load;/srv/job/job.py;8|main;/srv/job/job.py;3\n\
         CALLOC,1,1000,4711,MainThread,\n\
         MALLOC,1,100,4711,MainThread,load;/srv/job/job.py;7|main;/srv/job/job.py;3\n"
    );
}

#[test]
fn gprof2dot_has_functions_without_lines_and_chains_from_the_innermost() {
    assert_eq!(
        exported("gprof2dot"),
        "{\"version\":0,\"costs\":[{\"description\":\"Memory\",\"unit\":\"bytes\"}],\n\
         \"events\":[\n\
         {\"callchain\":[2],\"cost\":[1000]},\n\
         {\"callchain\":[1,0],\"cost\":[100]},\n\
         {\"callchain\":[1,0],\"cost\":[1000]}\n\
         ],\n\
         \"functions\":[\n\
         {\"name\":\"main\",\"module\":\"/srv/job/job.py\"},\n\
         {\"name\":\"load\",\"module\":\"/srv/job/job.py\"},\n\
         {\"name\":\"<stack trace unavailable>\",\"module\":\"\"}\n\
         ]}\n"
    );
}

#[test]
fn speedscope_has_a_profile_for_each_measure_and_opens_the_requested_one() {
    let text = exported("speedscope");
    assert!(text.contains("\"name\":\"job.py --fast\",\n\"activeProfileIndex\":0,"));
    for part in [
        "\"name\":\"Memory at the peak\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":2100,\n\
         \"samples\":[\n[4],\n[0,1],\n[0,2]\n],\n\"weights\":[1000,100,1000]}",
        "\"name\":\"Leaked\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":1100,\n\
         \"samples\":[\n[0,1],\n[0,2]\n],\n\"weights\":[100,1000]}",
        "\"name\":\"Allocations\",\"unit\":\"none\",\"startValue\":0,\"endValue\":5,\n\
         \"samples\":[\n[4],\n[0,1],\n[0,2],\n[3]\n],\n\"weights\":[1,2,1,1]}",
        "\"name\":\"Temporary\",\"unit\":\"none\",\"startValue\":0,\"endValue\":3,\n\
         \"samples\":[\n[4],\n[0,1],\n[3]\n],\n\"weights\":[1,1,1]}",
        "{\"name\":\"load\",\"file\":\"/srv/job/job.py\",\"line\":7}",
    ] {
        assert!(text.contains(part), "{part}\n---\n{text}");
    }
    for (option, index) in [
        ("--leaks", 1),
        ("--total", 2),
        ("--temporary-allocations", 3),
    ] {
        let text = exported(&format!("speedscope {option}"));
        let active = format!("\"activeProfileIndex\":{index},");
        assert!(text.contains(&active), "{option}: {text}");
    }
}

#[test]
fn chrome_counts_in_microseconds_and_marks_the_peak() {
    let text = exported("chrome");
    let (_, events) = text.split_once("\"traceEvents\":").expect("events");
    assert_eq!(
        events,
        "[\n\
         {\"name\":\"process_name\",\"ph\":\"M\",\"pid\":4711,\"args\":{\"name\":\"job.py --fast\"}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":0,\"pid\":4711,\"args\":{\"bytes\":100}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":1000,\"pid\":4711,\"args\":{\"bytes\":2100}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":1001,\"pid\":4711,\"args\":{\"bytes\":1100}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":2000,\"pid\":4711,\"args\":{\"bytes\":1130}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":2001,\"pid\":4711,\"args\":{\"bytes\":1100}},\n\
         {\"name\":\"heap\",\"ph\":\"C\",\"ts\":3000,\"pid\":4711,\"args\":{\"bytes\":1100}},\n\
         {\"name\":\"resident size\",\"ph\":\"C\",\"ts\":1000,\"pid\":4711,\"args\":{\"bytes\":7000}},\n\
         {\"name\":\"peak of the heap\",\"ph\":\"i\",\"s\":\"p\",\"ts\":1000,\"pid\":4711,\"tid\":4711,\
         \"args\":{\"bytes\":2100}}\n\
         ]}\n"
    );
}

#[test]
fn json_has_a_site_with_a_sum_for_each_measure() {
    let text = exported("json");
    for part in [
        "{\"format\":\"heaptide-model\",\"version\":1,\n",
        "\"peak_bytes\":2100,\n",
        "{\"parent\":0,\"frame\":1}",
        "{\"id\":4712,\"name\":\"pool,1\",\"started_ns\":2000000}",
        "{\"stack\":null,\"thread\":0,\"allocator\":\"CALLOC\",\"total\":{\"bytes\":1000,\"count\":1},\
         \"peak\":{\"bytes\":1000,\"count\":1},\"leaked\":{\"bytes\":0,\"count\":0},\
         \"temporary\":{\"bytes\":1000,\"count\":1},\"block_time_ns\":0}",
        "\"python_version\":\"3.12.0\"",
        "\"resident\":{\"elapsed_ns\":[1000000],\"bytes\":[7000]}",
    ] {
        assert!(text.contains(part), "{part}\n---\n{text}");
    }
}

#[test]
fn the_same_capture_gives_the_same_bytes() {
    let folder = folder();
    for format in ["pprof", "json"] {
        let line = format!("transform {format} -o - heaptide-job.4711.tide");
        let bytes = folder.heaptide(&line).stdout;
        assert!(!bytes.is_empty());
        assert_eq!(bytes, folder.heaptide(&line).stdout);
    }
}

#[test]
fn file_is_next_to_the_capture_and_not_overwritten_without_force() {
    let folder = folder();
    for (format, name) in [
        ("pprof", "heaptide-pprof-job.4711.pb.gz"),
        ("speedscope", "heaptide-speedscope-job.4711.speedscope.json"),
        ("collapsed", "heaptide-collapsed-job.4711.txt"),
        ("csv", "heaptide-csv-job.4711.csv"),
        ("gprof2dot", "heaptide-gprof2dot-job.4711.json"),
        ("json", "heaptide-json-job.4711.json"),
        ("chrome", "heaptide-chrome-job.4711.trace.json"),
    ] {
        let line = format!("transform {format} heaptide-job.4711.tide");
        assert_eq!(printed(&folder.heaptide(&line)), format!("Wrote {name}\n"));
        let refused = folder.heaptide(&line);
        assert_eq!(refused.status.code(), Some(1));
        assert!(error_text(&refused).contains(&format!("{name} exists already")));
        let forced = folder.heaptide(&format!("{line} -f"));
        assert_eq!(printed(&forced), format!("Wrote {name}\n"));
    }
}

#[test]
fn unknown_format_and_unsupported_options_are_refused_in_one_line() {
    let folder = folder();
    for (line, sentence) in [
        (
            "transform perf heaptide-job.4711.tide",
            "heaptide: unknown format \"perf\": choose one of pprof, speedscope, collapsed, csv, gprof2dot, json, \
             chrome, events, memray, memray-1.19\n",
        ),
        (
            "transform chrome --leaks heaptide-job.4711.tide",
            "heaptide: chrome shows sizes over time, for no measure: omit --leaks\n",
        ),
        (
            "transform memray --leaks heaptide-job.4711.tide",
            "heaptide: memray holds all blocks: omit --leaks, --total and --temporary-allocations\n",
        ),
        (
            "transform json --leaks heaptide-job.4711.tide",
            "heaptide: json contains every measure: omit --leaks\n",
        ),
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(error_text(&output), sentence);
    }
}

#[test]
fn empty_capture_can_be_exported() {
    let folder = Folder::new();
    folder.capture("x.tide", "end 5");
    let exported = |format: &str| {
        let text = printed(&folder.heaptide(&format!("transform {format} x.tide")));
        let name = text.strip_prefix("Wrote ").expect("a name").trim_end();
        std::fs::read(folder.path().join(name)).expect("a file")
    };
    for format in ["speedscope", "gprof2dot", "json", "chrome"] {
        let json: Result<serde_json::Value, _> = serde_json::from_slice(&exported(format));
        assert!(json.is_ok_and(|json| json.is_object()), "{format}");
    }
    assert_eq!(exported("collapsed"), b"");
    assert_eq!(
        exported("csv"),
        b"allocator,num_allocations,size,tid,thread_name,stack_trace\n"
    );
    for (format, start) in [
        ("pprof", &b"\x1f\x8b"[..]),
        ("events", b"thread\t1\t4711\tMainThread\n"),
        ("packed-events", b"thread\t1\t4711\tMainThread\nevents\n"),
        ("memray", b"memray\0"),
        ("memray-1.19", b"memray\0"),
    ] {
        let bytes = exported(format);
        assert!(
            bytes.starts_with(start),
            "{format}: {}",
            bytes.escape_ascii()
        );
    }
}
