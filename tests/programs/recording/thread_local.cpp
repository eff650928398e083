// Thread-local objects that allocate in their destructors.
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Allocating {
    std::size_t size = 0;
    ~Allocating()
    {
        std::free(std::malloc(size));
        // Volatile, or the compiler may remove a new with its delete.
        char *volatile block = new char[size + 1];
        delete[] block;
    }
};

thread_local Allocating allocating;

} // namespace

extern "C" void destroy_in_threads(int n_threads, std::size_t size)
{
    std::vector<std::thread> threads;
    for (int at = 0; at < n_threads; at++) threads.emplace_back([size] { allocating.size = size; });
    for (auto &thread : threads) thread.join();
}
