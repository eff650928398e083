//! Functions, or other groups: the bytes that each allocated itself, and the bytes that it and its callees allocated.

use std::rc::Rc;

use heaptide_tally::{Amount, SiteSums};
use rustc_hash::FxHashMap;

use super::{ProcessGrouping, amount, quality};
use crate::load::{Process, Session};
use crate::model::{FunctionSum, Measure, Summary};
use crate::symbols::Modules;
use crate::symbols::native::short_name;

/// The property that the allocations of a row share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    #[default]
    Function,
    /// A line of a function.
    Location,
    /// The module or package of a file; the standard library is one module.
    Module,
    File,
    Thread,
    Allocator,
    /// The name of the job.
    Job,
    /// The process, its host, or a label of it.
    Processes(ProcessGrouping),
}

/// The row name of the standard library and the import system, if rows are modules.
const STANDARD_LIBRARY: &str = "the standard library";

pub fn summary(session: &Session, measure: Measure, by: GroupBy) -> Summary {
    let mut rows = Rows::default();
    let mut total = Amount::default();
    let mut site_number = 0;
    for process in &session.processes {
        let of_location = rows.of_locations(session, process, &by);
        let process_name = match &by {
            GroupBy::Processes(grouping) => grouping.group_of(session, process),
            _ => session.name_of(process),
        };
        for site in &process.sums.sites {
            let amount = amount(measure, site);
            if amount.count == 0 && amount.bytes == 0 {
                continue;
            }
            total += amount;
            site_number += 1;
            if of_location.is_empty() {
                let row = rows.of_site(process, &process_name, site, &by);
                rows.add(row, amount, site_number, true);
                continue;
            }
            for (depth, id) in process.frames(site.stack).enumerate() {
                let row = of_location[id.0 as usize];
                rows.add(row, amount, site_number, depth == 0);
            }
        }
    }
    let mut functions = rows.sums;
    functions.retain(|sum| sum.n_allocations > 0 || sum.total_bytes > 0);
    Summary {
        functions,
        total_bytes: total.bytes,
        measure,
        quality: quality(session),
    }
}

#[derive(Default)]
struct Rows {
    sums: Vec<FunctionSum>,
    /// For each row, the last site that was counted, so that a block counts once for a recursive function.
    counted: Vec<u64>,
    numbers: FxHashMap<(Rc<str>, Rc<str>), usize>,
}

impl Rows {
    fn number_of(&mut self, function: Rc<str>, file: Rc<str>) -> usize {
        let (sums, counted) = (&mut self.sums, &mut self.counted);
        let key = (function, file);
        *self
            .numbers
            .entry(key)
            .or_insert_with_key(|(function, file)| {
                sums.push(FunctionSum {
                    function: function.clone(),
                    file: file.clone(),
                    total_bytes: 0,
                    own_bytes: 0,
                    n_allocations: 0,
                });
                counted.push(0);
                sums.len() - 1
            })
    }

    /// The row of each location; empty if rows do not depend on frames.
    fn of_locations(&mut self, session: &Session, process: &Process, by: &GroupBy) -> Vec<usize> {
        let modules = Modules::new(&process.header);
        let mut rows = Vec::new();
        for at in session.names.iter() {
            let (function, file): (Rc<str>, Rc<str>) = match by {
                GroupBy::Function => (at.function.clone(), at.file.clone()),
                GroupBy::Location => (at.function.clone(), at.file_and_line().into()),
                GroupBy::File => (at.file.clone(), "".into()),
                GroupBy::Module => {
                    let module = match &at.library {
                        Some(library) => short_name(library),
                        None => modules.of(&at.file).unwrap_or(STANDARD_LIBRARY),
                    };
                    (module.into(), "".into())
                }
                GroupBy::Thread | GroupBy::Allocator | GroupBy::Job | GroupBy::Processes(_) => {
                    return Vec::new();
                }
            };
            rows.push(self.number_of(function, file));
        }
        rows
    }

    fn of_site(
        &mut self,
        process: &Process,
        process_name: &str,
        site: &SiteSums,
        by: &GroupBy,
    ) -> usize {
        let name = match by {
            GroupBy::Thread => {
                let mut threads = process.registry.threads.iter();
                let thread = threads.find(|thread| thread.stream == site.stream);
                let name = thread.and_then(|thread| thread.name.clone());
                let os_id = thread.map_or(0, |thread| thread.os_id);
                format!(
                    "{} ({os_id} of process {process_name})",
                    name.unwrap_or_default()
                )
            }
            GroupBy::Processes(_) => process_name.to_owned(),
            GroupBy::Job => process.job_name(site.job).into_owned(),
            _ => site.allocator.name().to_owned(),
        };
        self.number_of(name.trim_start().into(), "".into())
    }

    fn add(&mut self, row: usize, amount: Amount, site_number: u64, is_own: bool) {
        let sum = &mut self.sums[row];
        if is_own {
            sum.own_bytes = sum.own_bytes.saturating_add(amount.bytes);
        }
        if std::mem::replace(&mut self.counted[row], site_number) != site_number {
            sum.total_bytes = sum.total_bytes.saturating_add(amount.bytes);
            sum.n_allocations = sum.n_allocations.saturating_add(amount.count);
        }
    }
}
