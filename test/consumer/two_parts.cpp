// Two translation units that include everything, in one program.

#include <iostream>

#include "seen.hpp"

int main() {
  std::cout << "replayed " << first_trains(nullptr) << ", guided " << second_trains() << '\n';
}
