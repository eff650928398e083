//! Names as people write them, from names as linkers have them.

/// A C++ or Rust name without its types and hashes; any other as it is.
pub fn readable(name: &str) -> String {
    // Suffixes that compilers give to parts and copies of functions: `.cold`, `.part.0`, `.isra.0`, `.constprop.0`.
    let base = name.split_once('.').map_or(name, |(base, _)| base);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(readable("PyList_Append"), "PyList_Append");
        assert_eq!(readable("list_resize.part.0"), "list_resize");
        assert_eq!(readable("_ZN5outer5innerEi"), "outer::inner");
        assert_eq!(
            readable("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(readable("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(readable("_Zbroken"), "_Zbroken");
        assert_eq!(readable(""), "");
    }
}
