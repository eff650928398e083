//! Finds the lines of a function in a source file by indentation, because a capture has only lines and names.

/// The first and the last line of a function, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Definition {
    pub first: u32,
    pub last: u32,
}

/// The definition of `function` that contains `line`, with its decorators.
pub fn enclosing(lines: &[Box<str>], function: &str, line: u32) -> Option<Definition> {
    let at = (line as usize).checked_sub(1)?;
    let mut starts = (0..=at.min(lines.len().checked_sub(1)?)).rev();
    let definition = starts.find(|&start| {
        defines(&lines[start], function) && (start == at || last_of(lines, start) >= at)
    });
    // The code of a decorated function begins at its first decorator, above the definition.
    let below = |start: usize| {
        let rest = lines.get(start..)?;
        let n = rest.iter().position(|line| !is_decorator(line))?;
        defines(&rest[n], function).then_some(start + n)
    };
    let definition = definition.or_else(|| below(at))?;
    let mut first = definition;
    while first > 0
        && is_decorator(&lines[first - 1])
        && indent(&lines[first - 1]) == indent(&lines[definition])
    {
        first -= 1;
    }
    Some(Definition {
        first: first as u32 + 1,
        last: last_of(lines, definition) as u32 + 1,
    })
}

fn is_decorator(line: &str) -> bool {
    line.trim_start().starts_with('@')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn defines(line: &str, function: &str) -> bool {
    let text = line.trim_start();
    let text = text.strip_prefix("async ").unwrap_or(text).trim_start();
    let Some(rest) = text.strip_prefix("def ") else {
        return false;
    };
    let rest = rest.trim_start().strip_prefix(function);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// The last line of the definition that begins at `start`, both counted from 0.
fn last_of(lines: &[Box<str>], start: usize) -> usize {
    let own = indent(&lines[start]);
    let mut depth = 0i32;
    let mut at = start;
    // The signature may span several lines, the last of which has the indentation of the first.
    while let Some(line) = lines.get(at) {
        let code = line.split('#').next().unwrap_or_default();
        depth += code.matches(['(', '[', '{']).count() as i32;
        depth -= code.matches([')', ']', '}']).count() as i32;
        if depth <= 0 {
            break;
        }
        at += 1;
    }
    let mut last = at.min(lines.len() - 1);
    for (number, line) in lines.iter().enumerate().skip(at + 1) {
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        if indent(line) <= own {
            if text.starts_with('#') {
                continue;
            }
            break;
        }
        last = number;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Box<str>> {
        text.lines().map(Box::from).collect()
    }

    const SOURCE: &str = "\
class A:
    @task(1)
    @profile
    def run(self):
        x = 1

        return x

    def other(self): pass
class B:
    def run(
        self,
    ) -> None:
# far left
        def inner():
            return 2
        return inner
end = 1
";

    #[test]
    fn function_spans_from_its_first_decorator_to_its_last_line() {
        let source = lines(SOURCE);
        let found = |function: &str, line| enclosing(&source, function, line);
        assert_eq!(found("run", 5), Some(Definition { first: 2, last: 7 }));
        assert_eq!(found("run", 2), Some(Definition { first: 2, last: 7 }));
        assert_eq!(
            found("run", 17),
            Some(Definition {
                first: 11,
                last: 17
            })
        );
        assert_eq!(
            found("inner", 16),
            Some(Definition {
                first: 15,
                last: 16
            })
        );
        assert_eq!(found("other", 9), Some(Definition { first: 9, last: 9 }));
        assert_eq!(found("runs", 5), None);
        assert_eq!(found("run", 18), None);
        assert_eq!(found("run", 99), None);
        assert_eq!(enclosing(&[], "run", 1), None);
    }
}
