#pragma once
// The version of the library; CMakeLists.txt reads the three numbers from here.
//
// ```cpp
// static_assert(reprise::version == reprise::Version{0, 1, 0});
// ```
//   #if REPRISE_VERSION_MAJOR == 0 && REPRISE_VERSION_MINOR < 2

#include <compare>

#include <reprise/base/rooms.hpp>

#define REPRISE_VERSION_MAJOR 0
#define REPRISE_VERSION_MINOR 1
#define REPRISE_VERSION_PATCH 0

namespace reprise::base {

struct Version {
  int major_number = 0;  ///< not `major`: <sys/types.h> may define a macro with that name
  int minor_number = 0;
  int patch_number = 0;

  constexpr auto operator<=>(const Version&) const = default;
};

inline constexpr Version version{REPRISE_VERSION_MAJOR, REPRISE_VERSION_MINOR,
                                 REPRISE_VERSION_PATCH};

}  // namespace reprise::base

namespace reprise {
using base::Version;
using base::version;
}  // namespace reprise
