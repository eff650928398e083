//! The dominator tree cut to a readable size: the largest branches.

use super::graph::Graph;
use super::labels;
use super::view::Heap;
use heaptide_capture::heap::{EdgeType, NO_OBJECT};

/// A line of the tree: an object, or the sum of its parent's other children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// `None` for the sum of other children.
    pub object: Option<u32>,
    pub depth: u32,
    pub retained: u64,
    /// The number of branches in the sum.
    pub n_objects: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    pub depth: u32,
    /// Children shown for each object.
    pub width: usize,
    /// Branches that retain less than this share of the whole are summed up.
    pub min_share: f64,
}

/// Branches below an object, or below the top, the largest first.
pub fn branches(heap: &Heap, top: Option<u32>, limits: TreeLimits) -> Vec<Branch> {
    let children = heap.dominators().children();
    let retained = heap.retained();
    let whole = heap.snapshot.total_bytes();
    let least = (whole as f64 * limits.min_share) as u64;
    let mut branches = Vec::new();
    let n_objects = heap.n_objects() as u32;
    let mut open: Vec<Branch> = match top {
        Some(object) => vec![Branch {
            object: Some(object),
            depth: 0,
            retained: retained[object as usize],
            n_objects: 1,
        }],
        None => below(&children, retained, n_objects, 0, least, limits.width),
    };
    while let Some(branch) = open.pop() {
        if let Some(object) = branch.object {
            let depth = branch.depth + 1;
            if depth < limits.depth {
                open.extend(below(
                    &children,
                    retained,
                    object,
                    depth,
                    least,
                    limits.width,
                ));
            }
        }
        branches.push(branch);
    }
    branches
}

/// The children of an object, in reverse order of display.
fn below(
    children: &Graph,
    retained: &[u64],
    parent: u32,
    depth: u32,
    least: u64,
    width: usize,
) -> Vec<Branch> {
    let mut own: Vec<u32> = children.of(parent).to_vec();
    own.sort_by_key(|&child| (std::cmp::Reverse(retained[child as usize]), child));
    let n_shown = own
        .iter()
        .take(width)
        .take_while(|&&child| retained[child as usize] >= least.max(1))
        .count();
    let (shown, rest) = own.split_at(n_shown);
    let mut branches: Vec<Branch> = shown
        .iter()
        .map(|&object| Branch {
            object: Some(object),
            depth,
            retained: retained[object as usize],
            n_objects: 1,
        })
        .collect();
    let rest_bytes = rest
        .iter()
        .map(|&child| retained[child as usize])
        .fold(0, u64::saturating_add);
    if !rest.is_empty() {
        branches.push(Branch {
            object: None,
            depth,
            retained: rest_bytes,
            n_objects: rest.len() as u64,
        });
    }
    branches.reverse();
    branches
}

impl Heap {
    /// A description of an object: its kind, its name if it has one, and its dominator's reference to it.
    pub fn brief(&self, object: u32) -> String {
        let holder = self.dominators().immediate[object as usize];
        let via = if holder == super::dominators::TOP {
            self.root_of(object)
                .map(|root| labels::root(&self.snapshot, root))
        } else {
            self.references_between(holder, object).into_iter().next()
        };
        let what = format!("{} {}", self.kind(object), self.sample(object));
        match via {
            Some(via) => format!("{via}  {what}"),
            None => what,
        }
    }

    /// A text that distinguishes an object from others of its kind: a name, a value, or its address and length.
    pub fn sample(&self, object: u32) -> String {
        if let Some(name) = self.own_name(object) {
            return name;
        }
        if let Some(value) = self.snapshot.value_of(object) {
            return value.to_owned();
        }
        match self.n_items(object) {
            Some(n_items) => format!("{}*{n_items}", self.address(object)),
            None => self.address(object),
        }
    }

    /// The name of a module or a type, or of the owner of a dict.
    pub fn own_name(&self, object: u32) -> Option<String> {
        let owner = self.owners.get(object as usize).copied();
        match owner.filter(|&owner| owner != NO_OBJECT) {
            // Not a recursive call: in a damaged file a dict may be its own owner.
            Some(owner) => Some(self.name(owner).unwrap_or_else(|| self.address(owner))),
            None => self.name(object),
        }
    }

    /// The name of a module or a type.
    fn name(&self, object: u32) -> Option<String> {
        if let Some(name) = self.type_names().get(&object) {
            return Some(name.clone());
        }
        let one = self.snapshot.type_of(object);
        if one.module != "builtins" || one.name != "module" {
            return None;
        }
        let mut roots = self.snapshot.roots.iter();
        let root = roots.find(|root| {
            root.object == object && root.category == heaptide_capture::heap::RootCategory::Module
        })?;
        Some(self.snapshot.names.get(root.name).to_owned())
    }

    /// The number of an object's references of one type.
    pub fn n_references(&self, object: u32, edge_type: EdgeType) -> usize {
        let labels = self.snapshot.edges.labels_of(object).iter();
        labels
            .filter(|label| label.edge_type() == edge_type)
            .count()
    }
}
