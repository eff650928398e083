//! Sites gathered by the line that allocated and the line of the program that led there, with what each held over time.

use heaptide_tally::{Amount, Lifetimes};
use rustc_hash::FxHashMap;

use crate::load::{Process, Session, innermost_of_program};
use crate::model::findings::{Finding, FindingKind};
use crate::symbols::{LocationId, Modules};

#[derive(Default)]
pub struct Place {
    at: Option<LocationId>,
    caller: Option<LocationId>,
    pub total: Amount,
    pub peak: Amount,
    pub live: Amount,
    pub temporary: Amount,
    /// `None` if that is not known of all of it.
    pub block_time_ns: Option<u64>,
    /// Bytes held at each edge, and bytes released in the bin before it.
    pub curve: Vec<i64>,
    pub released: Vec<i64>,
}

pub struct Places {
    places: Vec<Place>,
    edges_ns: Vec<u64>,
}

impl Places {
    pub fn new(session: &Session) -> Places {
        // Of several processes the one with the fewest bins decides.
        let n_bins = session.processes.iter();
        let n_bins = n_bins.map(|process| process.sums.lives.n_bins());
        let n_bins = n_bins.filter(|&n| n > 0).min().unwrap_or(0);
        let mut places: Vec<Place> = Vec::new();
        let mut known = FxHashMap::default();
        for process in &session.processes {
            let is_of_program = of_program(session, process);
            let mut number_of = Vec::with_capacity(process.sums.sites.len());
            for site in &process.sums.sites {
                let at = innermost_of_program(session, process, site.stack);
                let caller = process
                    .frames(site.stack)
                    .find(|id| is_of_program[id.0 as usize]);
                let caller = caller.filter(|_| caller != at);
                let number = *known.entry((at, caller)).or_insert_with(|| {
                    places.push(Place {
                        at,
                        caller,
                        block_time_ns: Some(0),
                        curve: vec![0; n_bins + 1],
                        released: vec![0; n_bins + 1],
                        ..Place::default()
                    });
                    places.len() - 1
                });
                number_of.push(number);
                let place = &mut places[number];
                place.total += site.total;
                place.peak += site.peak;
                place.live += site.live;
                place.temporary += site.temporary;
                let ns = site.block_time.map(|units| process.registry.span_ns(units));
                place.block_time_ns = place
                    .block_time_ns
                    .zip(ns)
                    .map(|(one, more)| one.saturating_add(more));
            }
            add_lives(&mut places, &number_of, &process.sums.lives, n_bins);
        }
        for place in &mut places {
            // Rises and falls so far: what is held is their sum.
            let mut held = 0;
            for change in &mut place.curve {
                held += *change;
                *change = held;
            }
        }
        Places {
            places,
            edges_ns: session.window.coarse(n_bins),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// As many as a curve has values; empty if there are no bins.
    pub fn edges_ns(&self) -> &[u64] {
        &self.edges_ns
    }
}

/// For each location, whether it belongs to a module of the program.
fn of_program(session: &Session, process: &Process) -> Vec<bool> {
    let modules = Modules::new(&process.header);
    let names = session.names.iter();
    names.map(|at| modules.of_location(at).is_some()).collect()
}

fn add_lives(places: &mut [Place], number_of: &[usize], lives: &Lifetimes, n_bins: usize) {
    if lives.n_bins() == 0 {
        return;
    }
    let mut coarse = None;
    while coarse.as_ref().unwrap_or(lives).n_bins() > n_bins {
        coarse.get_or_insert_with(|| lives.clone()).halve();
    }
    for life in &coarse.as_ref().unwrap_or(lives).entries {
        let place = &mut places[number_of[life.site as usize]];
        let (birth, death) = (usize::from(life.birth), usize::from(life.death));
        if death < n_bins {
            place.released[death + 1] += life.bytes;
        }
        if birth < death {
            place.curve[birth + 1] += life.bytes;
            if death < n_bins {
                place.curve[death + 1] -= life.bytes;
            }
        }
    }
}

impl Place {
    pub fn finding(&self, session: &Session, what: FindingKind) -> Finding {
        let name = |id: Option<LocationId>| id.map(|id| session.names.get(id).clone());
        Finding {
            place: name(self.at),
            caller: name(self.caller),
            what,
        }
    }
}
