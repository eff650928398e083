//! The objects that a command uses: those of a type, at addresses, unreachable ones, or all.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches};
use heaptide_analysis::heap::{By, Heap, ObjectSet, PLAIN_DICT, Partition};

use crate::exit::Failure;

pub(super) fn arguments() -> [Arg; 3] {
    [
        Arg::new("kind")
            .short('k')
            .long("type")
            .alias("kind")
            .value_name("TYPE")
            .help("objects of this type: Order, job.Order, str, \"dict of module\""),
        Arg::new("address")
            .short('a')
            .long("address")
            .value_name("ADDRESS")
            .action(ArgAction::Append)
            .conflicts_with("kind")
            .help("object at this address, as in id() and tables; repeatable"),
        Arg::new("unreachable")
            .long("unreachable")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["kind", "address"])
            .help("unreachable objects, which the garbage collector will free"),
    ]
}

/// Returns the selected objects, or all.
pub(super) fn objects(heap: &Heap, matches: &ArgMatches) -> Result<ObjectSet, Failure> {
    if let Some(kind) = matches.get_one::<String>("kind") {
        return of_kind(heap, kind);
    }
    if let Some(addresses) = matches.get_many::<String>("address") {
        return addresses.map(|text| at(heap, text)).collect();
    }
    if matches.get_flag("unreachable") {
        return Ok(heap.unreachable());
    }
    Ok(heap.all())
}

pub(super) fn is_given(matches: &ArgMatches) -> bool {
    matches.contains_id("kind") || matches.contains_id("address") || matches.get_flag("unreachable")
}

fn of_kind(heap: &Heap, kind: &str) -> Result<ObjectSet, Failure> {
    let main = kind_of_main(heap, kind);
    let dict = (kind == "dict").then_some(PLAIN_DICT);
    for name in [Some(kind), main.as_deref(), dict].into_iter().flatten() {
        let objects = heap.of_kind(name);
        if !objects.is_empty() {
            return Ok(objects);
        }
    }
    let rows = Partition::of(heap, &heap.all(), By::Kind).rows;
    let is_named = |label: &&str| {
        let name = label.rsplit_once('.').map(|(_, name)| name);
        name == Some(kind) && !label.starts_with("dict of ")
    };
    let labels = rows.iter().map(|row| row.label.as_str());
    let named: Vec<&str> = labels.filter(is_named).collect();
    match named.as_slice() {
        [] => {}
        [one] => return Ok(heap.of_kind(one)),
        several => {
            return Err(Failure::no_match(format!(
                "several types are named {kind}: use one of {}",
                several.join(", ")
            )));
        }
    }
    // Suggest types whose name contains the given one.
    let wanted = kind.to_lowercase();
    let near: Vec<&str> = rows
        .iter()
        .map(|row| row.label.as_str())
        .filter(|label| label.to_lowercase().contains(&wanted))
        .take(3)
        .collect();
    Err(Failure::no_match(if near.is_empty() {
        format!("no object is of the type {kind}: `heaptide heap show` lists the types")
    } else {
        format!(
            "no object is of the type {kind}: did you mean {}?",
            near.join(", ")
        )
    }))
}

/// Returns the kind of a class that a script defines, given the name that it would have in an import: for `job.py`,
/// `job.Order` is `__main__.Order`.
fn kind_of_main(heap: &Heap, kind: &str) -> Option<String> {
    let (module, name) = kind.split_once('.')?;
    let script = heap.snapshot.header.command.first()?;
    let stem = Path::new(script).file_stem()?;
    (stem == module).then(|| format!("__main__.{name}"))
}

fn at(heap: &Heap, text: &str) -> Result<u32, Failure> {
    let address = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let address = address.map_err(|_| {
        Failure::Usage(format!(
            "{text} is not an address: use the form of hex(id(object)) or id(object)"
        ))
    })?;
    heap.snapshot.objects.find(address).ok_or_else(|| {
        Failure::no_match(format!(
            "there is no object at {address:#x} in this snapshot: `heaptide heap show --by id` lists addresses"
        ))
    })
}
