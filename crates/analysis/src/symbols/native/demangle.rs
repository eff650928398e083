//! Turns linker symbols into readable names.

/// A C++ or Rust name without types and hashes; other names are unchanged.
pub fn readable(name: &str) -> String {
    let base = without_suffix(name);
    if let Ok(rust) = rustc_demangle::try_demangle(base) {
        return format!("{rust:#}");
    }
    if base.starts_with("_Z") {
        let options = cpp_demangle::DemangleOptions::new()
            .no_params()
            .no_return_type();
        let symbol = cpp_demangle::Symbol::new(base.as_bytes()).ok();
        if let Some(text) = symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok()) {
            return text;
        }
    }
    if base.is_empty() { name } else { base }.to_owned()
}

/// Removes suffixes that compilers add for parts and copies of functions: `.cold`, `.part.0`, `.constprop.0`, `.llvm.123`.
fn without_suffix(name: &str) -> &str {
    let begin = end_of_rust_hash(name).unwrap_or(0);
    name[begin..]
        .find('.')
        .map_or(name, |dot| &name[..begin + dot])
}

/// Rust's legacy names use dots for the `::` of types, and end with a hash: `17h`, 16 digits, `E`.
fn end_of_rust_hash(name: &str) -> Option<usize> {
    let is_hash = |text: &[u8]| text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    name.match_indices("17h").find_map(|(at, mark)| {
        let (digits, end) = (at + mark.len(), at + mark.len() + 16);
        let is_hashed = name.as_bytes().get(digits..end).is_some_and(is_hash)
            && name.as_bytes().get(end) == Some(&b'E');
        is_hashed.then_some(end + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_as_in_the_source() {
        assert_eq!(readable("PyList_Append"), "PyList_Append");
        assert_eq!(readable("list_resize.part.0"), "list_resize");
        assert_eq!(readable("_ZN5outer5innerEi"), "outer::inner");
        assert_eq!(
            readable("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(readable("_RNvC6_123foo3bar"), "123foo::bar");
        let dotted = "_ZN41_$LT$rpds..Key$u20$as$u20$core..Clone$GT$5clone17h0123456789abcdefE";
        for suffix in ["", ".cold", ".llvm.3246992927193887725"] {
            assert_eq!(
                readable(&format!("{dotted}{suffix}")),
                "<rpds::Key as core::Clone>::clone"
            );
        }
        assert_eq!(readable("_Zbroken"), "_Zbroken");
        assert_eq!(readable(""), "");
    }
}
