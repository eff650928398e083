//! gprof2dot's JSON: functions, and for each stack its functions and bytes.

use std::io::{self, Write};
use std::rc::Rc;

use heaptide_analysis::Measure;
use heaptide_analysis::interner::Interner;
use heaptide_analysis::model::StackModel;
use serde_json::{Value, json};

use super::{NO_FRAMES, lines, merged};

pub fn write(model: &StackModel, measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let (of_location, functions) = functions(model);
    out.write_all(
        b"{\"version\":0,\"costs\":[{\"description\":\"Memory\",\"unit\":\"bytes\"}],\n\"events\":",
    )?;
    let stacks = merged::stacks(model, measure).into_iter();
    let events = stacks.map(|(stack, amount)| {
        let chain = merged::frames(model, stack).map(|frame| of_location[frame]);
        let mut chain: Vec<usize> = chain.collect();
        if chain.is_empty() {
            chain.push(functions.len());
        }
        json!({ "callchain": chain, "cost": [amount.bytes] })
    });
    lines::array(out, events)?;
    out.write_all(b",\n\"functions\":")?;
    let named = functions.iter().map(|(name, file)| function(name, file));
    lines::array(out, named.chain([function(NO_FRAMES, "")]))?;
    out.write_all(b"}\n")
}

fn function(name: &str, module: &str) -> Value {
    json!({ "name": name, "module": module })
}

/// Name and file.
type Function = (Rc<str>, Rc<str>);

/// The function of each location, and all functions.
fn functions(model: &StackModel) -> (Vec<usize>, Vec<Function>) {
    let mut functions = Interner::default();
    let locations = model.locations.iter();
    let of_location = locations.map(|at| (at.function.clone(), at.file.clone()));
    let of_location = of_location.map(|function| functions.number(function) as usize);
    (of_location.collect(), functions.values)
}
