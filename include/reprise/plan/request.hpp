#pragma once
// What a planner is asked for.
//
// ```cpp
// PlanRequest request{.budget = 4_GiB};
// request.keep_order = true;                  // first occurrences stay in the graph's own order
// request.seed = 7;                           // same seed, same plan, whatever the load
// request.seconds = 2;                        // a limit in time as well: then the machine matters
// ```
//
// The limit holds for one call of a planner, whatever that calls: Planner::plan() starts the clock
// (started()), and every strategy, search and bound below it asks the same StopSignal, often.

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
#include <reprise/graph/schedule.hpp>

namespace reprise::planning {

/// How far a strategy has come; given to PlanRequest::progress now and then.
struct PlanProgress {
  std::string_view strategy{};
  double share = 0;  ///< of the work that it was given
  Bytes peak{};
  Microseconds time{};
};

/// Seconds of processor time that this thread has had, so that what else runs on the machine takes
/// nothing off a limit; by the clock where the system does not tell.
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
  double seconds = 0;               ///< of processor time, on each thread; 0 for no such limit
  double effort = 1;                ///< of the default amount of work: 2 searches twice as long
  std::vector<NodeId> keep{};       ///< never to be recomputed
  std::vector<NodeId> recompute{};  ///< to be recomputed where that is possible inside the budget
  /// of this graph, to start a search from: what was found for another budget, or for other sizes
  std::vector<Schedule> starts{};
  std::function<void(const PlanProgress&)> progress{};
  std::stop_token cancel{};                        ///< asked often; the best so far comes back
  std::function<double()> clock = thread_seconds;  ///< that `seconds` are counted by
  double until = 0;  ///< what the clock says at the end; set by started()
};

/// The same request on this thread, with its clock started: what is called with it ends in time,
/// all together. One that has been started stays as it is.
[[nodiscard]] inline PlanRequest started(PlanRequest request) {
  if (request.seconds > 0 && request.until <= 0) request.until = request.clock() + request.seconds;
  return request;
}
/// The same on another thread, which has processor time of its own.
[[nodiscard]] inline PlanRequest started_anew(PlanRequest request) {
  request.until = 0;
  return started(std::move(request));
}
/// Of a request that has been started.
[[nodiscard]] inline double seconds_left(const PlanRequest& request) {
  return std::max(0., request.until - request.clock());
}
/// A part of what there is to do, with a share of the time that is left.
[[nodiscard]] inline PlanRequest with_share(PlanRequest request, double share) {
  if (request.until > 0) request.until = request.clock() + share * seconds_left(request);
  return request;
}

/// When to stop: the clock or the caller's wish.
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
