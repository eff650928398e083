//! The well-known shapes of leaks, and their detection from the objects near an accumulation point.

use heaptide_capture::heap::{EdgeType, RootCategory};

use super::{Accumulation, Search, is_interned_table};

/// How unwanted objects are kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A container that a module, a class or an object refers to.
    Container,
    /// Variables of a function that outlives its call.
    Closure,
    /// A stored exception, with its frames and their variables.
    Traceback,
    /// The results of a cached function.
    LruCache,
    /// Unreachable objects that refer to each other, or objects in `gc.garbage`.
    Cycle,
    /// A variable of a function that is still running.
    Frame,
    /// Interned strings, which the interpreter keeps.
    Interned,
    /// A sequence of objects, each of which refers to the next, such as a linked list.
    Chain,
}

impl Shape {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Container => "container",
            Shape::Closure => "closure",
            Shape::Traceback => "traceback",
            Shape::LruCache => "lru_cache",
            Shape::Cycle => "cycle",
            Shape::Frame => "frame",
            Shape::Interned => "interned",
            Shape::Chain => "chain",
        }
    }
}

impl Search<'_> {
    /// The shape of an accumulation whose point has this path from a root.
    pub(super) fn shape(&self, accumulation: &Accumulation, path: &[u32]) -> Shape {
        if accumulation.point.is_none() || self.is_in_gc_garbage(path) {
            return Shape::Cycle;
        }
        if path
            .first()
            .is_some_and(|&root| is_interned_table(self.heap, root))
        {
            return Shape::Interned;
        }
        // The object nearest to the point determines the shape: first on the path towards the root, then among the items.
        let near = path
            .iter()
            .rev()
            .find_map(|&object| self.shape_of_holder(object));
        if let Some(shape) = near {
            return shape;
        }
        let mut below = self.piles(accumulation).into_iter();
        let held = below.next().and_then(|pile| {
            let kind = pile.kind.as_str();
            let example = accumulation.items.iter();
            let mut example = example.filter(|&&item| self.heap.kind(item) == kind);
            example.next().and_then(|&item| self.shape_of_item(item))
        });
        let is_frame = |object: &u32| self.heap.kind(*object) == "types.FrameType";
        let root = path.first().and_then(|&root| self.heap.root_of(root));
        let from_frame = root.is_some_and(|root| root.category == RootCategory::Frame);
        held.unwrap_or(if from_frame || path.iter().any(is_frame) {
            Shape::Frame
        } else if accumulation.is_chain {
            Shape::Chain
        } else {
            Shape::Container
        })
    }

    fn shape_of_holder(&self, object: u32) -> Option<Shape> {
        match self.heap.kind(object) {
            "types.TracebackType" => Some(Shape::Traceback),
            "types.CellType" => Some(Shape::Closure),
            "functools._lru_cache_wrapper" => Some(Shape::LruCache),
            _ => None,
        }
    }

    /// The shape that an accumulated item reveals: an exception has a traceback, a function has closure variables.
    fn shape_of_item(&self, item: u32) -> Option<Shape> {
        let refers_to = |kind: &str| {
            let mut targets = self.heap.graph.of(item).iter();
            targets.any(|&target| self.heap.kind(target) == kind)
        };
        if refers_to("types.TracebackType") {
            return Some(Shape::Traceback);
        }
        let edges = self.heap.snapshot.edges.of(item);
        let mut names = edges.filter(|(_, label)| label.edge_type() == EdgeType::Internal);
        let has_closure =
            names.any(|(_, label)| self.heap.snapshot.names.get(label.number()) == "__closure__");
        (has_closure || refers_to("types.CellType"))
            .then_some(Shape::Closure)
            .or_else(|| self.shape_of_holder(item))
    }

    fn is_in_gc_garbage(&self, path: &[u32]) -> bool {
        // The module, its dict and the list.
        let text = self.heap.path_text(&path[..path.len().min(3)]);
        text.starts_with("sys.modules['gc']") && text.contains("garbage")
    }
}
