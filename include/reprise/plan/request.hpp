#pragma once
// What a planner is asked for.
//
//   PlanRequest request{.budget = 4_GiB};
//   request.keep_order = true;                  // first occurrences stay in the graph's own order
//   request.seed = 7;                           // same seed, same plan, whatever the load
//   request.seconds = 2;                        // a limit by the clock as well: then the load does matter

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string_view>
#include <vector>

#include <reprise/base/ids.hpp>
#include <reprise/base/units.hpp>

namespace reprise {

/// How far a strategy has come; given to PlanRequest::progress now and then.
struct PlanProgress {
  std::string_view strategy{};
  double share = 0;  ///< of the work that it was given
  Bytes peak{};
  Microseconds time{};
};

struct PlanRequest {
  Bytes budget{};
  bool keep_order = false;
  std::uint64_t seed = 1;
  unsigned threads = 1;
  double seconds = 0;              ///< by the clock; 0 for no such limit
  double effort = 1;               ///< of the default amount of work: 2 searches twice as long
  std::vector<NodeId> keep{};      ///< never to be recomputed
  std::vector<NodeId> recompute{};  ///< to be recomputed where that is possible inside the budget
  std::function<void(const PlanProgress&)> progress{};
  std::stop_token cancel{};        ///< asked often; the best so far comes back
};

/// When to stop: the clock or the caller's wish.
class StopSignal {
 public:
  explicit StopSignal(const PlanRequest& request)
      : cancel_(request.cancel), limited_(request.seconds > 0),
        until_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                      std::chrono::duration<double>(limited_ ? request.seconds : 0))) {}
  [[nodiscard]] bool operator()() const {
    return cancel_.stop_requested() || (limited_ && std::chrono::steady_clock::now() >= until_);
  }

 private:
  std::stop_token cancel_;
  bool limited_;
  std::chrono::steady_clock::time_point until_;
};

}  // namespace reprise
