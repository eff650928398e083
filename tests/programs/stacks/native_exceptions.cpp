// Allocates during C++ exceptions: in a handler, and in a destructor that runs while the stack is unwound.
#include <cstdlib>
#include <stdexcept>

namespace store {

static void *volatile kept;

struct Guard {
    size_t size;
    __attribute__((noinline)) ~Guard() { kept = std::malloc(size); }
};

template <typename T> struct Box {
    __attribute__((noinline)) void fill(T size) {
        Guard guard{size};
        throw std::runtime_error("full");
    }
};

__attribute__((noinline)) void rescue(size_t size) {
    try {
        Box<size_t>().fill(size);
    } catch (const std::runtime_error &) {
        kept = std::malloc(size + 1);
    }
}

}  // namespace store

extern "C" void throw_and_catch(size_t size) {
    store::rescue(size);
    __asm__ volatile("" ::: "memory");
}
