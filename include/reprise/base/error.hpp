#pragma once
// Error is the one exception type of the whole library.
//
// A message says what was found, where (node id and name, field and offset), and what to do about
// it:
//
// ```cpp
// throw Error(Errc::bad_graph, "nodes: 12 (layer1.0.conv1/convolution): no value 99; "
//                              "every id in inputs must stand in values");
// ```
//
// A function that throws leaves nothing half done.

#include <stdexcept>
#include <string>
#include <string_view>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

/// The kind of error; the message has the details.
enum class Errc {
  bad_argument,        ///< a call's argument is out of its range
  bad_format,          ///< a file does not have the format that it claims
  bad_graph,           ///< a graph breaks a rule of the format
  bad_schedule,        ///< a schedule cannot be run, or its claims are wrong
  budget_unreachable,  ///< no schedule was found inside the budget
  capture_failed,      ///< a step cannot be recorded and replayed
  cancelled,           ///< the caller asked to stop
  recompute_failed,    ///< a checkpointed region cannot be recomputed as it was
  io,                  ///< a file could not be read or written
};

[[nodiscard]] constexpr std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::bad_argument: return "bad argument";
    case Errc::bad_format: return "bad format";
    case Errc::bad_graph: return "bad graph";
    case Errc::bad_schedule: return "bad schedule";
    case Errc::budget_unreachable: return "budget unreachable";
    case Errc::capture_failed: return "capture failed";
    case Errc::cancelled: return "cancelled";
    case Errc::recompute_failed: return "recompute failed";
    case Errc::io: return "input/output";
  }
  return "unknown";
}

class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

}  // namespace reprise::base

namespace reprise {
using base::Errc;
using base::Error;
using base::to_string;
}  // namespace reprise
