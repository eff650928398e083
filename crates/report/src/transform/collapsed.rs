//! Collapsed stacks: `main (job.py:3);load (job.py:7) 1024`, outermost frame first, then the bytes.

use std::io::{self, Write};

use heaptide_analysis::Measure;
use heaptide_analysis::model::{Location, StackModel};

use super::{NO_FRAMES, merged};

pub fn write(model: &StackModel, measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<String> = model.locations.iter().map(name).collect();
    for (stack, amount) in merged::stacks(model, measure) {
        // Blocks of size 0 would be frames without width.
        if amount.bytes == 0 {
            continue;
        }
        let mut frames: Vec<usize> = merged::frames(model, stack).collect();
        frames.reverse();
        for (depth, &frame) in frames.iter().enumerate() {
            let divider = if depth > 0 { ";" } else { "" };
            write!(out, "{divider}{}", names[frame])?;
        }
        if frames.is_empty() {
            out.write_all(NO_FRAMES.as_bytes())?;
        }
        writeln!(out, " {}", amount.bytes)?;
    }
    Ok(())
}

/// The format has no quoting, so separators of frames and lines are replaced.
fn name(at: &Location) -> String {
    let text = if at.line > 0 {
        format!("{} ({}:{})", at.function, at.file, at.line)
    } else {
        format!("{} ({})", at.function, at.file)
    };
    text.replace(';', ":")
        .replace(|character: char| character.is_control(), " ")
}
