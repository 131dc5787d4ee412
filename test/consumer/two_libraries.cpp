// Two shared libraries that include everything and hide their symbols; this program includes
// nothing. The first is linked, the second is loaded while the program runs. There must be one
// allocator and one recorder, and nothing may abort.

#include <dlfcn.h>

#include <iostream>

#include "seen.hpp"

namespace {
void* second = nullptr;

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(second, name));
}
bool second_would_train() { return find<bool()>("second_trains")(); }
}  // namespace

int main(int, char** argv) {
  const int before = first_trains(nullptr);
  second = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (second == nullptr) {
    std::cout << dlerror() << '\n';
    return 1;
  }
  const Seen a = first_sees(), b = find<Seen()>("second_sees")();
  const bool one = a.allocator == b.allocator && a.memory == b.memory && a.counted && b.counted;
  const bool guided = second_would_train();
  // its step is being recorded: the second library must know
  const int refused = first_trains(&second_would_train);
  std::cout << (one ? "one allocator" : "two allocators") << ", replayed " << before << " and "
            << refused << ", guided " << guided << '\n';
}
