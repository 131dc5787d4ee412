// A device's memory that cannot restore a spilled block is refused by one line that names what is
// missing.

#include "../support/reprise_test/device_archetype.hpp"

struct Mine : reprise_test::DeviceMemoryArchetype {
#ifdef REPRISE_MUST_NOT_COMPILE
  static bool restore(void*) = delete;
#endif
};

int main() { return reprise::devices::is_device_memory<Mine>() ? 0 : 1; }
