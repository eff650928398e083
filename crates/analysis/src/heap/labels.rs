//! Texts of references, written as Python expressions where possible.

use heaptide_capture::heap::{EdgeType, HeapSnapshot, Label, Root, RootCategory};

/// The text of a reference, to be appended to the text of its holder: `.name`, `['key']`, `[3]`, `->tp_subclasses`. The
/// text of an element of a set, `list(_)[3]`, must be joined with [`expression`].
pub fn reference(snapshot: &HeapSnapshot, label: Label) -> String {
    let number = label.number();
    let name = || snapshot.names.get(number);
    match label.edge_type() {
        EdgeType::Referent => format!("->[{number}]"),
        EdgeType::Attribute | EdgeType::Slot => format!(".{}", name()),
        EdgeType::Key => format!("[{}]", quoted(name())),
        EdgeType::NumberKey | EdgeType::Index => format!("[{number}]"),
        EdgeType::Item => format!(".values()[{number}]"),
        EdgeType::KeyOf => format!(".keys()[{number}]"),
        EdgeType::Element => format!("list(_)[{number}]"),
        EdgeType::Cell => ".cell_contents".to_owned(),
        EdgeType::Local => format!(".f_locals[{}]", quoted(name())),
        EdgeType::Stack => format!("->f_valuestack[{number}]"),
        EdgeType::Weak => "->weak".to_owned(),
        EdgeType::Internal => internal(name()),
        EdgeType::DictOf => ".__dict__".to_owned(),
        EdgeType::Type => ".__class__".to_owned(),
    }
}

/// Writes a named reference: `.name` if Python can access it as an attribute, `->name` if only C code can.
fn internal(name: &str) -> String {
    const PUBLIC: [&str; 8] = ["__", "co_", "f_", "gi_", "cr_", "ag_", "tb_", "cell_"];
    // These exist only in C, although their names have the form of attributes.
    const HIDDEN: [&str; 3] = ["f_valuestack", "f_executable", "co_extra"];
    let is_public = PUBLIC.iter().any(|prefix| name.starts_with(prefix));
    if is_public && !HIDDEN.iter().any(|hidden| name.starts_with(hidden)) {
        format!(".{name}")
    } else {
        format!("->{name}")
    }
}

/// The text of a root, the first part of a path.
pub fn root(snapshot: &HeapSnapshot, root: &Root) -> String {
    let name = snapshot.names.get(root.name);
    match root.category {
        RootCategory::Interpreter if name.is_empty() => "<interpreter>".to_owned(),
        RootCategory::Interpreter if name.contains('.') => name.to_owned(),
        RootCategory::Interpreter if name.contains(' ') => format!("<{name}>"),
        RootCategory::Interpreter => format!("<interpreter>.{name}"),
        RootCategory::Module => format!("sys.modules[{}]", quoted(name)),
        RootCategory::Type => format!("<type {name}>"),
        RootCategory::Frame => format!("<frame {name}>"),
        RootCategory::Thread => format!("<thread {name}>"),
        RootCategory::C => "<held by C code>".to_owned(),
    }
}

/// A text as Python's `repr` writes it.
pub fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other == quote => {
                out.push('\\');
                out.push(other);
            }
            control if control.is_control() && (control as u32) < 256 => {
                out.push_str(&format!("\\x{:02x}", control as u32));
            }
            control if control.is_control() => {
                out.push_str(&format!("\\u{:04x}", control as u32));
            }
            other => out.push(other),
        }
    }
    out.push(quote);
    out
}

/// The steps of a path as one expression. An element of a set is written as `list(SET)[i]`.
pub fn expression(steps: &[String]) -> String {
    const ELEMENT: &str = "list(_)";
    let n_elements = steps.iter().filter(|step| step.starts_with(ELEMENT));
    let mut text = "list(".repeat(n_elements.count());
    for step in steps {
        match step.strip_prefix(ELEMENT) {
            Some(index) => {
                text.push(')');
                text.push_str(index);
            }
            None => text.push_str(step),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_python_does() {
        assert_eq!(quoted("plain"), "'plain'");
        assert_eq!(quoted("it's"), "\"it's\"");
        assert_eq!(quoted("it's \"\\\n"), "'it\\'s \"\\\\\\n'");
        assert_eq!(quoted("\u{1}"), "'\\x01'");
    }

    #[test]
    fn reference_that_only_c_code_can_access_has_an_arrow() {
        assert_eq!(internal("co_code"), ".co_code");
        assert_eq!(internal("__doc__"), ".__doc__");
        assert_eq!(internal("tp_subclasses"), "->tp_subclasses");
    }

    #[test]
    fn element_of_a_set_is_written_as_an_index_into_its_list() {
        let steps = ["x", "list(_)[3]", ".y", "list(_)[4]"].map(str::to_owned);
        assert_eq!(expression(&steps), "list(list(x)[3].y)[4]");
    }
}
