// Objects that live as long as their thread, and allocate when they die.
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Dying {
    std::size_t size = 0;
    ~Dying()
    {
        std::free(std::malloc(size));
        // Kept from the compiler, which may leave out a new and its delete.
        char *volatile block = new char[size + 1];
        delete[] block;
    }
};

thread_local Dying dying;

} // namespace

extern "C" void die_in_threads(int n_threads, std::size_t size)
{
    std::vector<std::thread> threads;
    for (int at = 0; at < n_threads; at++) threads.emplace_back([size] { dying.size = size; });
    for (auto &thread : threads) thread.join();
}
