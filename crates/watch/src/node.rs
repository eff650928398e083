//! Identifies this process within a larger run, from the variables that launchers set, and names its file.

use std::path::{Path, PathBuf};

use heaptide_procfs as procfs;

use crate::command::Hide;

/// Variables with the rank in the whole run; the first that is set is used.
const RANKS: [&str; 8] = [
    "HEAPTIDE_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "SLURM_PROCID",
];
/// Variables with the number of ranks on this host.
const LOCAL_SIZES: [&str; 6] = [
    "HEAPTIDE_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
    "JSM_NAMESPACE_LOCAL_SIZE",
];
/// Variables with the folder for the files of a run; the working directory by default.
const FOLDERS: [&str; 2] = ["HEAPTIDE_OUT", "COMPSS_WORKER_PROFILE_PATH"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub host: String,
    pub rank: Option<u32>,
    n_on_host: Option<u32>,
}

impl Node {
    pub fn of_this_process() -> Node {
        Node::new(&procfs::host_name(), |name| std::env::var(name).ok())
    }

    fn new(host: &str, variable: impl Fn(&str) -> Option<String>) -> Node {
        let number = |name: &&str| variable(name)?.trim().parse::<u32>().ok();
        let named = match host {
            "" => "node".to_owned(),
            host => host.replace('/', "_"),
        };
        Node {
            host: named,
            rank: RANKS.iter().find_map(number),
            n_on_host: LOCAL_SIZES.iter().find_map(number).or_else(|| {
                // Slurm sets the number of tasks of the whole step, so detect the case of one task per node.
                let (tasks, nodes) = (
                    number(&"SLURM_STEP_NUM_TASKS")?,
                    number(&"SLURM_STEP_NUM_NODES")?,
                );
                Some(if tasks <= nodes { 1 } else { 2 })
            }),
        }
    }

    /// Returns whether this is the master: the first rank. A process without a rank is a worker.
    pub fn is_master(&self) -> bool {
        self.rank == Some(0)
    }

    /// Returns the path of this process's own file. All processes of a run get the same `path`, so ranks that share a
    /// host add their number before the extension.
    pub fn own_path(&self, path: &Path) -> PathBuf {
        let Some(rank) = self.rank.filter(|_| self.n_on_host != Some(1)) else {
            return path.to_owned();
        };
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-rank{rank}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        path.with_file_name(name)
    }

    /// Returns an endless list of names to try, best first: a name may be taken by an older run or another rank.
    pub fn worker_names(&self) -> impl Iterator<Item = String> + '_ {
        let host = &self.host;
        let stem = match self.rank {
            Some(rank) if self.n_on_host != Some(1) => format!("{host}-rank{rank}"),
            _ => host.clone(),
        };
        let first = format!("{stem}.dat");
        std::iter::once(first).chain((2..).map(move |n: u32| format!("{stem}.{n}.dat")))
    }
}

/// Variables with the name of the run; the first that is set is used.
const RUNS: [&str; 2] = ["HEAPTIDE_RUN", "HEAPTIDE_GROUP"];
const LABELS: &str = "HEAPTIDE_LABELS";

/// Returns the run and the labels that the environment names, as the files store them.
pub fn run_facts(hide: Hide) -> Vec<(String, String)> {
    let set = |name: &&str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let run = RUNS.iter().find_map(set);
    let mut facts: Vec<(String, String)> =
        run.map(|run| ("run".to_owned(), run)).into_iter().collect();
    let words = set(&LABELS).unwrap_or_default();
    let words = words
        .split(',')
        .map(|word| word.trim().to_owned())
        .collect();
    for word in hide(words) {
        if let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) {
            facts.push((format!("label.{}", key.trim()), value.trim().to_owned()));
        }
    }
    facts
}

/// Returns the folder that the environment names.
pub fn folder() -> Option<PathBuf> {
    let named = FOLDERS.iter().filter_map(std::env::var_os);
    named
        .map(PathBuf::from)
        .find(|folder| folder != Path::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(variables: &'static [(&'static str, &'static str)]) -> Node {
        Node::new("n7", |name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    fn first_names(node: &Node) -> Vec<String> {
        node.worker_names().take(2).collect()
    }

    #[test]
    fn ranks_on_one_host_have_different_names() {
        let one = node(&[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ]);
        assert_eq!(first_names(&one), ["n7-rank3.dat", "n7-rank3.2.dat"]);
        let other = node(&[("PMI_RANK", "1")]);
        assert_eq!(first_names(&other)[0], "n7-rank1.dat");
    }

    #[test]
    fn ranks_that_are_given_one_path_use_different_files() {
        let one = node(&[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ]);
        assert_eq!(
            one.own_path(Path::new("out/n7.dat")),
            Path::new("out/n7-rank3.dat")
        );
        assert_eq!(
            node(&[]).own_path(Path::new("out/n7.dat")),
            Path::new("out/n7.dat")
        );
    }

    #[test]
    fn one_worker_on_a_host_is_named_after_the_host() {
        for node in [
            node(&[]),
            node(&[("PMIX_RANK", "2"), ("MPI_LOCALNRANKS", "1")]),
            node(&[
                ("SLURM_PROCID", "1"),
                ("SLURM_STEP_NUM_TASKS", "3"),
                ("SLURM_STEP_NUM_NODES", "3"),
            ]),
        ] {
            assert_eq!(first_names(&node), ["n7.dat", "n7.2.dat"]);
            assert!(!node.is_master());
        }
    }

    #[test]
    fn first_rank_is_the_master() {
        assert!(node(&[("SLURM_PROCID", "0")]).is_master());
        assert!(!node(&[("SLURM_PROCID", "x")]).is_master());
    }
}
