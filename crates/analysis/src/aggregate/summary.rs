//! Functions, with what they hold themselves and together with what they called.

use std::rc::Rc;

use heaptide_capture::tally::Amount;
use rustc_hash::FxHashMap;

use super::{amount, quality};
use crate::load::Session;
use crate::model::{FunctionSum, Summary, View};

pub fn summary(session: &Session, view: View) -> Summary {
    let (of_location, mut functions) = functions(session);
    let mut total = Amount::default();
    // For each function, the last site that counted it: one that calls itself holds a block once.
    let mut counted = vec![0u64; functions.len()];
    let mut site_number = 0;
    for process in &session.processes {
        for site in &process.sums.sites {
            let amount = amount(view, site);
            if amount.count == 0 && amount.bytes == 0 {
                continue;
            }
            total += amount;
            site_number += 1;
            for (depth, id) in process.frames(site.stack).enumerate() {
                let number = of_location[id.0 as usize];
                let sum = &mut functions[number];
                if depth == 0 {
                    sum.own_bytes += amount.bytes;
                }
                if std::mem::replace(&mut counted[number], site_number) != site_number {
                    sum.total_bytes += amount.bytes;
                    sum.n_allocations += amount.count;
                }
            }
        }
    }
    functions.retain(|sum| sum.n_allocations > 0 || sum.total_bytes > 0);
    Summary {
        functions,
        total_bytes: total.bytes,
        view,
        quality: quality(session),
    }
}

/// All functions of the session, and for each location which of them it is in.
fn functions(session: &Session) -> (Vec<usize>, Vec<FunctionSum>) {
    let mut numbers: FxHashMap<(Rc<str>, Rc<str>), usize> = FxHashMap::default();
    let mut functions: Vec<FunctionSum> = Vec::new();
    let mut number_of = |at: &crate::symbols::Location| {
        let key = (at.function.clone(), at.file.clone());
        *numbers.entry(key).or_insert_with(|| {
            functions.push(FunctionSum {
                function: at.function.clone(),
                file: at.file.clone(),
                total_bytes: 0,
                own_bytes: 0,
                n_allocations: 0,
            });
            functions.len() - 1
        })
    };
    let of_location = session.names.iter().map(&mut number_of).collect();
    (of_location, functions)
}
