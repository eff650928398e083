//! The exact text of the reports.

use crate::{Folder, printed};

const PROGRAM: &str = "
    alloc config 1500 calloc at <module>:40 > main:3
    alloc rows 3000000 at <module>:40 > main:4 > load:7
    alloc text 600000 at <module>:40 > main:4 > load:8 > dumps@/usr/lib/python3.12/json/__init__.py:231
    time 1000
    alloc map 1048576 mmap at <module>:40 > main:5
    free text
    thread 2 pool-0
    alloc job 64 at work@/usr/lib/python3.12/site-packages/pool/run.py:12
    alloc c 0
    time 2500000
    resident 70000000
    limit 512000000
    end 3000000
";

#[test]
fn stats_have_memrays_sections_in_memrays_order() {
    let folder = Folder::new();
    folder.capture("job.tide", PROGRAM);
    let expected = "\
📏 Total allocations:
\t6

📦 Total memory allocated:
\t4.65 MB

📈 Peak memory usage:
\t4.65 MB

📊 Histogram of allocation size:
\tmin: 0 B
\t----------------------------------------
\t< 187 B    : 2 ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
\t< 550 B    : 0 
\t< 1.61 kB  : 1 ▇▇▇▇▇▇▇▇▇▇▇▇▇
\t< 4.73 kB  : 0 
\t< 13.9 kB  : 0 
\t< 40.6 kB  : 0 
\t< 119 kB   : 0 
\t< 349 kB   : 0 
\t< 1.02 MB  : 1 ▇▇▇▇▇▇▇▇▇▇▇▇▇
\t<=3.00 MB  : 2 ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
\t----------------------------------------
\tmax: 3.00 MB

📂 Allocator type distribution:
\t MALLOC: 4
\t CALLOC: 1
\t MMAP: 1

🥇 Top 2 largest allocating locations (by size):
\t- load:/srv/job/job.py:7 -> 3.00 MB
\t- main:/srv/job/job.py:5 -> 1.05 MB

🥇 Top 2 largest allocating locations (by number of allocations):
\t- <stack trace unavailable> -> 1
\t- main:/srv/job/job.py:3 -> 1

🥇 Top 2 allocating modules (by size):
\t- job: 4.65 MB total | 4 allocations
\t- pool: 64 B total | 1 allocations

🥇 Top 2 allocating modules (by number of allocations):
\t- job: 4.65 MB total | 4 allocations
\t- <root>: 0 B total | 1 allocations

⏳ How long blocks lived:
\t- less than 15 ms: one block, 600 kB
\t- alive at the end: 5 blocks, 4.05 MB

🔎 Findings:
\t- load (job.py:7) holds most at the peak
\t  3.00 MB in one block, 65% of the heap at the peak
\t  3.00 MB were still alive at the end
\t  process smaller batches here, or free the data sooner

🏠 Peak resident size:
\t70.0 MB of 512 MB allowed
";
    assert_eq!(printed(&folder.heaptide("stats -n 2 job.tide")), expected);
}

