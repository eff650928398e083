//! The rule for the step from a frame to its caller, for one address: a condensed form of the library's call-frame
//! information.
//!
//! Compilers describe for every instruction the caller's stack pointer (the *canonical frame address*) and the addresses of
//! saved registers. A walk needs the canonical frame address, as an offset from the stack or base pointer. It also needs
//! the return address right below it and the address of the saved base pointer. Information that needs more is rare, and
//! ends the walk.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Operation, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow,
};

use super::modules::Module;

/// Numbers of registers in call-frame information for x86-64.
const BASE_POINTER: Register = Register(6);
const STACK_POINTER: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// How to find the canonical frame address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum CallerRule {
    /// There is no usable information; perhaps the base pointer links the frames.
    #[default]
    Unknown = 0,
    /// An offset from the stack pointer.
    FromStack,
    /// An offset from the base pointer.
    FromBase,
    /// In memory at an offset from the base pointer: a function that aligned its stack.
    AtBase,
    /// The kernel called a signal handler: the registers are in a struct at the stack pointer.
    Signal,
    /// The outermost frame.
    End,
}

/// The rule for the step from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Rule {
    pub offset: i32,
    /// Offset of the caller's saved base pointer from the canonical frame address; [`Rule::NOT_SAVED`] if the register still
    /// holds it.
    pub base_offset: i32,
    pub caller: CallerRule,
}

impl Rule {
    pub const NOT_SAVED: i32 = i32::MIN;

    /// Whether the result of the step depends on the base pointer.
    #[inline(always)]
    pub fn uses_base(&self) -> bool {
        matches!(
            self.caller,
            CallerRule::FromBase | CallerRule::AtBase | CallerRule::Unknown
        )
    }

    fn of(caller: CallerRule) -> Rule {
        Rule {
            offset: 0,
            base_offset: Rule::NOT_SAVED,
            caller,
        }
    }
}

/// Storage for the information of one function, on the stack.
struct Small;

impl UnwindContextStorage<usize> for Small {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// The rule for an address in a module.
///
/// # Safety
/// The module stays loaded during the call.
pub unsafe fn rule_of(module: &Module, pc: usize) -> Rule {
    // SAFETY: the caller promises that the module stays loaded.
    unsafe { look_up(module, pc) }.unwrap_or(Rule::of(CallerRule::Unknown))
}

/// # Safety
/// As for [`rule_of`].
unsafe fn look_up(module: &Module, pc: usize) -> Option<Rule> {
    let index_len = module.index_end.checked_sub(module.index_at)?;
    if index_len == 0 {
        return None;
    }
    // SAFETY: a module with an index has it in one of its readable segments, and the module stays loaded.
    let index = unsafe { std::slice::from_raw_parts(module.index_at as *const u8, index_len) };
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(module.index_at as u64)
        .set_text(module.base as u64);
    let index = EhFrameHdr::new(index, NativeEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(section_at) = index.eh_frame_ptr() else {
        return None;
    };
    let section_at = usize::try_from(section_at).ok()?;
    let section_end = module.readable_end(section_at)?;
    // SAFETY: the range ends where the readable segment of the section ends, and the module stays loaded.
    let section =
        unsafe { std::slice::from_raw_parts(section_at as *const u8, section_end - section_at) };
    let section = EhFrame::new(section, NativeEndian);
    let bases = bases.set_eh_frame(section_at as u64);
    let table = index.table()?;
    let function = table
        .fde_for_address(&section, &bases, pc as u64, EhFrame::cie_from_offset)
        .ok()?;
    let mut context: UnwindContext<usize, Small> = UnwindContext::new_in();
    let row = function
        .unwind_info_for_address(&section, &bases, &mut context, pc as u64)
        .ok()?;
    if function.is_signal_trampoline() {
        return Some(Rule::of(CallerRule::Signal));
    }
    condense(&section, row)
}

/// Condenses a row of the information; `None` if a rule cannot express it.
fn condense(
    section: &EhFrame<EndianSlice<'_, NativeEndian>>,
    row: &UnwindTableRow<usize, Small>,
) -> Option<Rule> {
    match row.register(RETURN_ADDRESS) {
        // Only the outermost function, which has no caller, leaves it undefined.
        RegisterRule::Undefined => return Some(Rule::of(CallerRule::End)),
        // Right below the canonical frame address, where the call instruction pushed it.
        RegisterRule::Offset(-8) => {}
        _ => return None,
    }
    let base_offset = match row.register(BASE_POINTER) {
        RegisterRule::Undefined | RegisterRule::SameValue => Rule::NOT_SAVED,
        RegisterRule::Offset(offset) => i32::try_from(offset).ok()?,
        RegisterRule::Expression(expression) => {
            // A function that aligned its stack saves the base pointer at the address that the register now holds.
            let (register, offset, is_deref) = simple(section, &expression)?;
            if register != BASE_POINTER || offset != 0 || is_deref {
                return None;
            }
            return Some(Rule {
                caller: CallerRule::AtBase,
                offset: aligned_offset(section, row)?,
                // Unused: with `AtBase`, a step reads the saved pointer at the base pointer itself.
                base_offset: 0,
            });
        }
        _ => return None,
    };
    let (caller, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match *register {
            STACK_POINTER => (CallerRule::FromStack, *offset),
            BASE_POINTER => (CallerRule::FromBase, *offset),
            _ => return None,
        },
        CfaRule::Expression(_) => return None,
    };
    Some(Rule {
        caller,
        offset: i32::try_from(offset).ok()?,
        base_offset,
    })
}

/// The offset from the base pointer at which a function that aligned its stack keeps the canonical frame address.
fn aligned_offset(
    section: &EhFrame<EndianSlice<'_, NativeEndian>>,
    row: &UnwindTableRow<usize, Small>,
) -> Option<i32> {
    match row.cfa() {
        CfaRule::Expression(expression) => {
            let (register, offset, is_deref) = simple(section, expression)?;
            (register == BASE_POINTER && is_deref)
                .then(|| i32::try_from(offset).ok())
                .flatten()
        }
        CfaRule::RegisterAndOffset { .. } => None,
    }
}

/// Returns register and offset of an expression that is their sum, and whether the expression reads the word at that
/// address.
fn simple(
    section: &EhFrame<EndianSlice<'_, NativeEndian>>,
    expression: &UnwindExpression<usize>,
) -> Option<(Register, i64, bool)> {
    let encoding = gimli::Encoding {
        format: gimli::Format::Dwarf32,
        version: 4,
        address_size: 8,
    };
    let mut operations = expression.get(section).ok()?.operations(encoding);
    let Operation::RegisterOffset {
        register, offset, ..
    } = operations.next().ok()??
    else {
        return None;
    };
    match operations.next().ok()? {
        None => Some((register, offset, false)),
        Some(Operation::Deref { size: 8, .. }) if operations.next().ok()?.is_none() => {
            Some((register, offset, true))
        }
        Some(_) => None,
    }
}
