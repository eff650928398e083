//! `launch`: which timelines it names at the end. The tests use launchers that start no ranks.

use crate::{Folder, error_text};

/// Runs `launch` with a shell script as launcher, where a timeline of an earlier run is. Returns its messages.
fn launch(script: &str) -> String {
    let folder = Folder::new();
    folder.write("older.dat", b"CMDLINE python job.py\n");
    folder.write("launcher.sh", script.as_bytes());
    let output = folder
        .command("launch --python_memory_profile")
        .args(["--launcher", "sh launcher.sh", "job.py"])
        .env_remove("HEAPTIDE_OUT")
        .env_remove("COMPSS_WORKER_PROFILE_PATH")
        .output();
    error_text(&output.expect("the example heaptide runs"))
}

#[test]
fn timelines_are_named_only_if_the_ranks_wrote_some() {
    assert_eq!(launch("exit 1"), "");
    assert_eq!(
        launch("echo 'CMDLINE python job.py' > node7.dat"),
        "heaptide: view it with: heaptide plot *.dat\n"
    );
}