#[test]
fn stats_as_json_have_the_keys_of_memray_followed_by_those_of_heaptide() {
    let folder = Folder::new();
    folder.capture(
        "job.tide",
        "alloc a 100 at main:3; free a; alloc b 100 at main:3; end 1500000",
    );
    let expected = r#"{
  "total_num_allocations": 2,
  "total_bytes_allocated": 200,
  "allocation_size_histogram": [
    {
      "min_bytes": 0,
      "max_bytes": 11,
      "count": 0
    },
"#;
    let json = printed(&folder.heaptide("stats --json job.tide"));
    assert!(json.starts_with(expected), "{json}");
    let from = json
        .find("    {\n      \"min_bytes\": 79")
        .expect("the last bin");
    let to = json.find("\"processes\"").expect("Heaptide's own keys");
    let expected = r#"    {
      "min_bytes": 79,
      "max_bytes": 100,
      "count": 2
    }
  ],
  "allocator_type_distribution": {
    "MALLOC": 2
  },
  "top_allocations_by_size": [
    {
      "location": "main:/srv/job/job.py:3",
      "size": 200
    }
  ],
  "top_allocations_by_count": [
    {
      "location": "main:/srv/job/job.py:3",
      "count": 2
    }
  ],
  "top_modules_by_allocation_size": [
    {
      "module": "job",
      "num_allocations": 2,
      "total_bytes": 200
    }
  ],
  "top_modules_by_allocation_count": [
    {
      "module": "job",
      "num_allocations": 2,
      "total_bytes": 200
    }
  ],
  "metadata": {
    "start_time": "2026-11-15 20:54:32.315000+00:00",
    "end_time": "2026-11-15 20:54:33.815000+00:00",
    "total_allocations": 2,
    "total_frames": 1,
    "peak_memory": 100,
    "command_line": "job.py --fast",
    "pid": 4711,
    "main_thread_id": 4711,
    "python_allocator": "pymalloc",
    "has_native_traces": false,
    "trace_python_allocators": false,
    "file_format": 0
  },
  "heaptide": {
    "filters": [],
    "sampling": null,
    "lost": [],
    "damage": [],
    "frees_of_unknown_blocks": 0,
    "allocations_over_live_blocks": 0,
    "mapped_files_peak_bytes": 0,
    "peak_is_of_processes_together": false,
    "#;
    assert_eq!(&json[from..to], expected);
}

#[test]
fn summary_at_80_columns_has_every_number_and_a_line_for_each_function() {
    let folder = Folder::new();
    folder.capture("job.tide", PROGRAM);
    let output = folder
        .command("summary job.tide -r 4")
        .env("COLUMNS", "80")
        .output();
    let expected = "\
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━┳━━━━━━━┳━━━━━━┳━━━━━━━━━━┓
┃                                    ┃       ┃  Total┃       ┃   Own┃          ┃
┃                                    ┃ <Total┃ Memory┃    Own┃Memory┃Allocation┃
┃Location                            ┃Memory>┃      %┃ Memory┃     %┃     Count┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━╇━━━━━━━━━━┩
│<module> at /srv/job/job.py         │4.65 MB│100.00%│    0 B│ 0.00%│         4│
│main at /srv/job/job.py             │4.65 MB│100.00%│1.05 MB│22.58%│         4│
│load at /srv/job/job.py             │3.60 MB│ 77.42%│3.00 MB│64.52%│         2│
│dumps at …/json/__init__.py         │ 600 kB│ 12.90%│ 600 kB│12.90%│         1│
└────────────────────────────────────┴───────┴───────┴───────┴──────┴──────────┘
";
    let text = printed(&output.expect("it runs"));
    assert_eq!(text, expected);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let output = folder
        .command("summary job.tide -r 3")
        .env("COLUMNS", "80")
        .output();
    let text = printed(&output.expect("it runs"));
    assert_eq!(
        text.lines().last(),
        Some("1 more functions: -r 4 shows all")
    );
}

#[test]
fn summary_in_a_pipe_has_one_line_for_every_function() {
    let folder = Folder::new();
    let mut script = String::from("alloc big 96000000 at first;");
    for n in 0..60 {
        script += &format!("alloc b{n} {} at f{n};", 1000 + n);
    }
    script += "alloc late 4500000 at late";
    folder.capture("job.tide", &script);
    let text = printed(&folder.heaptide("summary job.tide"));
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" at /srv"))
        .collect();
    assert_eq!(rows.len(), 62);
    assert!(
        rows[1].contains("late at"),
        "a large function that came late is not dropped: {}",
        rows[1]
    );
    assert!(text.contains("┃ <Total Memory> ┃"));
}

