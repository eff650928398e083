//! `parse`: the records.

use crate::{Folder, printed};

#[test]
fn every_record_is_a_line_in_the_order_of_events() {
    let folder = Folder::new();
    folder.capture(
        "job.tide",
        "alloc a 64 at main:3 > load:7
         time 1500; resident 7000; limit 9000
         alloc m 8192 mmap at main:4
         thread 2 pool
         free a
         thread 1
         unmap m+4096 4096
         refuse
         lost 3
         end 2000",
    );
    let text = printed(&folder.heaptide("parse job.tide"));
    let (header, rest) = text.split_once('\n').expect("lines");
    assert!(
        header.starts_with("HEADER magic=heaptide version=1 python_version=030c00f0 ")
            && header.contains(" pid=4711 "),
        "{header}"
    );
    let expected = "\
MEMORY_LIMIT memory=9000
LOST count=3 what=events that could not be written to the file
THREAD thread=1 tid=4711 time=0.000000 name=MainThread
THREAD thread=2 tid=4712 time=0.001500 name=pool
CODE_OBJECT code_id=1 function_name=main qualified_name=main filename=/srv/job/job.py firstlineno=1 linetable_size=800
CODE_OBJECT code_id=2 function_name=load qualified_name=load filename=/srv/job/job.py firstlineno=1 linetable_size=800
CONTEXT_SWITCH thread=1
FRAME_PUSH code_object_id=1 instruction_offset=2 location=main:/srv/job/job.py:3
FRAME_PUSH code_object_id=2 instruction_offset=6 location=load:/srv/job/job.py:7
ALLOCATION time=0.000000 thread=1 address=0x555500000000 size=64 allocator=malloc
MEMORY_RECORD time=0.001500 memory=7000
FRAME_POP count=2
FRAME_PUSH code_object_id=1 instruction_offset=3 location=main:/srv/job/job.py:4
ALLOCATION time=0.001500 thread=1 address=0x555500002000 size=8192 allocator=mmap
CONTEXT_SWITCH thread=2
FREE time=0.001500 thread=2 address=0x555500000000
CONTEXT_SWITCH thread=1
FREE_RANGE time=0.001500 thread=1 address=0x555500003000 size=4096
FREE_REFUSED time=0.001500 thread=1
TRAILER time=0.002000 n_events=5
";
    assert_eq!(rest, expected);
}
