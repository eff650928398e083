//! Line tables of real interpreters. `fixtures/line_tables.py` writes the fixture and describes the steps.

use heaptide_capture::line_table::LineTable;

#[test]
fn every_instruction_has_the_line_that_its_interpreter_reports() {
    let mut versions = std::collections::BTreeSet::new();
    for row in include_str!("fixtures/line_tables.txt").lines() {
        let fields: Vec<&str> = row.split(' ').collect();
        let version = u32::from_str_radix(fields[0], 16).expect("a version");
        let first_line = fields[1].parse().expect("a line");
        let hex = fields[2].as_bytes().chunks(2);
        let table: Vec<u8> = hex
            .map(|pair| {
                u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex")
            })
            .collect();
        let table = LineTable::new(version, first_line, &table);
        for (unit, line) in fields[3].split(',').enumerate() {
            if line != "-" {
                let found = table.line_of(unit as u32).to_string();
                assert_eq!(
                    found, line,
                    "unit {unit} of a code object at {first_line}, {version:x}"
                );
            }
        }
        versions.insert(version >> 16);
    }
    let expected = [0x30a, 0x30b, 0x30c, 0x30d, 0x30e, 0x30f];
    assert!(versions.into_iter().eq(expected), "3.10 to 3.15");
}