#[test]
fn summary_is_sorted_by_the_requested_column() {
    let folder = Folder::new();
    folder.capture(
        "job.tide",
        "alloc a 100 at outer > few; alloc b 10 at many; alloc c 10 at many; alloc d 5 at many",
    );
    let first = |column: u32| {
        let text = printed(&folder.heaptide(&format!("summary -s {column} job.tide")));
        let row = text.lines().nth(3).unwrap_or_default().to_owned();
        row.trim_start_matches(['│', ' '])
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        [1, 2, 3, 4, 5].map(first),
        ["few", "few", "few", "few", "many"]
    );
}

#[test]
fn tree_is_indented_text_with_the_largest_first() {
    let folder = Folder::new();
    folder.capture("job.tide", PROGRAM);
    let expected = "\
📂 4.65 MB (100%) <ROOT>
└── 📂 4.65 MB (100%) <module> /srv/job/job.py:40
    ├── 📂 3.60 MB (77%) main /srv/job/job.py:4
    │   ├── 📄 3.00 MB (65%) load /srv/job/job.py:7
    │   └── 📂 600 kB (13%) load /srv/job/job.py:8
    │       └── 📄 600 kB (13%) dumps /usr/lib/python3.12/json/__init__.py:231
    ├── 📄 1.05 MB (23%) main /srv/job/job.py:5
    └── 📄 1.50 kB (0.03%) main /srv/job/job.py:3
";
    assert_eq!(printed(&folder.heaptide("tree job.tide")), expected);
}

#[test]
fn tree_shows_leaks_down_to_a_depth_and_above_a_threshold() {
    let folder = Folder::new();
    folder.capture(
        "job.tide",
        "alloc a 900 at main > f; free a; alloc b 60 at main > g; alloc c 30 at h; alloc d 10 at i",
    );
    let text = printed(&folder.heaptide("tree --leaks --threshold 31 --depth 1 job.tide"));
    let expected = "\
📂 100 B (100%) <ROOT>
├── 📂 60 B (60%) main /srv/job/job.py:1
└── ❓ 40 B (40%) 2 allocations from 2 locations below the configured threshold
";
    assert_eq!(text, expected);
    folder.capture("empty.tide", "");
    assert_eq!(
        printed(&folder.heaptide("tree empty.tide")),
        "<No allocations>\n"
    );
}

#[test]
fn captures_of_different_runs_are_reported() {
    let folder = Folder::new();
    for (pid, name, session) in [(1, "a.tide", 1), (2, "b.tide", 2), (3, "c.tide", 2)] {
        let mut header = heaptide_testkit::header();
        (header.pid, header.session[0]) = (pid, session);
        folder.write(
            name,
            &heaptide_testkit::capture_bytes(&header, "alloc a 100 at main; end 10"),
        );
    }
    let message = "the captures are of 2 different runs";
    for command in ["stats", "tree", "summary"] {
        let text = printed(&folder.heaptide(&format!("{command} a.tide b.tide c.tide")));
        assert!(text.contains(message), "{text}");
        let text = printed(&folder.heaptide(&format!("{command} b.tide c.tide")));
        assert!(!text.contains(message), "{text}");
    }
}

#[test]
fn several_captures_become_one_report() {
    let folder = Folder::new();
    for (name, pid) in [("a.tide", 1), ("b.tide", 2)] {
        let mut header = heaptide_testkit::header();
        header.pid = pid;
        folder.write(
            name,
            &heaptide_testkit::capture_bytes(&header, "alloc a 100 at main; end 10"),
        );
    }
    let text = printed(&folder.heaptide("stats a.tide b.tide"));
    let moment = "2 processes at their common peak, less than a millisecond after the start";
    let heading = format!("Peak memory usage ({moment}):\n\t200 B");
    assert!(text.contains(&heading), "{text}");
    let text = printed(&folder.heaptide("tree a.tide b.tide"));
    assert!(text.contains("<ROOT>\n└── 📄 200 B (100%) main"), "{text}");
    assert!(text.starts_with(moment), "{text}");
    let text = printed(&folder.heaptide("summary a.tide b.tide"));
    assert!(text.starts_with(moment), "{text}");
}
