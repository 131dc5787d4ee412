#pragma once
// A PlanRequest is what a planner is asked for: a budget, an effort and a time limit.
//
// ```cpp
// PlanRequest request{.budget = 4_GiB};
// request.keep_order = true;                  // first occurrences stay in the graph's own order
// request.seed = 7;                           // same seed, same plan, whatever the load
// request.seconds = 2;                        // a time limit as well: the result then depends on the machine
// ```
//
// The limit holds for one call of a planner, with everything that it calls. Planner::plan() starts
// the clock (started()), and every strategy, search and bound often asks the same StopSignal.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/base/ids.hpp>
#include <reprise/base/units.hpp>

namespace reprise::planning {

/// The progress of a strategy; passed to PlanRequest::progress from time to time.
struct PlanProgress {
  std::string_view strategy{};
  double share = 0;  ///< of its work
  Bytes peak{};
  Microseconds time{};
};

/// Seconds of processor time of this thread, so that other programs do not shorten a limit. Elapsed
/// time if the system does not report processor time.
[[nodiscard]] inline double thread_seconds() {
#ifdef __linux__
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct PlanRequest {
  Bytes budget{};
  bool keep_order = false;
  std::uint64_t seed = 1;
  unsigned threads = 1;
  double seconds = 0;          ///< of processor time, on each thread; 0: no limit
  double effort = 1;           ///< relative to the default amount of work: 2 searches twice as long
  std::vector<NodeId> keep{};  ///< never to be recomputed
  std::vector<NodeId> recompute{};  ///< to be recomputed if that is possible inside the budget
  std::function<void(const PlanProgress&)> progress{};
  std::stop_token cancel{};  ///< asked often; the planner returns the best plan so far
  std::function<double()> clock = thread_seconds;  ///< counts `seconds`
  double until = 0;  ///< the clock's value at the limit; set by started()
};

/// The same request with its clock started on this thread. All calls with this request end in time,
/// together. A started request stays as it is.
[[nodiscard]] inline PlanRequest started(PlanRequest request) {
  if (request.seconds > 0 && request.until <= 0) request.until = request.clock() + request.seconds;
  return request;
}
/// The same on another thread, which has its own processor time.
[[nodiscard]] inline PlanRequest started_anew(PlanRequest request) {
  request.until = 0;
  return started(std::move(request));
}
/// For a started request.
[[nodiscard]] inline double seconds_left(const PlanRequest& request) {
  return std::max(0., request.until - request.clock());
}
/// A part of the work, with a share of the remaining time.
[[nodiscard]] inline PlanRequest with_share(PlanRequest request, double share) {
  if (request.until > 0) request.until = request.clock() + share * seconds_left(request);
  return request;
}

/// Tells when to stop: the time is over, or the caller has cancelled.
class StopSignal {
 public:
  explicit StopSignal(const PlanRequest& request)
      : cancel_(request.cancel),
        clock_(request.clock),
        until_(request.until > 0 || request.seconds <= 0 ? request.until
                                                         : clock_() + request.seconds) {}
  [[nodiscard]] bool operator()() const {
    return cancel_.stop_requested() || (until_ > 0 && clock_() >= until_);
  }

 private:
  std::stop_token cancel_;
  std::function<double()> clock_;
  double until_;
};

}  // namespace reprise::planning

namespace reprise {
using planning::PlanProgress;
using planning::PlanRequest;
}  // namespace reprise
