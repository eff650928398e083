//! Fits texts into a width: a long text loses its least important part, marked by `…`, or is wrapped.
//!
//! Widths are terminal columns: some characters take two, some none. Names in captures are untrusted, so control
//! characters are shown as `�`.

use super::controls::is_interpreted;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const CUT: char = '…';

/// The number of columns of a text.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Replaces characters that a terminal would interpret.
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| {
            if is_interpreted(c) || c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Cuts the end of a text, so that it has at most `max` columns.
pub fn end(text: &str, max: usize) -> String {
    let text = harmless(text);
    if width(&text) <= max {
        return text;
    }
    let Some(room) = max.checked_sub(1) else {
        return String::new();
    };
    let (mut kept, mut taken) = (String::new(), 0);
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > room {
            break;
        }
        kept.push(c);
    }
    kept.push(CUT);
    kept
}

/// The lines of a text, broken at spaces to at most `max` columns; a longer word is a line.
pub fn wrap(text: &str, max: Option<usize>) -> Vec<String> {
    let max = max.filter(|&max| width(text) > max);
    let Some(max) = max else {
        return vec![text.to_owned()];
    };
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Cuts the start of a text, so that it has at most `max` columns: a path keeps its file name, with whole folders
/// before it if they fit.
pub fn start(text: &str, max: usize) -> String {
    let text = harmless(text);
    if width(&text) <= max {
        return text;
    }
    let Some(room) = max.checked_sub(1) else {
        return String::new();
    };
    let (mut from, mut taken) = (text.len(), 0);
    for (at, c) in text.char_indices().rev() {
        taken += c.width().unwrap_or(0);
        if taken > room {
            break;
        }
        from = at;
    }
    let kept = &text[from..];
    // `…/etl/load.py` reads better than `…job/etl/load.py`.
    let whole = kept.find('/').map_or(kept, |slash| &kept[slash..]);
    format!("{CUT}{whole}")
}

/// Cuts the middle of a text, so that it has at most `max` columns.
pub fn middle(text: &str, max: usize) -> String {
    let text = harmless(text);
    if width(&text) <= max {
        return text;
    }
    let Some(room) = max.checked_sub(1) else {
        return String::new();
    };
    let fits = |kept: &str, room: usize| width(kept) <= room;
    let mut ends = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
    ends.push(text.len());
    let n_before = ends.partition_point(|&at| fits(&text[..at], room / 2));
    let before = &text[..ends[n_before.saturating_sub(1)]];
    let n_lost = ends.partition_point(|&at| !fits(&text[at..], room - width(before)));
    let after = &text[ends.get(n_lost).copied().unwrap_or(text.len())..];
    format!("{before}{CUT}{after}")
}

/// A function name keeps this many columns, even if the file name must be cut: two functions of a file must stay
/// distinct.
const MIN_FUNCTION: usize = 12;

/// `function at file`: the file first loses its first folders; only then does the function lose its end.
pub fn function_at_file(function: &str, file: &str, max: usize) -> String {
    const BETWEEN: &str = " at ";
    let function = harmless(function);
    let whole = format!("{function}{BETWEEN}{}", harmless(file));
    if width(&whole) <= max {
        return whole;
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let min_file = (width(name) + 2).min(max / 2);
    let room = max.saturating_sub(BETWEEN.len());
    let for_function = room.saturating_sub(min_file).max(MIN_FUNCTION.min(room));
    let for_function = for_function.min(width(&function));
    let function = end(&function, for_function);
    let file = start(file, room.saturating_sub(width(&function)));
    end(&format!("{function}{BETWEEN}{file}"), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_fit_are_unchanged() {
        assert_eq!(
            function_at_file("load", "/srv/job.py", 19),
            "load at /srv/job.py"
        );
        assert_eq!(end("abc", 3), "abc");
        assert_eq!(start("abc", 3), "abc");
    }

    #[test]
    fn locations_lose_folders_first_and_keep_function_and_file_name() {
        let file = "/srv/jobs/etl/load_tables.py";
        assert_eq!(
            function_at_file("load", file, 30),
            "load at …/etl/load_tables.py"
        );
        assert_eq!(
            function_at_file("load", file, 25),
            "load at …/load_tables.py"
        );
        assert_eq!(
            function_at_file("a_function_with_a_long_name", file, 32),
            "a_function_… at …/load_tables.py"
        );
        assert_eq!(
            function_at_file("from_main", "/srv/job/hold.py", 20),
            "from_main at …old.py"
        );
    }

    #[test]
    fn no_text_is_wider_than_its_limit() {
        let texts = [
            "",
            "x",
            "/a/b/c.py",
            "数据处理模块",
            "e\u{301}e\u{301}e\u{301}",
            "<module>",
        ];
        for function in texts {
            for file in texts {
                for max in 0..40 {
                    assert!(
                        width(&function_at_file(function, file, max)) <= max,
                        "{function} {file} {max}"
                    );
                    assert!(width(&start(file, max)) <= max);
                    assert!(width(&end(file, max)) <= max);
                    assert!(width(&middle(file, max)) <= max);
                }
            }
        }
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(
            middle("/srv/jobs/etl/load.py:12 run", 15),
            "/srv/jo…:12 run"
        );
        assert_eq!(middle("数据处理模块", 7), "数…模块");
        assert_eq!(middle("abcdef", 1), "…");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(end("a\u{1b}[2Jb\n", 20), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn long_texts_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three", None), ["one two three"]);
        assert_eq!(wrap("one two three", Some(8)), ["one two", "three"]);
        assert_eq!(
            wrap("a/very/long/path is", Some(5)),
            ["a/very/long/path", "is"]
        );
        assert_eq!(wrap("", Some(0)), [""]);
    }
}
