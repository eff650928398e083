//! The commands that make pages: the path of a page, and its contents.

use super::Folder;

const HOSTILE: &str = "</script><img/src=x/onerror=alert(1)>";

#[test]
fn page_is_written_next_to_its_capture_and_not_overwritten_without_force() {
    let folder = Folder::new();
    folder.capture("heaptide-job.py.4711.tide", "alloc a 100 at main:3");
    for command in ["flamegraph", "table", "timeline"] {
        let page = format!("heaptide-{command}-job.py.4711.html");
        let line = format!("{command} heaptide-job.py.4711.tide");
        let output = folder.heaptide(&line);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("Wrote {page}\n")
        );
        let written = std::fs::read_to_string(folder.path().join(&page)).expect("a page");
        assert!(written.starts_with("<!doctype html>"));
        let again = folder.heaptide(&line);
        assert_eq!(again.status.code(), Some(1));
        let message = String::from_utf8_lossy(&again.stderr);
        assert!(message.contains("exists already"), "{message}");
        assert_eq!(
            folder.heaptide(&format!("{line} --force")).status.code(),
            Some(0)
        );
    }
}

#[test]
fn page_goes_to_standard_output_on_request() {
    let folder = Folder::new();
    folder.capture("a.tide", "alloc a 100 at main:3");
    let output = folder.heaptide("flamegraph -o - a.tide");
    let page = String::from_utf8(output.stdout).expect("pages are text");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        1
    );
}

#[test]
fn names_in_a_capture_never_become_markup() {
    let folder = Folder::new();
    folder.capture(
        "a.tide",
        &format!("alloc a 100 at {HOSTILE}@/srv/{HOSTILE}.py:3"),
    );
    for command in ["flamegraph", "table", "timeline"] {
        let output = folder.heaptide(&format!("{command} -o - a.tide"));
        let page = String::from_utf8(output.stdout).expect("pages are text");
        assert!(!page.contains("onerror"));
        let harmless = folder.path().join("b.tide");
        assert!(!harmless.exists());
        folder.capture("b.tide", "alloc a 100 at main:3");
        let other = folder.heaptide(&format!("{command} -o - b.tide"));
        let other = String::from_utf8(other.stdout).expect("pages are text");
        assert_eq!(page.matches('<').count(), other.matches('<').count());
        std::fs::remove_file(harmless).expect("removed");
    }
}

#[test]
fn file_that_is_not_a_capture_makes_no_page() {
    let folder = Folder::new();
    folder.write("x.tide", b"something else");
    let output = folder.heaptide("flamegraph x.tide");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("heaptide: "));
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        1
    );
}
